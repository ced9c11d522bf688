"""No file of the repository holds a key, a token or a password that could be a real one."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.forked import ROOT

# What each begins with is its maker's; the rest is long enough to be no example.
KINDS = {
    "an API key of ours": re.compile(rb"\brc-[0-9a-f]{48}\b"),
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}"),
    "a cloud's access key": re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a model provider's key": re.compile(rb"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}"),
    "a forge's token": re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{60,}|glpat-[\w-]{20,})"),
    "a chat's token": re.compile(rb"\bxox[abprs]-[A-Za-z0-9-]{20,}"),
    "a signed token": re.compile(rb"\beyJ[\w-]{20,}\.eyJ[\w-]{20,}\.[\w-]{20,}"),
    "a setting with its secret": re.compile(
        rb"(?m)^(?:SECRET_KEY|EMAIL_HOST_PASSWORD|POSTGRES_PASSWORD|OIDC_CLIENT_SECRET|UPSTREAM_API_KEY)=[\"']?[^\s\"'$]{8,}"
    ),
}


def found_in(data: bytes) -> list[str]:
    return [kind for kind, pattern in KINDS.items() if pattern.search(data)]


def tracked_files() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_holds_a_secret() -> None:
    found = {name: kinds for name in tracked_files() if (kinds := found_in((ROOT / name).read_bytes()))}
    assert found == {}


def test_what_must_stay_outside_is_not_tracked() -> None:
    outside = re.compile(r"(^|/)(\.env|secret_key|key-epoch|[^/]*\.(sqlite3|pem|key|p12|journal))$")
    assert [name for name in tracked_files() if outside.search(name)] == []


# Put together here, or the search would find this file.
@pytest.mark.parametrize(
    "text",
    [
        b"rc-" + b"0123456789ab" * 4,
        b"-----BEGIN RSA PRIVATE " + b"KEY-----\n" + b"MIIEow" * 10,
        b"AKIA" + b"ABCDEFGH12345678",
        b"sk-ant-" + b"a1B2" * 10,
        b"ghp_" + b"a1B2" * 9,
        b"xoxb-" + b"1234567890" * 3,
        b"eyJ" + b"hbGciOiJIUzI1NiIsI" * 2 + b".eyJ" + b"zdWIiOiIxMjM0NTY3" * 2 + b"." + b"SflKxwRJSMeKKF2QT4" * 2,
        b"DEBUG=false\nSECRET_KEY=" + b"kx8#qPz0Lm",
    ],
)
def test_each_kind_is_found(text: bytes) -> None:
    assert len(found_in(b"before " + text if b"\n" not in text else text)) == 1


@pytest.mark.parametrize(
    "text", [b"rc-\xe2\x80\xa6", b"SECRET_KEY=\n", b"SECRET_KEY=$FROM_ELSEWHERE", b"sk-bench", b"user:password@host"]
)
def test_examples_are_none(text: bytes) -> None:
    assert found_in(text) == []
