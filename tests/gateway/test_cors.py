"""Pages of other origins: those that are named may call with a key, the others may not, and cookies count nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, completion, hello
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import USER, GatewayProcess
from tests.installation import Installation, WebProcess

HERE, THERE = "https://app.example.com", "https://evil.example.com"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}


@pytest.fixture(scope="module")
def web(gateway_installation: Installation) -> Iterator[WebProcess]:
    web = gateway_installation.start_web(environment={"CORS_ALLOWED_ORIGINS": f"{HERE}, http://localhost:5173/"})
    yield web
    web.process.terminate()
    web.process.wait(20)


def ask(web: WebProcess, origin: str, *, method: str = "POST", path: str = "/v1/chat/completions", **rest: Any) -> Any:
    headers = {"origin": origin} | rest.pop("headers", {})
    return httpx.request(method, web.url + path, headers=headers, timeout=30, **rest)


def allowed(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


@pytest.mark.parametrize("origin", [HERE, "http://localhost:5173"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/v1/messages"])
def test_an_allowed_page_may_ask_and_is_told_what_it_may_send(web: WebProcess, origin: str, path: str) -> None:
    response = ask(web, origin, method="OPTIONS", path=path, headers=ASKED)
    assert (response.status_code, response.content) == (204, b"")
    assert allowed(response) == {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "authorization,x-stainless-os",
        "access-control-max-age": "600",
    }
    assert (response.headers["vary"], len(response.headers["x-request-id"])) == ("Origin", 36)


def test_an_allowed_page_reads_answers_streams_and_errors(
    web: WebProcess, gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(completion()), replies.stream(*hello()))
    key = {"authorization": f"Bearer {gateway.secret}"}
    body = {"model": MODEL, "messages": [USER]}
    answers = [
        ask(web, HERE, headers=key, json=body),
        ask(web, HERE, headers=key, json=body | {"stream": True}),
        ask(web, HERE, headers=key, json=body | {"model": "gpt-7"}),
        ask(web, HERE, json=body),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 401]
    for answer in answers:
        assert set(allowed(answer)) == {"access-control-allow-origin", "access-control-expose-headers"}
        assert answer.headers["access-control-allow-origin"] == HERE
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", [THERE, "null", HERE + ".evil.example", "http://app.example.com", ""])
def test_another_page_is_told_nothing(web: WebProcess, origin: str) -> None:
    preflight = ask(web, origin, method="OPTIONS", headers=ASKED)
    assert (preflight.status_code, allowed(preflight)) == (405, {})
    answer = ask(web, origin, json={})
    assert (answer.status_code, allowed(answer), answer.headers["vary"]) == (401, {}, "Origin")


@pytest.mark.parametrize("path", ["/api/me", "/spaces/lab/v1/models", "/accounts/login/"])
def test_only_the_models_api_is_shared(web: WebProcess, path: str) -> None:
    assert allowed(ask(web, HERE, method="GET", path=path)) == {}


def test_a_session_does_not_come_along(web: WebProcess, gateway: GatewayProcess) -> None:
    with httpx.Client(base_url=web.url, timeout=30) as browser:
        browser.get("/accounts/login/")
        form = {"login": gateway.installation.email, "password": gateway.installation.password}
        token = {"csrfmiddlewaretoken": browser.cookies["tf_csrf"]}
        assert browser.post("/accounts/login/", data=form | token, headers={"Origin": web.url}).status_code == 302
        assert browser.get("/v1/models").status_code == 200
        assert browser.get("/v1/models", headers={"origin": HERE}).status_code == 401


def test_without_the_setting_nobody_is_told_anything(gateway: GatewayProcess) -> None:
    answer = httpx.options(f"{gateway.url}/v1/models", headers={"origin": HERE} | ASKED, timeout=30)
    assert (answer.status_code, allowed(answer), "vary" in answer.headers) == (405, {}, False)
