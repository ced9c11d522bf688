from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from accounts.access import public


@public
def healthz(request: HttpRequest) -> HttpResponse:
    """The process is alive; says nothing of what it depends on."""
    return HttpResponse("ok", content_type="text/plain")


urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
    path("", include("accounts.urls")),
    path("", include("billing.urls")),
    path("", include("gateway.urls")),
    path("", include("playground.urls")),
]
