"""/team/endpoints/: who may do what there, what an address may be, and what is never shown again."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest
from django.test import Client

from accounts import sealing
from accounts.audit import SYSTEM
from accounts.models import AuditEntry, Membership, Role, Team, User
from accounts.rights import Right
from accounts.teams import SESSION_KEY
from gateway import urls
from gateway.endpoints import register_endpoint, target_of
from gateway.models import DedicatedEndpoint
from tests.fake_upstream.server import FakeUpstream
from tests.secrecy import is_secret

API_KEY = is_secret("sk-lab-1")
FORM = {"name": "Lab", "slug": "lab", "base_url": "http://10.1.2.3:8000/v1/", "kind": "vllm", "api_key": API_KEY}

type Browser = Callable[..., Client]


@pytest.fixture
def team(db: None) -> Team:
    return Team.objects.create(name="Research", time_zone="Asia/Shanghai")


@pytest.fixture
def browser(team: Team) -> Browser:
    """Somebody signed in, working in that team as what."""

    def sign_in(role: Role = Role.ADMIN, *, into: Team | None = None) -> Client:
        person = User.objects.create_user(f"{role}{User.objects.count()}@example.com")
        Membership.objects.create(team=into or team, user=person, role=role)
        client = Client()
        client.force_login(person)
        session = client.session
        session[SESSION_KEY] = (into or team).pk
        session.save()
        return client

    return sign_in


@pytest.fixture
def endpoint(team: Team, upstream: FakeUpstream, settings: Any) -> DedicatedEndpoint:
    settings.DEDICATED_ALLOW = (ip_network("127.0.0.0/8"),)
    return register_endpoint(
        team=team,
        created_by=User.objects.create_user("maker@example.com"),
        slug="lab",
        name="Lab",
        base_url=upstream.url,
        kind="vllm",
        api_key="sk-lab-1",
        actor=SYSTEM,
    )


OF_TEAMS = [pattern for pattern in urls.urlpatterns if not str(pattern.pattern).startswith("staff/")]


@pytest.mark.parametrize("pattern", OF_TEAMS, ids=lambda pattern: str(pattern.name))
def test_every_view_declares_its_access_and_right(pattern: Any, client: Client) -> None:
    assert pattern.callback.access == "session"
    assert pattern.callback.right in {Right.READ, Right.CHANGE_SETTINGS}


def test_an_admin_adds_an_endpoint_and_its_key_is_never_shown(browser: Browser) -> None:
    client = browser()
    assert client.post("/team/endpoints/new/", FORM).headers["Location"] == "/team/endpoints/"
    page = client.get("/team/endpoints/").content.decode()
    assert "http://testserver/spaces/lab/v1" in page
    assert "http://10.1.2.3:8000/v1<" in page
    assert "sk-lab-1" not in page
    made = DedicatedEndpoint.objects.get()
    assert (made.base_url, made.api_key) == ("http://10.1.2.3:8000/v1", "sk-lab-1")
    assert "sk-lab" not in made.sealed_api_key
    entry = AuditEntry.objects.get(details__endpoint="lab")
    assert entry.details == {"change": "endpoint added", "endpoint": "lab", "address": "http://10.1.2.3:8000/v1"}


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
def test_members_read_the_list_and_change_nothing(browser: Browser, endpoint: DedicatedEndpoint, role: Role) -> None:
    client = browser(role)
    page = client.get("/team/endpoints/").content.decode()
    assert "/spaces/lab/v1" in page
    assert endpoint.base_url not in page
    assert "Test connection" not in page
    assert client.post("/team/endpoints/new/", FORM | {"slug": "x"}).status_code == 403
    for verb in ("test", "switch", "delete"):
        assert client.post(f"/team/endpoints/{endpoint.pk}/{verb}/").status_code == 403
    assert DedicatedEndpoint.objects.get().disabled_at is None


def test_another_teams_endpoint_is_not_there(browser: Browser, endpoint: DedicatedEndpoint) -> None:
    client = browser(Role.OWNER, into=Team.objects.create(name="Other", time_zone="UTC"))
    assert "/spaces/lab" not in client.get("/team/endpoints/").content.decode()
    for verb in ("test", "switch", "delete"):
        assert client.post(f"/team/endpoints/{endpoint.pk}/{verb}/").status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]/v1", "http://169.254.169.254/v1",
        "http://[fd00:ec2::254]/v1", "http://100.100.100.200/v1", "http://224.0.0.1/v1", "http://0.0.0.0/v1",
        "http://0x7f.1/v1", "http://2130706433/v1", "http://[::ffff:127.0.0.1]/v1", "http://[64:ff9b::7f00:1]/v1",
        "http://100.64.1.1/v1", "ftp://10.0.0.1/v1", "http://user:pass@10.0.0.1/v1", "http://10.0.0.1/v1?a=1",
        "http:///v1", "javascript:alert(1)", "http://no-such-host.invalid/v1", "http://10.0.0.1:99999/v1",
    ],
)  # fmt: skip
def test_an_address_where_no_endpoint_may_stand_is_refused(browser: Browser, address: str) -> None:
    answer = browser().post("/team/endpoints/new/", FORM | {"base_url": address})
    assert answer.status_code == 422
    assert answer.context["form"].errors.keys() == {"base_url"}
    assert not DedicatedEndpoint.objects.exists()


def test_the_gateways_own_address_is_refused(browser: Browser, settings: Any) -> None:
    settings.SITE_URL = "http://10.9.9.9:8000"
    answer = browser().post("/team/endpoints/new/", FORM | {"base_url": "http://10.9.9.9:8000/spaces/lab/v1"})
    assert answer.context["form"].errors["base_url"] == ["This is the gateway's own address."]


@pytest.mark.parametrize(
    "address", ["http://10.0.0.1/v1", "http://192.168.1.5:8000/v1", "http://[fd12::1]/v1", "https://8.8.8.8/v1"]
)
def test_private_and_public_addresses_are_taken(browser: Browser, address: str) -> None:
    assert browser().post("/team/endpoints/new/", FORM | {"base_url": address}).status_code == 302


@pytest.mark.parametrize("slug", ["", "Lab", "a_b", "-a", "a-", "a/b", "ä", "a" * 25, "a\n"])
def test_a_name_that_is_no_part_of_a_url_is_refused(browser: Browser, slug: str) -> None:
    answer = browser().post("/team/endpoints/new/", FORM | {"slug": slug})
    # A line break at the end is cut off by the field itself.
    assert answer.status_code == (302 if slug == "a\n" else 422)


def test_a_name_that_is_taken_is_refused(browser: Browser, endpoint: DedicatedEndpoint) -> None:
    other = browser(into=Team.objects.create(name="Other", time_zone="UTC"))
    assert other.post("/team/endpoints/new/", FORM | {"base_url": endpoint.base_url}).status_code == 422


def test_the_test_button_shows_the_models_that_are_served(
    browser: Browser, endpoint: DedicatedEndpoint, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "models", [{"id": "lab-model"}, {"id": "<b>odd</b>"}])
    page = browser().post(f"/team/endpoints/{endpoint.pk}/test/").content.decode()
    assert "The server answers. It serves:" in page
    assert "lab-model, &lt;b&gt;odd&lt;/b&gt;" in page


def test_the_test_button_says_what_is_wrong(browser: Browser, endpoint: DedicatedEndpoint) -> None:
    DedicatedEndpoint.objects.update(base_url="http://127.0.0.1:1/v1")
    assert "cannot be reached" in browser().post(f"/team/endpoints/{endpoint.pk}/test/").content.decode()
    DedicatedEndpoint.objects.update(base_url="http://169.254.169.254/v1")
    assert (
        "No endpoint may stand at 169.254.169.254."
        in browser().post(f"/team/endpoints/{endpoint.pk}/test/").content.decode()
    )


def test_an_endpoint_is_switched_off_and_on_and_deleted(browser: Browser, endpoint: DedicatedEndpoint) -> None:
    client = browser()
    client.post(f"/team/endpoints/{endpoint.pk}/switch/", {"on": "0"})
    assert target_of(DedicatedEndpoint.objects.get()).fault == "The endpoint lab is switched off."
    client.post(f"/team/endpoints/{endpoint.pk}/switch/", {"on": "1"})
    assert target_of(DedicatedEndpoint.objects.get()).fault == ""
    client.post(f"/team/endpoints/{endpoint.pk}/delete/")
    assert not DedicatedEndpoint.objects.exists()
    changes = AuditEntry.objects.filter(details__endpoint="lab").order_by("id")
    assert [entry.details["change"] for entry in changes] == [
        "endpoint added", "endpoint switched off", "endpoint switched on", "endpoint deleted",
    ]  # fmt: skip


def test_a_key_sealed_with_another_secret_key_is_a_fault_and_no_crash(
    endpoint: DedicatedEndpoint, settings: Any
) -> None:
    sealing._fernet.cache_clear()
    settings.SECRET_KEY = "another"
    try:
        target = target_of(endpoint)
    finally:
        sealing._fernet.cache_clear()
    assert (target.api_key, "cannot be read" in target.fault) == ("", True)
    assert "sk-lab-1" not in repr(target_of(DedicatedEndpoint.objects.get()))
