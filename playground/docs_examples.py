"""The code of the documentation: complete programs for the reader's own address, each of which a test runs.

JavaScript is plain `fetch`: it runs in Node and needs no package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playground.code_anthropic import python_anthropic
from playground.code_examples import Example, curl, javascript_literal
from playground.code_python import KEY_VARIABLE, python_literal

CHAT = "/v1/chat/completions"
BEARER = f'-H "Authorization: Bearer ${KEY_VARIABLE}"'
ASK = [{"role": "user", "content": "What is a token? Answer in one sentence."}]
_OPENAI = (
    "import os\n\nfrom openai import OpenAI\n\n"
    'client = OpenAI(base_url="{site}/v1", api_key=os.environ["' + KEY_VARIABLE + '"])\n\n'
)


def docs_examples(*, site: str, model: str, thinker: str, strict: str) -> Mapping[str, list[Example]]:
    """By name. `thinker` takes the effort `low`; `strict` refuses what portable mode adapts."""
    return {
        "first": _first(site, model),
        "models": [_curl("models", f"curl {site}/v1/models \\\n  {BEARER}\n")],
        "me": [
            _curl("me", f"curl {site}/api/me \\\n  {BEARER}\n"),
            _python("me", "Python", _get(site, "/api/me", 'answer["team"]["name"], answer["key"]["name"]')),
        ],
        "x-api-key": [_curl("x-api-key", f'curl {site}/v1/models \\\n  -H "x-api-key: ${KEY_VARIABLE}"\n')],
        "refused": _refused(site),
        "headers": [_curl("headers", _with_headers(curl(path=CHAT, body=_body(model), site_url=site)))],
        "waiting": [_python("waiting", "Python · openai", _waiting(site, model))],
        "thinking": _thinking(site, thinker),
        "stream": _stream(site, model),
        "portable": _portable(site, strict),
        "usage": [
            _curl("usage", f'curl "{site}/api/usage?interval=day&group_by=model,key" \\\n  {BEARER}\n'),
            _python("usage", "Python", _get(site, "/api/usage?group_by=model", 'answer["total"]["points"]')),
        ],
    }


def _body(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": ASK} | more


def _curl(name: str, source: str) -> Example:
    return Example(f"{name}-curl", "curl", "bash", source)


def _python(name: str, label: str, source: str) -> Example:
    return Example(f"{name}-{'anthropic' if 'anthropic' in label else 'python'}", label, "python", source)


def _javascript(name: str, source: str) -> Example:
    return Example(f"{name}-javascript", "JavaScript", "javascript", source)


def _with_headers(command: str) -> str:
    return command.replace("curl ", "curl -i ", 1)


def _create(body: dict[str, Any]) -> str:
    arguments = "\n".join(f"    {name}={python_literal(value, depth=1)}," for name, value in body.items())
    return f"client.chat.completions.create(\n{arguments}\n)\n"


def _fetch(site: str, body: dict[str, Any]) -> str:
    return (
        f'const answer = await fetch("{site}{CHAT}", {{\n'
        '  method: "POST",\n'
        "  headers: {\n"
        f"    Authorization: `Bearer ${{process.env.{KEY_VARIABLE}}}`,\n"
        '    "Content-Type": "application/json",\n  },\n'
        f"  body: JSON.stringify({javascript_literal(body)}),\n}});\n"
        "if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);\n"
    )


def _get(site: str, path: str, shown: str) -> str:
    return (
        "import os\n\nimport httpx\n\n"
        f'headers = {{"Authorization": f"Bearer {{os.environ[\'{KEY_VARIABLE}\']}}"}}\n'
        f'answer = httpx.get("{site}{path}", headers=headers).raise_for_status().json()\nprint({shown})\n'
    )


def _first(site: str, model: str) -> list[Example]:
    body = _body(model)
    openai = _OPENAI.format(site=site) + f"answer = {_create(body)}print(answer.choices[0].message.content)\n"
    shown = "const { choices, usage } = await answer.json();\nconsole.log(choices[0].message.content, usage);\n"
    return [
        _curl("first", curl(path=CHAT, body=body, site_url=site)),
        _python("first", "Python · openai", openai),
        _python("first", "Python · anthropic", python_anthropic(body=body, site_url=site)),
        _javascript("first", _fetch(site, body) + shown),
    ]


def _refused(site: str) -> list[Example]:
    """A model that nobody serves, and what a program makes of it."""
    source = _OPENAI.format(site=site).replace("from openai import OpenAI", "from openai import APIStatusError, OpenAI")
    call = "\n".join(f"    {line}" if line else line for line in _create(_body("no-such-model")).splitlines())
    source += (
        f"try:\n{call}\nexcept APIStatusError as error:\n"
        '    print(error.status_code, error.body["message"], error.response.headers["x-request-id"])\n'
    )
    return [_python("refused", "Python · openai", source)]


def _waiting(site: str, model: str) -> str:
    call = "\n".join(f"            {line}" if line else line for line in _create(_body(model)).splitlines())
    return (
        "import os\nimport time\n\nfrom openai import OpenAI, RateLimitError\n\n"
        f'client = OpenAI(base_url="{site}/v1", api_key=os.environ["{KEY_VARIABLE}"], max_retries=0)\n\n\n'
        f"def ask():\n    while True:\n        try:\n            return (\n{_deeper(call)}\n            )\n"
        "        except RateLimitError as error:\n"
        '            if error.code == "insufficient_quota":\n                raise\n'
        '            time.sleep(int(error.response.headers["retry-after"]))\n\n\n'
        "print(ask().choices[0].message.content)\n"
    )


def _deeper(source: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in source.splitlines())


def _thinking(site: str, model: str) -> list[Example]:
    body = _body(model, reasoning_effort="low")
    openai = _OPENAI.format(site=site) + (
        f"answer = {_create(body)}message = answer.choices[0].message\n"
        'print("thought:", getattr(message, "reasoning", None))\nprint(message.content)\n'
    )
    return [
        _curl("thinking", curl(path=CHAT, body=body, site_url=site)),
        _python("thinking", "Python · openai", openai),
        _python("thinking", "Python · anthropic", python_anthropic(body=body, site_url=site)),
    ]


def _stream(site: str, model: str) -> list[Example]:
    body = _body(model, stream=True, stream_options={"include_usage": True})
    openai = _OPENAI.format(site=site) + (
        f"stream = {_create(body)}for chunk in stream:\n    if chunk.choices:\n"
        '        print(chunk.choices[0].delta.content or "", end="", flush=True)\n'
        "    if chunk.usage:\n        print()\n        print(chunk.usage)\n"
    )
    javascript = _fetch(site, body) + (
        'let text = "";\n'
        "for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {\n"
        "  text += part;\n"
        '  const events = text.split("\\n\\n");\n'
        "  text = events.pop(); // perhaps half an event\n"
        "  for (const event of events) {\n"
        '    if (!event.startsWith("data: ") || event === "data: [DONE]") continue;\n'
        "    const chunk = JSON.parse(event.slice(6));\n"
        '    process.stdout.write(chunk.choices[0]?.delta.content ?? "");\n'
        "    if (chunk.usage) console.log(chunk.usage);\n  }\n}\n"
    )
    return [
        _curl("stream", curl(path=CHAT, body=body, site_url=site)),
        _python("stream", "Python · openai", openai),
        _javascript("stream", javascript),
    ]


def _portable(site: str, model: str) -> list[Example]:
    body = {
        "model": model,
        "messages": [*ASK, {"role": "developer", "content": "Answer in one sentence."}],
        "max_completion_tokens": 400,
        "reasoning_effort": "high",
    }
    headers = ['-H "x-portable: 1"']
    return [_curl("portable", _with_headers(curl(path=CHAT, body=body, site_url=site, options=headers)))]
