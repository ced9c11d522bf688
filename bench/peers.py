"""Others that are measured beside the gateway, doing no more than passing on: nginx, LiteLLM's proxy, vLLM's router."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from programs import free_port, get, running, wait_until
from workloads import LITELLM, NGINX, ROUTER, Target

LITELLM_KEY = "sk-bench"
# What one process of it takes without falling hopelessly behind, which would only stretch the measurement.
LITELLM_STREAMS = 64
# Its imports alone can take a minute.
LITELLM_START_SECONDS = 240.0

NGINX_FILE = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 75;
  client_body_temp_path {folder}/nginx-body; proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-f; uwsgi_temp_path {folder}/nginx-u; scgi_temp_path {folder}/nginx-s;
  upstream model {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def find_nginx() -> str | None:
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


@contextmanager
def nginx(folder: Path, *, upstream_port: int) -> Iterator[int]:
    """nginx as a plain reverse proxy with one worker; its port."""
    program, port = find_nginx(), free_port()
    assert program is not None
    file = folder / "nginx.conf"
    file.write_text(NGINX_FILE.format(folder=folder, upstream=upstream_port, port=port))
    # Its worker gives up root's rights and must still reach its folders.
    folder.chmod(0o711)
    log = folder / "nginx.log"
    with running([program, "-c", str(file), "-p", str(folder)], log=log) as process:
        wait_until(lambda: get(port, "/v1/models") is not None, what="nginx", process=process, log=log)
        yield port


LITELLM_FILE = """
model_list:
  - model_name: bench-model
    litellm_params: {{model: openai/bench-model, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none}}
general_settings: {{master_key: {key}, disable_error_logs: true}}
litellm_settings: {{set_verbose: false, json_logs: true}}
"""


@contextmanager
def litellm(folder: Path, program: str, *, upstream_port: int) -> Iterator[int]:
    """LiteLLM's proxy with one worker and no database; its port."""
    port, log = free_port(), folder / "litellm.log"
    file = folder / "litellm.yaml"
    file.write_text(LITELLM_FILE.format(upstream=upstream_port, key=LITELLM_KEY))
    command = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    # Its settings for production; the price list comes with the package instead of from the network.
    settings = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    with running(command, log=log, environment=inherited | settings) as process:
        wait_until(
            lambda: get(port, "/v1/models", key=LITELLM_KEY) is not None,
            what="LiteLLM",
            process=process,
            log=log,
            seconds=LITELLM_START_SECONDS,
        )
        yield port


@contextmanager
def router(folder: Path, program: str, *, upstream_port: int) -> Iterator[int]:
    """vLLM's router (Rust) before one server; its port."""
    port, log = free_port(), folder / "router.log"
    command = [
        program, "--worker-urls", f"http://127.0.0.1:{upstream_port}", "--host", "127.0.0.1", "--port", str(port),
        "--policy", "round_robin", "--log-level", "error", "--prometheus-port", str(free_port()),
    ]  # fmt: skip
    with running(command, log=log) as process:
        wait_until(lambda: get(port, "/v1/models") is not None, what="the router", process=process, log=log)
        yield port


@dataclass(frozen=True, slots=True)
class Programs:
    """Where they are installed; empty: not measured."""

    litellm: str = ""
    router: str = ""


@contextmanager
def peers(folder: Path, programs: Programs, *, upstream_port: int) -> Iterator[list[Target]]:
    """Those that are here, started."""
    targets = []
    with ExitStack() as started:
        if find_nginx():
            targets.append(Target(NGINX, started.enter_context(nginx(folder, upstream_port=upstream_port))))
        if programs.router:
            port = started.enter_context(router(folder, programs.router, upstream_port=upstream_port))
            targets.append(Target(ROUTER, port))
        if programs.litellm:
            port = started.enter_context(litellm(folder, programs.litellm, upstream_port=upstream_port))
            targets.append(Target(LITELLM, port, LITELLM_KEY, max_connections=LITELLM_STREAMS))
        yield targets
