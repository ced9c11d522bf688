"""How the suite is shared out between processes: what belongs together stays together, the longest begins first.

A group's tests run in one process, one after another. What starts many processes of its own is one group, so two such
tests never run at once; what shares an installation that is slow to make is one group too. Else a file is a group.

The whole suite does a walk in the browser in one of its windows; `pytest tests/browser` does it in all of them.
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


def is_whole(config: pytest.Config) -> bool:
    """Whether it is the whole suite that runs: nothing was named on the command line."""
    if (told := getattr(config, "workerinput", None)) is not None:
        return bool(told["is_whole"])
    return config.args_source == pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword


def one_window_each(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a walk that is done in several windows leave one, each walk the next one of its own."""
    walks: dict[str, list[pytest.Item]] = {}
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and {"window", "variant"} & callspec.params.keys() and "/browser/" in item.nodeid:
            walks.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = [
        item
        for number, windows in enumerate(walks.values())
        for place, item in enumerate(windows)
        if place != number % len(windows)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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
