from django.urls import path

from billing import views

app_name = "billing"
urlpatterns = [
    path("usage/", views.usage, name="usage"),
    path("usage/export.csv", views.export, name="export"),
    path("usage/requests/", views.request_log, name="requests"),
    path("usage/requests/<uuid:record_id>/", views.request_detail, name="request"),
]
