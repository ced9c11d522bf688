"""Template context every page has."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def site(request: HttpRequest) -> dict[str, str]:
    oidc_name = settings.OIDC_NAME if settings.OIDC_SERVER_URL else ""
    return {"site_name": settings.SITE_NAME, "site_url": settings.SITE_URL, "oidc_name": oidc_name}
