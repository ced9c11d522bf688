"""The gates a call passes, as plain data and counters in this process.

All gates of a call are looked at together, and only when every one lets it through is anything counted, so a call
refused by one gate has used up nothing at another. `LocalGates` is that step for one process; `gateway.redis_gates`
is the same step for several.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

WINDOW_SECONDS = 60.0


class Window(NamedTuple):
    """At most `limit` calls in any 60 s."""

    name: str
    limit: int
    code: str


class Slot(NamedTuple):
    """At most `limit` calls at once."""

    name: str
    limit: int
    code: str


@dataclass(slots=True)
class Budget:
    """At most `limit_ppt` from the period's start to `ends_at` (Unix time); the call sets `reserve_ppt` aside.

    A counter that runs is gone by, whoever began it; it gives way only to a period that ends before it. Where none
    runs, one begins with `used_ppt`, what the ledger has just said. Without that the ledger is to be asked (`Missing`).
    """

    name: str
    limit_ppt: int
    reserve_ppt: int
    ends_at: float
    used_ppt: int | None
    code: ClassVar[str] = "insufficient_quota"


@dataclass(slots=True)
class Gates:
    """Every gate of one call, in the order in which a refusal is named."""

    windows: tuple[Window, ...] = ()
    slots: tuple[Slot, ...] = ()
    budgets: tuple[Budget, ...] = ()


class Refusal(NamedTuple):
    gate: Window | Slot | Budget
    retry_after_seconds: int
    # Of a budget: what is used and set aside.
    taken_ppt: int = 0


class Missing(NamedTuple):
    """No counter of this budget runs: it is the first call of a period, or the counters were lost."""

    name: str


class StaleKey(Exception):
    """Keys have changed since the epoch that a caller is known of, or it cannot be told whether they have."""


@dataclass(slots=True)
class Passage:
    """A call let through: `remaining` and `reset_at` (Unix time) of the first window, `taken_ppt` of the first
    budget."""

    remaining: int
    reset_at: float
    taken_ppt: int


class Counters(Protocol):
    """Where gates are counted."""

    @property
    def know_epoch(self) -> bool:
        """Whether `enter` can tell the key epoch now."""

    async def enter(self, call_id: str, gates: Gates, *, now: float, epoch: bytes = b"") -> Passage | Refusal | Missing:
        """Look at all gates and count the call at all of them, or at none.

        With `epoch` the key epoch is looked at in the same step: raises StaleKey unless it is known to be this one.
        """

    def leave(self, call_id: str, gates: Gates, *, spent_ppt: int | None) -> None:
        """Free the slots; exchange what was set aside for what was spent (None: nothing was)."""

    async def raise_to(self, name: str, ledger_ppt: int) -> None:
        """A budget's counter stands at no less than the ledger has."""

    async def lower(self, name: str, by_ppt: int, *, once_in_seconds: float) -> bool:
        """Take back what a budget's counter has too much; whether it was done. Of several processes that find it so,
        one does."""

    async def used(self, name: str) -> int | None:
        """What a budget's counter stands at; None without one."""


@dataclass(slots=True)
class _Spent:
    ends_at: float
    used_ppt: int
    reserved_ppt: int = 0
    reserved: dict[str, int] = field(default_factory=dict)


class LocalGates:
    """Counters of one process; nothing awaits inside a step, so each is atomic."""

    know_epoch = False

    def __init__(self) -> None:
        self._calls: dict[str, deque[float]] = {}
        self._open: dict[str, int] = {}
        self._spent: dict[str, _Spent] = {}
        self._swept_at = 0.0

    async def enter(self, call_id: str, gates: Gates, *, now: float, epoch: bytes = b"") -> Passage | Refusal | Missing:
        if epoch:
            raise StaleKey
        recent: list[deque[float]] = []
        accounts: list[tuple[Budget, _Spent]] = []
        for window in gates.windows:
            calls = self._recent(window.name, now)
            if len(calls) >= window.limit:
                # One more is free when so many have left the window that fewer than the limit are in it.
                free_at = calls[len(calls) - window.limit] + WINDOW_SECONDS
                return Refusal(window, min(int(WINDOW_SECONDS), max(1, math.ceil(free_at - now))))
            recent.append(calls)
        for slot in gates.slots:
            if self._open.get(slot.name, 0) >= slot.limit:
                return Refusal(slot, 1)
        for budget in gates.budgets:
            spent = self._budget(budget, now)
            if spent is None:
                return Missing(budget.name)
            taken_ppt = spent.used_ppt + spent.reserved_ppt
            if taken_ppt + budget.reserve_ppt > budget.limit_ppt:
                return Refusal(budget, max(1, math.ceil(budget.ends_at - now)), taken_ppt)
            accounts.append((budget, spent))
        return self._count(call_id, gates, recent, accounts, now)

    def leave(self, call_id: str, gates: Gates, *, spent_ppt: int | None) -> None:
        for slot in gates.slots:
            self._open[slot.name] -= 1
        for budget in gates.budgets:
            spent = self._spent.get(budget.name)
            # The period the call was counted in may be over.
            if spent is not None and (reserved_ppt := spent.reserved.pop(call_id, None)) is not None:
                spent.reserved_ppt -= reserved_ppt
                spent.used_ppt += spent_ppt or 0

    async def raise_to(self, name: str, ledger_ppt: int) -> None:
        if (spent := self._spent.get(name)) is not None:
            spent.used_ppt = max(spent.used_ppt, ledger_ppt)

    async def lower(self, name: str, by_ppt: int, *, once_in_seconds: float) -> bool:
        if (spent := self._spent.get(name)) is None:
            return False
        spent.used_ppt -= by_ppt
        return True

    async def used(self, name: str) -> int | None:
        spent = self._spent.get(name)
        return spent.used_ppt if spent else None

    def _count(
        self, call_id: str, gates: Gates, recent: list[deque[float]], accounts: list[tuple[Budget, _Spent]], now: float
    ) -> Passage:
        """Count a call that every gate lets through: `recent` of each window, each budget with its account."""
        passage = Passage(0, now, 0)
        for calls in recent:
            calls.append(now)
        if recent:
            first = recent[0]
            passage.remaining, passage.reset_at = gates.windows[0].limit - len(first), first[0] + WINDOW_SECONDS
        for slot in gates.slots:
            self._open[slot.name] = self._open.get(slot.name, 0) + 1
        if accounts:
            _, first_account = accounts[0]
            passage.taken_ppt = first_account.used_ppt + first_account.reserved_ppt
        for budget, spent in accounts:
            spent.reserved[call_id] = budget.reserve_ppt
            spent.reserved_ppt += budget.reserve_ppt
        if now - self._swept_at >= WINDOW_SECONDS:
            self._sweep(now)
        return passage

    def _recent(self, name: str, now: float) -> deque[float]:
        calls = self._calls.get(name)
        if calls is None:
            calls = self._calls[name] = deque()
        while calls and calls[0] <= now - WINDOW_SECONDS:
            calls.popleft()
        return calls

    def _budget(self, budget: Budget, now: float) -> _Spent | None:
        spent = self._spent.get(budget.name)
        if spent is not None and now < spent.ends_at <= budget.ends_at:
            return spent
        if budget.used_ppt is None:
            return None
        spent = self._spent[budget.name] = _Spent(budget.ends_at, budget.used_ppt)
        return spent

    def _sweep(self, now: float) -> None:
        """Forget what nobody has touched for a window: addresses and keys come and go."""
        self._swept_at = now
        for name in [name for name, calls in self._calls.items() if not calls or calls[-1] <= now - WINDOW_SECONDS]:
            del self._calls[name]
        for name in [name for name, count in self._open.items() if count <= 0]:
            del self._open[name]
        for name in [name for name, spent in self._spent.items() if spent.ends_at <= now and not spent.reserved]:
            del self._spent[name]
