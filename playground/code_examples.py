"""The same request for curl, Python and JavaScript, with the reader's own address."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from gateway.catalog import Endpoint, Model
from playground.code_anthropic import python_anthropic
from playground.code_python import KEY_VARIABLE, PICTURE_IN_JSON, python_imports, python_literal
from playground.markdown import code_html

PORTABLE_HEADER = "x-portable"
# Fields that the openai packages do not know by name.
EXTRA_FIELDS = ("chat_template_kwargs",)


@dataclass(frozen=True, slots=True)
class Example:
    id: str
    label: str
    language: str
    source: str

    @property
    def html(self) -> SafeString:
        return code_html(self.source, self.language)


def chat_examples(*, body: dict[str, Any], site_url: str, portable: bool = False) -> list[Example]:
    path, options = "/v1/chat/completions", [f'-H "{PORTABLE_HEADER}: 1"'] if portable else []
    openai = python_openai(body=body, site_url=site_url, portable=portable)
    javascript = javascript_openai(body=body, site_url=site_url, portable=portable)
    return [
        Example("curl", "curl", "bash", curl(path=path, body=body, site_url=site_url, options=options)),
        Example("python", "Python · openai", "python", openai),
        Example("anthropic", "Python · anthropic", "python", python_anthropic(body=body, site_url=site_url)),
        Example("javascript", "JavaScript", "javascript", javascript),
    ]


def model_examples(*, model: Model, site_url: str) -> list[Example]:
    """The shortest useful request to a model."""
    if model.is_chat:
        messages = [{"role": "user", "content": "Explain prompt caching in two sentences."}]
        return chat_examples(body={"model": model.id, "messages": messages, "stream": True}, site_url=site_url)
    body = {"model": model.id} | SAMPLES[model.endpoint]
    extra = ["--output speech.wav"] if model.endpoint is Endpoint.SPEECH else []
    return [
        Example("curl", "curl", "bash", curl(path=model.endpoint_path, body=body, site_url=site_url, options=extra)),
        Example(
            "python",
            "Python",
            "python",
            _python_http(path=model.endpoint_path, body=body, site_url=site_url, model=model),
        ),
        Example(
            "javascript",
            "JavaScript",
            "javascript",
            _javascript_http(path=model.endpoint_path, body=body, site_url=site_url),
        ),
    ]


SAMPLES: dict[Endpoint, dict[str, Any]] = {
    Endpoint.OCR: {
        "document": {"type": "document_url", "document_url": "https://example.com/report.pdf"},
        "pages": "0-2",
    },
    Endpoint.SPEECH: {"input": "Good morning. The build is green.", "response_format": "wav"},
    Endpoint.SYSTEMONE: {
        "state": "The customer writes: my parcel is three days late and nobody answers.",
        "questions": {
            "tone": {
                "type": "choice",
                "instructions": "How does the customer sound?",
                "criteria": {"calm": None, "annoyed": "impatient, still polite", "angry": None},
            }
        },
    },
}


def curl(*, path: str, body: dict[str, Any], site_url: str, options: list[str] | None = None) -> str:
    payload = json.dumps(body, ensure_ascii=False, indent=2).replace("'", "'\\''")
    payload = PICTURE_IN_JSON.sub(_shell_picture, payload)
    lines = [
        f"curl {'-N ' if body.get('stream') else ''}{site_url}{path}",
        f'-H "Authorization: Bearer ${KEY_VARIABLE}"',
        '-H "Content-Type: application/json"',
        *(options or []),
        f"-d '{payload}'",
    ]
    return " \\\n  ".join(lines) + "\n"


def _shell_picture(mark: re.Match[str]) -> str:
    """Out of the single quotes and in again: the shell puts the file there, with whichever base64 it has."""
    return f"\"data:{mark[1]};base64,'\"$(base64 < {mark[2]} | tr -d '\\n')\"'\""


def python_openai(*, body: dict[str, Any], site_url: str, portable: bool = False) -> str:
    named = {name: value for name, value in body.items() if name not in EXTRA_FIELDS}
    extra = {name: body[name] for name in EXTRA_FIELDS if name in body}
    if extra:
        named["extra_body"] = extra
    if portable:
        named["extra_headers"] = {PORTABLE_HEADER: "1"}
    arguments = "\n".join(f"    {name}={python_literal(value, depth=1)}," for name, value in named.items())
    return (
        f"{python_imports(arguments, 'from openai import OpenAI')}"
        f'client = OpenAI(base_url="{site_url}/v1", api_key=os.environ["{KEY_VARIABLE}"])\n\n'
        f"stream = client.chat.completions.create(\n{arguments}\n)\n"
        "for chunk in stream:\n    if chunk.choices:\n"
        '        print(chunk.choices[0].delta.content or "", end="", flush=True)\n'
    )


def javascript_openai(*, body: dict[str, Any], site_url: str, portable: bool = False) -> str:
    request = javascript_literal(body)
    picture = 'import { readFileSync } from "node:fs";\n' if "readFileSync(" in request else ""
    headers = f', {{ headers: {{ "{PORTABLE_HEADER}": "1" }} }}' if portable else ""
    return (
        f'{picture}import OpenAI from "openai";\n\n'
        f'const client = new OpenAI({{ baseURL: "{site_url}/v1", apiKey: process.env.{KEY_VARIABLE} }});\n\n'
        f"const stream = await client.chat.completions.create({request}{headers});\n"
        "for await (const chunk of stream) {\n"
        '  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\n}\n'
    )


def _python_http(*, path: str, body: dict[str, Any], site_url: str, model: Model) -> str:
    result = (
        'open("speech.wav", "wb").write(answer.content)'
        if model.endpoint is Endpoint.SPEECH
        else "print(answer.json())"
    )
    return (
        "import os\n\nimport httpx\n\n"
        "answer = httpx.post(\n"
        f'    "{site_url}{path}",\n'
        f'    headers={{"Authorization": f"Bearer {{os.environ[\'{KEY_VARIABLE}\']}}"}},\n'
        f"    json={python_literal(body, depth=1)},\n    timeout=600,\n)\nanswer.raise_for_status()\n{result}\n"
    )


def _javascript_http(*, path: str, body: dict[str, Any], site_url: str) -> str:
    authorization = f"Authorization: `Bearer ${{process.env.{KEY_VARIABLE}}}`"
    return (
        f'const answer = await fetch("{site_url}{path}", {{\n'
        '  method: "POST",\n'
        f'  headers: {{ {authorization}, "Content-Type": "application/json" }},\n'
        f"  body: JSON.stringify({javascript_literal(body)}),\n}});\nconsole.log(answer.status, await answer.text());\n"
    )


def javascript_literal(value: Any) -> str:
    """JSON with bare keys where JavaScript allows them."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    text = re.sub(r'^(\s*)"([A-Za-z_]\w*)":', r"\1\2:", text, flags=re.MULTILINE)
    return PICTURE_IN_JSON.sub(r'`data:\1;base64,${readFileSync("\2", "base64")}`', text)
