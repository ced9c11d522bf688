"""Points as people type them, and picopoints as they are kept: 1 point is 10¹² ppt, without rounding."""

from __future__ import annotations

from decimal import Decimal

PLACES = 12
# A signed 64-bit number holds a little more.
MAX_POINTS = 9_000_000


def ppt_of(points: Decimal | None) -> int | None:
    return None if points is None else int(points.scaleb(PLACES))


def points_of(ppt: int | None) -> Decimal | None:
    """Without trailing zeros; print it with format `f`."""
    if ppt is None:
        return None
    exact = Decimal(ppt).scaleb(-PLACES).normalize()
    return exact.quantize(Decimal(1)) if exact == exact.to_integral_value() else exact
