"""How fast the chat's pages are: 50 conversations of 200 turns, one page after another.

    DATA_DIR=$(mktemp -d) uv run bench/chat.py

Fills the configured, empty database and opens every conversation three times: `never rendered`, when no answer was
watched while it streamed; `after a start`, when all were and this process has seen none; and `again`. Each time every
tenth is scrolled up to its first turn: `never rendered, above` and so on are the parts that come then, one by one.
Prints one JSON object: the machine, and milliseconds (median, p95, most) of processor time in this process, templates
and SQLite included.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

# ruff: noqa: E402 -- Django is set up before models are imported
import product

product.set_up()

from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from report import machine

from accounts.models import Team, User
from accounts.teams import personal_team
from billing.models import UsageRecord
from config.server import spare_the_collector
from gateway import runtime
from gateway.catalog import load
from playground import markdown
from playground.models import Conversation, Turn

MODEL = "DeepSeek-V4-Flash"
CODE = "".join(f"    total += weigh(item, {number})  # {number} of them\n" for number in range(18))
# What answers look like: short, as most are, and long with code, tables and formulas.
ANSWERS = {
    "short": "Yes: `sorted()` is **stable**, so items that compare equal keep their order.\n\n- first\n- second\n",
    "middle": (
        "## How it works\n\nThe tide follows the *moon*; see [the almanac](https://example.org/a).\n\n"
        "| name | value |\n|---|--:|\n" + "".join(f"| row {n} | {n * 7} |\n" for n in range(8)) + "\n"
        f"```python\ndef total(items):\n{CODE}    return total\n```\n\nso $e^{{i\\pi}} + 1 = 0$ holds, and\n\n"
        "$$\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$$\n\n" + "A paragraph of **plain** prose with `code` in it. " * 12
    ),
}
ANSWERS["long"] = "\n\n".join([ANSWERS["middle"]] * 4)
EARLIER = re.compile(rb'hx-get="([^"]+[?]before=[0-9]+)"')
# Scrolling up takes many requests.
SCROLLED_EVERY = 10
KINDS = ("short", "middle", "middle", "short", "long")


def fill(*, owner: User, team: Team, conversations: int, turns: int) -> list[Conversation]:
    made = [
        Conversation(owner=owner, team=team, title=f"Conversation {number} about the sea", model=MODEL)
        for number in range(conversations)
    ]
    Conversation.objects.bulk_create(made)
    for number, conversation in enumerate(made):
        _fill(conversation, team, turns=turns, seed=number)
    return made


def _fill(conversation: Conversation, team: Team, *, turns: int, seed: int) -> None:
    made: list[Turn] = []
    first = 1 + seed * turns
    for number in range(turns):
        is_answer = number % 2 == 1
        # No two are the same: each is rendered by itself.
        text = f"{ANSWERS[KINDS[(seed + number // 2) % len(KINDS)]]}\n\nNumber {seed}-{number}." if is_answer else ""
        turn = Turn(
            pk=first + number,
            conversation=conversation,
            parent_id=first + number - 1 if number else None,
            role=Turn.Role.ASSISTANT if is_answer else Turn.Role.USER,
            content=text or f"And what of number {number}, in conversation {seed}?",
            model=MODEL if is_answer else "",
            request_id=uuid.uuid4() if is_answer else None,
            finish_reason="stop" if is_answer else "",
        )
        made.append(turn)
    Turn.objects.bulk_create(made)
    UsageRecord.objects.bulk_create(_record(turn, team) for turn in made if turn.request_id)


def _record(turn: Turn, team: Team) -> UsageRecord:
    now = timezone.now()
    times = {
        "started_at": now,
        "first_byte_at": now + timedelta(seconds=0.3),
        "finished_at": now + timedelta(seconds=9),
    }
    counts = {"prompt_tokens": 900, "completion_tokens": 400, "cached_tokens": 128}
    return UsageRecord(
        pk=turn.request_id, team_id=team.pk, key_id=0, member_id=1, model=MODEL, endpoint="chat", source="playground",
        upstream="demo", status=200, outcome="ok", rated_at=now, **times, **counts,
    )  # fmt: skip


def timed(client: Client, address: str) -> tuple[float, bytes]:
    begun = time.process_time()
    answer = client.get(address, headers={"HX-Request": "true"} if "?before=" in address else {})
    spent = time.process_time() - begun
    if answer.status_code != 200:
        raise SystemExit(f"{address} answered {answer.status_code}")
    return spent * 1_000, answer.content


def scrolled_up(client: Client, content: bytes) -> Iterator[float]:
    """What each part takes that comes above the page, to the first turn."""
    while earlier := EARLIER.search(content):
        spent, content = timed(client, earlier[1].decode())
        yield spent


def summed(taken: list[float]) -> dict[str, float]:
    taken = sorted(taken)
    return {
        "median_ms": round(statistics.median(taken), 1),
        "p95_ms": round(taken[max(0, round(len(taken) * 0.95) - 1)], 1),
        "most_ms": round(taken[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    settings.ALLOWED_HOSTS = ["testserver"]
    found: dict[str, Any] = {"machine": machine()}
    call_command("migrate", verbosity=0)
    if Conversation.objects.exists():
        parser.error("the database has conversations already; give it an empty one")
    owner = User.objects.create_user("mei@example.com", name="Mei")
    team = personal_team(user=owner)
    # Only which models there are is asked of it.
    models = [model for model in load().values() if model.is_chat]
    stand_in: Any = SimpleNamespace(models_for=lambda caller: models)
    runtime.set_runtime(stand_in)
    first, *made = fill(owner=owner, team=team, conversations=options.conversations + 1, turns=options.turns)
    client = Client()
    client.force_login(owner)
    timed(client, "/playground/")
    # The first in a process waits for templates and for what code is coloured by, once.
    first_ms, _content = timed(client, f"/playground/c/{first.pk}/")
    spare_the_collector()
    pages = [f"/playground/c/{conversation.pk}/" for conversation in made]
    found["the first of a process"] = round(first_ms, 1)
    for name in ("never rendered", "after a start", "again"):
        if name == "after a start":
            markdown.neutral.cache_clear()
        opened = [timed(client, page) for page in pages]
        found[name] = summed([spent for spent, _content in opened])
        above = [part for _spent, content in opened[::SCROLLED_EVERY] for part in scrolled_up(client, content)]
        found[f"{name}, above"] = summed(above) | {"parts": len(above)}
    found["new chat"] = summed([timed(client, "/playground/")[0] for _ in range(20)])
    found["kilobytes"] = round(len(client.get(pages[0]).content) / 1_000)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
