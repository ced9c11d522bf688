"""Promises of the visual system that need no browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

TOKENS = (Path(settings.BASE_DIR) / "static/css/tokens.css").read_text()
COLOURS = dict(re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}, #[0-9a-f]{6})\);", TOKENS))
SURFACES = ["surface", "surface-raised", "surface-sunken"]
TEXTS = ["text", "text-muted", "text-subtle", "accent-text", "danger", "warning", "success"]
ON_SOFT = [
    *[(name, f"{name}-soft") for name in ("danger", "warning", "success", "info")],
    *[("text", f"{name}-soft") for name in ("danger", "warning", "success", "info")],
    ("accent-text", "accent-soft"),
    ("text-muted", "surface-hover"),
    ("text", "surface-pressed"),
    ("on-accent", "accent"),
    ("on-accent", "accent-hover"),
    ("on-danger", "danger"),
]


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(*, front: str, back: str, theme: int) -> float:
    """WCAG's ratio; `theme` is 0 for light and 1 for dark."""
    lights = sorted(luminance(COLOURS[name].split(", ")[theme]) for name in (front, back))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), [(text, back) for text in TEXTS for back in SURFACES] + ON_SOFT)
def test_text_is_readable(*, front: str, back: str, theme: int) -> None:
    assert contrast(front=front, back=back, theme=theme) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("front", ["border-strong", "focus", *(f"series-{number}" for number in range(1, 9))])
def test_controls_and_charts_stand_out(*, front: str, theme: int) -> None:
    for back in SURFACES:
        assert contrast(front=front, back=back, theme=theme) >= 3


# Mails have no other way than inline styles, and no policy.
TEMPLATES = Path(settings.BASE_DIR) / "templates"
INLINE = re.compile(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)(?![^>]*type=\"application/json\")")


@pytest.mark.parametrize(
    "template",
    sorted(set(TEMPLATES.rglob("*.html")) - set((TEMPLATES / "email").rglob("*.html"))),
    ids=lambda path: str(path.relative_to(settings.BASE_DIR)),
)
def test_no_template_needs_an_exception_to_the_csp(template: Path) -> None:
    assert INLINE.search(template.read_text()) is None
