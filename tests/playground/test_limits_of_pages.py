"""Documents, speech and decisions on the pages pass the same gates as every call."""

from __future__ import annotations

import asyncio

import pytest
from django.core.management import call_command
from django.urls import reverse

from accounts.models import Membership, Role, Team, User
from billing.models import UsageRecord
from gateway.runtime import Runtime
from playground import own_tasks
from playground.history import Decision, Document, Speech
from tests.fake_upstream.server import FakeUpstream
from tests.playground.conftest import Serve
from tests.playground.htmx_client import htmx_client
from tests.playground.test_decision_page import FORM

USED_UP = "Your team&#x27;s points for this period are used up."


@pytest.fixture
def spent(transactional_db: None, team: Team) -> None:
    """Less is left than the cheapest call costs."""
    call_command("load_rates", verbosity=0)
    Team.objects.filter(pk=team.pk).update(points_limit_ppt=1)


@pytest.mark.usefixtures("spent")
def test_without_points_no_page_reaches_a_model(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        for name, form in (("speak", {"text": "Hello", "model": "OmniVoice"}), ("decide", FORM)):
            response = await client.post(reverse(f"playground:{name}"), form)
            assert (response.status_code, USED_UP in response.content.decode()) == (422, True), name
        await client.post(reverse("playground:read_document"), {"sample": "1"})
        await asyncio.gather(*own_tasks._tasks)
        document = await Document.objects.aget()
        assert (document.state, (document.error or {})["code"]) == ("failed", "insufficient_quota")
        shown = await client.get(reverse("playground:document", args=[document.pk]), headers={"HX-Request": ""})
        assert USED_UP in shown.content.decode()
        assert upstream.received == []
        # Refused at the gate: no record, nothing kept.
        running.shipper.stop()
        assert not await UsageRecord.objects.aexists()
        assert not await Speech.objects.aexists()
        assert not await Decision.objects.aexists()

    serve_told(scenario)


def test_a_viewer_is_told_why_there_is_nothing_to_do(serve_told: Serve, person: User, team: Team) -> None:
    async def scenario(running: Runtime) -> None:
        await Membership.objects.filter(user=person).aupdate(role=Role.VIEWER)
        client = await htmx_client(person)
        for name in ("documents", "speech", "decisions"):
            shown = (await client.get(reverse(f"playground:{name}"), headers={"HX-Request": ""})).content.decode()
            assert "You are a viewer in this team" in shown, name
            assert not any(f'id="{button}"' in shown for button in ("read", "speak-button", "decide-button")), name
        assert (await client.post(reverse("playground:speak"), {"text": "Hello"})).status_code == 403

    serve_told(scenario)
