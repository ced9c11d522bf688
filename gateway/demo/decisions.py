"""`POST /v1/systemone`: a probability for every possible answer, the same for the same question.

They come from a hash of the content, so they mean nothing; words of the state that an option
shares make it likelier, which is enough for a page to look alive.
"""

import hashlib
import math
import re
from typing import Any

import orjson

from gateway.catalog import Model
from gateway.demo.prompt import IMAGE_TOKENS
from gateway.demo.refusal import BadRequest, UnreadableBody
from gateway.demo.tokens import count

type Json = dict[str, Any]

VIDEO_TOKENS = 400
MAX_QUESTIONS = 64
SHARED_WORD = 1.5  # logits for a word that option and state share
_WORD = re.compile(r"\w{3,}")


def answer(body: Json, *, model: Model) -> Json:
    """Raises `Refusal` for a malformed request."""
    questions = body.get("questions")
    if "state" not in body or not isinstance(questions, dict):
        raise UnreadableBody("missing field `state` or `questions`")
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise UnreadableBody(f"questions: expected 1 to {MAX_QUESTIONS} questions")
    media = _media(body, model)
    state = orjson.dumps([body["state"], media]).decode()
    answers = {name: _answer(name, question, state=state) for name, question in questions.items()}
    return {
        "model": model.id,
        "answers": answers,
        "usage": {"input_tokens": _input_tokens(body, questions), "output_tokens": len(answers)},
    }


def _media(body: Json, model: Model) -> list[str]:
    images, videos = body.get("images") or [], body.get("videos") or []
    if not isinstance(images, list) or not isinstance(videos, list):
        raise UnreadableBody("images and videos: expected a sequence")
    if model.max_images is not None and len(images) > model.max_images:
        raise BadRequest(f"{model.id} takes at most {model.max_images} images.", param="images")
    if videos and "video" not in model.input_modalities:
        raise BadRequest(f"{model.id} takes no videos.", param="videos")
    return [str(item) for item in (*images, *videos)]


def _input_tokens(body: Json, questions: Json) -> int:
    state = body["state"]
    text = state if isinstance(state, str) else orjson.dumps(state).decode()
    asked = sum(count(name) + count(orjson.dumps(question).decode()) for name, question in questions.items())
    media = IMAGE_TOKENS * len(body.get("images") or []) + VIDEO_TOKENS * len(body.get("videos") or [])
    return count(text) + asked + media


def _answer(name: str, question: Any, *, state: str) -> Json:
    if not isinstance(question, dict):
        raise UnreadableBody(f"questions.{name}: expected a map")
    criteria = question.get("criteria")
    seed = orjson.dumps([state, name, question.get("instructions"), criteria])
    match question.get("type"):
        case "noul":
            likely = _softmax(["false", "true"], seed, state)
            return {"type": "noul", "noul": likely["true"], "probabilities": likely}
        case "choice" if isinstance(criteria, dict) and criteria:
            texts = {option: f"{option} {text or ''}" for option, text in criteria.items()}
            likely = _softmax(list(texts), seed, state, texts=texts)
            best = max(likely, key=lambda option: likely[option])
            return {"type": "choice", "choice": best, "confidence": _confidence(likely), "probabilities": likely}
        case "score" if isinstance(criteria, list) and criteria:
            legend = {str(level): str(text) for level, text in enumerate(criteria)}
            likely = _softmax(list(legend), seed, state, texts=legend)
            score = sum(int(level) * chance for level, chance in likely.items())
            return {
                "type": "score",
                "score": round(score, 6),
                "confidence": _confidence(likely),
                "legend": legend,
                "probabilities": likely,
            }
    raise UnreadableBody(f"questions.{name}: no question of a known type with criteria that fit it")


def _softmax(options: list[str], seed: bytes, state: str, *, texts: dict[str, str] | None = None) -> dict[str, float]:
    """Probabilities of six digits whose sum is exactly 1: what rounding leaves goes to the likeliest."""
    known = {word.lower() for word in _WORD.findall(state)}
    weights = {}
    for option in options:
        digest = hashlib.sha256(seed + b"\0" + option.encode()).digest()
        chance = int.from_bytes(digest[:4]) / 2**32
        words = {word.lower() for word in _WORD.findall((texts or {}).get(option, ""))}
        weights[option] = math.exp(2 * chance + SHARED_WORD * len(words & known))
    total = sum(weights.values())
    millionths = {option: int(weight / total * 1_000_000) for option, weight in weights.items()}
    best = max(millionths, key=lambda option: millionths[option])
    millionths[best] += 1_000_000 - sum(millionths.values())
    return {option: part / 1_000_000 for option, part in millionths.items()}


def _confidence(likely: dict[str, float]) -> float:
    """1 where one answer has it all, 0 where all are equally likely."""
    if len(likely) == 1:
        return 1.0
    entropy = -sum(chance * math.log(chance) for chance in likely.values() if chance)
    return round(max(0.0, 1 - entropy / math.log(len(likely))), 6)
