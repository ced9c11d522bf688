"""An OpenID Connect provider from the environment, in allauth's form."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from config.env import EnvError


def oidc_provider(server_url: str, *, client_id: str, secret: str, name: str) -> dict[str, Any]:
    """`SOCIALACCOUNT_PROVIDERS`; empty without a server."""
    if not server_url:
        return {}
    if not urlsplit(server_url).hostname:
        raise EnvError("OIDC_SERVER_URL takes an address with its scheme, such as https://login.example.com")
    if not client_id:
        raise EnvError("OIDC_SERVER_URL needs OIDC_CLIENT_ID beside it")
    app = {
        "provider_id": "oidc",
        "name": name,
        "client_id": client_id,
        "secret": secret,
        "settings": {"server_url": server_url.rstrip("/")},
    }
    return {"openid_connect": {"APPS": [app], "OAUTH_PKCE_ENABLED": True}}


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
