"""Celery: Redis as broker at scale, a folder of message files when everything runs on one machine."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

from celery import Celery
from celery.signals import beat_embedded_init
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Of Linux's prctl(2): the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1
TRANSPORT_ALIASES["folder"] = "config.broker:Transport"
app = Celery("token_factory")


def configure() -> None:
    from django.conf import settings

    app.conf.update(
        broker_url=settings.CELERY_BROKER_URL,
        broker_connection_retry_on_startup=True,
        # A publisher must never wait for a broker that is gone: the sweep finds what was not announced.
        broker_connection_timeout=1,
        task_publish_retry=False,
        task_ignore_result=True,
        task_acks_late=True,
        # Unlimited: a message whose acknowledgement was lost holds one of a limited number of places until the
        # connection is renewed; a worker without a place takes nothing. The solo pool takes the next when it is done.
        worker_prefetch_multiplier=0,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_pool="solo",
        timezone="UTC",
        # Kept in memory: a file of when what was sent last is damaged by a kill and locked by a second beat.
        beat_scheduler="celery.beat:Scheduler",
        beat_schedule={
            "rate-unrated-records": {"task": "billing.rate_unrated", "schedule": 5.0, "options": {"expires": 5}},
        },
    )
    if settings.REDIS_URL:
        app.conf.broker_transport_options = {
            "socket_timeout": 1,
            "socket_connect_timeout": 1,
            "visibility_timeout": 3600,
        }
        return
    folder = settings.DATA_DIR / "broker"
    (folder / "control").mkdir(parents=True, exist_ok=True)
    (folder / "messages").mkdir(exist_ok=True)
    app.conf.broker_transport_options = {
        "data_folder_in": str(folder / "messages"),
        "data_folder_out": str(folder / "messages"),
        "control_folder": str(folder / "control"),
        "polling_interval": 0.1,
    }


@beat_embedded_init.connect
def end_with_the_worker(**_: Any) -> None:
    """A worker's own beat would outlive it when it is killed; only Linux can be asked to end it then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


configure()
app.autodiscover_tasks(["billing", "playground"])
