from django.urls import path

from billing import export_views, request_views, staff_views, statement_views, views

app_name = "billing"
urlpatterns = [
    path("staff/", staff_views.staff, name="staff"),
    path("usage/", views.usage, name="usage"),
    path("usage/export.csv", export_views.export_csv, name="export_csv"),
    path("usage/export.json", export_views.export_json, name="export_json"),
    path("usage/statements/", statement_views.statements, name="statements"),
    path("usage/statements/readers/", statement_views.statement_readers, name="statement_readers"),
    path("usage/statements/<str:month>/", statement_views.statement, name="statement"),
    path("usage/requests/", request_views.request_log, name="requests"),
    path("usage/requests/export.csv", export_views.export_requests, name="export_requests"),
    path("usage/requests/<uuid:record_id>/", request_views.request_detail, name="request"),
]
