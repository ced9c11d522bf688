"""A key's own page, its forms, and help for a secret that leaked."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.apps import apps
from django.test import Client
from django.utils import timezone

from accounts import known_models
from accounts.audit import Actor
from accounts.keys import KeyTerms, digest_of, find_key, issue_key, revoke_key
from accounts.models import ApiKey, AuditEntry, Role, Team, User
from billing.models import Rollup
from tests.accounts.conftest import MakePerson, MakeTeam, SignIn

SECRET = re.compile(r"rc-[0-9a-f]{48}")
TERMS = {
    "name": "nightly batch",
    "models": ["Qwen3.8-27B"],
    "endpoints": ["chat", "models"],
    "networks": "10.0.0.0/8\n203.0.113.7",
    "rpm_limit": "120",
    "concurrency_limit": "0",
    "points_limit": "2.5",
    "portable": "on",
}


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_models, "_source", lambda: ["Qwen3.8-27B", "Clef"])


@pytest.fixture
def person(make_person: MakePerson) -> User:
    return make_person(email="mei@example.com")


@pytest.fixture
def team(person: User, make_team: MakeTeam) -> Team:
    return make_team(owner=person)


@pytest.fixture
def browser(person: User, team: Team, sign_in: SignIn) -> Client:
    return sign_in(person, team=team)


def made(team: Team, person: User, **terms: object) -> ApiKey:
    return issue_key(team=team, created_by=person, name="batch", terms=KeyTerms(**terms)).key  # type: ignore[arg-type]


def expected_terms(**others: object) -> KeyTerms:
    given = {
        "models": ["Qwen3.8-27B"],
        "endpoints": ["chat", "models"],
        "networks": ["10.0.0.0/8", "203.0.113.7/32"],
        "rpm_limit": 120,
        "concurrency_limit": 0,
        "points_limit_ppt": 2_500_000_000_000,
        "portable": True,
    }
    return KeyTerms(**given | others)  # type: ignore[arg-type]


def test_a_new_key_takes_scopes_and_limits(browser: Client) -> None:
    browser.post("/keys/new/", TERMS)
    assert KeyTerms.of(ApiKey.objects.get()) == expected_terms()


def test_a_key_is_changed_by_its_page(browser: Client, team: Team, person: User) -> None:
    key = made(team, person)
    answer = browser.post(f"/keys/{key.pk}/change/", TERMS | {"expires": "2027-01-02T03:04"})
    assert answer["Location"] == f"/keys/{key.pk}/"
    key.refresh_from_db()
    # 03:04 in Shanghai
    assert KeyTerms.of(key) == expected_terms(expires_at=datetime(2027, 1, 1, 19, 4, tzinfo=UTC))
    assert key.name == "nightly batch"


def test_an_end_left_as_it_was_stays_exact(browser: Client, team: Team, person: User) -> None:
    end = timezone.now() + timedelta(days=3, microseconds=7)
    key = made(team, person, expires_at=end)
    (shown,) = re.findall(r'name="expires" value="([^"]+)"', browser.get(f"/keys/{key.pk}/").content.decode())
    browser.post(f"/keys/{key.pk}/change/", TERMS | {"expires": shown})
    key.refresh_from_db()
    assert key.expires_at == end


@pytest.mark.parametrize(
    "wrong",
    [
        {"networks": "10.0.0.0/99"},
        {"networks": "everywhere"},
        {"models": ["Unknown-1"]},
        {"endpoints": ["admin"]},
        {"rpm_limit": "-1"},
        {"points_limit": "0.0000000000001"},
        {"points_limit": "NaN"},
        {"name": ""},
        {"name": "nul\0"},
        {"expires": "9999-12-31T23:59"},
        {"expires": "0001-01-01T00:00"},
        {"expires": "2027-02-30T00:00"},
    ],
)
def test_nonsense_is_refused_and_changes_nothing(
    wrong: dict[str, object], browser: Client, team: Team, person: User
) -> None:
    key = made(team, person)
    assert browser.post(f"/keys/{key.pk}/change/", TERMS | wrong).status_code == 422
    key.refresh_from_db()
    assert KeyTerms.of(key) == KeyTerms()


def test_a_model_that_left_the_catalog_stays_a_choice_of_its_keys(browser: Client, team: Team, person: User) -> None:
    key = made(team, person, models=["Gone-1"])
    assert b"Gone-1" in browser.get(f"/keys/{key.pk}/").content
    browser.post(f"/keys/{key.pk}/change/", TERMS | {"models": ["Gone-1", "Clef"]})
    key.refresh_from_db()
    assert key.models == ["Gone-1", "Clef"]


def test_rotating_shows_the_new_secret_once(browser: Client, team: Team, person: User) -> None:
    issued = issue_key(team=team, created_by=person, name="batch")
    answer = browser.post(f"/keys/{issued.key.pk}/rotate/", {"grace": "3600"})
    (secret,) = set(SECRET.findall(answer.content.decode()))
    assert "no-store" in answer["Cache-Control"]
    assert secret != issued.secret
    for one in (secret, issued.secret):
        found = find_key(digest_of(one))
        assert found
        assert found.pk == issued.key.pk
    page = browser.get(f"/keys/{issued.key.pk}/").content.decode()
    assert not SECRET.search(page)
    assert "the secret before works until" in page


def test_a_strange_grace_rotates_nothing(browser: Client, team: Team, person: User) -> None:
    issued = issue_key(team=team, created_by=person, name="batch")
    assert browser.post(f"/keys/{issued.key.pk}/rotate/", {"grace": "9999999"}).status_code == 422
    assert find_key(digest_of(issued.secret))


def test_a_viewer_reads_the_terms_and_finds_no_form(team: Team, make_person: MakePerson, sign_in: SignIn) -> None:
    key = made(team, make_person(), networks=["10.0.0.0/8"], endpoints=["chat", "spaces"])
    viewer = make_person()
    team.memberships.create(user=viewer, role=Role.VIEWER)
    page = sign_in(viewer, team=team).get(f"/keys/{key.pk}/").content.decode()
    assert "10.0.0.0/8" in page
    assert "Chat completions, Dedicated endpoints" in page
    assert f"/keys/{key.pk}/" not in page.replace(f'value="/keys/{key.pk}/"', "")


def test_a_leaked_secret_is_pasted_and_the_key_revoked(
    team: Team, make_person: MakePerson, sign_in: SignIn, caplog: pytest.LogCaptureFixture
) -> None:
    """By whoever holds it, in whichever team he works; nothing of it is sent back or kept."""
    caplog.set_level(logging.DEBUG)
    issued = issue_key(team=team, created_by=None, name="batch")
    finder = make_person()
    answer = sign_in(finder).post("/keys/leaked/", {"secret": f'OPENAI_API_KEY="{issued.secret}"'})
    assert issued.key.hint in answer.content.decode()
    assert issued.secret not in answer.content.decode() + caplog.text
    assert find_key(digest_of(issued.secret)) is None
    entry = AuditEntry.objects.order_by("id").last()
    assert entry
    assert (entry.team, entry.action, entry.actor_id) == (team, "key.revoked", finder.pk)
    for model in apps.get_models():
        assert issued.secret not in repr(list(model._default_manager.values())), model


def test_every_key_of_a_pasted_file_is_revoked(browser: Client, team: Team, person: User) -> None:
    first, second = (issue_key(team=team, created_by=person, name=name) for name in "ab")
    lines = [
        f"export KEY_{number}={secret}" for number, secret in enumerate((first.secret, second.secret, first.secret))
    ]
    page = browser.post("/keys/leaked/", {"secret": "\n".join([*lines, "x" * 1000, "rc-" + "0" * 48])}).content.decode()
    assert [page.count(f"The key {one.key.hint} is revoked.") for one in (first, second)] == [1, 1]
    assert "No key has this secret" in page
    assert not SECRET.search(page)
    assert not ApiKey.objects.usable().exists()
    assert (
        f"The key {first.key.hint} was revoked before."
        in browser.post("/keys/leaked/", {"secret": first.secret}).content.decode()
    )


@pytest.mark.parametrize(("pasted", "told"), [("", "required"), ("rc-" + "0" * 20_000, "at most 20000")])
def test_what_cannot_be_searched_is_said_and_not_sent_back(pasted: str, told: str, browser: Client) -> None:
    answer = browser.post("/keys/leaked/", {"secret": pasted})
    assert (answer.status_code, told in answer.content.decode()) == (422, True)
    assert b"rc-000" not in answer.content


def test_a_text_without_a_key_and_an_unknown_secret_are_told_apart(browser: Client) -> None:
    assert b"There is no key in this text" in browser.post("/keys/leaked/", {"secret": "sk-123"}).content
    assert b"No key has this secret" in browser.post("/keys/leaked/", {"secret": "rc-" + "0" * 48}).content


def test_points_of_thirty_days_are_drawn_by_day(browser: Client, team: Team, person: User) -> None:
    key, other = made(team, person), made(team, person)
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    for owner, days, amount in ((key, 0, 10**11), (key, 29, 5 * 10**10), (key, 31, 10**12), (other, 1, 10**9)):
        Rollup.objects.create(
            quarter_at=now - timedelta(days=days), team_id=team.pk, key_id=owner.pk, model="m", endpoint="chat",
            source="api", requests=1, amount_ppt=amount,
        )  # fmt: skip
    page = browser.get(f"/keys/{key.pk}/").content.decode()
    assert "0.15 points in the last 30 days, by day" in page
    assert page.count("<rect") == 2
    listing = browser.get("/keys/").content.decode()
    assert listing.count("<rect") == 3
    assert "0.001 points in the last 30 days" in listing


def test_the_teams_lifetime_of_new_keys_is_proposed(browser: Client, team: Team) -> None:
    Team.objects.filter(pk=team.pk).update(default_key_days=45)
    assert b'<option value="45" selected>In 45 days</option>' in browser.get("/keys/new/").content


def test_the_page_of_a_revoked_key_only_tells(browser: Client, team: Team, person: User) -> None:
    key = made(team, person)
    revoke_key(key=key, actor=Actor(None, "x"))
    page = browser.get(f"/keys/{key.pk}/").content.decode()
    assert "Revoked" in page
    assert "/rotate/" not in page
