"""How the suite is shared out between processes: what belongs together stays together, the longest begins first.

A group's tests run in one process, one after another. What starts many processes of its own is one group, so two such
tests never run at once; what shares an installation that is slow to make is one group too. Else a file is a group.
"""

from __future__ import annotations

from pathlib import PurePath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

MANY_PROCESSES = frozenset(
    {
        "test_abandoned_streams.py",
        "test_exact_metering.py",
        "test_exact_metering_of_other_endpoints.py",
        "test_faults.py",
        "test_limits.py",
        "test_on_postgresql.py",
        "test_replicas.py",
        "test_revocation.py",
        "test_up.py",
    }
)
SHARED = {"end_to_end": "demo installation", "browser": "pages in the browser", "gateway": "gateway installation"}
# By the time they take; the files come last, in their order.
LONGEST = ("many processes", "pages in the browser", "chat in the browser", "demo installation", "gateway installation")


def group_of(nodeid: str) -> str:
    file = PurePath(nodeid.partition("::")[0])
    if file.name in MANY_PROCESSES:
        return "many processes"
    if file.parent.name == "browser" and file.name.startswith("test_chat"):
        return "chat in the browser"
    return SHARED.get(file.parent.name, str(file))


def longest_first(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        group = group_of(item.nodeid)
        return LONGEST.index(group) if group in LONGEST else len(LONGEST)

    items.sort(key=rank)


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        # The order of the collection, not the number of tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
