"""A backup of a running installation, restored elsewhere as `docs/operations.md` tells."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import httpx

from tests.forked import ROOT
from tests.installation import Installation, WebProcess
from tests.services import wait_until

MODEL = "MiniCPM5-2B"
RATE_AND_RECONCILE = """
import django; django.setup()
from django.core.management import call_command
from billing.rating import rate_waiting
while rate_waiting(max_batches=20): pass
call_command("reconcile")
"""


def test_a_restored_backup_has_every_request_that_had_ended_once_and_adds_up(
    demo_installation: Installation, demo_web: WebProcess, tmp_path: Path
) -> None:
    headers = {"authorization": f"Bearer {demo_installation.secret}"}
    with httpx.Client(base_url=demo_web.url, headers=headers, timeout=60) as client:
        ended = [_id_of(_ask(client)) for _ in range(5)]
        body = _chat("Hello [[tokens=200]] [[pace=0.2]]") | {"stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as under_way:
            next(under_way.iter_lines())
            backup = _back_up(demo_installation, tmp_path)
    restored = _restore(demo_installation, backup, tmp_path / "restored")
    try:
        # Its own journal is there too; those of the backup are adopted within seconds.
        saved = {path.name for path in (backup / "journal").iterdir()}
        web = restored.start_web()
        wait_until(lambda: not saved & _journals(restored), what="adoption of the backup's journal")
        assert _outcomes(restored, ended) == ["ok"] * 5
        assert _outcomes(restored, [_id_of(under_way)]) == ["interrupted"]
        with httpx.Client(base_url=web.url, headers=headers, timeout=60) as client:
            assert _ask(client).status_code == 200
        assert "No difference." in restored.run_python(RATE_AND_RECONCILE)
    finally:
        restored.stop()


def _back_up(installed: Installation, folder: Path) -> Path:
    run = subprocess.run(
        [ROOT / "deploy" / "backup", folder], env=installed.environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(run.stdout.strip())


def _restore(installed: Installation, backup: Path, folder: Path) -> Installation:
    data = folder / "var"
    shutil.copytree(backup, data)
    return Installation(folder, installed.environment | {"DATA_DIR": str(data)}, secret=installed.secret)


def _journals(installed: Installation) -> set[str]:
    return {path.name for path in (installed.folder / "var" / "journal").glob("*.journal")}


def _outcomes(installed: Installation, ids: list[str]) -> list[str]:
    statement = "select outcome from billing_usagerecord where id in (select value from json_each(?))"
    with closing(sqlite3.connect(installed.folder / "var" / "token-factory.sqlite3")) as database:
        return [row[0] for row in database.execute(statement, [json.dumps(ids)])]


def _chat(prompt: str) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}


def _ask(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/chat/completions", json=_chat("Hello [[tokens=3]]"))


def _id_of(response: httpx.Response) -> str:
    return response.headers["x-request-id"].replace("-", "")
