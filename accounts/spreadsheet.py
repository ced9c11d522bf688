"""CSV that is harmless in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO

# Spreadsheets take a file without it for one in an old code page, and spoil every name that is not English.
BYTE_ORDER_MARK = "\ufeff"
# A cell that begins with one of these may be run as a formula; the wide ones are what a Chinese keyboard writes.
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
# Some programs look at what comes after these.
_SKIPPED = " \t\r\n\v\f\0\u00a0\u3000\ufeff"

type Cells = Iterable[str | int]


def safe_cell(value: str | int) -> str:
    """Text that no spreadsheet takes for a formula."""
    text = str(value)
    is_odd = text.startswith(("\t", "\r", "\n")) or text.lstrip(_SKIPPED).startswith(_FORMULA_STARTS)
    return f"'{text}" if is_odd else text


def csv_text(some: Iterable[Cells]) -> str:
    text = StringIO()
    csv.writer(text).writerows([safe_cell(cell) for cell in line] for line in some)
    return text.getvalue()
