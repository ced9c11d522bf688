"""The gates of several processes, counted in Redis: one script a call, one round trip for all calls of a loop tick.

Slots and reservations carry an expiry that their process renews, so those of a process that died free themselves.
While Redis does not answer, each process counts for itself (`LocalGates`, anew each time, budgets from the ledger), and
no call waits for it: after a failure it is left alone for a moment. What was spent meanwhile reaches the counters by
their correction from the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from redis.exceptions import RedisError

from accounts import key_epoch
from gateway.gates import WINDOW_SECONDS, Budget, Gates, LocalGates, Missing, Passage, Refusal, Slot, StaleKey, Window
from gateway.redis_line import RedisLine, Script, reason

log = logging.getLogger("gateway")

PREFIX = "tf:gate:"
TIMEOUT_SECONDS = 0.5
PAUSE_SECONDS = 1.0
# A call's slots and reservations are renewed this many times before they would expire.
RENEWALS = 4

# Amounts are picopoints as decimal strings, added and compared as two halves of 10^9: Lua's own numbers are exact to
# 2^53 ppt (9,007 points), those of Redis to 2^63.
AMOUNTS = """
local function split(text)
  text = text or '0'
  local negative = string.sub(text, 1, 1) == '-'
  if negative then text = string.sub(text, 2) end
  local high = tonumber(string.sub(text, 1, -10)) or 0
  local low = tonumber(string.sub(text, -9)) or 0
  if negative then return -high, -low end
  return high, low
end
local function add(h1, l1, h2, l2)
  local high, low = h1 + h2, l1 + l2
  local carry = math.floor(low / 1000000000)
  return high + carry, low - carry * 1000000000
end
local function text(high, low)
  local sign = ''
  if high < 0 then
    -- Not -low: a zero would keep its sign.
    sign, high, low = '-', -high, 0 - low
    if low < 0 then high, low = high - 1, low + 1000000000 end
  end
  if high == 0 then return sign .. string.format('%.0f', low) end
  return sign .. string.format('%.0f%09.0f', high, low)
end
local function change(name, field, by, sign)
  local before = redis.call('HGET', name, field)
  -- A counter whose period is long over is not begun again.
  if not before then return end
  local bh, bl = split(by)
  redis.call('HSET', name, field, text(add(sign * bh, sign * bl, split(before))))
end
"""

# A call's reservation is let go; whether it still had one. Their sum stands in the counter: how many there are makes no
# difference.
RELEASE = """
local function release(name, call)
  local held = redis.call('HGET', name .. ':h', call)
  redis.call('ZREM', name .. ':x', call)
  if not held then return false end
  redis.call('HDEL', name .. ':h', call)
  change(name, 'held', held, -1)
  return true
end
"""

# ARGV: call id, now (ms), expiry (ms), gates as JSON [[kind, name, limit, reserve, ends_at_ms, used], …], key epoch.
# Answers {refused gate (0: none), free_ms, taken, count, oldest_ms}; a negative gate is a budget without a counter: one
# begins only if `used` is given. Nil where an epoch is given that is not the key epoch.
ENTER = Script(
    AMOUNTS
    + RELEASE
    + f"""
if ARGV[5] ~= '' and redis.call('GET', '{key_epoch.REDIS_NAME}') ~= ARGV[5] then return false end
"""
    + """
local call, now, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local gates = cjson.decode(ARGV[4])
local function taken_of(name)
  local sums = redis.call('HMGET', name, 'used', 'held')
  if sums[2] ~= '0' and redis.call('EXISTS', name .. ':h') == 0 then
    -- Nobody holds anything: whatever the sum has been through (an evicted key, say), it begins anew.
    sums[2] = '0'
    redis.call('HSET', name, 'held', '0')
  end
  local high, low = split(sums[1])
  return add(high, low, split(sums[2]))
end
local passage, taken = {0, 0, '0', 0, 0}, nil
for index, gate in ipairs(gates) do
  local kind, name, limit = gate[1], gate[2], gate[3]
  if kind == 'w' then
    redis.call('ZREMRANGEBYSCORE', name, '-inf', now - 60000)
    local count = redis.call('ZCARD', name)
    if count >= tonumber(limit) then
      local first = redis.call('ZRANGE', name, count - tonumber(limit), count - tonumber(limit), 'WITHSCORES')
      return {index, tonumber(first[2]) + 60000 - now, '0', 0, 0}
    end
    if passage[5] == 0 then
      local first = redis.call('ZRANGE', name, 0, 0, 'WITHSCORES')
      passage[4] = count + 1
      passage[5] = tonumber(first[2] or now)
    end
  elseif kind == 's' then
    redis.call('ZREMRANGEBYSCORE', name, '-inf', now)
    if redis.call('ZCARD', name) >= tonumber(limit) then return {index, 1000, '0', 0, 0} end
  else
    local ends = tonumber(redis.call('HGET', name, 'ends') or 0)
    if ends <= now or ends > tonumber(gate[5]) then
      if gate[6] == '' then return {-index, 0, '0', 0, 0} end
      redis.call('DEL', name, name .. ':h', name .. ':x')
      redis.call('HSET', name, 'ends', gate[5], 'used', gate[6], 'held', '0')
      redis.call('PEXPIREAT', name, tonumber(gate[5]) + 3600000)
    end
    for _, dead in ipairs(redis.call('ZRANGEBYSCORE', name .. ':x', '-inf', now)) do release(name, dead) end
    local high, low = taken_of(name)
    local rh, rl = split(gate[4])
    local lh, ll = split(limit)
    local sh, sl = add(high, low, rh, rl)
    if sh > lh or (sh == lh and sl > ll) then
      return {index, tonumber(gate[5]) - now, text(high, low), 0, 0}
    end
    taken = taken or text(high, low)
  end
end
for _, gate in ipairs(gates) do
  local kind, name = gate[1], gate[2]
  if kind == 'w' then
    redis.call('ZADD', name, now, call)
    redis.call('PEXPIRE', name, 61000)
  elseif kind == 's' then
    redis.call('ZADD', name, expires, call)
    redis.call('PEXPIREAT', name, expires + 1000)
  else
    -- A call that asks again, for its first answer came too late, holds what it holds.
    if redis.call('HSETNX', name .. ':h', call, gate[4]) == 1 then change(name, 'held', gate[4], 1) end
    redis.call('ZADD', name .. ':x', expires, call)
  end
end
passage[3] = taken or '0'
return passage
"""
)

# ARGV: call id, slot names, budgets [[name, ends_at_ms], …], spent; exchanges the reservation for what was spent.
LEAVE = Script(
    AMOUNTS
    + RELEASE
    + """
local call, spent = ARGV[1], ARGV[4]
for _, name in ipairs(cjson.decode(ARGV[2])) do redis.call('ZREM', name, call) end
for _, budget in ipairs(cjson.decode(ARGV[3])) do
  local name = budget[1]
  -- Without its reservation (Redis was emptied, its lease ran out) it still counts in the period it was let through in.
  local counts = release(name, call) or redis.call('HGET', name, 'ends') == budget[2]
  if counts and spent ~= '' then change(name, 'used', spent, 1) end
end
"""
)

# ARGV: counter, what the ledger has. Whole numbers as text, which Lua's own would round.
RAISE = Script("""
local used, ledger = redis.call('HGET', ARGV[1], 'used'), ARGV[2]
if not used or string.sub(ledger, 1, 1) == '-' then return end
if string.sub(used, 1, 1) == '-' or #used < #ledger or (#used == #ledger and used < ledger) then
  redis.call('HSET', ARGV[1], 'used', ledger)
end
""")

# ARGV: counter, by how much, for how long (ms) nobody else lowers it; whether it was this one.
LOWER = Script(
    AMOUNTS
    + """
if not redis.call('SET', ARGV[1] .. ':l', 1, 'NX', 'PX', ARGV[3]) then return 0 end
change(ARGV[1], 'used', ARGV[2], -1)
return 1
"""
)


class RedisGates:
    def __init__(self, url: str, *, lease_seconds: int = 60) -> None:
        self._lease_seconds = lease_seconds
        self._redis = RedisLine(url, timeout_seconds=TIMEOUT_SECONDS)
        self._alone = LocalGates()
        self._is_away = False
        self._paused_until = 0.0
        self._leaving: set[asyncio.Future[Any]] = set()
        # Calls this process has let through, with their gates: renewed until they leave.
        self._open: dict[str, Gates] = {}
        self._counted_alone: dict[str, LocalGates] = {}
        self._renewal: asyncio.Task[None] | None = None

    @property
    def know_epoch(self) -> bool:
        return time.monotonic() >= self._paused_until

    async def enter(self, call_id: str, gates: Gates, *, now: float, epoch: bytes = b"") -> Passage | Refusal | Missing:
        if time.monotonic() < self._paused_until:
            return await self._enter_alone(call_id, gates, now, epoch)
        expires = int((now + self._lease_seconds) * 1000)
        try:
            result = await self._redis.run(ENTER, call_id, int(now * 1000), expires, _encoded(gates), epoch)
        except RedisError as error:
            self._pause(error)
            return await self._enter_alone(call_id, gates, now, epoch)
        self._is_away = False
        if result is None:
            raise StaleKey
        return self._passed(call_id, gates, result, now)

    def leave(self, call_id: str, gates: Gates, *, spent_ppt: int | None) -> None:
        if (alone := self._counted_alone.pop(call_id, None)) is not None:
            alone.leave(call_id, gates, spent_ppt=spent_ppt)
            return
        self._open.pop(call_id, None)
        slots = orjson.dumps([PREFIX + slot.name for slot in gates.slots])
        budgets = orjson.dumps([[PREFIX + budget.name, _ends_ms(budget)] for budget in gates.budgets])
        leaving = self._redis.run(LEAVE, call_id, slots, budgets, "" if spent_ppt is None else spent_ppt)
        self._leaving.add(leaving)
        leaving.add_done_callback(self._left)

    async def raise_to(self, name: str, ledger_ppt: int) -> None:
        async def raising() -> None:
            await self._redis.run(RAISE, PREFIX + name, ledger_ppt)

        await self._reaching(raising, lambda: self._alone.raise_to(name, ledger_ppt))

    async def lower(self, name: str, by_ppt: int, *, once_in_seconds: float) -> bool:
        async def lowering() -> bool:
            return bool(await self._redis.run(LOWER, PREFIX + name, by_ppt, int(once_in_seconds * 1000)))

        return await self._reaching(lowering, lambda: self._alone.lower(name, by_ppt, once_in_seconds=once_in_seconds))

    async def used(self, name: str) -> int | None:
        async def reading() -> int | None:
            value = await self._redis.ask("HGET", PREFIX + name, "used")
            return int(value) if value is not None else None

        return await self._reaching(reading, lambda: self._alone.used(name))

    async def aclose(self) -> None:
        if self._renewal:
            self._renewal.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._redis.aclose()

    async def _reaching[T](self, together: Callable[[], Awaitable[T]], alone: Callable[[], Awaitable[T]]) -> T:
        """Also where no call comes that would find Redis back: its counters may be off since it went away."""
        if time.monotonic() >= self._paused_until:
            try:
                found = await together()
            except RedisError as error:
                self._pause(error)
            else:
                self._is_away = False
                return found
        return await alone()

    async def _enter_alone(self, call_id: str, gates: Gates, now: float, epoch: bytes) -> Passage | Refusal | Missing:
        alone = self._alone
        result = await alone.enter(call_id, gates, now=now, epoch=epoch)
        if isinstance(result, Passage):
            self._counted_alone[call_id] = alone
        return result

    def _passed(self, call_id: str, gates: Gates, result: list[Any], now: float) -> Passage | Refusal | Missing:
        number, free_ms, taken, count, oldest_ms = result
        every: list[Window | Slot | Budget] = [*gates.windows, *gates.slots, *gates.budgets]
        if number < 0:
            return Missing(every[-int(number) - 1].name)
        if number:
            gate = every[int(number) - 1]
            seconds = max(1, -(-int(free_ms) // 1000))
            if isinstance(gate, Window):
                # Calls overtake each other on their way here: the oldest may be later than this one.
                seconds = min(seconds, int(WINDOW_SECONDS))
            return Refusal(gate, seconds, int(taken))
        limit = gates.windows[0].limit if gates.windows else 0
        passage = Passage(limit - int(count), int(oldest_ms) / 1000 + 60 if count else now, int(taken))
        self._open[call_id] = gates
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._keep_renewing(), name="slot renewal")
        return passage

    def _left(self, leaving: asyncio.Future[Any]) -> None:
        self._leaving.discard(leaving)
        if not leaving.cancelled() and isinstance(error := leaving.exception(), RedisError):
            # The expiry frees the slots, the correction from the ledger books the points.
            self._pause(error)

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / RENEWALS)
            expires = int((time.time() + self._lease_seconds) * 1000)
            # One command a counter, however many calls are open.
            slots: dict[str, list[str | int]] = {}
            reservations: dict[str, list[str | int]] = {}
            for call_id, gates in self._open.items():
                for slot in gates.slots:
                    slots.setdefault(PREFIX + slot.name, []).extend((expires, call_id))
                for budget in gates.budgets:
                    reservations.setdefault(f"{PREFIX}{budget.name}:x", []).extend((expires, call_id))
            renewed = [self._redis.ask("ZADD", name, "XX", *calls) for name, calls in (slots | reservations).items()]
            renewed += [self._redis.ask("PEXPIREAT", name, expires + 1000) for name in slots]
            for answer in await asyncio.gather(*renewed, return_exceptions=True):
                if isinstance(answer, RedisError):
                    self._pause(answer)

    def _pause(self, error: RedisError) -> None:
        if not self._is_away:
            log.warning("Redis does not answer (%s): limits are counted in each process", reason(error))
            # What was counted alone the last time is of no use now. The calls that were keep their counters.
            self._alone = LocalGates()
            self._is_away = True
        self._paused_until = time.monotonic() + PAUSE_SECONDS


def _ends_ms(budget: Budget) -> str:
    return str(int(budget.ends_at * 1000))


def _encoded(gates: Gates) -> bytes:
    rows: list[list[Any]] = [["w", PREFIX + window.name, str(window.limit)] for window in gates.windows]
    rows += [["s", PREFIX + slot.name, str(slot.limit)] for slot in gates.slots]
    rows += [
        ["b", PREFIX + budget.name, str(budget.limit_ppt), str(budget.reserve_ppt),
         _ends_ms(budget), "" if budget.used_ppt is None else str(budget.used_ppt)]
        for budget in gates.budgets
    ]  # fmt: skip
    return orjson.dumps(rows)
