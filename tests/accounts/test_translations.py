"""The Chinese catalogue: whole, compiled, and with every placeholder of the English text."""

from __future__ import annotations

import re
from pathlib import Path

import polib
from django.conf import settings

FOLDER = Path(settings.BASE_DIR) / "locale/zh_Hans/LC_MESSAGES"
CATALOGUE = polib.pofile(str(FOLDER / "django.po"))
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w+\}|</?\w+>")


def test_every_text_is_translated() -> None:
    assert [entry.msgid for entry in CATALOGUE if entry.fuzzy or not entry.translated()] == []


def test_translations_keep_the_placeholders() -> None:
    for entry in CATALOGUE:
        original = entry.msgid_plural or entry.msgid
        for translation in [entry.msgstr, *entry.msgstr_plural.values()]:
            if translation:
                assert sorted(PLACEHOLDER.findall(translation)) == sorted(PLACEHOLDER.findall(original)), original


def test_the_compiled_catalogue_is_the_written_one() -> None:
    def texts(catalogue: polib.POFile | polib.MOFile) -> dict[str, tuple[str, dict[int, str]]]:
        return {entry.msgid: (entry.msgstr, entry.msgstr_plural) for entry in catalogue}

    assert texts(polib.mofile(str(FOLDER / "django.mo"))) == texts(CATALOGUE)
