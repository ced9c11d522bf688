"""What a team's admin enters about a dedicated endpoint."""

from __future__ import annotations

import asyncio

import httpx
from asgiref.sync import async_to_sync
from django import forms
from django.conf import settings
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.models import DedicatedEndpoint
from gateway.reachable import AddressRefused, checked_addresses

RESOLVE_SECONDS = 5.0
PORTS = {"http": 80, "https": 443}


class EndpointForm(forms.ModelForm[DedicatedEndpoint]):
    api_key = forms.CharField(
        label=_("API key of the server"),
        required=False,
        max_length=500,
        strip=True,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_("Sent to the server with every request. Kept encrypted and never shown again."),
    )

    class Meta:
        model = DedicatedEndpoint
        fields = ["name", "slug", "base_url", "kind"]
        help_texts = {
            "slug": _("Clients call /spaces/<em>name</em>/v1/…"),
            "base_url": _("With the /v1 at its end, for example http://10.0.0.5:8000/v1"),
        }
        widgets = {
            "base_url": forms.URLInput(attrs={"placeholder": "http://10.0.0.5:8000/v1"}),
            "slug": forms.TextInput(attrs={"autocapitalize": "none", "spellcheck": "false"}),
        }

    def clean_api_key(self) -> str:
        key: str = self.cleaned_data["api_key"]
        if not key.isascii() or not key.isprintable() or " " in key:
            raise forms.ValidationError(gettext("A key consists of letters, digits and signs, without blanks."))
        return key

    def clean_base_url(self) -> str:
        text: str = self.cleaned_data["base_url"].strip().rstrip("/")
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL:
            url = httpx.URL("")
        is_plain = not (url.userinfo or url.query or url.fragment)
        if url.scheme not in PORTS or not url.host or not is_plain or not 0 < (url.port or 1) < 65_536:
            raise forms.ValidationError(
                gettext("Enter an http or https address without a user name, a query or a fragment.")
            )
        if _leads_here(url):
            raise forms.ValidationError(gettext("This is the gateway's own address."))
        try:
            async_to_sync(_check)(url.host, url.port or PORTS[url.scheme])
        except AddressRefused as refused:
            raise forms.ValidationError(
                gettext("No endpoint may stand at %(address)s.") % {"address": refused.address}
            ) from None
        except (OSError, UnicodeError):
            raise forms.ValidationError(gettext("This host name is not known.")) from None
        return text


def _leads_here(url: httpx.URL) -> bool:
    site = httpx.URL(settings.SITE_URL)
    return (url.host, url.port or PORTS[url.scheme]) == (site.host, site.port or PORTS.get(site.scheme, 0))


async def _check(host: str, port: int) -> None:
    async with asyncio.timeout(RESOLVE_SECONDS):
        await checked_addresses(host, port, allowed=settings.DEDICATED_ALLOW)
