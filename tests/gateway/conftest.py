"""A fake model server for all the tests beside this file, and an installed gateway in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_upstream.server import FakeUpstream, fake_upstream


@pytest.fixture(scope="session")
def upstream_server() -> Iterator[FakeUpstream]:
    with fake_upstream() as server:
        yield server


@pytest.fixture
def upstream(upstream_server: FakeUpstream) -> FakeUpstream:
    upstream_server.reset()
    return upstream_server
