"""Chinese is complete: no text of code or template lacks it, and numbers, dates and plurals read as they should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import polib
from django.contrib.humanize.templatetags.humanize import intcomma
from django.utils.formats import date_format
from django.utils.translation import ngettext, override

from billing.templatetags.reports import about, change, seconds
from tests.forked import ROOT
from tests.services import missing

APPS = ("accounts", "billing", "config", "gateway", "playground", "templates")
MOMENT = datetime(2026, 8, 2, 9, 5)  # noqa: DTZ001 -- as a page has it, in the reader's zone already


def extracted(folder: Path) -> polib.POFile:
    """Every text that is marked for translation, as Django's own command finds them in a copy of the code."""
    if shutil.which("xgettext") is None:
        missing("gettext")
    for app in APPS:
        shutil.copytree(ROOT / app, folder / app, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "locale").mkdir()
    command = [sys.executable, "-m", "django", "makemessages", "-l", "zh_Hans", "-v0"]
    # The command needs no settings, and those of the tests are not in the copy.
    plain = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    subprocess.run(command, cwd=folder, env=plain, check=True, capture_output=True)
    return polib.pofile(str(folder / "locale/zh_Hans/LC_MESSAGES/django.po"))


def test_no_text_is_untranslated(tmp_path: Path) -> None:
    catalogue = polib.pofile(str(ROOT / "locale/zh_Hans/LC_MESSAGES/django.po"))
    known = {(entry.msgid, entry.msgctxt): entry for entry in catalogue if entry.translated() and not entry.fuzzy}
    found = extracted(tmp_path)
    assert len(found) > 500
    lacking = [entry for entry in found if (entry.msgid, entry.msgctxt) not in known]
    assert [(entry.occurrences[0], entry.msgid) for entry in lacking] == []
    # A plural needs its own form.
    plurals = [entry for entry in found if entry.msgid_plural]
    assert [one.msgid for one in plurals if not known[one.msgid, one.msgctxt].msgstr_plural] == []


def test_long_numbers_come_in_groups_of_three() -> None:
    with override("zh-hans"):
        assert intcomma(17049557) == "17,049,557"
        assert (about(2_345_678_900_000), about(123_456)) == ("2.35", "0.000000123")
        assert (seconds(0.42), seconds(3.456), seconds(125)) == ("420 毫秒", "3.46 秒", "2 分 5 秒")
        assert (change(3, 2), change(2, 3), change(1, 0)) == ("+50.0 %", "−33.3 %", "–")


def test_dates_are_written_the_chinese_way() -> None:
    formats = ("DATE_FORMAT", "SHORT_DATE_FORMAT", "MONTH_DAY_FORMAT", "YEAR_MONTH_FORMAT")
    with override("zh-hans"):
        assert [date_format(MOMENT, name) for name in formats] == ["2026年8月2日", "2026-08-02", "8月2日", "2026年8月"]
    with override("en"):
        assert [date_format(MOMENT, name) for name in formats[1:]] == ["2026-08-02", "Aug 2", "August 2026"]


def test_one_and_many_have_one_form() -> None:
    singular, plural = "%(shown)s request", "%(shown)s requests"
    with override("zh-hans"):
        assert ngettext(singular, plural, 1) == ngettext(singular, plural, 5) == "%(shown)s 个请求"
    with override("en"):
        assert (ngettext(singular, plural, 1), ngettext(singular, plural, 5)) == (singular, plural)
