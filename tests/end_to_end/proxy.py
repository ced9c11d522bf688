"""nginx before web processes, with the very files of `deploy/`: only ports, paths and addresses are put in."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.forked import ROOT
from tests.services import accepts, free_port, missing, wait_until

HOST = "tokens.example.com"
DEPLOY = ROOT / "deploy"

# What a distribution's own nginx.conf holds around the files.
AROUND = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/upstream.conf;
    include {folder}/site.conf;
}}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    port: int
    clear_port: int
    tls: ssl.SSLContext

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def client(self, *, address: str = "127.0.0.1", secret: str = "") -> httpx.Client:
        """A client whose connections come from `address`, with a key where one is given."""
        headers = {"host": HOST} | ({"authorization": f"Bearer {secret}"} if secret else {})
        transport = httpx.HTTPTransport(verify=self.tls, local_address=address)
        return httpx.Client(base_url=self.url, headers=headers, transport=transport, timeout=60)


@contextmanager
def nginx(folder: Path, *, web_ports: list[int]) -> Iterator[Proxy]:
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        missing("nginx")
    port, clear_port = free_port(), free_port()
    tls = _certificate(folder)
    (folder / "upstream.conf").write_text(_upstream(web_ports))
    (folder / "site.conf").write_text(_site(folder, port=port, clear_port=clear_port))
    # Tests may run as root, whose folders the nobody of nginx's workers cannot enter.
    as_root = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(as_root + AROUND.format(folder=folder))
    log = folder / "nginx-error.log"
    with (folder / "nginx.log").open("wb") as output:
        command = [program or "", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(log)]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: process.poll() is not None or accepts(port), what="nginx listening")
        assert process.poll() is None, (folder / "nginx.log").read_text() + log.read_text()
        yield Proxy(port, clear_port, tls)
    finally:
        process.terminate()
        process.wait(10)


def _upstream(web_ports: list[int]) -> str:
    text = (DEPLOY / "nginx-upstream.conf").read_text()
    servers = "".join(f"    server 127.0.0.1:{port} max_fails=0;\n" for port in web_ports)
    replaced, count = re.subn(r"(    server 127\.0\.0\.1:\d+ max_fails=0;\n)+", servers, text)
    assert count == 1
    return replaced


def _site(folder: Path, *, port: int, clear_port: int) -> str:
    text = (DEPLOY / "nginx.conf").read_text()
    for before, after in {
        "listen 80;": f"listen 127.0.0.1:{clear_port};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "/etc/ssl/token-factory/": f"{folder}/",
    }.items():
        assert before in text
        text = text.replace(before, after)
    return text


def _certificate(folder: Path) -> ssl.SSLContext:
    """A certificate of this machine's, in the two files that the configuration names; who trusts it."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}",
            "-addext", f"subjectAltName=DNS:{HOST},IP:127.0.0.1", "-keyout", "privkey.pem", "-out", "fullchain.pem",
        ],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return ssl.create_default_context(cafile=str(folder / "fullchain.pem"))
