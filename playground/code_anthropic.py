"""A chat request in Anthropic's shape, as far as that has words for it."""

from __future__ import annotations

import json
from typing import Any

from playground.code_python import KEY_VARIABLE, PICTURE, bytes_mark, python_imports, python_literal

type Json = dict[str, Any]

# `max_tokens` is required there; a thinking model may need most of it.
DEFAULT_MAX_TOKENS = 8192
# What `POST /v1/messages` drops or does not know.
UNKNOWN = (
    "top_p", "presence_penalty", "frequency_penalty", "stop", "response_format", "chat_template_kwargs",
    "parallel_tool_calls",
)  # fmt: skip


def python_anthropic(*, body: Json, site_url: str) -> str:
    request, left_out = anthropic_request(body)
    arguments = "\n".join(f"    {name}={python_literal(value, depth=1)}," for name, value in request.items())
    note = f"# Has no place in /v1/messages: {', '.join(left_out)}.\n" if left_out else ""
    return (
        f"{python_imports(arguments, 'from anthropic import Anthropic')}"
        f'client = Anthropic(base_url="{site_url}", api_key=os.environ["{KEY_VARIABLE}"])\n\n'
        f"{note}with client.messages.stream(\n{arguments}\n) as stream:\n"
        "    for text in stream.text_stream:\n"
        '        print(text, end="", flush=True)\n'
    )


def anthropic_request(body: Json) -> tuple[Json, list[str]]:
    """The arguments of `messages.stream`, and the fields that have no place among them."""
    system = "\n\n".join(message["content"] for message in body["messages"] if message["role"] == "system")
    request: Json = {"model": body["model"], "max_tokens": body.get("max_tokens", DEFAULT_MAX_TOKENS)}
    if system:
        request["system"] = system
    request["messages"] = _messages([message for message in body["messages"] if message["role"] != "system"])
    left_out = [name for name in UNKNOWN if name in body]
    if "temperature" in body:
        if body["temperature"] <= 1:
            request["temperature"] = body["temperature"]
        else:
            left_out.append("temperature above 1")
    if "tools" in body:
        request["tools"] = [_tool(tool["function"]) for tool in body["tools"]]
    if choice := body.get("tool_choice"):
        request["tool_choice"] = {"type": "any" if choice == "required" else choice}
    if "reasoning_effort" in body:
        request["extra_body"] = {"output_config": {"effort": body["reasoning_effort"]}}
    return request, left_out


def _messages(messages: list[Json]) -> list[Json]:
    made: list[Json] = []
    for message in messages:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if made and made[-1]["role"] == "user" and isinstance(made[-1]["content"], list):
                made[-1]["content"].append(block)
            else:
                made.append({"role": "user", "content": [block]})
        else:
            made.append({"role": message["role"], "content": _content(message)})
    return made


def _content(message: Json) -> Any:
    content = message["content"]
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": _arguments(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    if calls:
        return [*([{"type": "text", "text": content}] if content else []), *calls]
    if isinstance(content, list):
        return [_part(part) for part in content]
    return content


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _part(part: Json) -> Json:
    if part["type"] != "image_url":
        return part
    url = part["image_url"]["url"]
    if match := PICTURE.fullmatch(url):
        media_type, data = match[1], bytes_mark(match[2])
    else:
        media_type, _comma, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _tool(function: Json) -> Json:
    described = {"description": function["description"]} if "description" in function else {}
    return {"name": function["name"], **described, "input_schema": function["parameters"]}
