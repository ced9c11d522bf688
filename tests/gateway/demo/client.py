"""Talks to the demo backend as a gateway would, and reads its log."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

type Json = dict[str, Any]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


@dataclass(frozen=True)
class Streamed:
    events: list[Json]
    ended: bool  # with [DONE]

    @property
    def deltas(self) -> list[Json]:
        return [choice["delta"] for event in self.events for choice in event["choices"]]

    @property
    def finish_reasons(self) -> list[str]:
        found = [choice["finish_reason"] for event in self.events for choice in event["choices"]]
        return [reason for reason in found if reason]

    def joined(self, field_name: str) -> str:
        return "".join(delta.get(field_name) or "" for delta in self.deltas)


@dataclass
class Demo:
    http: httpx.Client
    log: Path
    last_id: str = field(default="")

    def post(self, *, model: str = "DeepSeek-V4-Flash", **fields: Any) -> httpx.Response:
        self.last_id = str(uuid4())
        body = {"model": model, "messages": [user("What is ROCm?")], **fields}
        return self.http.post("/v1/chat/completions", json=body, headers={"x-request-id": self.last_id})

    def refused(self, **fields: Any) -> tuple[int, str]:
        """Status and message of a request that must not be answered with 200."""
        response = self.post(**fields)
        assert response.status_code != 200
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == response.status_code
        return response.status_code, error["message"]

    def complete(self, **fields: Any) -> Json:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        return answer

    def message(self, **fields: Any) -> Json:
        message: Json = self.complete(**fields)["choices"][0]["message"]
        return message

    def usage(self, **fields: Any) -> Json:
        usage: Json = self.complete(**fields)["usage"]
        return usage

    def stream(self, **fields: Any) -> Streamed:
        response = self.post(stream=True, **fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        data = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
        events = [json.loads(line) for line in data if line != "[DONE]"]
        return Streamed(events=events, ended=data[-1] == "[DONE]")

    def logged(self, request_id: str | None = None) -> Json:
        """The log line of a request, the last one sent unless told otherwise."""
        wanted = request_id or self.last_id
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            lines = [json.loads(line) for line in self.log.read_text().splitlines()]
            found: list[Json] = [line for line in lines if line["request_id"] == wanted]
            if found:
                assert len(found) == 1
                return found[0]
            time.sleep(0.01)
        raise AssertionError(f"no log line for {wanted}")
