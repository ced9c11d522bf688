"""Whether a call may begin: its key's scopes, then every limit in one atomic step, points included.

ticket = await admission.admit(caller, ask)     # raises Forbidden or RateLimited (429)
…                                               # Call.finish settles it, once
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.db import DatabaseError, InterfaceError

from billing.pricing import Usage, format_points, total_ppt
from billing.quota import Period, period_at, reservation_ppt, rolling_start, used_ppt
from billing.rates import RateCard
from gateway.call import Call, new_request_id
from gateway.caller import Allowance, Caller
from gateway.database import in_database
from gateway.errors import Forbidden, RateLimited
from gateway.gates import Budget, Counters, Gates, Missing, Passage, Refusal, Slot, Window
from gateway.ledger_metrics import COMPARISONS
from gateway.metrics import count_call, count_refusal

log = logging.getLogger("gateway")

# What a call is taken to write at most where it does not say.
DEFAULT_OUTPUT_TOKENS = 4096
BYTES_PER_TOKEN = 4
CARD_SECONDS = 5.0
MAX_KNOWN_GATES = 10_000
CORRECT_EVERY_SECONDS = 30.0
# Long enough, most times, for what was counted to have reached the database.
SHIPPED_SECONDS = 1.0
# A counter that was lost begins anew from the ledger once the last records of every process should be there.
SETTLED_SECONDS = 0.25
# While records are late the ledger has less than was counted. Only what it lacks at so many looks is lowered.
LOOKS = 3


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """Of the whole site; 0 is off."""

    ip_rpm: int = 0
    process_concurrency: int = 0
    site_concurrency: int = 0


NO_SITE_LIMITS = SiteLimits()


@dataclass(slots=True)
class Expected:
    """What a call is going to use at most; points for it are set aside."""

    prompt_bytes: int = 0
    output_tokens: int = 0
    pages: int = 0
    characters: int = 0


@dataclass(slots=True)
class Ask:
    """What a caller wants to do. Without a model (a list of models) it takes no slot and no points."""

    endpoint: str
    model: str = ""
    address: str = ""
    model_concurrency: int = 0
    expected: Expected = field(default_factory=Expected)


@dataclass(slots=True)
class Ticket:
    """A call let through at `at` (Unix time), priced at the rates of then. Settled by the call's finish, or cancelled
    where it came to no call."""

    call_id: str
    at: float
    gates: Gates
    passage: Passage
    prices: Mapping[str, int]
    counters: Counters

    def settle(self, call: Call) -> None:
        spent = 0
        if self.prices and 200 <= call.status < 300:
            counts = call.counts
            usage = Usage(counts.prompt, counts.cached, counts.completion, call.pages, call.characters)
            spent = total_ppt(usage, self.prices)
        count_call(call, spent_ppt=spent)
        self.counters.leave(self.call_id, self.gates, spent_ppt=spent)

    def cancel(self) -> None:
        self.counters.leave(self.call_id, self.gates, spent_ppt=None)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What a client may still use, as of this call."""
        headers: list[tuple[bytes, bytes]] = []
        passage, windows, budgets = self.passage, self.gates.windows, self.gates.budgets
        if windows:
            headers = [
                (b"x-ratelimit-limit-user-rpm", b"%d" % windows[0].limit),
                (b"x-ratelimit-remaining-user-rpm", b"%d" % passage.remaining),
                (b"x-ratelimit-reset", b"%d" % passage.reset_at),
            ]
        if budgets:
            limit_ppt, taken_ppt = budgets[0].limit_ppt, passage.taken_ppt
            left_ppt = limit_ppt - taken_ppt if taken_ppt < limit_ppt else 0
            headers += [
                (b"x-ratelimit-limit-user-daily-points", _limit_points(limit_ppt)),
                (b"x-ratelimit-used-user-daily-points", format_points(taken_ppt).encode("ascii")),
                (b"x-ratelimit-remaining-user-daily-points", format_points(left_ppt).encode("ascii")),
                (b"x-ratelimit-reset-user-daily-points", b"%d" % budgets[0].ends_at),
            ]
        return headers


@lru_cache(maxsize=1024)
def _limit_points(limit_ppt: int) -> bytes:
    """The same few come with every call."""
    return format_points(limit_ppt).encode("ascii")


@dataclass(slots=True)
class _Known:
    """A budget that this process has counted: its period's end, and somebody whose terms it is of."""

    ends_at: float
    caller: Caller

    @property
    def terms(self) -> tuple[str, ZoneInfo]:
        return _terms(self.caller)


def _terms(caller: Caller) -> tuple[str, ZoneInfo]:
    return caller.allowance.period, caller.allowance.zone


class PointsLimit(NamedTuple):
    """A budget's name and size, and its key where it is one key's."""

    name: str
    limit_ppt: int
    key_id: int | None


def _points_limits(caller: Caller) -> tuple[PointsLimit, ...]:
    allowance = caller.allowance
    limits = [
        PointsLimit(f"points:team:{caller.team_id}", allowance.team_points_ppt, None),
        PointsLimit(f"points:key:{caller.key_id}", allowance.key_points_ppt if caller.key_id else 0, caller.key_id),
    ]
    return tuple([limit for limit in limits if limit.limit_ppt])


class Admission:
    """The one way in for every call that uses a model, whatever the endpoint or the page it comes from."""

    def __init__(self, counters: Counters, *, limits: SiteLimits) -> None:
        self.counters = counters
        self.limits = limits
        self.card = RateCard(())
        self._priced: dict[str, Mapping[str, int]] = {}
        self._priced_at = 0
        # The gates of a caller hardly ever change; a caller that was loaded anew is another object.
        self._gates: dict[tuple[int, str, str, int], tuple[Caller, tuple[Gates, tuple[PointsLimit, ...]]]] = {}
        self._known: dict[str, _Known] = {}
        # Period's end and points used, as the ledger last said.
        self._last: dict[str, tuple[float, int]] = {}
        # What each counter had more than the ledger at the last looks.
        self._excess: dict[str, list[int]] = {}
        self._reading: dict[str, asyncio.Future[tuple[float, int]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._load_card()
        self._tasks = [
            asyncio.create_task(self._keep_card(), name="rate card"),
            asyncio.create_task(self._keep_correcting(), name="quota correction"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def admit(self, caller: Caller, ask: Ask, *, epoch: bytes = b"") -> Ticket:
        """Raises Forbidden outside the key's scopes, RateLimited at a limit, and StaleKey where `epoch` is given and
        the key epoch is not this one; nothing is counted then."""
        if caller.allowance.is_scoped:
            check_scope(caller.allowance, ask)
        now = time.time()
        gates, limits = self._gates_of(caller, ask)
        prices: Mapping[str, int] = {}
        if ask.model:
            prices = self._prices(ask.model, now)
            if limits:
                gates = Gates(gates.windows, gates.slots, await self._budgets(caller, limits, ask, prices, now))
        call_id = new_request_id()
        result = await self.counters.enter(call_id, gates, now=now, epoch=epoch)
        settled_at = 0.0
        while isinstance(result, Missing):
            # The counters were lost, or this process begins to count alone: the ledger says what was used. A key's that
            # is missed right behind its team's was lost with it.
            self._known.pop(result.name, None)
            settled_at = settled_at or time.monotonic() + SETTLED_SECONDS
            budgets = await self._budgets(caller, limits, ask, prices, now, settled_at=settled_at)
            gates = Gates(gates.windows, gates.slots, budgets)
            result = await self.counters.enter(call_id, gates, now=now, epoch=epoch)
        if isinstance(result, Refusal):
            count_refusal(result.gate.code)
            raise refused(result)
        return Ticket(call_id, now, gates, result, prices, self.counters)

    def _prices(self, model: str, now: float) -> Mapping[str, int]:
        """The model's prices, looked up once a second: one that changes within it counts here from the next."""
        second = int(now)
        if self._priced_at != second:
            self._priced_at = second
            self._priced.clear()
        prices = self._priced.get(model)
        if prices is None:
            prices = self._priced[model] = self.card.prices(model, datetime.fromtimestamp(now, UTC))
        return prices

    def _gates_of(self, caller: Caller, ask: Ask) -> tuple[Gates, tuple[PointsLimit, ...]]:
        """Windows, slots and limits of points, from the last call of the same caller where nothing has changed."""
        name = (caller.key_id or -caller.team_id, ask.address, ask.model, ask.model_concurrency)
        known = self._gates.get(name)
        if known is None or known[0] is not caller:
            if len(self._gates) >= MAX_KNOWN_GATES:
                self._gates.clear()
            known = self._gates[name] = caller, (self._simple_gates(caller, ask), _points_limits(caller))
        return known[1]

    def _simple_gates(self, caller: Caller, ask: Ask) -> Gates:
        allowance, limits = caller.allowance, self.limits
        key, team, model = f"key:{caller.key_id}", f"team:{caller.team_id}", f"model:{ask.model}"
        windows = [
            Window(f"rpm:{key}", allowance.key_rpm if caller.key_id else 0, "token_rate_limit_exceeded"),
            Window(f"rpm:ip:{ask.address}", limits.ip_rpm if ask.address else 0, "ip_rate_limit_exceeded"),
            Window(f"rpm:{team}", allowance.team_rpm, "rate_limit_exceeded"),
        ]
        slots = [
            Slot(
                f"open:{key}",
                allowance.key_concurrency if caller.key_id else 0,
                "token_concurrency_rate_limit_exceeded",
            ),
            Slot(f"open:{model}", ask.model_concurrency, "model_concurrency_rate_limit_exceeded"),
            Slot(f"open:process:{id(self)}", limits.process_concurrency, "process_concurrency_rate_limit_exceeded"),
            Slot("open:site", limits.site_concurrency, "global_concurrency_rate_limit_exceeded"),
        ]
        return Gates(
            tuple([window for window in windows if window.limit]),
            tuple([slot for slot in slots if slot.limit]) if ask.model else (),
        )

    async def _budgets(
        self,
        caller: Caller,
        limits: tuple[PointsLimit, ...],
        ask: Ask,
        prices: Mapping[str, int],
        now: float,
        *,
        settled_at: float = 0.0,
    ) -> tuple[Budget, ...]:
        """Where the ledger is to be asked, not before `settled_at` (monotonic)."""
        expected = ask.expected
        reserve_ppt = 0
        if prices:
            reserve_ppt = reservation_ppt(
                prices,
                prompt_tokens_estimate=expected.prompt_bytes // BYTES_PER_TOKEN,
                max_output_tokens=expected.output_tokens,
                pages=expected.pages,
                characters=expected.characters,
            )
        budgets: list[Budget] = []
        for name, limit_ppt, key_id in limits:
            known = self._known.get(name)
            if known and known.ends_at > now and (known.caller is caller or known.terms == _terms(caller)):
                budgets.append(Budget(name, limit_ppt, reserve_ppt, known.ends_at, None))
            else:
                ends_at, used_ppt = await self._period_of(name, caller, key_id, now, settled_at)
                budgets.append(Budget(name, limit_ppt, reserve_ppt, ends_at, used_ppt))
        return tuple(budgets)

    async def _period_of(
        self, name: str, caller: Caller, key_id: int | None, now: float, settled_at: float
    ) -> tuple[float, int]:
        """When the running period of a budget ends and what was used in it, as the ledger says."""
        reading = self._reading.get(name)
        if reading is None:
            # Calls that come together need one look at the ledger.
            reading = asyncio.ensure_future(self._read(name, caller, key_id, now, settled_at))
            self._reading[name] = reading
            reading.add_done_callback(lambda _: self._reading.pop(name, None))
        return await asyncio.shield(reading)

    async def _read(
        self, name: str, caller: Caller, key_id: int | None, now: float, settled_at: float
    ) -> tuple[float, int]:
        if (unsettled_seconds := settled_at - time.monotonic()) > 0:
            await asyncio.sleep(unsettled_seconds)
        try:
            period, used_ppt = await in_database(_read_period, caller, key_id, self.card, now)
        except (DatabaseError, InterfaceError) as error:
            # Calls go on without the database, from what was last known of the period.
            log.warning("quota %s begins without the ledger: %s", name, type(error).__name__)
            period = period_at(caller.allowance.period, caller.allowance.zone, datetime.fromtimestamp(now, UTC))
            last = self._last.get(name)
            used_ppt = last[1] if last and last[0] == period.end.timestamp() else 0
        ends_at = period.end.timestamp()
        self._known[name] = _Known(ends_at, caller)
        self._last[name] = ends_at, used_ppt
        return ends_at, used_ppt

    async def _keep_card(self) -> None:
        while True:
            await asyncio.sleep(CARD_SECONDS)
            with suppress(DatabaseError, InterfaceError):
                # Away for a while: the rates last read go on.
                await self._load_card()

    async def _load_card(self) -> None:
        self.card = await in_database(RateCard.load)

    async def _keep_correcting(self) -> None:
        while True:
            await asyncio.sleep(CORRECT_EVERY_SECONDS)
            now = time.time()
            self._known = {name: known for name, known in self._known.items() if known.ends_at > now}
            self._last = {name: last for name, last in self._last.items() if last[0] > now}
            self._excess = {name: excess for name, excess in self._excess.items() if name in self._known}
            try:
                await self.correct()
            except Exception as error:  # noqa: BLE001 -- whatever is away, the next round tries again
                log.warning("quotas were not checked against the ledger: %s", type(error).__name__)

    async def correct(self) -> None:
        """Bring the counters of this process's callers to the ledger: up at once, down when it is no matter of time.

        The ledger knows what was counted before it was asked, unless that is late, and nothing that is not counted
        afterwards.
        """
        before = {name: await self.counters.used(name) for name in self._known}
        await asyncio.sleep(SHIPPED_SECONDS)
        for name, known in list(self._known.items()):
            counted_ppt = before.get(name)
            if counted_ppt is None:
                continue
            key_id = known.caller.key_id if name.startswith("points:key:") else None
            period, ledger_ppt = await in_database(_read_period, known.caller, key_id, self.card, time.time())
            self._last[name] = period.end.timestamp(), ledger_ppt
            now_ppt = await self.counters.used(name)
            if now_ppt is None:
                continue
            excess = self._excess.setdefault(name, [])
            excess.append(max(0, counted_ppt - ledger_ppt))
            lack_ppt, excess_ppt = max(0, ledger_ppt - now_ppt), min(excess) if len(excess) == LOOKS else 0
            once_in_seconds = LOOKS * CORRECT_EVERY_SECONDS
            if lack_ppt:
                await self.counters.raise_to(name, ledger_ppt)
                COMPARISONS.note(lack_ppt)
            elif excess_ppt and await self.counters.lower(name, excess_ppt, once_in_seconds=once_in_seconds):
                COMPARISONS.note(excess_ppt)
            else:
                COMPARISONS.note(0)
            if len(excess) == LOOKS:
                # Looks that saw what has been taken back by now, here or by another process, count no more.
                self._excess[name] = [] if excess_ppt else excess[1:]


def check_scope(allowance: Allowance, ask: Ask) -> None:
    """Raises Forbidden for what the key was not made for."""
    if allowance.endpoints and ask.endpoint not in allowance.endpoints:
        raise Forbidden(f"This key may not use the endpoint {ask.endpoint}.")
    if ask.model and allowance.models and ask.model not in allowance.models:
        raise Forbidden(f"This key may not use the model {ask.model}.", param="model")
    if allowance.networks:
        try:
            address = ip_address(ask.address)
        except ValueError:
            raise Forbidden("This key is limited to certain networks.") from None
        if not any(address in network for network in allowance.networks):
            raise Forbidden("This key may not be used from your network.")


def refused(refusal: Refusal) -> RateLimited:
    gate, seconds = refusal.gate, refusal.retry_after_seconds
    if isinstance(gate, Window):
        text = f"Too many requests: at most {gate.limit} a minute. Try again in {seconds} s."
        return RateLimited(text, code=gate.code, retry_after_seconds=seconds)
    if isinstance(gate, Slot):
        text = f"Too many requests at once: at most {gate.limit}. Wait for one to end."
        return RateLimited(text, code=gate.code, retry_after_seconds=seconds)
    left = format_points(max(0, gate.limit_ppt - refusal.taken_ppt))
    reset = datetime.fromtimestamp(gate.ends_at, UTC).isoformat()
    text = (
        f"Not enough points: this request sets aside up to {format_points(gate.reserve_ppt)}, "
        f"{left} of {format_points(gate.limit_ppt)} are left until {reset}."
    )
    return RateLimited(text, code=gate.code, retry_after_seconds=seconds)


def _read_period(caller: Caller, key_id: int | None, card: RateCard, now: float) -> tuple[Period, int]:
    allowance = caller.allowance
    moment = datetime.fromtimestamp(now, UTC)
    first = None
    if allowance.period == "rolling":
        first = rolling_start(team_id=caller.team_id, key_id=key_id, now=moment)
    period = period_at(allowance.period, allowance.zone, moment, first_charged_at=first)
    return period, used_ppt(team_id=caller.team_id, key_id=key_id, period=period, card=card)
