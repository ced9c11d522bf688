"""The Chinese catalogue: whole, compiled, and with every placeholder of the English text."""

from __future__ import annotations

import re
from pathlib import Path

import allauth
import polib
import pytest
from django.conf import settings
from django.utils.translation import gettext, override

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


@pytest.mark.parametrize("language", ["zh_Hans", "en"])
def test_the_compiled_catalogue_is_the_written_one(language: str) -> None:
    def texts(catalogue: polib.POFile | polib.MOFile) -> dict[str, tuple[str, dict[int, str]]]:
        return {entry.msgid: (entry.msgstr, entry.msgstr_plural) for entry in catalogue}

    folder = Path(settings.BASE_DIR) / "locale" / language / "LC_MESSAGES"
    assert texts(polib.mofile(str(folder / "django.mo"))) == texts(polib.pofile(str(folder / "django.po")))


def test_allauths_english_is_in_the_sites_own_words() -> None:
    """Where allauth no longer has a text, ours for it is not needed either."""
    folder = Path(allauth.__file__).parent / "locale/en/LC_MESSAGES/django.po"
    known = {entry.msgid for entry in polib.pofile(str(folder))}
    ours = polib.pofile(str(Path(settings.BASE_DIR) / "locale/en/LC_MESSAGES/django.po"))
    assert [entry.msgid for entry in ours if entry.msgid not in known] == []
    with override("en"):
        assert gettext("Two-Factor Authentication") == "Two-factor sign-in"
