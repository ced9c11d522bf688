"""Fixtures that several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.utils import translation
from hypothesis import HealthCheck, settings

from tests.installation import Installation, installation

# A busy machine makes an example slow, never wrong.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


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
