"""What the pages of `docs/` point at exists: files, sections, tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.forked import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
TEST_FILE = re.compile(r"`(?:tests/)?([a-z_0-9]+/test_[a-z_0-9]+\.py)`")
TEST = re.compile(r"`(test_[a-z_0-9]{20,})`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for file, section in LINK.findall(page.read_text()):
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (section and section not in anchors(target)):
            dead.append(f"{file}#{section}")
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    assert [name for name in TEST_FILE.findall(text) if not (ROOT / "tests" / name).is_file()] == []
    functions = {name for file in (ROOT / "tests").rglob("test_*.py") for name in _functions(file)}
    assert [name for name in TEST.findall(text) if name not in functions] == []


def anchors(page: Path) -> set[str]:
    """Its headings, as the forges make addresses of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _functions(file: Path) -> list[str]:
    return re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
