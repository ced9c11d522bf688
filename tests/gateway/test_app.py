"""Whatever is sent to the gateway's paths, the answer is JSON with a request id."""

from __future__ import annotations

import uuid

import httpx
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import GatewayProcess


def is_json_error(response: httpx.Response) -> bool:
    uuid.UUID(response.headers["x-request-id"])
    error = response.json()["error"]
    return response.headers["content-type"] == "application/json" and set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v1/", "/v1/nothing", "/v1/chat", "/v1/chat/completions/", "/v1/models/", "/api/v1/nothing",
     "/v1/%2e%2e/admin", "/v1/é", "/v1//models", "/v1/v1/models", "/v1/chat/completions%00", "/api/nothing", "/api/v1"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_unknown_paths_are_a_json_404(gateway: GatewayProcess, path: str, method: str) -> None:
    response = gateway.http.request(method, path)
    assert response.status_code == 404
    assert is_json_error(response)
    assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/chat/completions", "GET", "POST"),
        ("/chat/completions", "PUT", "POST"),
        ("/chat/completions", "DELETE", "POST"),
        ("/models", "POST", "GET"),
        ("/models/DeepSeek-V4-Flash", "DELETE", "GET"),
    ],
)
def test_wrong_methods_are_a_json_405_that_names_the_right_ones(
    gateway: GatewayProcess, prefix: str, path: str, method: str, allowed: str
) -> None:
    response = gateway.http.request(method, prefix + path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert is_json_error(response)


def test_every_answer_has_a_request_id_of_its_own(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    completion, stream = replies.answer(replies.completion()), replies.stream(*replies.hello())
    upstream.then(completion, stream, replies.answer({"error": "no"}, status=400))
    responses = [
        gateway.ask(), gateway.ask(stream=True), gateway.ask(), gateway.ask(model="nope"), gateway.ask(temperature=9),
        gateway.http.get("/v1/models"), gateway.http.get("/v1/models/nope"), gateway.http.get("/v1/nope"),
        gateway.http.delete("/v1/models"), httpx.get(f"{gateway.url}/v1/models"),
    ]  # fmt: skip
    assert [response.status_code for response in responses] == [200, 200, 400, 400, 400, 200, 404, 404, 405, 401]
    assert len({uuid.UUID(response.headers["x-request-id"]) for response in responses}) == len(responses)


def test_a_clients_own_request_id_is_not_taken_over(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    own = str(uuid.uuid4())
    upstream.then(*[replies.answer(replies.completion())] * 2)
    ids = {gateway.ask(headers={"x-request-id": own}).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert own not in ids
