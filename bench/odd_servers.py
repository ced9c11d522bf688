"""Model servers that misbehave, each on a port of its own: certificates that do not hold, answers of a gigabyte, and
one that takes connections and says nothing. They speak as much HTTP as the gateway needs to believe them."""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

GIGABYTE = 1_000_000_000
PIECE_BYTES = 1_000_000
READ_SECONDS = 60.0
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip

type Answer = Callable[[socket.socket], None]


class OddServers:
    """`urls`: base address by model. `authority`: the certificate of the one authority that is to be trusted."""

    def __init__(self, folder: Path) -> None:
        self.authority = folder / "authority.pem"
        self.urls: dict[str, str] = {}
        self._servers: list[socketserver.ThreadingTCPServer] = []
        own, stranger = Authority("bench authority"), Authority("a stranger")
        own.write(self.authority)
        here = "127.0.0.1"
        for model, context in (
            ("good-certificate", own.context(folder, "good", address=here)),
            ("expired-certificate", own.context(folder, "expired", address=here, days=-1)),
            ("other-name", own.context(folder, "other", address="127.9.9.9")),
            ("unknown-authority", stranger.context(folder, "unknown", address=here)),
        ):
            self._serve(model, _answer_whole, context)
        self._serve("giant-answer", _send_gigabyte)
        self._serve("giant-line", _stream_one_line)
        self._serve("giant-stream", _stream_gigabyte)
        self._serve("silent", _say_nothing)

    def _serve(self, model: str, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        server = _Server(("127.0.0.1", 0), _handler(answer, context))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._servers.append(server)
        scheme = "https" if context else "http"
        self.urls[model] = f"{scheme}://127.0.0.1:{server.server_address[1]}/v1"

    def __enter__(self) -> OddServers:
        return self

    def __exit__(self, *error: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A gateway that hangs up, or refuses a certificate, is what these are for."""


def _handler(answer: Answer, context: ssl.SSLContext | None) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(READ_SECONDS)
            connection = context.wrap_socket(self.request, server_side=True) if context else self.request
            _read_request(connection)
            answer(connection)
            connection.close()

    return Handler


def _read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            raise ConnectionError
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    left = int(length.partition(b":")[2]) - len(body)
    while left > 0:
        left -= len(connection.recv(65_536)) or left


# -- answers ----------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
STREAM_HEAD = HEAD + b"content-type: text/event-stream\r\n\r\n"


def _answer_whole(connection: socket.socket) -> None:
    message = {"role": "assistant", "content": "The certificate holds."}
    body = json.dumps(
        {
            "id": "odd", "object": "chat.completion", "created": 1, "model": "odd",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9},
        }
    ).encode()  # fmt: skip
    connection.sendall(HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def _send_gigabyte(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % GIGABYTE)
    _send(connection, b" " * PIECE_BYTES)


def _stream_one_line(connection: socket.socket) -> None:
    connection.sendall(STREAM_HEAD + b"data: ")
    _send(connection, b"x" * PIECE_BYTES)


def _stream_gigabyte(connection: socket.socket) -> None:
    choice = {"index": 0, "delta": {"content": "x" * 9_800}, "finish_reason": None}
    event = b"data: %s\n\n" % json.dumps({"id": "odd", "model": "odd", "choices": [choice]}).encode()
    connection.sendall(STREAM_HEAD)
    _send(connection, event * (PIECE_BYTES // len(event)))
    connection.sendall(b'data: {"id":"odd","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n')
    connection.sendall(b'data: {"id":"odd","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}\n\n')
    connection.sendall(b"data: [DONE]\n\n")


def _send(connection: socket.socket, piece: bytes) -> None:
    for _ in range(GIGABYTE // len(piece)):
        connection.sendall(piece)


def _say_nothing(connection: socket.socket) -> None:
    connection.recv(1)


# -- certificates -----------------------------------------------------------------------------


class Authority:
    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        # What a strict check of chains asks for, Python's own since 3.13.
        usage = dict.fromkeys(USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
        self._certificate = (
            _begun(self._name, self._name, self._key.public_key(), until=NOW + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def write(self, file: Path) -> None:
        file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def context(self, folder: Path, name: str, *, address: str, days: int = 30) -> ssl.SSLContext:
        """For a server at `address`; `days` until its certificate expires."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        certificate = (
            _begun(subject, self._name, key.public_key(), until=NOW + days * DAY)
            .add_extension(addresses, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        form, secrecy = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file = folder / f"{name}.pem"
        file.write_bytes(key.private_bytes(pem, form, secrecy) + certificate.public_bytes(pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, until: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 30 * DAY)
        .not_valid_after(until)
    )
