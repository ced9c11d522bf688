"""Every operation of the served OpenAPI description, with what it says it takes, with what it almost takes, and with
hostile paths, queries and headers: never a 500, never HTML, and what comes back is what the description says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.end_to_end.fuzz_inputs import TIMEOUT_SECONDS, VALID, bent, fitting, fuzzed, scalars, texts
from tests.end_to_end.test_fuzz import checked
from tests.gateway.test_openapi import takes
from tests.installation import Installation, WebProcess

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)

MAKE = """
import django; django.setup()
from accounts.audit import SYSTEM
from accounts.keys import issue_key
from accounts.models import Team, User
from gateway.endpoints import register_endpoint
team = Team.objects.earliest("pk")
register_endpoint(team=team, created_by=User.objects.earliest("pk"), slug="fuzzed", name="Fuzzed", actor=SYSTEM,
                  base_url="{url}", kind="openai", api_key="")
print(issue_key(team=team, created_by=None, name="fuzzed").secret)
"""
# Values that a query parameter may well have, by name; any text besides.
LIKELY = {
    "start": ["2026-11-01", "2026-11-29T08:00:00+08:00", "0001-01-01", "9999-12-31"],
    "end": ["2026-11-29", "2026-11-29T08:00:00Z", "0001-01-01", "9999-12-31"],
    "interval": ["hour", "day", "month"],
    "tz": ["Asia/Shanghai", "Asia/Kathmandu", "../etc/passwd", "/etc/passwd", "localtime"],
    "group_by": ["model", "key,member", "endpoint,source,model", "model,model"],
    "format": ["json", "csv"],
    "include_recent": ["true", "0", "yes"],
}
PLACES = {"id": ["DeepSeek-V4-Flash", "Qwen/Qwen3-30B-A3B-FP8"], "endpoint": ["fuzzed"], "path": ["models", "x/y"]}
HEADERS = [
    "authorization", "x-api-key", "content-type", "cookie", "x-portable", "x-forwarded-for", "accept", "via", "origin",
    "content-encoding", "x-csrftoken", "accept-language", "range", "if-none-match", "connection", "te",
]  # fmt: skip


class Operation(NamedTuple):
    method: str
    path: str
    parameters: list[dict[str, Any]]
    body: dict[str, Any] | None
    answers: list[str]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Walker:
    """The API's client. A key that has been rotated goes on with its new secret."""

    def __init__(self, client: httpx.Client, description: dict[str, Any]) -> None:
        self.client = client
        self.description = description

    def send(self, method: str, target: str, *, headers: dict[bytes, bytes] | None = None, body: Any = b"") -> Any:
        url = self.client.base_url.copy_with(raw_path=target.encode("ascii", "replace"))
        own = {"content-type": "application/json"} if isinstance(body, bytes) and body else {}
        request = self.client.build_request(method, url, content=body, headers={**own})
        for name, value in (headers or {}).items():
            request.headers.raw.append((name, value))
        answer = self.client.send(request)
        if answer.status_code == 200 and target.startswith("/api/profile/api-token"):
            self.client.headers["authorization"] = f"Bearer {answer.json()['api_key']}"
        return answer


@pytest.fixture(scope="module")
def walker(demo_web: WebProcess, demo_installation: Installation) -> Iterator[Walker]:
    secret = demo_installation.run_python(MAKE.format(url=demo_installation.environment["DEMO_URL"])).strip()
    headers = {"authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=demo_web.url, headers=headers, timeout=60) as client:
        yield Walker(client, client.get("/v1/openapi.json").json())


def operations(description: dict[str, Any]) -> list[Operation]:
    found = []
    for path, methods in description["paths"].items():
        for method, told in methods.items():
            body = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            answers = list(told["responses"]["200"]["content"])
            found.append(Operation(method.upper(), path, told["parameters"], body, answers))
    return found


def target_of(draw: Any, operation: Operation) -> str:
    """The operation's path with its places filled, and some of its query."""
    query = []
    target = operation.path
    for parameter in operation.parameters:
        name = parameter["name"]
        likely = st.sampled_from(LIKELY.get(name) or PLACES.get(name) or ["1"])
        if parameter["in"] == "path":
            target = target.replace(f"{{{name}}}", quote(draw(likely | likely | texts), safe="/"))
        elif draw(st.booleans()):
            query.append(f"{name}={quote(draw(likely | texts), safe='')}")
    return f"{target}?{'&'.join(query)}" if query else target


def as_described(operation: Operation, answer: httpx.Response, description: dict[str, Any]) -> None:
    kind = answer.headers.get("content-type", "")
    if answer.status_code == 200:
        assert kind.startswith(tuple(known.removesuffix("*") for known in operation.answers)), kind
    elif answer.status_code >= 400 and operation.method != "HEAD":
        error = "AnthropicError" if "/messages" in operation.path else "Error"
        assert takes(_without_lists_of_types(description["components"]["schemas"][error]), answer.json()), answer.text


def _without_lists_of_types(described: Any) -> Any:
    """`type: [a, b]` as `anyOf`, which is what `takes` knows."""
    if not isinstance(described, dict):
        return described
    if isinstance(described.get("type"), list):
        return {"anyOf": [{**described, "type": one} for one in described["type"]]}
    return {name: _without_lists_of_types(value) for name, value in described.items()}


@fuzzed
@given(data=st.data())
def test_every_operation_answers_as_it_is_described(walker: Walker, data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from(operations(walker.description)))
    target = target_of(data.draw, operation)
    document: Any = None
    if operation.body is not None:
        described = operation.body
        document = data.draw(fitting(described) | bent(described), label=str(operation))
        name = operation.path.removeprefix("/v1/")
        if isinstance(document, dict) and name in VALID and data.draw(st.booleans()):
            # So that some get past the model's name and the required fields.
            document = VALID[name] | {key: document[key] for key in document if key not in VALID[name]}
    body = b"" if document is None else json.dumps(document).encode()
    answer = checked(
        operation.path.removeprefix("/v1/"), walker.send(operation.method, target, body=body), own=_own(operation)
    )
    if _own(operation):
        as_described(operation, answer, walker.description)


def _own(operation: Operation) -> bool:
    """Whether the answer is the gateway's own: dedicated endpoints say what their server says."""
    return not operation.path.startswith("/spaces/")


@fuzzed
@given(data=st.data())
def test_hostile_paths_and_queries_are_answered_in_json(walker: Walker, data: st.DataObject) -> None:
    prefix = data.draw(st.sampled_from(["/v1/", "/api/v1/", "/api/", "/v1/models/", "/spaces/", "/spaces/fuzzed/"]))
    rest = data.draw(st.binary(max_size=30))
    query = data.draw(st.binary(max_size=30))
    target = f"{prefix}{_escaped(rest)}?{_escaped(query)}"
    method = data.draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "PROPFIND"]))
    answer = walker.send(method, target)
    if "/v1/" not in target.removeprefix("/spaces/fuzzed"):
        checked(target, answer, own=method != "HEAD")
    assert answer.status_code != 500


def _escaped(raw: bytes) -> str:
    return "".join(chr(byte) if re.match(rb"[!$&-;=@-Z_a-z~/?]", bytes([byte])) else f"%{byte:02x}" for byte in raw)


@fuzzed
@given(
    headers=st.dictionaries(
        st.sampled_from(HEADERS),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20),
        min_size=1,
        max_size=4,
    ),
    path=st.sampled_from(list(VALID)),
)
def test_hostile_headers_break_nothing(walker: Walker, headers: dict[str, str], path: str) -> None:
    raw = {name.encode(): value.strip().encode("latin-1") for name, value in headers.items()}
    body = json.dumps(VALID[path]).encode()
    checked(path, walker.send("POST", f"/v1/{path}", headers=raw, body=body))


@fuzzed
@given(
    parts=st.dictionaries(
        st.sampled_from(["model", "file", "document", "pages", "id"]) | texts, st.binary(max_size=40)
    ),
    boundary=st.text(st.characters(codec="ascii"), max_size=12),
    spoiled=st.booleans(),
)
def test_forms_of_any_kind_are_read_or_refused(
    walker: Walker, parts: dict[str, bytes], boundary: str, spoiled: bool
) -> None:
    pieces = [
        b'--%s\r\ncontent-disposition: form-data; name="%s"; filename="a"\r\n\r\n%s\r\n'
        % (boundary.encode(), name.encode(), value)
        for name, value in parts.items()
    ]
    body = b"".join(pieces) + (b"" if spoiled else b"--%s--\r\n" % boundary.encode())
    kind = b'multipart/form-data; boundary="%s"' % re.sub(r"[^ -~]", "?", boundary).encode()
    request = walker.client.build_request("POST", "/v1/ocr", content=body, headers={b"content-type": kind})
    checked("ocr", walker.client.send(request))


@fuzzed
@given(document=st.dictionaries(texts, scalars, max_size=3) | scalars, grace=scalars)
def test_a_key_that_rotates_itself_is_never_lost(walker: Walker, document: Any, grace: Any) -> None:
    if isinstance(document, dict):
        document["grace_seconds"] = grace
    checked("x", walker.send("POST", "/api/profile/api-token", body=json.dumps(document).encode()))
    assert walker.send("GET", "/api/me").status_code == 200
