"""A small OpenID Connect provider on a loopback socket: discovery, authorization code with PKCE, tokens, userinfo.

It refuses what a real one refuses: another client, secret, redirect address or code verifier, and a code used twice.
Whoever is sent to it is signed in there already and consents.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.secrecy import is_secret

CLIENT_ID = "token-factory"
CLIENT_SECRET = is_secret("hush-4c1f0e9a77d2")
KEY_ID = "key-1"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(slots=True)
class Provider:
    """`claims` are the person's; `token_claims` overrides those of the id token; `denied` is a refusal of consent."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    token_claims: dict[str, Any] = field(default_factory=dict)
    denied: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    access_tokens: set[str] = field(default_factory=set)

    def signs_in(self, subject: str, **claims: Any) -> None:
        """From now on whoever comes is this person."""
        self.claims = {"sub": subject} | claims
        self.token_claims, self.denied = {}, False

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
        }

    def jwks(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        return {"keys": [public | {"kid": KEY_ID, "use": "sig", "alg": "RS256"}]}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent on to. Raises ValueError."""
        _check(asked.get("client_id") == CLIENT_ID, "another client")
        _check(asked.get("response_type") == "code", "only codes are given")
        _check("openid" in asked.get("scope", "").split(), "no OpenID")
        _check(asked.get("code_challenge_method") == "S256", "PKCE is asked for")
        if self.denied:
            return f"{asked['redirect_uri']}?{urlencode({'error': 'access_denied', 'state': asked['state']})}"
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, asked: dict[str, str], authorization: str) -> dict[str, Any]:
        """Raises ValueError."""
        given = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        _check(authorization == f"Basic {given}", "another client or secret")
        granted = self.codes.pop(asked["code"], None)
        _check(granted is not None, "unknown code, or used before")
        assert granted is not None
        _check(granted["redirect_uri"] == asked["redirect_uri"], "another redirect address")
        verifier = hashlib.sha256(asked["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        _check(granted["code_challenge"] == challenge, "another code verifier")
        access_token = is_secret(secrets.token_urlsafe(24))
        self.access_tokens.add(access_token)
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 300, **self.claims, **self.token_claims}
        id_token = jwt.encode(claims, KEY, algorithm="RS256", headers={"kid": KEY_ID})
        return {"access_token": access_token, "token_type": "Bearer", "expires_in": 300, "id_token": id_token}

    def userinfo(self, authorization: str) -> dict[str, Any]:
        """Raises ValueError."""
        _check(authorization.removeprefix("Bearer ") in self.access_tokens, "unknown access token")
        return self.claims


def _check(right: bool, otherwise: str) -> None:
    if not right:
        raise ValueError(otherwise)


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answered({})

        def do_POST(self) -> None:
            self._answered(_form(self.rfile.read(int(self.headers["content-length"])).decode()))

        def _answered(self, form: dict[str, str]) -> None:
            try:
                self._answer(form)
            except (ValueError, KeyError) as refused:
                self._send(400, {"error": "invalid_request", "error_description": str(refused)})

        def _answer(self, form: dict[str, str]) -> None:
            parts = urlsplit(self.path)
            authorization = self.headers.get("authorization", "")
            if parts.path == "/authorize":
                self.send_response(302)
                self.send_header("location", provider.authorize(_form(parts.query)))
                self.end_headers()
                return
            answers: dict[str, Callable[[], dict[str, Any]]] = {
                "/.well-known/openid-configuration": provider.discovery,
                "/jwks": provider.jwks,
                "/token": lambda: provider.token(form, authorization),
                "/userinfo": lambda: provider.userinfo(authorization),
            }
            self._send(200, answers[parts.path]())

        def _send(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _form(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


@contextmanager
def oidc_provider_server() -> Iterator[Provider]:
    provider = Provider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider))
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
