"""Guesses of keys are bounded for each address, and cost those who have a key nothing."""

from __future__ import annotations

import asyncio
import hashlib
import time

import pytest

from gateway.credentials import KeyRing, KnownKey
from gateway.errors import RateLimited, Unauthorized
from gateway.wrong_keys import WrongKeys
from tests.gateway.ledger import CALLER

GOOD = "rc-" + "ab" * 24


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digests that were looked up; GOOD's is found."""
    seen: list[str] = []

    def load(digest: str, epoch: bytes) -> KnownKey | None:
        seen.append(digest)
        return KnownKey(epoch, CALLER, None) if digest == _digest(GOOD) else None

    monkeypatch.setattr("gateway.credentials._load", load)
    monkeypatch.setattr(time, "time", lambda: 1_790_000_015.0)
    return seen


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


async def _epoch() -> bytes:
    return b"the epoch"


def outcome(keys: KeyRing, secret: str, address: str) -> str:
    try:
        asyncio.run(keys.authenticate(secret.encode(), address=address))
    except (Unauthorized, RateLimited) as error:
        return f"{error.status} {error.code}"
    return "in"


def guess(number: int) -> str:
    return f"rc-{number:048x}"


def test_a_key_that_was_right_is_looked_up_again_whatever_else_its_address_sends(looked_up: list[str]) -> None:
    epochs = [b"first", b"first", b"second", None]

    async def epoch() -> bytes | None:
        return epochs.pop(0)

    keys = KeyRing(epoch, wrong_rpm=1)
    told = [outcome(keys, secret, "192.0.2.1") for secret in (GOOD, guess(1), GOOD, GOOD)]
    assert told == ["in", "401 invalid_api_key", "in", "in"]
    assert looked_up.count(_digest(GOOD)) == 3


def test_after_so_many_guesses_an_address_is_refused_without_a_look_up(looked_up: list[str]) -> None:
    keys = KeyRing(_epoch, wrong_rpm=3)
    seen = [outcome(keys, guess(number), "192.0.2.1") for number in range(5)]
    assert seen == ["401 invalid_api_key"] * 3 + ["429 ip_rate_limit_exceeded"] * 2
    assert len(looked_up) == 3
    assert outcome(keys, guess(9), "192.0.2.2") == "401 invalid_api_key"


def test_a_key_that_is_known_works_from_there_and_good_ones_do_not_count(looked_up: list[str]) -> None:
    keys = KeyRing(_epoch, wrong_rpm=3)
    assert outcome(keys, GOOD, "192.0.2.1") == "in"
    for number in range(4):
        outcome(keys, guess(number), "192.0.2.1")
    assert outcome(keys, GOOD, "192.0.2.1") == "in"
    assert len(looked_up) == 1 + 3


def test_all_of_one_subscribers_ipv6_is_one_address(looked_up: list[str]) -> None:
    keys = KeyRing(_epoch, wrong_rpm=1)
    assert outcome(keys, guess(1), "2001:db8:1:2::1") == "401 invalid_api_key"
    assert outcome(keys, guess(2), "2001:db8:1:2:ffff::9") == "429 ip_rate_limit_exceeded"
    assert outcome(keys, guess(3), "2001:db8:1:3::1") == "401 invalid_api_key"


def test_the_next_minute_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = WrongKeys(1)
    monkeypatch.setattr(time, "time", lambda: 1_790_000_015.0)
    wrong.try_from("192.0.2.1")
    with pytest.raises(RateLimited) as refusal:
        wrong.try_from("192.0.2.1")
    # 1,790,000,015 is 35 s into its minute.
    assert (b"retry-after", b"25") in refusal.value.headers
    monkeypatch.setattr(time, "time", lambda: 1_790_000_040.0)
    wrong.try_from("192.0.2.1")
