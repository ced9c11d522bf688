"""Celery's side of the playground: what was deleted is removed for good."""

from __future__ import annotations

from config.celery import app
from playground.conversations import UNDO_SECONDS, purge


@app.task(name="playground.purge_deleted", ignore_result=True)
def purge_deleted() -> None:
    purge()


app.conf.beat_schedule |= {
    "purge-deleted": {
        "task": "playground.purge_deleted",
        "schedule": UNDO_SECONDS / 3,
        "options": {"expires": UNDO_SECONDS / 3},
    },
}
