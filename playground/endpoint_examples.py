"""Documents, speech and decisions as code: the page's own request for curl, Python and JavaScript."""

from __future__ import annotations

import json
import shlex
from typing import Any

from playground.code_examples import Example, curl, javascript_literal
from playground.code_python import KEY_VARIABLE, python_imports, python_literal

BEARER = f"Bearer ${{process.env.{KEY_VARIABLE}}}"
IMAGE_ENDINGS = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}


# -- documents -----------------------------------------------------------------------------------


def document_examples(*, model: str, name: str, site_url: str) -> list[Example]:
    """`name` is the file's, as the person has it: it may hold any character."""
    return [
        Example("curl", "curl", "bash", _document_curl(model, name, site_url)),
        Example("python", "Python · mistralai", "python", _document_python(model, name, site_url)),
        Example("javascript", "JavaScript", "javascript", _document_javascript(model, name, site_url)),
    ]


def _document_curl(model: str, name: str, site_url: str) -> str:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        f"curl {site_url}/v1/ocr",
        f'-H "Authorization: Bearer ${KEY_VARIABLE}"',
        f"-F {shlex.quote(f'model={model}')}",
        f"-F {shlex.quote(f'file=@"{quoted}"')}",
    ]
    return " \\\n  ".join(lines) + "\n"


def _document_python(model: str, name: str, site_url: str) -> str:
    media_type = IMAGE_ENDINGS.get(name.rpartition(".")[2].lower())
    kind = "image_url" if media_type else "document_url"
    return (
        "import os\nfrom base64 import b64encode\nfrom pathlib import Path\n\nfrom mistralai.client import Mistral\n\n"
        f'client = Mistral(api_key=os.environ["{KEY_VARIABLE}"], server_url="{site_url}")\n\n'
        f"data = b64encode(Path({python_literal(name, depth=0)}).read_bytes()).decode()\n"
        "answer = client.ocr.process(\n"
        f"    model={python_literal(model, depth=0)},\n"
        f'    document={{"type": "{kind}", "{kind}": f"data:{media_type or "application/pdf"};base64,{{data}}"}},\n'
        ")\nfor page in answer.pages:\n    print(page.markdown)\n"
    )


def _document_javascript(model: str, name: str, site_url: str) -> str:
    file = json.dumps(name, ensure_ascii=False)
    return (
        'import { readFile } from "node:fs/promises";\n\n'
        "const form = new FormData();\n"
        f'form.append("model", {json.dumps(model, ensure_ascii=False)});\n'
        f'form.append("file", new Blob([await readFile({file})]), {file});\n\n'
        f'const answer = await fetch("{site_url}/v1/ocr", {{\n'
        '  method: "POST",\n'
        f"  headers: {{ Authorization: `{BEARER}` }},\n"
        "  body: form,\n});\n"
        "for (const page of (await answer.json()).pages) console.log(page.markdown);\n"
    )


# -- speech --------------------------------------------------------------------------------------


def speech_examples(*, body: dict[str, Any], site_url: str) -> list[Example]:
    file = f"speech.{body.get('response_format', 'wav')}"
    source = curl(path="/v1/audio/speech", body=body, site_url=site_url, options=[f"--output {file}"])
    return [
        Example("curl", "curl", "bash", source),
        Example("python", "Python · openai", "python", _speech_python(body, file, site_url)),
        Example("javascript", "JavaScript · openai", "javascript", _speech_javascript(body, file, site_url)),
    ]


def _speech_python(body: dict[str, Any], file: str, site_url: str) -> str:
    # The package wants to be told about the voice, if only that there is none.
    omitted = "" if "voice" in body else ", omit"
    arguments = [f"    {name}={python_literal(value, depth=1)},\n" for name, value in body.items()]
    if omitted:
        arguments.append("    voice=omit,\n")
    return (
        f"import os\n\nfrom openai import OpenAI{omitted}\n\n"
        f'client = OpenAI(base_url="{site_url}/v1", api_key=os.environ["{KEY_VARIABLE}"])\n\n'
        f"with client.audio.speech.with_streaming_response.create(\n{''.join(arguments)}) as answer:\n"
        f'    answer.stream_to_file("{file}")\n'
    )


def _speech_javascript(body: dict[str, Any], file: str, site_url: str) -> str:
    return (
        'import { writeFile } from "node:fs/promises";\nimport OpenAI from "openai";\n\n'
        f'const client = new OpenAI({{ baseURL: "{site_url}/v1", apiKey: process.env.{KEY_VARIABLE} }});\n\n'
        f"const answer = await client.audio.speech.create({javascript_literal(body)});\n"
        f'await writeFile("{file}", Buffer.from(await answer.arrayBuffer()));\n'
    )


# -- decisions -----------------------------------------------------------------------------------


def decision_examples(*, body: dict[str, Any], site_url: str) -> list[Example]:
    return [
        Example("curl", "curl", "bash", curl(path="/v1/systemone", body=body, site_url=site_url)),
        Example("python", "Python · httpx", "python", _decision_python(body, site_url)),
        Example("javascript", "JavaScript", "javascript", _decision_javascript(body, site_url)),
    ]


def _decision_python(body: dict[str, Any], site_url: str) -> str:
    literal = python_literal(body, depth=1)
    return (
        f"{python_imports(literal, 'import httpx')}"
        f'answer = httpx.post(\n    "{site_url}/v1/systemone",\n'
        f'    headers={{"Authorization": f"Bearer {{os.environ[\'{KEY_VARIABLE}\']}}"}},\n'
        f"    json={literal},\n    timeout=600,\n)\nanswer.raise_for_status()\n"
        'for name, found in answer.json()["answers"].items():\n    print(name, found["probabilities"])\n'
    )


def _decision_javascript(body: dict[str, Any], site_url: str) -> str:
    literal = javascript_literal(body)
    read = 'import { readFileSync } from "node:fs";\n\n' if "readFileSync(" in literal else ""
    return (
        f'{read}const answer = await fetch("{site_url}/v1/systemone", {{\n'
        '  method: "POST",\n'
        f'  headers: {{ Authorization: `{BEARER}`, "Content-Type": "application/json" }},\n'
        f"  body: JSON.stringify({literal}),\n}});\nconsole.log((await answer.json()).answers);\n"
    )
