"""The prompt as the model would read it: one sequence of tokens.

Counting rule, for whoever recounts: the JSON of the tools, then one token for each
message's role and the tokens of its text, images and tool calls, then one token that
opens the answer. Thinking in the history is left out, as chat templates do.
"""

from dataclasses import dataclass

import orjson

from gateway.catalog import Model
from gateway.demo.chat_request import ChatRequest, Json, images_in, text_of
from gateway.demo.tokens import split

# For a model whose sample image nobody measured.
IMAGE_TOKENS = 100


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: list[str]
    image_tokens: int


def tokens_per_image(model: Model) -> int:
    return model.usage.image_sample or IMAGE_TOKENS


def render(request: ChatRequest) -> Prompt:
    per_image = tokens_per_image(request.model)
    tokens: list[str] = split(orjson.dumps(request.tools).decode()) if request.tools else []
    images = 0
    for message in request.messages:
        tokens.append(f"<{message['role']}>")
        for url in images_in(message):
            tokens.extend([f"<image {hash(url)}>"] * per_image)
            images += 1
        tokens.extend(split(text_of(message)))
        for call in message.get("tool_calls") or ():
            tokens.extend(split(_call_text(call)))
    tokens.append("<assistant>")
    return Prompt(tokens=tokens, image_tokens=images * per_image)


def _call_text(call: Json) -> str:
    function = call["function"]
    return f"{function.get('name', '')} {function.get('arguments', '')}"
