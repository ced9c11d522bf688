"""Fixtures that several folders share; how the suite is spread over processes; the search for secrets left behind."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import translation
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from xdist.remote import Producer

from tests import distribution, secrecy
from tests.installation import Installation, installation

# A busy machine makes an example slow, never wrong.
hypothesis_settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("untimed")

MOST_PROCESSES = 5


@pytest.fixture(autouse=True)
def english() -> None:
    """A page that an earlier test read in Chinese leaves its language to the thread."""
    translation.activate("en")


@pytest.fixture(scope="session")
def demo_installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation on SQLite whose models are the demo backend's, unpaced. Its worker runs; web processes do not."""
    with installation(tmp_path_factory.mktemp("demo-installation")) as made:
        made.environment["DEMO_URL"] = made.start_demo("--pace-seconds", "0")
        made.start_worker()
        yield made


# -- processes -----------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole suite is worth a process a core, and one for the time that tests wait; for what is named on the
    command line one starts sooner."""
    return min(len(os.sched_getaffinity(0)) + 1, MOST_PROCESSES) if distribution.is_whole(config) else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> distribution.ByGroup:
    return distribution.ByGroup(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["is_whole"] = distribution.is_whole(node.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if distribution.is_whole(config):
        distribution.one_window_each(config, items)
    distribution.longest_first(items)


# -- secrets -------------------------------------------------------------------------------------

secrecy.watch_connections()


@pytest.fixture(autouse=True)
def no_secret_is_written() -> Iterator[None]:
    yield
    secrecy.check_rows()


@pytest.fixture(scope="session", autouse=True)
def no_secret_stays_in_the_data_folder() -> Iterator[None]:
    yield
    secrecy.check_folder(Path(settings.DATA_DIR))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    secrecy.searched.outputs += 1
    found = secrecy.found_in("".join(text for _, text in report.sections).encode())
    if found and report.passed:
        report.outcome, report.longrepr = "failed", f"{', '.join(found)} found in the captured output"
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["searched"] = asdict(secrecy.searched)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    secrecy.searched.add(getattr(node, "workeroutput", {}).get("searched", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    of = secrecy.searched
    terminalreporter.write_line(
        f"Searched for keys and {of.known} other secrets: {of.rows} written rows, {of.outputs} outputs, "
        f"{of.files} files, {of.bytes / 1e6:.1f} MB."
    )
