"""The servers behind the gateway: how they are configured, found, and chosen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from gateway import upstreams as upstreams_module
from gateway.catalog import Endpoint, load
from gateway.transport import Transport
from gateway.upstreams import Kind, Upstream, Upstreams, UpstreamsError, configured, read_file
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.loops import until

CATALOG = load()
MODEL, OTHER = "DeepSeek-V4-Flash", "Qwen3.8-27B"


class Lists(httpx.AsyncBaseTransport):
    """Answers every request for `/models` with the next thing said, the last one again and again."""

    def __init__(self, *said: Any) -> None:
        self._said = list(said)
        self.asked: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        said = self._said.pop(0) if len(self._said) > 1 else self._said[0]
        if isinstance(said, Exception):
            raise said
        if isinstance(said, httpx.Response):
            return said
        return httpx.Response(200, content=said if isinstance(said, bytes) else json.dumps(said).encode())


def served(*ids: str, **fields: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": model_id} | fields for model_id in ids]}


@asynccontextmanager
async def started(*servers: Upstream, transport: httpx.AsyncBaseTransport) -> AsyncIterator[Upstreams]:
    made = Upstreams(servers, catalog=CATALOG, transport=transport)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def ids(upstreams: Upstreams) -> list[str]:
    return [model.id for model in upstreams.models()]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(scenario())


def write(folder: Path, text: str) -> Path:
    path = folder / "upstreams.toml"
    path.write_text(text)
    return path


# -- configuration -----------------------------------------------------------------------------------


def test_a_file_of_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-1\n")
    path = write(
        tmp_path,
        """
[[upstream]]
name = "engine"
kind = "vllm"
base_url = "http://10.0.0.5:8000/v1/"
api_key_env = "ENGINE_KEY"
max_concurrency = 64
models = ["DeepSeek-V4-Flash", { id = "Qwen3.8-27B", served_as = "qwen" }, { id = "plain" }]
[[upstream]]
name = "other"
base_url = "https://models.example.com"
""",
    )
    engine, other = read_file(path)
    assert (engine.name, engine.kind, engine.api_key, engine.max_concurrency) == ("engine", Kind.VLLM, "sk-1", 64)
    assert engine.served_as == {"DeepSeek-V4-Flash": "DeepSeek-V4-Flash", "Qwen3.8-27B": "qwen", "plain": "plain"}
    assert not engine.discovers
    assert (other.kind, other.api_key, other.served_as, other.discovers) == (Kind.OPENAI, "", {}, True)
    assert "sk-1" not in repr(engine)


NAMED = '[[upstream]]\nname = "a"\n'
PLAIN = NAMED + 'base_url = "http://a/v1"\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", r"no \[\[upstream\]\] entry"),
        ("upstream = 3", r"no \[\[upstream\]\] entry"),
        ("upstream = [1]", "upstream 1: not a table"),
        ("[[upstream", "upstreams.toml"),
        (NAMED, "upstream 1: base_url is missing"),
        ('[[upstream]]\nbase_url = "http://a/v1"\n', "upstream 1: name is missing"),
        (PLAIN + "port = 3", "upstream 1: unknown field 'port'"),
        (PLAIN + 'kind = "ollama"', "upstream 1: kind must be one of openai, vllm, sglang, demo, mineru, not 'ollama'"),
        (PLAIN + "max_concurrency = true", "upstream 1: max_concurrency must be int"),
        (PLAIN + 'max_concurrency = "3"', "upstream 1: max_concurrency must be int"),
        (PLAIN + "max_concurrency = -1", "upstream 1: max_concurrency must be at least 0, which is no limit"),
        (PLAIN + 'models = "m"', "upstream 1: models must be list"),
        (PLAIN + "models = [3]", "upstream 1: a model is"),
        (PLAIN + 'models = [{ served_as = "x" }]', "upstream 1: a model is"),
        (PLAIN + 'models = [{ id = "x", size = 3 }]', "upstream 1: a model is"),
        (PLAIN + 'api_key_env = "NO_SUCH_KEY"', "upstream 1: the environment has no NO_SUCH_KEY"),
        (PLAIN + PLAIN, "two upstreams have the same name"),
        (NAMED + 'base_url = "a:8000/v1"', "upstream a: base_url must be an http or https address"),
        (NAMED + 'base_url = "ftp://a/v1"', "upstream a: base_url must be an http or https address"),
        (NAMED + 'base_url = "http://[::1/v1"', "upstream a: base_url must be an http or https address"),
        (NAMED + 'base_url = "http:///v1"', "upstream a: base_url must be an http or https address"),
    ],
)
def test_a_faulty_file_says_what_is_wrong_and_where(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(UpstreamsError, match=fault):
        read_file(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UpstreamsError, match="no-such-file"):
        read_file(tmp_path / "no-such-file")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"url": "http://a/v1", "api_key": "k", "demo_url": "http://d/v1"}, [("http://a/v1", Kind.OPENAI, "k")]),
        ({"demo_url": "http://d/v1"}, [("http://d/v1", Kind.DEMO, "")]),
        ({}, []),
    ],
)
def test_without_a_file_there_is_one_server_or_the_demo(
    fields: dict[str, str], found: list[tuple[str, Kind, str]]
) -> None:
    servers = configured(**{"file": None, "url": "", "api_key": "", "demo_url": ""} | fields)  # type: ignore[arg-type]
    assert [(server.base_url, server.kind, server.api_key) for server in servers] == found


@pytest.mark.parametrize(
    ("base_url", "endpoint", "origin", "target", "host"),
    [
        ("http://a:8000/v1", Endpoint.CHAT, ("http", "a", 8000), "/v1/chat/completions", "a:8000"),
        ("http://a:8000/v1/", Endpoint.CHAT, ("http", "a", 8000), "/v1/chat/completions", "a:8000"),
        ("https://a/deep/er", Endpoint.CHAT, ("https", "a", 443), "/deep/er/chat/completions", "a"),
        ("http://[::1]:8000/v1", Endpoint.CHAT, ("http", "::1", 8000), "/v1/chat/completions", "[::1]:8000"),
        ("http://a/v1", Endpoint.OCR, ("http", "a", 80), "/v1/ocr", "a"),
        ("http://a/v1", Endpoint.SPEECH, ("http", "a", 80), "/v1/audio/speech", "a"),
        ("http://a/ä b/v1", Endpoint.CHAT, ("http", "a", 80), "/%C3%A4%20b/v1/chat/completions", "a"),
    ],
)
def test_requests_go_to_the_endpoints_address(
    base_url: str, endpoint: Endpoint, origin: tuple[str, str, int], target: str, host: str
) -> None:
    server = Upstream("a", base_url, api_key="k")
    request = server.request(endpoint, b"{}", request_id="r-1", read_timeout_seconds=7)
    assert (request.origin, request.body, request.read_seconds) == (origin, b"{}", 7)
    assert request.head.decode().split("\r\n") == [
        f"POST {target} HTTP/1.1", f"host: {host}", "content-type: application/json", "authorization: Bearer k",
        "x-request-id: r-1", "content-length: 2", "", "",
    ]  # fmt: skip


# -- discovery ---------------------------------------------------------------------------------------


def test_what_a_server_lists_is_served_known_models_first_and_in_the_catalogs_order() -> None:
    async def scenario() -> None:
        transport = Lists(served("zebra", OTHER, "ant", MODEL))
        async with started(Upstream("a", "http://a/v1", api_key="k"), transport=transport) as upstreams:
            assert ids(upstreams) == [MODEL, OTHER, "ant", "zebra"]
            unknown, known = upstreams.card("ant"), upstreams.card(MODEL)
            assert unknown is not None
            assert (unknown.known, unknown.sees_images) == (False, True)
            assert known is CATALOG[MODEL]
            assert upstreams.card("GLM-5.3-Flash") is None
        (request,) = transport.asked
        assert (request.method, str(request.url)) == ("GET", "http://a/v1/models")
        assert request.headers["authorization"] == "Bearer k"

    run(scenario)


def test_what_is_configured_is_not_asked_for() -> None:
    async def scenario() -> None:
        transport = Lists(served(OTHER))
        server = Upstream("a", "http://a/v1", served_as={MODEL: "m"}, discovers=False)
        async with started(server, transport=transport) as upstreams:
            assert ids(upstreams) == [MODEL]
        assert transport.asked == []

    run(scenario)


@pytest.mark.parametrize(
    ("listed", "kind"),
    [
        (served(MODEL, OTHER, owned_by="vllm"), Kind.VLLM),
        (served(MODEL, owned_by="sglang"), Kind.SGLANG),
        (served(MODEL, owned_by="openai"), Kind.OPENAI),
        (served(MODEL, owned_by=["vllm"]), Kind.OPENAI),
        (served(MODEL, owned_by={"a": 1}), Kind.OPENAI),
        (served(MODEL), Kind.OPENAI),
        ({"data": [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "me"}]}, Kind.OPENAI),
        (served(owned_by="vllm"), Kind.OPENAI),
    ],
)
@pytest.mark.parametrize("detects", [True, False])
def test_the_kind_is_told_by_who_owns_all_models(listed: Any, kind: Kind, detects: bool) -> None:
    async def scenario() -> None:
        server = Upstream("a", "http://a/v1", detects_kind=detects)
        await server.discover(Lists(listed))
        assert server.kind is (kind if detects else Kind.OPENAI)

    run(scenario)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ({"data": [{"id": "a"}, {"id": 3}, {"name": "b"}, "c", None, {"id": None}, {"id": "d"}]}, ["a", "d"]),
        ([{"id": "a"}], ["a"]),
        ({"data": []}, []),
    ],
)
def test_lists_of_any_shape_are_read(listed: Any, found: list[str]) -> None:
    async def scenario() -> None:
        server = Upstream("a", "http://a/v1")
        await server.discover(Lists(listed))
        assert list(server.served_as) == found

    run(scenario)


FAULTS = [
    httpx.ConnectError("refused"), httpx.ReadTimeout("silent"), httpx.RemoteProtocolError("cut"),
    httpx.Response(401, content=b"{}"), b"<html>", b"", b"3", {"data": 3}, {"models": []},
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_a_server_that_cannot_be_read_is_asked_again_and_what_it_served_stays(
    fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams_module, "DISCOVER_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(upstreams_module, "DISCOVER_EVERY_SECONDS", 0.01)

    async def scenario() -> None:
        transport = Lists(fault, served(MODEL), fault, fault, served(MODEL, OTHER))
        async with started(Upstream("a", "http://a/v1"), transport=transport) as upstreams:
            assert ids(upstreams) == []
            await until(lambda: ids(upstreams))
            while len(transport.asked) < 4:
                assert ids(upstreams) == [MODEL]
                await asyncio.sleep(0)
            await until(lambda: ids(upstreams) == [MODEL, OTHER])

    run(scenario)


def test_one_server_that_trickles_does_not_keep_the_others_from_being_found(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams_module, "DISCOVERY_TIMEOUT_SECONDS", 0.1)

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b" ")
            await asyncio.sleep(0.01)
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(trickle, "127.0.0.1", 0)
        slow = Upstream("slow", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        transport = Transport()
        async with started(slow, Upstream("quick", upstream.url), transport=transport) as upstreams:
            assert ids(upstreams) == ["mystery-model"]
        await transport.aclose()
        server.close()

    upstream.models = [{"id": "mystery-model"}]
    run(scenario)


# -- choice ------------------------------------------------------------------------------------------


def two_servers(**fields: Any) -> tuple[Upstreams, Upstream, Upstream]:
    servers = [
        Upstream(name, f"http://{name}/v1", served_as={MODEL: MODEL}, discovers=False, **fields) for name in ("a", "b")
    ]
    return Upstreams(servers, catalog=CATALOG, transport=Lists({})), servers[0], servers[1]


def test_the_least_busy_server_of_a_model_is_chosen() -> None:
    upstreams, a, b = two_servers()
    a.take()
    assert upstreams.choose(MODEL) is b
    b.take()
    b.take()
    assert upstreams.choose(MODEL) is a
    assert upstreams.choose(MODEL, besides={a}) is b
    assert upstreams.choose(MODEL, besides={a, b}) is None
    assert upstreams.choose(OTHER) is None


def test_a_full_server_is_passed_over() -> None:
    upstreams, a, b = two_servers(max_concurrency=1)
    a.take()
    assert upstreams.choose(MODEL) is b
    b.take()
    assert upstreams.choose(MODEL) is None
    error = upstreams.nobody_for(MODEL)
    assert (error.status, error.code, error.headers) == (503, "upstream_saturated", ((b"retry-after", b"1"),))
    a.release()
    assert upstreams.choose(MODEL) is a


def test_a_server_that_failed_rests_while_another_is_there() -> None:
    upstreams, a, b = two_servers()
    a.failed()
    b.take()
    assert upstreams.choose(MODEL) is b
    a.succeeded()
    assert upstreams.choose(MODEL) is a


def test_with_all_servers_resting_the_first_to_be_rested_is_tried() -> None:
    upstreams, a, b = two_servers()
    a.failed()
    a.failed()
    b.failed()
    assert upstreams.choose(MODEL) is b
    # A second one in the same call is only asked when it is ready.
    assert upstreams.choose(MODEL, besides={b}) is None


def test_nobody_serves_what_nobody_has() -> None:
    upstreams, _, _ = two_servers()
    error = upstreams.nobody_for(OTHER)
    assert (error.status, error.code) == (502, "upstream_unavailable")
