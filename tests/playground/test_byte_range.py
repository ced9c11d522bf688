"""Which part of a file a `Range` header asks for."""

from __future__ import annotations

import pytest

from playground.byte_range import ByteRange, parse_range


@pytest.mark.parametrize(
    ("header", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=0-", 0, 99),
        (" bytes=10-19 ", 10, 19),
        ("bytes=90-200", 90, 99),
        ("bytes=-10", 90, 99),
        ("bytes=-500", 0, 99),
    ],
)
def test_a_part(header: str, first: int, last: int) -> None:
    assert parse_range(header, size=100) == ByteRange(first, last)


@pytest.mark.parametrize("header", ["", "bytes=-", "bytes=5-2", "bytes=0-1,5-6", "lines=0-1", "bytes=a-b", "bytes=٣-"])
def test_what_makes_no_sense_asks_for_the_whole(header: str) -> None:
    assert parse_range(header, size=100) is None


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_what_lies_beyond_the_end_is_empty(header: str) -> None:
    found = parse_range(header, size=100)
    assert found is not None
    assert found.length == 0
