"""The endpoints that are no chat: documents, speech, decisions."""

import io
import wave
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.documents import data_url, encrypted_pdf, pdf, png
from tests.gateway.demo.client import Demo

type Json = dict[str, Any]

THREE_PAGES = pdf("Report\nIncome rose.", "Details\nTwo more\nlines.", "End\nNothing follows.")
QUESTIONS: Json = {
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
    "team": {"type": "choice", "criteria": {"billing": "Invoices, refunds", "support": None, "sales": "New orders"}},
    "urgency": {"type": "score", "criteria": ["can wait", "this week", "today"]},
}


def post(demo: Demo, path: str, **body: Any) -> httpx.Response:
    demo.last_id = str(uuid4())
    return demo.http.post(f"/v1/{path}", json=body, headers={"x-request-id": demo.last_id})


def read(demo: Demo, data: bytes, media_type: str = "application/pdf", **fields: Any) -> httpx.Response:
    document = {"type": "document_url", "document_url": data_url(data, media_type)}
    return post(demo, "ocr", model="MinerU2.5-Pro", document=document, **fields)


def speak(demo: Demo, text: str, **fields: Any) -> httpx.Response:
    return post(demo, "audio/speech", model="OmniVoice", input=text, **fields)


def decide(demo: Demo, **fields: Any) -> httpx.Response:
    body = {"model": "d3", "state": "The refunds of my invoices are late!", "questions": QUESTIONS, **fields}
    return post(demo, "systemone", **body)


def test_a_pdf_is_read_page_by_page(demo: Demo) -> None:
    answer = read(demo, THREE_PAGES).json()
    assert [page["index"] for page in answer["pages"]] == [0, 1, 2]
    assert answer["pages"][0]["markdown"] == "# Report\n\nIncome rose."
    assert answer["pages"][1]["markdown"] == "# Details\n\nTwo more\nlines."
    assert answer["pages"][2]["dimensions"] == {"dpi": 200, "width": 1700, "height": 2200}
    assert answer["usage_info"] == {"pages_processed": 3, "doc_size_bytes": len(THREE_PAGES)}
    assert demo.logged()["pages"] == 3


@pytest.mark.parametrize("wanted", [[0, 2], "0,2", "2,0-0"])
def test_only_the_pages_asked_for_are_read_and_counted(demo: Demo, wanted: Any) -> None:
    answer = read(demo, THREE_PAGES, pages=wanted).json()
    assert [page["index"] for page in answer["pages"]] == [0, 2]
    assert answer["usage_info"]["pages_processed"] == 2


def test_a_page_that_is_not_there_is_refused(demo: Demo) -> None:
    assert read(demo, THREE_PAGES, pages=[3]).status_code == 400
    assert demo.logged()["status"] == 400


@pytest.mark.parametrize("data", [encrypted_pdf(), THREE_PAGES[:200], b"%PDF-1.4 nothing", b"plain text", b""])
def test_what_cannot_be_read_is_refused(demo: Demo, data: bytes) -> None:
    response = read(demo, data)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "document")


def test_an_encrypted_pdf_is_called_so(demo: Demo) -> None:
    assert "encrypted" in read(demo, encrypted_pdf()).json()["error"]["message"]


def test_a_picture_is_a_page_that_describes_it(demo: Demo) -> None:
    url = data_url(png(40, 20), "image/png")
    document = {"type": "image_url", "image_url": {"url": url}}
    answer = post(demo, "ocr", model="MinerU2.5-Pro", document=document, include_image_base64=True).json()
    (page,) = answer["pages"]
    assert page["markdown"].startswith("# A page of 40 × 20 pixels")
    assert page["images"][0]["image_base64"] == url
    assert answer["usage_info"]["pages_processed"] == 1


def test_speech_is_an_audible_wav_as_long_as_the_text(demo: Demo) -> None:
    response = speak(demo, "Hello there, 世界!")
    assert response.headers["content-type"] == "audio/wav"
    with wave.open(io.BytesIO(response.content)) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, 24_000)
        # 10 letters, 2 spaces, 2 marks, 2 ideograms.
        assert sound.getnframes() == round(24_000 * (10 * 0.06 + 2 * 0.05 + 2 * 0.2 + 2 * 0.18))
        loudest = max(memoryview(sound.readframes(sound.getnframes())).cast("h"))
    assert 4_000 < loudest < 12_000
    assert demo.logged()["characters"] == 16


def test_speed_shortens_and_pcm_has_no_header(demo: Demo) -> None:
    slow = speak(demo, "Hello", response_format="pcm").content
    fast = speak(demo, "Hello", response_format="pcm", speed=2).content
    assert (len(slow), len(fast)) == (5 * 1440 * 2, 5 * 720 * 2)


def test_other_formats_are_refused_by_name(demo: Demo) -> None:
    response = speak(demo, "Hello", response_format="mp3")
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "This backend makes wav and pcm only, not mp3."


def test_probabilities_are_stable_and_sum_to_one(demo: Demo) -> None:
    first, second = decide(demo).json(), decide(demo).json()
    assert first == second
    for answer in first["answers"].values():
        assert round(sum(answer["probabilities"].values()), 9) == 1
    assert demo.logged()["input_tokens"] == first["usage"]["input_tokens"]


def test_each_type_answers_in_its_own_shape(demo: Demo) -> None:
    answers = decide(demo).json()["answers"]
    assert set(answers["angry"]) == {"type", "noul", "probabilities"}
    assert set(answers["team"]["probabilities"]) == {"billing", "support", "sales"}
    assert answers["team"]["choice"] == "billing"  # the state speaks of invoices and refunds
    assert answers["urgency"]["legend"] == {"0": "can wait", "1": "this week", "2": "today"}
    assert 0 <= answers["urgency"]["score"] <= 2
    assert 0 <= answers["urgency"]["confidence"] <= 1


def test_another_state_is_another_decision(demo: Demo) -> None:
    assert decide(demo).json()["answers"] != decide(demo, state={"text": "All is well"}).json()["answers"]


def test_malformed_questions_and_unfit_media_are_refused(demo: Demo) -> None:
    assert decide(demo, questions={"a": {"type": "choice", "criteria": []}}).status_code == 422
    assert decide(demo, questions={}).status_code == 422
    assert decide(demo, model="Clef", images=["data:image/png;base64,AA=="] * 5).status_code == 400
    assert decide(demo, model="Clef", videos=["data:video/mp4;base64,AA=="]).status_code == 400
    assert decide(demo, model="d3-flash", videos=["data:video/mp4;base64,AA=="]).status_code == 200


@pytest.mark.parametrize("path", ["ocr", "audio/speech", "systemone"])
def test_a_model_of_another_endpoint_is_unknown(demo: Demo, path: str) -> None:
    assert post(demo, path, model="DeepSeek-V4-Flash").status_code == 404
