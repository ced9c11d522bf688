"""OCR by the official `mistralai` client, speech by `openai`'s, decisions over HTTP; each in its own unit, exactly."""

from __future__ import annotations

import asyncio
import io
import json
import random
import socket
import ssl
import subprocess
import threading
import wave
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import openai
import pytest
from mistralai.client import Mistral
from mistralai.client.errors import SDKError

from tests.documents import data_url, encrypted_pdf, pdf, png, with_stream
from tests.installation import Installation, WebProcess
from tests.services import wait_until

THREE_PAGES = pdf("Report\nIncome rose.", "Details\nTwo more.", "End\nNothing follows.")
QUESTIONS: dict[str, Any] = {
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
    "team": {"type": "choice", "criteria": {"billing": "Invoices, refunds", "support": None}},
    "urgency": {"type": "score", "criteria": ["can wait", "this week", "today"]},
}


@pytest.fixture(scope="module")
def web(demo_installation: Installation) -> WebProcess:
    return demo_installation.start_web()


@pytest.fixture(scope="module")
def http(web: WebProcess, demo_installation: Installation) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {demo_installation.secret}"}
    with httpx.Client(base_url=f"{web.url}/v1", headers=headers, timeout=60, trust_env=False) as http:
        yield http


@pytest.fixture(scope="module")
def mistral(web: WebProcess, demo_installation: Installation) -> Iterator[Mistral]:
    with Mistral(api_key=demo_installation.secret, server_url=web.url) as client:
        yield client


@pytest.fixture(scope="module")
def speaker(web: WebProcess, demo_installation: Installation) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{web.url}/v1", api_key=demo_installation.secret, max_retries=0) as client:
        yield client


def record_of(installed: Installation, request_id: str, columns: str) -> list[Any]:
    """Columns of the rated record `r`."""
    where = f"id = '{UUID(request_id).hex}' and rated_at is not null"
    sql = f"select {columns} from billing_usagerecord r where {where}"
    wait_until(lambda: installed.query(sql) != [], what="the rated record", seconds=60)
    (record,) = installed.query(sql)
    return record


COST = "(select sum(amount_ppt) from billing_charge where record_id = r.id)"


def ocr(http: httpx.Client, data: bytes, media_type: str = "application/pdf", **fields: Any) -> httpx.Response:
    document = {"type": "document_url", "document_url": data_url(data, media_type)}
    return http.post("/ocr", json={"model": "MinerU2.5-Pro", "document": document, **fields})


# -- documents -----------------------------------------------------------------------------------


def test_the_mistral_client_reads_a_pdf(mistral: Mistral) -> None:
    document: Any = {"type": "document_url", "document_url": data_url(THREE_PAGES, "application/pdf")}
    answer = mistral.ocr.process(model="MinerU2.5-Pro", document=document)
    assert answer.model == "MinerU2.5-Pro"
    assert [page.markdown for page in answer.pages] == [
        "# Report\n\nIncome rose.",
        "# Details\n\nTwo more.",
        "# End\n\nNothing follows.",
    ]
    assert answer.usage_info.pages_processed == 3
    assert answer.usage_info.doc_size_bytes == len(THREE_PAGES)


def test_the_mistral_client_reads_pages_and_pictures(mistral: Mistral) -> None:
    document: Any = {"type": "document_url", "document_url": data_url(THREE_PAGES, "application/pdf")}
    answer = mistral.ocr.process(model="MinerU2.5-Pro", document=document, pages="1-2")
    assert [page.index for page in answer.pages] == [1, 2]
    picture: Any = {"type": "image_url", "image_url": {"url": data_url(png(30, 20), "image/png")}}
    answer = mistral.ocr.process(model="MinerU2.5-Pro", document=picture, include_image_base64=True)
    assert answer.pages[0].dimensions is not None
    assert (answer.pages[0].dimensions.width, answer.pages[0].images[0].image_base64) == (
        30,
        data_url(png(30, 20), "image/png"),
    )


def test_the_async_mistral_client(web: WebProcess, demo_installation: Installation) -> None:
    async def run() -> int:
        async with Mistral(api_key=demo_installation.secret, server_url=web.url) as client:
            document: Any = {"type": "document_url", "document_url": data_url(THREE_PAGES, "application/pdf")}
            answer = await client.ocr.process_async(model="MinerU2.5-Pro", document=document, pages=[0])
            return int(answer.usage_info.pages_processed)

    assert asyncio.run(run()) == 1


def test_three_pages_cost_three_thousandths_of_a_point(http: httpx.Client, demo_installation: Installation) -> None:
    request_id = ocr(http, THREE_PAGES).headers["x-request-id"]
    record = record_of(demo_installation, request_id, f"endpoint, pages, estimated, prompt_tokens, unpriced, {COST}")
    assert record == ["ocr", 3, 0, 0, 0, 3_000_000_000]


def test_an_upload(http: httpx.Client) -> None:
    files = {"file": ("report.pdf", THREE_PAGES, "application/pdf")}
    answer = http.post("/ocr", data={"model": "MinerU2.5-Pro", "pages": "0,2", "x": "y"}, files=files)
    assert answer.status_code == 200, answer.text
    assert [page["index"] for page in answer.json()["pages"]] == [0, 2]
    assert answer.headers["x-dropped-params"] == "x"
    picture = http.post("/ocr", data={"model": "MinerU2.5-Pro"}, files={"file": ("a.png", png(3, 3))})
    assert picture.json()["usage_info"]["pages_processed"] == 1


UNREADABLE: dict[str, tuple[bytes, dict[str, Any], str, str | None]] = {
    "encrypted": (encrypted_pdf(), {}, "document.document_url", "document_encrypted"),
    "cut": (THREE_PAGES[:150], {}, "document.document_url", "document_unreadable"),
    "no PDF": (b"Dear all", {}, "document.document_url", "document_unreadable"),
    "no such page": (THREE_PAGES, {"pages": [7]}, "pages", None),
    "bursting": (
        with_stream(THREE_PAGES, zlib.compress(bytes(9_500_000)), b"/Width 1000 /Height 1000"),
        {},
        "document.document_url",
        "document_too_large",
    ),
    "huge page": (
        THREE_PAGES.replace(b"612 792", b"90000 90000"),
        {},
        "document.document_url",
        "document_too_large",
    ),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_unreadable_document_is_a_400_that_says_why(http: httpx.Client, what: str) -> None:
    data, fields, param, code = UNREADABLE[what]
    answer = ocr(http, data, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"], error["code"]) == (
        400,
        "invalid_request_error",
        param,
        code,
    )


def test_a_refusal_of_the_backend_is_recorded_and_costs_nothing(
    http: httpx.Client, demo_installation: Installation
) -> None:
    answer = ocr(http, b"Dear all", "text/plain")
    assert answer.status_code == 400
    assert "neither a PDF nor" in answer.json()["error"]["message"]
    record = record_of(demo_installation, answer.headers["x-request-id"], f"status, outcome, pages, {COST}")
    assert record == [400, "error", 0, None]


def test_bodies_have_a_limit(http: httpx.Client) -> None:
    answer = http.post("/ocr", content=b"x" * (50 * 1024 * 1024 + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "localhost", "[::1]", "2130706433"])
def test_addresses_inside_are_not_fetched(http: httpx.Client, host: str) -> None:
    document = {"type": "document_url", "document_url": f"https://{host}/secret.pdf"}
    answer = http.post("/ocr", json={"model": "MinerU2.5-Pro", "document": document})
    assert answer.status_code == 400
    assert "public internet" in answer.json()["error"]["message"]


def test_a_document_that_cannot_be_fetched_has_its_record(http: httpx.Client, demo_installation: Installation) -> None:
    document = {"type": "document_url", "document_url": "https://10.0.0.1/a.pdf"}
    answer = http.post("/ocr", json={"model": "MinerU2.5-Pro", "document": document})
    record = record_of(demo_installation, answer.headers["x-request-id"], "status, outcome, pages")
    assert record == [400, "error", 0]


def test_a_document_is_fetched_by_https(demo_installation: Installation, tmp_path: Path) -> None:
    with documents_server(tmp_path) as (port, certificate):
        fetching = demo_installation.start_web(
            prelude=(
                "import django; django.setup(set_prefix=False)\n"
                "import ssl, ipaddress\n"
                "from gateway import ocr_api, ssrf\n"
                "async def resolve(host, port): return ['127.0.0.1']\n"
                "ocr_api.GUARD = ssrf.Guard(allowed=(ipaddress.ip_network('127.0.0.0/8'),), resolve=resolve,"
                f" tls=ssl.create_default_context(cafile={str(certificate)!r}))\n"
            )
        )
        document = {"type": "document_url", "document_url": f"https://documents.example:{port}/report.pdf"}
        answer = httpx.post(
            f"{fetching.url}/v1/ocr",
            json={"model": "MinerU2.5-Pro", "document": document},
            headers={"authorization": f"Bearer {demo_installation.secret}"},
            trust_env=False,
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage_info"]["pages_processed"] == 3


@contextmanager
def documents_server(folder: Path) -> Iterator[tuple[int, Path]]:
    """Serves the three pages to one https request for documents.example."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=documents.example",
    ]
    command += ["-addext", "subjectAltName=DNS:documents.example", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    def serve(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        with context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(THREE_PAGES) + THREE_PAGES)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield listening.getsockname()[1], folder / "cert.pem"
        thread.join(10)


# -- speech --------------------------------------------------------------------------------------


def test_the_openai_client_speaks(speaker: openai.OpenAI) -> None:
    answer = speaker.audio.speech.create(model="OmniVoice", voice="alloy", input="Hello, world.", speed=2)
    with wave.open(io.BytesIO(answer.content)) as sound:
        assert sound.getnframes() == round(24_000 * (10 * 0.06 + 0.05 + 2 * 0.2) / 2)
    assert answer.response.headers["content-type"] == "audio/wav"


def test_the_openai_client_streams_speech(speaker: openai.OpenAI) -> None:
    create = speaker.audio.speech.with_streaming_response.create
    with create(model="OmniVoice", voice="alloy", input="Hello " * 100, response_format="pcm") as answer:
        pieces = [*answer.iter_bytes(4_800)]
    assert sum(map(len, pieces)) == 2 * 24_000 * (500 * 6 + 100 * 5) // 100
    assert answer.headers["content-type"] == "audio/pcm"


def test_a_format_the_backend_lacks_is_its_own_400(speaker: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="wav and pcm only"):
        speaker.audio.speech.create(model="OmniVoice", voice="alloy", input="Hello", response_format="mp3")


@pytest.mark.parametrize("character", ["a", "世", "👍", "\u0301"])
def test_4096_code_points_are_the_limit(http: httpx.Client, character: str) -> None:
    body = {"model": "OmniVoice", "response_format": "pcm", "speed": 4}
    assert http.post("/audio/speech", json={**body, "input": character * 4096}).status_code == 200
    answer = http.post("/audio/speech", json={**body, "input": character * 4097})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


def test_a_million_characters_cost_the_rate_exactly_whatever_the_requests(
    web: WebProcess, demo_installation: Installation
) -> None:
    chance = random.Random(3)
    sizes: list[int] = []
    while (left := 1_000_000 - sum(sizes)) > 0:
        sizes.append(min(left, chance.choice([1, 2, 7, 997, 4095, 4096, 4096, 4096, chance.randint(1, 4096)])))
    ids = asyncio.run(_speak_all(web, demo_installation.secret, sizes))
    assert len(set(ids)) == len(sizes)
    # Only those requests: others of this module's tests spoke as well.
    chosen = ",".join(f"'{UUID(request_id).hex}'" for request_id in ids)
    counted = f"select count(*) from billing_usagerecord where rated_at is not null and id in ({chosen})"
    wait_until(
        lambda: demo_installation.query(counted) == [[len(sizes)]], what="all of the rated records", seconds=90
    )  # fmt: skip
    total = f"select sum(units), sum(amount_ppt) from billing_charge where record_id in ({chosen})"
    assert demo_installation.query(total) == [[1_000_000, 35_000_000_000]]


async def _speak_all(web: WebProcess, secret: str, sizes: list[int]) -> list[str]:
    gate = asyncio.Semaphore(6)
    # Accents make no sound: many characters, few bytes of audio.
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=f"{web.url}/v1", headers=headers, timeout=60, trust_env=False) as http:

        async def speak(size: int) -> str:
            async with gate:
                answer = await http.post("/audio/speech", json={"model": "OmniVoice", "input": "\u0301" * size})
                assert answer.status_code == 200
                return str(answer.headers["x-request-id"])

        return await asyncio.gather(*map(speak, sizes))


def test_leaving_in_the_middle_is_recorded_and_charged(http: httpx.Client, demo_installation: Installation) -> None:
    text = "[[pace=0.05]]" + "Hello " * 400
    with http.stream("POST", "/audio/speech", json={"model": "OmniVoice", "input": text}) as answer:
        next(answer.iter_bytes())
        request_id = answer.headers["x-request-id"]
    record = record_of(demo_installation, request_id, f"status, outcome, characters, {COST}")
    assert record == [200, "client_gone", len(text), len(text) * 35_000]


# -- decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["Clef", "d3", "d3-flash"])
def test_decisions_are_billed_by_input_tokens_alone(
    http: httpx.Client, demo_installation: Installation, model: str
) -> None:
    body = {"model": model, "state": {"mail": "Where is my refund?!"}, "questions": QUESTIONS, "seed": 1}
    first, second = http.post("/systemone", json=body), http.post("/systemone", json=body)
    answer = first.json()
    assert answer["answers"] == second.json()["answers"]
    assert answer["model"] == model
    assert set(answer["answers"]) == set(QUESTIONS)
    assert first.headers["x-dropped-params"] == "seed"
    tokens = answer["usage"]["input_tokens"]
    # The second time too: no discount for what was read before.
    columns = f"prompt_tokens, cached_tokens, estimated, unpriced, {COST}"
    record = record_of(demo_installation, second.headers["x-request-id"], columns)
    assert record == [tokens, 0, 0, 0, tokens * 35_000]


def test_malformed_questions_and_unfit_media(http: httpx.Client) -> None:
    body = {"model": "Clef", "state": "x", "questions": QUESTIONS}
    malformed = http.post("/systemone", json={**body, "questions": {"a": {"type": "choice"}}})
    assert (malformed.status_code, malformed.json()["error"]["param"]) == (422, "questions.a.criteria")
    five = http.post("/systemone", json={**body, "images": [data_url(png(1, 1), "image/png")] * 5})
    assert (five.status_code, five.json()["error"]["param"]) == (400, "images")
    video = {**body, "videos": [data_url(b"video", "video/mp4")]}
    assert http.post("/systemone", json=video).status_code == 400
    assert http.post("/systemone", json={**video, "model": "d3"}).status_code == 200


# -- all of them ---------------------------------------------------------------------------------

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
    "messages/count_tokens": {"messages": [{"role": "user", "content": "Hi"}]},
    "ocr": {"document": {"type": "document_url", "document_url": data_url(THREE_PAGES, "application/pdf")}},
    "audio/speech": {"input": "Hello"},
    "systemone": {"state": "x", "questions": QUESTIONS},
}
FITTING = {"ocr": "MinerU2.5-Pro", "audio/speech": "OmniVoice", "systemone": "d3"}
MODELS = ["nothing", "DeepSeek-V4-Flash", "MinerU2.5-Pro", "OmniVoice", "d3"]
WRONG = [(path, model) for path in BODIES for model in MODELS if model != FITTING.get(path, "DeepSeek-V4-Flash")]


@pytest.mark.parametrize(("path", "model"), WRONG)
def test_a_model_of_another_endpoint_is_not_supported(http: httpx.Client, path: str, model: str) -> None:
    answer = http.post(f"/{path}", json={**BODIES[path], "model": model})
    error = answer.json()["error"]
    assert (answer.status_code, error["message"]) == (400, f"Requested model {model} not supported")
    assert error["type"] == "invalid_request_error"


def test_the_mistral_client_raises_its_own_error(mistral: Mistral) -> None:
    document: Any = {"type": "document_url", "document_url": data_url(THREE_PAGES, "application/pdf")}
    with pytest.raises(SDKError, match="not supported") as caught:
        mistral.ocr.process(model="OmniVoice", document=document)
    assert json.loads(caught.value.body)["error"]["param"] == "model"


@pytest.mark.parametrize("path", BODIES)
def test_every_endpoint_has_its_twin_and_wants_a_key(web: WebProcess, path: str) -> None:
    body = {**BODIES[path], "model": FITTING.get(path, "DeepSeek-V4-Flash")}
    for url in (f"{web.url}/v1/{path}", f"{web.url}/api/v1/{path}"):
        answer = httpx.post(url, json=body, trust_env=False)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b'{"model": NaN}', b'{"model": "\\ud800"}', b"[" * 100_000])
def test_what_is_no_json_object_is_a_400(http: httpx.Client, path: str, raw: bytes) -> None:
    assert http.post(f"/{path}", content=raw).status_code == 400
