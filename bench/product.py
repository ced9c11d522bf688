"""The product within a bench's own process."""

from __future__ import annotations

import os
import sys

import django
from programs import ROOT


def set_up() -> None:
    """Before its models are imported."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
