from django.contrib import admin
from django.urls import include, path

from config.health import metrics, readyz

urlpatterns = [
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    # Before allauth's: one of its addresses is wrapped.
    path("", include("accounts.urls")),
    path("accounts/", include("allauth.urls")),
    path("", include("billing.urls")),
    path("", include("gateway.urls")),
    path("", include("playground.urls")),
]

handler400 = "config.error_pages.bad_request"
handler403 = "config.error_pages.permission_denied"
handler404 = "config.error_pages.page_not_found"
handler500 = "config.error_pages.server_error"
