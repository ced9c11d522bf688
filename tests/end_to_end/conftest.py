"""What clients of every make are pointed at."""

from __future__ import annotations

import pytest

from tests.installation import Installation, WebProcess

# Silence between two tokens is bridged at once: whatever a client cannot read of it shows in each of its streams.
IMPATIENT = (
    "import django; django.setup(set_prefix=False)\nimport gateway.chat\ngateway.chat.KEEP_ALIVE_SECONDS = 0.02\n"
)


@pytest.fixture(scope="session")
def demo_web(demo_installation: Installation) -> WebProcess:
    """A web process before the demo backend, with keep-alives between tokens that are slower than 20 ms.

    Dedicated endpoints may stand on this machine.
    """
    return demo_installation.start_web(prelude=IMPATIENT, environment={"DEDICATED_ALLOW": "127.0.0.0/8"})
