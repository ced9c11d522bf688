"""An installed gateway as its clients see it, and the records it makes as its database holds them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import httpx

from tests.fake_upstream.replies import MODEL
from tests.installation import Installation, WebProcess
from tests.secrecy import PROMPT_MARK
from tests.services import wait_until

USER = {"role": "user", "content": f"Hello {PROMPT_MARK}"}
# Models by what their server is like.
RENAMED, ENGINE, DEAD, REPLICATED, IMAGES = (
    "Qwen3.8-27B", "GLM-5.3-Flash", "MiniCPM5-2B", "Gemma-4-31B-IT", "DeepSeek-V4.1-Flash",
)  # fmt: skip


def write_upstreams(path: Path, port: int, *, dead_port: int) -> Path:
    """All of them are the one fake server, apart by path, but for those that are dead."""
    fake, dead = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{dead_port}/v1"
    path.write_text(
        f"""
[[upstream]]
name = "plain"
base_url = "{fake}/v1/"
api_key_env = "FAKE_UPSTREAM_KEY"
models = [
    "{MODEL}", "{IMAGES}", "Qwen/Qwen3-30B-A3B-FP8", {{ id = "{RENAMED}", served_as = "qwen-inside" }},
    {{ id = "MinerU2.5-Pro", served_as = "mineru-inside" }}, "OmniVoice", {{ id = "d3", served_as = "d3-inside" }},
]

[[upstream]]
name = "engine"
kind = "vllm"
base_url = "{fake}/engine/v1"
models = ["{ENGINE}"]

[[upstream]]
name = "dead"
base_url = "{dead}"
models = ["{DEAD}"]

[[upstream]]
name = "replica 1"
base_url = "{dead}"
models = ["{REPLICATED}"]

[[upstream]]
name = "replica 2"
base_url = "{fake}/replica/v1"
models = ["{REPLICATED}"]

[[upstream]]
name = "found"
base_url = "{fake}/found/v1"
"""
    )
    return path


class GatewayProcess:
    """One web process. `http` sends the first key with everything."""

    def __init__(self, installed: Installation, web: WebProcess) -> None:
        self.installation = installed
        self.web = web
        self.url = web.url
        self.secret = installed.secret
        self.http = httpx.Client(
            base_url=web.url, headers={"authorization": f"Bearer {installed.secret}"}, timeout=30, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.http.close()

    def ask(
        self, *, path: str = "/v1/chat/completions", headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        return self.http.post(path, json={"model": MODEL, "messages": [USER]} | body, headers=headers)

    def streamed(self, **body: Any) -> Any:
        """A context with the response, whose body is still to be read."""
        document = {"model": MODEL, "messages": [USER], "stream": True} | body
        return self.http.stream("POST", "/v1/chat/completions", json=document)

    def record(self, response: httpx.Response) -> dict[str, Any]:
        """The usage record of an answered request, as soon as it is in the database."""
        return self.record_of(response.headers["x-request-id"])

    def record_of(self, request_id: str) -> dict[str, Any]:
        wait_until(lambda: self._rows(request_id), what=f"the record of {request_id}")
        (row,) = self._rows(request_id)
        if row["usage"] is not None:
            row["usage"] = json.loads(row["usage"])
        return row

    def records_since(self, response: httpx.Response) -> list[str]:
        """Ids of what was recorded after an answered request (ids are in the order of time)."""
        self.record(response)
        return [row["id"] for row in self._rows(response.headers["x-request-id"], compare=">")]

    def notices_what_came_before(self) -> None:
        """Returns when the process has seen all that had reached its sockets: it answers twice in turn since."""
        for _ in range(2):
            assert self.http.get("/v1/nothing").status_code == 404

    @contextmanager
    def without_table(self) -> Iterator[None]:
        """The table of records is gone for a while, as if the database were."""
        with closing(self._database()) as database:
            database.execute("ALTER TABLE billing_usagerecord RENAME TO away")
            try:
                yield
            finally:
                database.execute("ALTER TABLE away RENAME TO billing_usagerecord")

    def _database(self) -> sqlite3.Connection:
        path = Path(self.installation.environment["DATA_DIR"]) / "token-factory.sqlite3"
        return sqlite3.connect(path, timeout=20)

    def _rows(self, request_id: str, *, compare: str = "=") -> list[dict[str, Any]]:
        with closing(self._database()) as database:
            database.row_factory = sqlite3.Row
            found = database.execute(
                f"SELECT * FROM billing_usagerecord WHERE id {compare} ? ORDER BY id", [UUID(request_id).hex]
            )
            return [dict(row) for row in found]
