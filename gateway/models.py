"""What teams bring along themselves: their own model servers."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import Team
from accounts.sealing import seal, unseal
from gateway.upstreams import Kind

# Short enough that "spaces/" and a slug fit the endpoint's column of a usage record.
MAX_SLUG = 24


class EndpointKind(models.TextChoices):
    VLLM = Kind.VLLM.value, "vLLM"
    SGLANG = Kind.SGLANG.value, "SGLang"
    OPENAI = Kind.OPENAI.value, _("Other OpenAI-compatible server")


class EndpointQuerySet(models.QuerySet["DedicatedEndpoint"]):
    def enabled(self) -> Self:
        return self.filter(disabled_at=None)


class DedicatedEndpoint(models.Model):
    """A team's own server, reached as `/spaces/{slug}/v1/…`. Its key is kept sealed and never shown again."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="dedicated_endpoints")
    # Part of the URL, and known to clients: unique over all teams.
    slug = models.CharField(
        _("name in the URL"),
        max_length=MAX_SLUG,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\Z", _("Lower-case letters, digits and single hyphens in between.")
            )
        ],
    )
    name = models.CharField(_("name"), max_length=120)
    base_url = models.CharField(_("address"), max_length=500)
    kind = models.CharField(_("kind"), max_length=8, choices=EndpointKind, default=EndpointKind.VLLM)
    sealed_api_key = models.TextField(blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    disabled_at = models.DateTimeField(_("disabled"), null=True, blank=True)

    objects = EndpointQuerySet.as_manager()

    class Meta:
        verbose_name = _("dedicated endpoint")
        verbose_name_plural = _("dedicated endpoints")
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        return f"/spaces/{self.slug}/v1"

    @property
    def url_selector(self) -> str:
        """Where its page shows the URL, for the button that copies it."""
        return f"#endpoint-url-{self.slug}"

    @property
    def api_key(self) -> str:
        """Raises accounts.sealing.Unreadable."""
        return unseal(self.sealed_api_key)

    @api_key.setter
    def api_key(self, value: str) -> None:
        self.sealed_api_key = seal(value)
