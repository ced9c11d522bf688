"""How much: the rate card, what each request used, what it cost, and sums for the reports.

Amounts are whole picopoints (`_ppt`, 1 point = 10¹² ppt). Rows that carry money are only ever added.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.pricing import RateError, price_ppt


class Meter(models.TextChoices):
    INPUT = "input", _("Input tokens")
    CACHE_READ = "cache_read", _("Cache-read tokens")
    OUTPUT = "output", _("Output tokens")
    PAGE = "page", _("Pages")
    CHARACTER = "character", _("Characters")


class Source(models.TextChoices):
    API = "api", _("API")
    PLAYGROUND = "playground", _("Playground")
    DEDICATED = "dedicated", _("Dedicated endpoint")


class Outcome(models.TextChoices):
    """How a request ended. It says nothing of the price: whatever a 2xx answer delivered is charged."""

    OK = "ok", _("Completed")
    ERROR = "error", _("Failed")
    CLIENT_GONE = "client_gone", _("Client left")
    STOPPED = "stopped", _("Stopped")
    INTERRUPTED = "interrupted", _("Interrupted")


class RateQuerySet(models.QuerySet["Rate"]):
    def in_force(self, at: datetime) -> Self:
        """The one row for each model and meter that counts at a moment."""
        newer = Rate.objects.filter(
            model=models.OuterRef("model"),
            meter=models.OuterRef("meter"),
            effective_from__gt=models.OuterRef("effective_from"),
            effective_from__lte=at,
        )
        return self.filter(effective_from__lte=at).exclude(models.Exists(newer))


class Rate(models.Model):
    """What one model's meter costs from a moment on: points per million units, or per page.

    History is only added to: a row in force is neither changed nor removed. Once a meter has a rate, one that begins
    in the past must be meant to (`may_be_dated_back`).
    """

    model = models.CharField(_("model"), max_length=200)
    meter = models.CharField(_("meter"), max_length=12, choices=Meter)
    rate = models.DecimalField(
        _("rate"), max_digits=15, decimal_places=9, help_text=_("Points per million units; per page for pages.")
    )
    effective_from = models.DateTimeField(_("effective from"))
    created_at = models.DateTimeField(_("entered at"), auto_now_add=True)
    created_by = models.CharField(_("entered by"), max_length=254, blank=True, editable=False)

    objects = RateQuerySet.as_manager()
    # Somebody says that an earlier rate was wrong: what was charged by it stays until it is repriced.
    may_be_dated_back = False

    class Meta:
        verbose_name = _("rate")
        verbose_name_plural = _("rates")
        constraints = [
            models.UniqueConstraint(fields=["model", "meter", "effective_from"], name="one_rate_per_moment"),
            models.CheckConstraint(condition=models.Q(rate__gte=0), name="rate_not_negative"),
        ]
        ordering = ["model", "meter", "-effective_from"]

    def __str__(self) -> str:
        return f"{self.model} {self.meter} {self.rate}"

    def save(self, **options: Any) -> None:
        if self.is_effective:
            raise ValidationError(_("This rate is in force; enter a new one with a later date instead."))
        super().save(**options)

    def delete(self, using: Any = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        if self.is_effective:
            raise ValidationError(_("A rate that was charged is kept."))
        return super().delete(using, keep_parents)

    def clean(self) -> None:
        if self.rate is not None:
            try:
                price_ppt(self.rate, meter=self.meter)
            except RateError as error:
                raise ValidationError({"rate": str(error)}) from error
        if self.is_effective:
            raise ValidationError(_("This rate is in force; enter a new one with a later date instead."))
        is_past = self.effective_from is not None and self.effective_from < timezone.now()
        if is_past and not self.may_be_dated_back and self._has_history():
            raise ValidationError(
                {"effective_from": _("This meter has a rate already: a new one begins now or later.")}
            )

    @property
    def is_effective(self) -> bool:
        return self.pk is not None and Rate.objects.filter(pk=self.pk, effective_from__lte=timezone.now()).exists()

    def _has_history(self) -> bool:
        earlier = Rate.objects.filter(model=self.model, meter=self.meter, effective_from__lte=timezone.now())
        return earlier.exclude(pk=self.pk).exists()


class UsageRecordQuerySet(models.QuerySet["UsageRecord"]):
    def answered(self) -> Self:
        """Requests that are charged: answered with 2xx by one of the site's models, however the answer ended."""
        return self.filter(status__gte=200, status__lt=300).exclude(source=Source.DEDICATED)


class UsageRecord(models.Model):
    """One request, finished. Its id is the request id the client saw.

    Teams, keys and people are plain numbers here: a record must be accepted whatever has
    become of them since, and it outlives them. 0 means none (a chat has no key).
    """

    id = models.UUIDField(primary_key=True)
    team_id = models.BigIntegerField()
    key_id = models.BigIntegerField(default=0)
    member_id = models.BigIntegerField(default=0)
    model = models.CharField(max_length=200)
    endpoint = models.CharField(max_length=32)
    source = models.CharField(max_length=12, choices=Source)
    upstream = models.CharField(max_length=120, blank=True)
    upstream_id = models.CharField(max_length=200, blank=True)
    status = models.PositiveSmallIntegerField()
    outcome = models.CharField(max_length=12, choices=Outcome)
    error_code = models.CharField(max_length=64, blank=True)
    stream = models.BooleanField(default=False)
    finish_reason = models.CharField(max_length=32, blank=True)
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    image_tokens = models.BigIntegerField(default=0)
    pages = models.BigIntegerField(default=0)
    characters = models.BigIntegerField(default=0)
    usage = models.JSONField(null=True)
    estimated = models.BooleanField(default=False)
    bytes_out = models.BigIntegerField(default=0)
    started_at = models.DateTimeField()
    first_byte_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField()
    rated_at = models.DateTimeField(null=True)
    unpriced = models.BooleanField(default=False)

    objects = UsageRecordQuerySet.as_manager()

    class Meta:
        indexes = [
            # The raters' queue, oldest first: it holds only what waits.
            models.Index(fields=["started_at"], name="unrated_records", condition=models.Q(rated_at=None)),
            # What a team's quota has to add to its rollups.
            models.Index(fields=["team_id", "started_at"], name="unrated_of_team", condition=models.Q(rated_at=None)),
            models.Index(fields=["team_id", "-started_at", "-id"], name="team_request_log"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class Charge(models.Model):
    """What one meter of one record cost, with the price it was charged at."""

    # One charge a meter: what makes a second rating of the same record impossible.
    pk = models.CompositePrimaryKey("record_id", "meter")
    # Outlives its record; the primary key is its index.
    record = models.ForeignKey(
        UsageRecord, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="charges"
    )
    meter = models.CharField(max_length=12, choices=Meter)
    units = models.BigIntegerField()
    price_ppt = models.BigIntegerField()
    amount_ppt = models.BigIntegerField()
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = _("charge")

    def __str__(self) -> str:
        return f"{self.record_id} {self.meter} {self.amount_ppt}"


class Sums(models.Model):
    """What a stretch of time came to for one combination of who and what.

    A column a meter keeps it to one row where a row a meter would be five: half the cost of rating,
    a fifth of what a report reads.
    """

    team_id = models.BigIntegerField()
    key_id = models.BigIntegerField(default=0)
    member_id = models.BigIntegerField(default=0)
    model = models.CharField(max_length=200)
    endpoint = models.CharField(max_length=32)
    source = models.CharField(max_length=12, choices=Source)
    requests = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)
    input_units = models.BigIntegerField(default=0)
    cache_read_units = models.BigIntegerField(default=0)
    output_units = models.BigIntegerField(default=0)
    page_units = models.BigIntegerField(default=0)
    character_units = models.BigIntegerField(default=0)
    amount_ppt = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


class Rollup(Sums):
    """Sums of one quarter hour (UTC, by the request's start)."""

    quarter_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team_id", "quarter_at", "key_id", "member_id", "model", "endpoint", "source"],
                name="one_rollup_per_cell",
            )
        ]
        indexes = [
            # Few keys or members of a team that has many, over a long time.
            models.Index(fields=["team_id", "key_id", "quarter_at"], name="rollup_by_key"),
            models.Index(fields=["team_id", "member_id", "quarter_at"], name="rollup_by_member"),
        ]

    def __str__(self) -> str:
        return f"{self.quarter_at:%Y-%m-%d %H:%M} {self.model}"


class DayRollup(Sums):
    """The rollups of one day of a team's zone, summed once more; counts only while its `SummedDay` says so."""

    day_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team_id", "day_at", "key_id", "member_id", "model", "endpoint", "source"],
                name="one_day_rollup_per_cell",
            )
        ]
        indexes = [
            models.Index(fields=["team_id", "key_id", "day_at"], name="day_rollup_by_key"),
            models.Index(fields=["team_id", "member_id", "day_at"], name="day_rollup_by_member"),
        ]

    def __str__(self) -> str:
        return f"{self.day_at:%Y-%m-%d %H:%M} {self.model}"


class SummedDay(models.Model):
    """A day that `DayRollup` has, by its moments; stale once anything was added to its quarter hours since."""

    team_id = models.BigIntegerField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    is_stale = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team_id", "starts_at"], name="one_sum_per_day")]

    def __str__(self) -> str:
        return f"{self.team_id} {self.starts_at:%Y-%m-%d %H:%M}"


class Repricing(models.Model):
    """One run of `reprice`: who had which requests charged anew, when and why."""

    start_at = models.DateTimeField(_("from"))
    end_at = models.DateTimeField(_("to"))
    model = models.CharField(_("model"), max_length=200, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)
    created_at = models.DateTimeField(_("booked"), default=timezone.now)
    created_by = models.CharField(_("by"), max_length=254)

    class Meta:
        verbose_name = _("repricing")
        verbose_name_plural = _("repricings")

    def __str__(self) -> str:
        return f"{self.start_at:%Y-%m-%d %H:%M} – {self.end_at:%Y-%m-%d %H:%M} {self.model}".rstrip()


class Correction(models.Model):
    """What a repricing made of one meter of one record: what it comes to now, and the difference to before.

    The charge itself stays as it was made. A record's amount is its charges plus the differences of its corrections.
    """

    pk = models.CompositePrimaryKey("record_id", "meter", "repricing_id")
    record = models.ForeignKey(
        UsageRecord, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="corrections"
    )
    meter = models.CharField(max_length=12, choices=Meter)
    repricing = models.ForeignKey(Repricing, on_delete=models.PROTECT, related_name="corrections")
    units = models.BigIntegerField()
    price_ppt = models.BigIntegerField()
    units_delta = models.BigIntegerField()
    amount_delta_ppt = models.BigIntegerField()

    class Meta:
        verbose_name = _("correction")
        verbose_name_plural = _("corrections")

    def __str__(self) -> str:
        return f"{self.record_id} {self.meter} {self.amount_delta_ppt:+}"


class SetAside(models.Model):
    """A record that could not be rated: counted as a request, charged nothing, waiting for a person."""

    record_id = models.UUIDField(_("request"), primary_key=True)
    reason = models.CharField(_("reason"), max_length=500)
    created_at = models.DateTimeField(_("set aside"), default=timezone.now)

    class Meta:
        verbose_name = _("record set aside")
        verbose_name_plural = _("records set aside")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return str(self.record_id)


class PrunedDay(models.Model):
    """What the removed records of a team's UTC day came to: the day's records, those left and these, still add up."""

    team_id = models.BigIntegerField()
    day = models.DateField()
    requests = models.BigIntegerField(default=0)
    amount_ppt = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team_id", "day"], name="one_pruned_day_per_team")]

    def __str__(self) -> str:
        return f"{self.day} {self.team_id}"


class QuotaNotice(models.Model):
    """A warning that was given, so that nobody gets it twice: at `level` per cent of a period's points."""

    team_id = models.BigIntegerField()
    period_start_at = models.DateTimeField()
    level = models.PositiveSmallIntegerField()
    limit_ppt = models.BigIntegerField()
    used_ppt = models.BigIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            # A limit that was raised is warned of anew.
            models.UniqueConstraint(
                fields=["team_id", "period_start_at", "level", "limit_ppt"], name="one_notice_per_level"
            )
        ]

    def __str__(self) -> str:
        return f"{self.team_id} {self.level} %"


class Reconciliation(models.Model):
    """What a nightly comparison of the ledger found."""

    created_at = models.DateTimeField(_("begun"), default=timezone.now)
    seconds = models.FloatField(_("seconds"))
    differences = models.PositiveIntegerField(_("differences"))
    found = models.TextField(_("found"), blank=True)

    class Meta:
        verbose_name = _("reconciliation")
        verbose_name_plural = _("reconciliations")
        ordering = ["-created_at"]
        get_latest_by = "created_at"

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M}: {self.differences}"


# Django looks for an app's models here.
import billing.report_models  # noqa: E402, F401 -- below what it is built on
