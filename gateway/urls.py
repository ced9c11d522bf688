from django.urls import path

from gateway import endpoint_views, staff_views

app_name = "gateway"
urlpatterns = [
    path("team/endpoints/", endpoint_views.endpoints, name="endpoints"),
    path("team/endpoints/new/", endpoint_views.add, name="add_endpoint"),
    path("team/endpoints/<int:endpoint_id>/test/", endpoint_views.test, name="test_endpoint"),
    path("team/endpoints/<int:endpoint_id>/switch/", endpoint_views.switch, name="switch_endpoint"),
    path("team/endpoints/<int:endpoint_id>/delete/", endpoint_views.delete, name="delete_endpoint"),
    path("staff/upstreams/", staff_views.upstreams, name="upstreams"),
]
