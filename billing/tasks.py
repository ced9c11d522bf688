"""Celery's side of billing: the worker rates what waits, and whoever ships records says that some do."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import Any

from celery.schedules import crontab
from django.conf import settings
from django.utils import timezone
from kombu import Producer

from billing.day_sums import sum_days
from billing.models import Reconciliation
from billing.quota_notices import warn_teams
from billing.rating import rate_waiting
from billing.reconciliation import reconcile
from billing.retention import MIN_KEEP_DAYS, kept_from, prune
from billing.statement_mail import mail_statements
from config.celery import app

logger = logging.getLogger(__name__)
# A task gives way after so many batches: beat and other tasks share its worker.
MAX_BATCHES = 20
ANNOUNCE_SECONDS = 0.2
# More messages than this say nothing new; a worker that is down must not find a heap of them.
MAX_ANNOUNCED = 4
EXPIRES_SECONDS = 60
NIGHTLY = {"expires": 3_600}
RECONCILED = timedelta(days=35)
RECONCILE_APART = timedelta(hours=6)
# Differences whose text is kept for the admin; the log has them all.
MAX_NOTED = 100


@app.task(name="billing.rate_unrated", ignore_result=True)
def rate_unrated(max_batches: int = MAX_BATCHES) -> None:
    """Rate until nothing waits. Repeating it, or running it beside itself, is harmless."""
    if rate_waiting(max_batches=max_batches):
        kick_rating()


@app.task(name="billing.warn_of_quotas", ignore_result=True)
def warn_of_quotas() -> None:
    warn_teams(now=timezone.now())


@app.task(name="billing.mail_statements", ignore_result=True)
def mail_due_statements() -> None:
    mail_statements(now=timezone.now())


@app.task(name="billing.sum_days", ignore_result=True)
def sum_closed_days() -> None:
    sum_days(now=timezone.now())


@app.task(name="billing.reconcile", ignore_result=True)
def reconcile_recent() -> None:
    """Look for differences in the days that can still change; a second beat's message finds it done."""
    now = timezone.now()
    if Reconciliation.objects.filter(created_at__gte=now - RECONCILE_APART).exists():
        return
    found = [str(difference) for difference in reconcile(start=(now - RECONCILED).date())]
    for text in found:
        logger.error("The ledger does not add up: %s", text)
    seconds = (timezone.now() - now).total_seconds()
    Reconciliation.objects.create(
        created_at=now, seconds=seconds, differences=len(found), found="\n".join(found[:MAX_NOTED])
    )


@app.task(name="billing.prune", ignore_result=True)
def prune_request_log() -> None:
    if settings.REQUEST_LOG_DAYS > 0:
        count = prune(kept_from(max(settings.REQUEST_LOG_DAYS, MIN_KEEP_DAYS), now=timezone.now()))
        logger.info("%d old requests were removed from the log", count)


app.conf.beat_schedule |= {
    "warn-of-quotas": {"task": "billing.warn_of_quotas", "schedule": 30.0, "options": {"expires": 30}},
    "sum-days": {"task": "billing.sum_days", "schedule": 300.0, "options": {"expires": 300}},
    "mail-statements": {"task": "billing.mail_statements", "schedule": 900.0, "options": {"expires": 900}},
    "reconcile": {"task": "billing.reconcile", "schedule": crontab(hour="2", minute="17"), "options": NIGHTLY},
    "prune-request-log": {"task": "billing.prune", "schedule": crontab(hour="3", minute="17"), "options": NIGHTLY},
}


def kick_rating() -> None:
    """Say that records wait. Returns at once and never raises; beat's sweep finds what was not heard."""
    _announcer.kick()


class _Announcer:
    """A thread that sends at most one message every `ANNOUNCE_SECONDS`, whatever the broker does to it."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def kick(self) -> None:
        self._wanted.set()
        # A fork leaves the thread behind; then the child starts its own.
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="rating-announcer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        is_heard = True
        while self._wanted.wait():
            self._wanted.clear()
            try:
                with app.producer_or_acquire() as producer:
                    announce(producer)
            except Exception as error:  # noqa: BLE001 -- any broker, any failure: the sweep does without us
                if is_heard:
                    logger.warning("The broker does not take messages (%s); records wait for the sweep", error)
                is_heard = False
            else:
                is_heard = True
            time.sleep(ANNOUNCE_SECONDS)


def announce(producer: Producer) -> None:
    """Put one `rate_unrated` on the queue, unless enough of them lie there unread."""
    connection: Any = producer.connection
    # Without a number of tries, the first use of the channel would try for ever.
    connection.ensure_connection(max_retries=1)
    queue = connection.default_channel.queue_declare(queue=app.conf.task_default_queue)
    if queue.message_count < MAX_ANNOUNCED:
        rate_unrated.apply_async(producer=producer, retry=False, expires=EXPIRES_SECONDS)


_announcer = _Announcer()
