"""Sums that reports are quick by: written when a day or month is over, out of the rollups, which stay the truth.

Imported by `billing.models`, which Django looks into for an app's models.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from accounts.models import Team
from billing.models import Source, Sums


class Level(models.IntegerChoices):
    """What one row of `Summary` still tells apart, over which stretch of time.

    `MODEL` rows tell apart model, endpoint and source, `TEAM` rows nothing; `CELL` rows tell apart all that rollups do.
    Days of all cells are `DayRollup`.
    """

    MODEL_QUARTER = 1
    MODEL_DAY = 2
    KEY_DAY = 3
    MEMBER_DAY = 4
    MODEL_MONTH = 5
    KEY_MONTH = 6
    MEMBER_MONTH = 7
    CELL_MONTH = 8
    TEAM_QUARTER = 9
    TEAM_DAY = 10


class Summary(Sums):
    """Rollups added up to a coarser level. What a level does not tell apart is 0 or empty.

    A row counts only while the `SummedDay` or `SummedMonth` that it lies in says so.
    """

    level = models.PositiveSmallIntegerField(choices=Level)
    starts_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["team_id", "level", "starts_at"], name="summary_by_time"),
            models.Index(fields=["team_id", "level", "key_id", "starts_at"], name="summary_by_key"),
            models.Index(fields=["team_id", "level", "member_id", "starts_at"], name="summary_by_member"),
            # Of all keys' months those of one model.
            models.Index(
                fields=["team_id", "model", "starts_at"],
                name="cell_months_by_model",
                condition=models.Q(level=Level.CELL_MONTH),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d %H:%M} {Level(self.level).name}"


class SummedMonth(models.Model):
    """A month of a team's zone whose days are summed to one; stale, or one of its days is, it does not count."""

    team_id = models.BigIntegerField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    is_stale = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team_id", "starts_at"], name="one_sum_per_month")]

    def __str__(self) -> str:
        return f"{self.team_id} {self.starts_at:%Y-%m-%d %H:%M}"


class LatencySpan(models.IntegerChoices):
    QUARTER = 1
    DAY = 2
    MONTH = 3


class LatencyCount(models.Model):
    """How many answers took about so long: one step of a scale of durations (`billing.latency`).

    Quarter hours are added to while rating; days and months are summed when they are over, as `Summary` is.
    """

    team_id = models.BigIntegerField()
    span = models.PositiveSmallIntegerField(choices=LatencySpan)
    starts_at = models.DateTimeField()
    model = models.CharField(max_length=200)
    endpoint = models.CharField(max_length=32)
    source = models.CharField(max_length=12, choices=Source)
    step = models.PositiveSmallIntegerField()
    first_tokens = models.BigIntegerField(default=0)
    answers = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team_id", "span", "starts_at", "model", "endpoint", "source", "step"],
                name="one_latency_count_per_step",
            )
        ]

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d %H:%M} {self.model} {self.step}"


class StatementReader(models.Model):
    """A member who is sent each month's statement of the team, in the language it was asked for."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="statement_readers")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    language = models.CharField(max_length=12)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_statement_a_reader")]

    def __str__(self) -> str:
        return f"{self.user_id} of {self.team_id}"


class StatementMail(models.Model):
    """A statement that was sent, so that nobody gets it twice."""

    team_id = models.BigIntegerField()
    user_id = models.BigIntegerField()
    month = models.DateField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team_id", "user_id", "month"], name="one_mail_a_statement")]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m} {self.team_id} {self.user_id}"
