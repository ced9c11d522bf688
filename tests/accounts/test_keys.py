"""Keys: what opens them and until when, and that each change is recorded and told to every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from accounts import key_epoch
from accounts.audit import Actor
from accounts.keys import (
    IssuedKey,
    KeyChanged,
    KeyTerms,
    change_key,
    digest_of,
    disable_key,
    enable_key,
    find_key,
    find_key_by_secret,
    issue_key,
    revoke_key,
    rotate_key,
)
from accounts.models import ApiKey, AuditEntry, KeyState
from tests.accounts.conftest import MakePerson, MakeTeam
from tests.services import dead_port

DAY = 86_400
MEI = Actor(7, "Mei", "203.0.113.9")


@pytest.fixture
def issued(make_team: MakeTeam) -> IssuedKey:
    return issue_key(team=make_team(), created_by=None, name="batch", actor=MEI)


def opens(secret: str) -> int | None:
    found = find_key(digest_of(secret))
    return found.pk if found else None


def pass_time(key: ApiKey, *, seconds: int) -> None:
    """As if that long had gone by since the rotation."""
    assert key.previous_until
    ApiKey.objects.filter(pk=key.pk).update(previous_until=key.previous_until - timedelta(seconds=seconds))


def test_in_the_grace_of_a_rotation_both_secrets_open_the_same_key(issued: IssuedKey) -> None:
    new = rotate_key(key=issued.key, grace_seconds=DAY)
    assert new.secret != issued.secret
    assert opens(issued.secret) == opens(new.secret) == issued.key.pk
    until = new.key.good_until(digest_of(issued.secret))
    assert until == new.key.previous_until
    assert new.key.good_until(digest_of(new.secret)) is None


def test_when_the_grace_is_over_the_old_secret_opens_nothing(issued: IssuedKey) -> None:
    new = rotate_key(key=issued.key, grace_seconds=DAY)
    pass_time(new.key, seconds=DAY - 10)
    assert opens(issued.secret) == issued.key.pk
    pass_time(ApiKey.objects.get(), seconds=10)
    assert opens(issued.secret) is None
    assert opens(new.secret) == issued.key.pk


def test_without_grace_the_old_secret_ends_at_once(issued: IssuedKey) -> None:
    new = rotate_key(key=issued.key, grace_seconds=0)
    assert opens(issued.secret) is None
    assert opens(new.secret) == issued.key.pk


def test_a_second_rotation_ends_the_grace_of_the_first(issued: IssuedKey) -> None:
    second = rotate_key(key=issued.key, grace_seconds=7 * DAY)
    third = rotate_key(key=second.key, grace_seconds=DAY)
    assert [opens(secret) for secret in (issued.secret, second.secret, third.secret)] == [
        None,
        issued.key.pk,
        issued.key.pk,
    ]


def test_the_grace_is_a_week_at_most(issued: IssuedKey) -> None:
    new = rotate_key(key=issued.key, grace_seconds=365 * DAY)
    assert new.key.previous_until
    assert new.key.previous_until <= timezone.now() + timedelta(days=7)


def test_of_two_rotations_at_once_one_is_refused(issued: IssuedKey) -> None:
    seen_by_another = ApiKey.objects.get()
    new = rotate_key(key=issued.key, grace_seconds=0)
    with pytest.raises(KeyChanged):
        rotate_key(key=seen_by_another, grace_seconds=0)
    assert opens(new.secret) == issued.key.pk


def test_revoking_ends_both_secrets_of_a_rotation(issued: IssuedKey) -> None:
    new = rotate_key(key=issued.key, grace_seconds=DAY)
    revoke_key(key=new.key)
    assert opens(issued.secret) is opens(new.secret) is None


def test_a_revoked_key_is_neither_rotated_changed_nor_enabled(issued: IssuedKey) -> None:
    revoke_key(key=issued.key)
    with pytest.raises(KeyChanged):
        rotate_key(key=issued.key, grace_seconds=0)
    with pytest.raises(KeyChanged):
        change_key(key=issued.key, name="other", terms=KeyTerms())
    enable_key(key=issued.key)
    disable_key(key=issued.key)
    assert (issued.key.state, issued.key.name, issued.key.disabled_at) == (KeyState.REVOKED, "batch", None)


def test_a_disabled_key_is_refused_until_it_is_enabled(issued: IssuedKey) -> None:
    disable_key(key=issued.key)
    assert issued.key.state == KeyState.DISABLED
    assert opens(issued.secret) is None
    enable_key(key=issued.key)
    assert opens(issued.secret) == issued.key.pk


def test_an_expired_key_opens_nothing_and_is_good_until_then(issued: IssuedKey) -> None:
    moment = timezone.now() + timedelta(hours=1)
    change_key(key=issued.key, name="batch", terms=KeyTerms(expires_at=moment))
    assert issued.key.good_until(digest_of(issued.secret)) == moment
    change_key(key=issued.key, name="batch", terms=KeyTerms(expires_at=timezone.now()))
    assert opens(issued.secret) is None


def test_a_leaked_secret_is_known_while_it_could_be_used_or_was_stopped_with_its_key(issued: IssuedKey) -> None:
    new = rotate_key(key=issued.key, grace_seconds=DAY)
    assert find_key_by_secret(issued.secret) == find_key_by_secret(new.secret) == issued.key
    disable_key(key=new.key)
    assert find_key_by_secret(new.secret) == issued.key
    assert find_key_by_secret("rc-" + "0" * 48) is None


def test_a_secret_that_was_rotated_out_is_no_hold_on_the_key(issued: IssuedKey) -> None:
    """Whoever has it could use it no more: that he could still stop the key would be a weapon."""
    new = rotate_key(key=issued.key, grace_seconds=DAY)
    pass_time(new.key, seconds=2 * DAY)
    assert find_key_by_secret(issued.secret) is None
    assert opens(new.secret) == issued.key.pk


def test_a_key_that_was_handed_to_the_team_is_not_rotated_by_who_made_it(
    issued: IssuedKey, make_person: MakePerson
) -> None:
    person = make_person()
    ApiKey.objects.update(created_by=person)
    seen = ApiKey.objects.get()
    ApiKey.objects.update(created_by=None)
    with pytest.raises(KeyChanged):
        rotate_key(key=seen, grace_seconds=0)
    assert opens(issued.secret) == issued.key.pk


CHANGES: list[tuple[str, Callable[[ApiKey], object]]] = [
    ("key.rotated", lambda key: rotate_key(key=key, grace_seconds=60, actor=MEI)),
    ("key.disabled", lambda key: disable_key(key=key, actor=MEI)),
    ("key.revoked", lambda key: revoke_key(key=key, actor=MEI)),
    ("key.changed", lambda key: change_key(key=key, name="other", terms=KeyTerms(rpm_limit=5), actor=MEI)),
]


@pytest.mark.parametrize(("action", "change"), CHANGES, ids=[action for action, _ in CHANGES])
def test_every_change_is_recorded_and_told(action: str, change: Callable[[ApiKey], object], issued: IssuedKey) -> None:
    before = key_epoch.local()
    change(issued.key)
    assert key_epoch.local() != before
    entry = AuditEntry.objects.order_by("id").last()
    assert entry
    assert (entry.action, entry.actor_id, entry.actor_name, entry.address) == (action, 7, "Mei", "203.0.113.9")
    assert (entry.object_type, entry.object_id, entry.team) == ("apikey", issued.key.pk, issued.key.team)


def test_a_change_is_recorded_as_before_and_after(issued: IssuedKey) -> None:
    change_key(key=issued.key, name="other", terms=KeyTerms(rpm_limit=5, models=["Clef"]), actor=MEI)
    entry = AuditEntry.objects.order_by("id").last()
    assert entry
    assert entry.details == {
        "key": issued.key.hint,
        "name": ["batch", "other"],
        "rpm_limit": [None, 5],
        "models": [[], ["Clef"]],
    }


def test_a_change_that_changes_nothing_is_no_entry(issued: IssuedKey) -> None:
    change_key(key=issued.key, name="batch", terms=KeyTerms())
    disable_key(key=issued.key)
    disable_key(key=issued.key)
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["key.created", "key.disabled"]


@pytest.fixture
def redis_is_away(settings: LazySettings) -> Iterator[None]:
    settings.REDIS_URL = f"redis://127.0.0.1:{dead_port()}/0"
    key_epoch._redis.cache_clear()
    yield
    key_epoch._redis.cache_clear()


@pytest.mark.usefixtures("redis_is_away")
def test_a_secret_is_handed_out_though_redis_cannot_be_told(issued: IssuedKey) -> None:
    """Committed and never shown it would be nobody's; revoking says instead that not all were told."""
    new = rotate_key(key=issued.key, grace_seconds=0)
    assert (new.told, opens(new.secret), opens(issued.secret)) == (False, issued.key.pk, None)
    another = issue_key(team=issued.key.team, created_by=None, name="another")
    assert (another.told, opens(another.secret)) == (False, another.key.pk)
    with pytest.raises(key_epoch.NotTold):
        revoke_key(key=new.key)
    assert opens(new.secret) is None
