"""A worker as the settings make it, on a real Redis."""

from __future__ import annotations

import os
from pathlib import Path

import celery
from redis import Redis

from tests.forked import parent
from tests.services import redis_server, wait_until

# The first task has its broker stand still for longer than an acknowledgement waits.
WORKER = """
import os, signal, threading
from pathlib import Path
from config.celery import app

@app.task(name="stop_redis")
def stop_redis(pid):
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.5, os.kill, [pid, signal.SIGCONT]).start()

@app.task(name="leave_a_mark")
def leave_a_mark(path):
    Path(path).touch()

app.worker_main(["--quiet", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle"])
"""


def test_a_worker_whose_acknowledgement_was_lost_goes_on_taking_messages(tmp_path: Path) -> None:
    log, mark = tmp_path / "log", tmp_path / "mark"
    with redis_server(tmp_path) as url, log.open("wb") as output, celery.Celery(broker=url) as broker:
        with Redis.from_url(url) as client:
            pid = client.info()["process_id"]
        broker.send_task("stop_redis", [pid])
        broker.send_task("leave_a_mark", [str(mark)])
        settings = {"DJANGO_SETTINGS_MODULE": "config.settings", "REDIS_URL": url, "DATA_DIR": str(tmp_path)}
        worker = parent().start(
            ["-c", WORKER], environment=os.environ | settings, fds=[output.fileno(), output.fileno()]
        )
        try:
            wait_until(lambda: b"Couldn't ack" in log.read_bytes(), what="an acknowledgement lost")
            wait_until(mark.exists, what="the next message taken")
        finally:
            worker.kill()
            worker.wait()


def test_a_workers_own_beat_ends_with_it(tmp_path: Path) -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings", "DATA_DIR": str(tmp_path / "var")}
    (tmp_path / "var").mkdir()
    with (tmp_path / "log").open("wb") as output:
        arguments = ["-m", "celery", "-A", "config.celery:app", "worker", "--beat", "--loglevel", "INFO"]
        worker = parent().start(arguments, environment=environment, fds=[output.fileno(), output.fileno()])
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
    try:
        wait_until(lambda: b"Sending due task" in (tmp_path / "log").read_bytes(), what="its beat at work")
        (beat,) = children.read_text().split()
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not _runs(beat), what="its beat gone")


def _runs(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
