"""Authenticator apps and recovery codes in the database: sealed, and of no use under another SECRET_KEY."""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Iterator

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.conf import LazySettings

from accounts import sealing
from accounts.models import User
from tests.accounts.conftest import MakePerson
from tests.secrecy import is_secret


@pytest.fixture
def person(make_person: MakePerson) -> User:
    return make_person()


@pytest.fixture
def another_secret_key(settings: LazySettings) -> Iterator[None]:
    settings.SECRET_KEY = "another-secret-key"
    sealing._fernet.cache_clear()
    yield
    sealing._fernet.cache_clear()


def code_of(secret: str) -> str:
    """The one of now."""
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30)))


def kept() -> str:
    return json.dumps(list(Authenticator.objects.values_list("data", flat=True)))


def test_an_authenticator_app_works_and_its_secret_is_not_readable(person: User) -> None:
    secret = is_secret(generate_totp_secret())
    TOTP.activate(person, secret)
    assert secret not in kept()
    assert TOTP(Authenticator.objects.get()).validate_code(code_of(secret))


def test_recovery_codes_work_once_and_their_seed_is_not_readable(person: User) -> None:
    codes = RecoveryCodes.activate(person)
    (code, *others) = codes.get_unused_codes()
    again = RecoveryCodes(Authenticator.objects.get())
    assert not re.search(r"[0-9a-f]{80}", json.dumps(again.instance.data))
    assert [again.validate_code(code), again.validate_code(code)] == [True, False]
    assert again.get_unused_codes() == others


def test_under_another_secret_key_no_code_is_right(person: User, request: pytest.FixtureRequest) -> None:
    secret = generate_totp_secret()
    TOTP.activate(person, secret)
    code = RecoveryCodes.activate(person).get_unused_codes()[0]
    request.getfixturevalue("another_secret_key")
    app, codes = (Authenticator.objects.get(type=kind) for kind in ("totp", "recovery_codes"))
    assert not TOTP(app).validate_code(code_of(secret))
    assert not RecoveryCodes(codes).validate_code(code)


def test_what_was_kept_readable_before_is_sealed_by_the_migration(person: User) -> None:
    migration = importlib.import_module("accounts.migrations.0002_seal_second_factors")
    before = {"secret": "JBSWY3DPEHPK3PXP", "other": 1, "migrated_codes": ["12345678"]}
    once = migration.change(before, migration.sealed)
    assert once["other"] == 1
    assert "JBSWY" not in json.dumps(once)
    assert "12345678" not in json.dumps(once)
    assert migration.change(once, migration.sealed) == once
    assert migration.change(once, sealing.unseal) == before
