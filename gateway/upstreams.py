"""The servers behind the gateway: which there are, what each serves, how it is spoken to.

One `Upstream` a server. Which models it serves is configured (`upstreams.toml`) or discovered from its
`/models`, again and again, so a server that is not up yet is found when it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx
import orjson

from gateway.catalog import Catalog, Endpoint, Model
from gateway.errors import CallError, UpstreamSaturated, UpstreamUnavailable
from gateway.mineru import CONTENT_TYPE as MINERU_CONTENT_TYPE
from gateway.transport import Origin, WireRequest

log = logging.getLogger("gateway.upstreams")

CONNECT_TIMEOUT_SECONDS = 5.0
DISCOVERY_TIMEOUT_SECONDS = 5.0
DISCOVER_EVERY_SECONDS = 30.0
DISCOVER_AGAIN_SECONDS = 1.0
MAX_REST_SECONDS = 30.0


class UpstreamsError(ValueError):
    """The configuration of upstreams is wrong; the text names the file and the entry."""


class Kind(StrEnum):
    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    DEMO = "demo"
    MINERU = "mineru"

    @property
    def counts_as_it_goes(self) -> bool:
        """Reports usage on every chunk when asked, so a stream cut short is still counted exactly."""
        return self not in (Kind.OPENAI, Kind.MINERU)

    @property
    def stops_with_client(self) -> bool:
        """A stream is ended here as soon as its client has left, whatever DISCONNECT_POLICY says."""
        return self in (Kind.VLLM, Kind.SGLANG)


@dataclass(slots=True, eq=False)
class Upstream:
    name: str
    base_url: str
    kind: Kind = Kind.OPENAI
    api_key: str = field(default="", repr=False)
    # Public id → the id this server knows the model by. Discovered where `models` was not configured.
    served_as: dict[str, str] = field(default_factory=dict)
    discovers: bool = True
    detects_kind: bool = False
    max_concurrency: int = 0
    in_flight: int = 0
    # After failures in a row the replica rests; then one call tries it, and the others wait for what it learns.
    failures: int = 0
    # For people: what failed last, at what Unix time.
    last_failure: str = ""
    failed_at: float = 0.0
    rests_until: float = 0.0
    trying: bool = False
    _models_url: httpx.URL = field(init=False, repr=False)
    _headers: list[tuple[bytes, bytes]] = field(init=False, repr=False)
    _origin: Origin = field(init=False, repr=False)
    # What every request to an endpoint begins with.
    _heads: dict[Endpoint, bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        base = _http_url(self.base_url.rstrip("/"))
        if base is None:
            raise UpstreamsError(
                f"upstream {self.name}: base_url must be an http or https address, not {self.base_url!r}"
            )
        path = base.path.rstrip("/")
        self._models_url = base.copy_with(path=f"{path}/models")
        self._origin = (base.scheme, base.host, base.port or (443 if base.scheme == "https" else 80))
        self._headers = [(b"host", base.netloc), (b"content-type", b"application/json")]
        if self.kind is Kind.MINERU:
            self._headers[1] = (b"content-type", MINERU_CONTENT_TYPE.encode("ascii"))
        if self.api_key:
            self._headers.append((b"authorization", b"Bearer " + self.api_key.encode("latin-1")))
        fields = b"".join([b"%s: %s\r\n" % header for header in self._headers])
        self._heads = {}
        for endpoint in Endpoint:
            of_mineru = self.kind is Kind.MINERU and endpoint is Endpoint.OCR
            url = base.copy_with(path=path + ("/file_parse" if of_mineru else endpoint.path.removeprefix("/v1")))
            self._heads[endpoint] = b"POST %s HTTP/1.1\r\n%s" % (url.raw_path, fields)

    def request(self, endpoint: Endpoint, body: bytes, *, request_id: str, read_timeout_seconds: float) -> WireRequest:
        head = b"%sx-request-id: %s\r\ncontent-length: %d\r\n\r\n" % (
            self._heads[endpoint], request_id.encode("ascii"), len(body),
        )  # fmt: skip
        return WireRequest(self._origin, head, body, CONNECT_TIMEOUT_SECONDS, read_timeout_seconds)

    @property
    def is_full(self) -> bool:
        return 0 < self.max_concurrency <= self.in_flight

    def is_ready(self, now: float) -> bool:
        return not self.rests_until or (now >= self.rests_until and not self.trying)

    def take(self) -> None:
        self.in_flight += 1
        self.trying = bool(self.rests_until)

    def release(self) -> None:
        self.in_flight -= 1
        self.trying = False

    def succeeded(self) -> None:
        self.failures = 0
        self.rests_until = 0.0
        self.trying = False

    def failed(self, why: str = "") -> None:
        """Rest for 1, 2, 4 … up to 30 s; whoever asks for a model then gets another replica."""
        self.noted(why)
        self.failures += 1
        self.rests_until = time.monotonic() + min(MAX_REST_SECONDS, 2.0 ** (self.failures - 1))
        self.trying = False

    def noted(self, failure: str) -> None:
        self.last_failure, self.failed_at = failure, time.time()

    def reconfigured(self, new: Upstream) -> Upstream:
        """This server with another configuration of the same name and address."""
        self.kind, self.api_key, self.max_concurrency = new.kind, new.api_key, new.max_concurrency
        self.discovers, self._headers, self._heads = new.discovers, new._headers, new._heads
        if not new.discovers:
            self.served_as = new.served_as
        return self

    async def discover(self, transport: httpx.AsyncBaseTransport) -> None:
        """Read `/models`. Raises httpx.HTTPError or ValueError where that is not to be had."""
        timeout = {"connect": DISCOVERY_TIMEOUT_SECONDS, "read": DISCOVERY_TIMEOUT_SECONDS}
        request = httpx.Request("GET", self._models_url, headers=self._headers, extensions={"timeout": timeout})
        response = await transport.handle_async_request(request)
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        if response.status_code != 200:
            raise ValueError(f"/models answered {response.status_code}")
        entries = [entry for entry in _listed(orjson.loads(body)) if isinstance(entry.get("id"), str)]
        self.served_as = {entry["id"]: entry["id"] for entry in entries}
        owners = [entry.get("owned_by") for entry in entries]
        for kind in (Kind.VLLM, Kind.SGLANG):
            if self.detects_kind and owners and all(owner == kind for owner in owners):
                self.kind = kind


def _http_url(text: str) -> httpx.URL | None:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return None
    return url if url.scheme in ("http", "https") and url.host else None


def _listed(document: Any) -> list[dict[str, Any]]:
    entries = document.get("data") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise ValueError("/models is not a list")
    return [entry for entry in entries if isinstance(entry, dict)]


class Upstreams:
    """All configured upstreams, and the models they serve now."""

    def __init__(self, upstreams: Iterable[Upstream], *, catalog: Catalog, transport: httpx.AsyncBaseTransport) -> None:
        self.all = list(upstreams)
        self.catalog = catalog
        self._transport = transport
        self._cards: dict[str, Model] = {}
        self._serving: Mapping[str, Sequence[Upstream]] = {}
        self._concurrency: dict[str, int] = {}
        self._discovery: asyncio.Task[None] | None = None
        self._index()

    def models(self) -> list[Model]:
        """Cards of what is served now, in catalog order, unknown ones last."""
        return list(self._cards.values())

    def card(self, model_id: str) -> Model | None:
        return self._cards.get(model_id)

    def choose(self, model_id: str, *, besides: Collection[Upstream] = ()) -> Upstream | None:
        """The ready replica with the least in flight. With none ready, the first that may be tried again is."""
        serving = self._serving.get(model_id, ())
        if len(serving) == 1:
            return None if serving[0].is_full or serving[0] in besides else serving[0]
        now = time.monotonic()
        serving = [upstream for upstream in serving if not upstream.is_full and upstream not in besides]
        ready = [upstream for upstream in serving if upstream.is_ready(now)]
        if ready:
            return min(ready, key=lambda upstream: upstream.in_flight)
        return None if besides else min(serving, key=lambda upstream: upstream.rests_until, default=None)

    def nobody_for(self, model_id: str) -> CallError:
        if model_id in self._serving:
            return UpstreamSaturated(f"All servers of {model_id} are busy.", retry_after_seconds=1)
        return UpstreamUnavailable(f"No model server serves {model_id} at the moment.")

    def concurrency_of(self, model_id: str) -> int:
        """How many calls of a model its replicas take together; 0 where one of them has no limit."""
        return self._concurrency.get(model_id, 0)

    def replace(self, upstreams: Iterable[Upstream]) -> None:
        """Take over a new configuration; a server that stays keeps what is known of it and its open calls."""
        kept = {(upstream.name, upstream.base_url): upstream for upstream in self.all}
        self.all = [kept.get((new.name, new.base_url), new).reconfigured(new) for new in upstreams]
        self._index()

    async def start(self) -> None:
        """First discovery, then again and again in the background."""
        await self._discover_all()
        self._discovery = asyncio.create_task(self._keep_discovering(), name="upstream discovery")

    async def stop(self) -> None:
        if self._discovery:
            self._discovery.cancel()
            await asyncio.gather(self._discovery, return_exceptions=True)

    async def _keep_discovering(self) -> None:
        while True:
            found = all(upstream.served_as for upstream in self.all)
            await asyncio.sleep(DISCOVER_EVERY_SECONDS if found else DISCOVER_AGAIN_SECONDS)
            await self._discover_all()

    async def _discover_all(self) -> None:
        await asyncio.gather(*(self._discover(upstream) for upstream in self.all if upstream.discovers))
        self._index()

    async def _discover(self, upstream: Upstream) -> None:
        try:
            # The whole look: a server that trickles must not keep the others from being found.
            async with asyncio.timeout(2 * DISCOVERY_TIMEOUT_SECONDS):
                await upstream.discover(self._transport)
        except (httpx.HTTPError, ValueError, TimeoutError) as error:
            failure = f"/models: {error or 'no answer in time'}"
            # What it served before stays: a missed look at the list is no reason to refuse calls. It is looked for
            # every second until it is there, and said when something has changed.
            if not upstream.served_as and upstream.last_failure != failure:
                log.warning("upstream %s at %s: %s", upstream.name, upstream.base_url, failure)
            upstream.noted(failure)

    def _index(self) -> None:
        serving: defaultdict[str, list[Upstream]] = defaultdict(list)
        for upstream in self.all:
            for model_id in upstream.served_as:
                serving[model_id].append(upstream)
        self._serving = dict(serving)
        limits = {model_id: [one.max_concurrency for one in serving[model_id]] for model_id in serving}
        self._concurrency = {model_id: sum(each) if all(each) else 0 for model_id, each in limits.items()}
        known = [model_id for model_id in self.catalog if model_id in serving]
        unknown = sorted(serving.keys() - set(self.catalog))
        self._cards = {model_id: self.catalog.card_for(model_id) for model_id in (*known, *unknown)}


# -- configuration -------------------------------------------------------------------------------


def configured(*, file: Path | None, url: str, api_key: str, demo_url: str) -> list[Upstream]:
    """Upstreams from `upstreams.toml`, or the one at `url`, or the demo backend at `demo_url`."""
    if file is not None:
        return read_file(file)
    if url:
        return [Upstream(name="upstream", base_url=url, api_key=api_key, detects_kind=True)]
    if demo_url:
        return [Upstream(name="demo", base_url=demo_url, kind=Kind.DEMO)]
    return []


def read_file(path: Path) -> list[Upstream]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UpstreamsError(f"{path}: {error}") from error
    entries = document.get("upstream")
    if not isinstance(entries, list) or not entries:
        raise UpstreamsError(f"{path}: no [[upstream]] entry")
    upstreams = [_read_entry(entry, f"{path}, upstream {number}") for number, entry in enumerate(entries, start=1)]
    names = [upstream.name for upstream in upstreams]
    if len(set(names)) < len(names):
        raise UpstreamsError(f"{path}: two upstreams have the same name")
    return upstreams


def _read_entry(entry: Mapping[str, Any], where: str) -> Upstream:
    if not isinstance(entry, dict):
        raise UpstreamsError(f"{where}: not a table")
    known: dict[str, type] = {
        "name": str, "kind": str, "base_url": str, "api_key_env": str, "models": list, "max_concurrency": int,
    }  # fmt: skip
    for name, value in entry.items():
        if name not in known:
            raise UpstreamsError(f"{where}: unknown field {name!r}")
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise UpstreamsError(f"{where}: {name} must be {known[name].__name__}")
    for name in ("name", "base_url"):
        if not entry.get(name):
            raise UpstreamsError(f"{where}: {name} is missing")
    kind = entry.get("kind", Kind.OPENAI)
    if kind not in set(Kind):
        raise UpstreamsError(f"{where}: kind must be one of {', '.join(Kind)}, not {kind!r}")
    variable = entry.get("api_key_env", "")
    if variable and variable not in os.environ:
        raise UpstreamsError(f"{where}: the environment has no {variable}")
    served_as = dict(_read_model(model, where) for model in entry.get("models", []))
    if kind == Kind.MINERU and not served_as:
        raise UpstreamsError(f"{where}: kind mineru needs models: it has no list of its own")
    return Upstream(
        name=entry["name"],
        base_url=entry["base_url"],
        kind=Kind(kind),
        api_key=os.environ.get(variable, "").strip() if variable else "",
        served_as=served_as,
        discovers=not served_as,
        max_concurrency=_limit(entry, where),
    )


def _limit(entry: Mapping[str, Any], where: str) -> int:
    limit: int = entry.get("max_concurrency", 0)
    if limit < 0:
        raise UpstreamsError(f"{where}: max_concurrency must be at least 0, which is no limit")
    return limit


def _read_model(model: Any, where: str) -> tuple[str, str]:
    if isinstance(model, str):
        return model, model
    if isinstance(model, dict) and isinstance(model.get("id"), str) and set(model) <= {"id", "served_as"}:
        return model["id"], str(model.get("served_as", model["id"]))
    raise UpstreamsError(f'{where}: a model is "id" or {{ id = "…", served_as = "…" }}, not {model!r}')
