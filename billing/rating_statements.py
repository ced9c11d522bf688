"""A batch of usage records rated by the database itself: what they used is priced, charged, summed and marked by a few
set-based statements, and no record passes through Python.

The relation `rated` holds each record of the batch with its units and prices, by the rules of `billing.pricing` (a
property test holds the two equal); charges, rollups and marks are written from it. PostgreSQL does all of that in one
statement; SQLite, which cannot write from within one, in a statement each over a temporary table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from string import Template
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.db import connection

from billing.cells import FAILED_OUTCOMES, SUMS
from billing.latency import ADD_LATENCIES, QUARTER_WORDS, latency_steps
from billing.models import Charge, Rollup, UsageRecord
from billing.pricing import MAX_PAGES, MAX_TOKENS
from billing.rates import RateCard

EVER = datetime.min.replace(tzinfo=UTC)


class Use(NamedTuple):
    """What a batch held of one key's requests of one quarter hour."""

    team_id: int
    quarter: int
    key_id: int
    requests: int
    latest_at: datetime
    # Requests that used a meter without a rate, and the model of one of them.
    unpriced: int
    unpriced_model: str | None


def settle_oldest(limit: int, *, since: datetime, card: RateCard, now: datetime) -> list[Use]:
    """Rate up to `limit` waiting records begun since then, the oldest first, within the caller's transaction."""
    parameters = {"since": _moment(since), "limit": limit, "charged": True}
    return _settle(_statements(connection.vendor, "oldest"), parameters, card=card, now=now)


def settle_given(ids: Sequence[UUID], *, charged: bool, card: RateCard, now: datetime) -> list[Use]:
    """Rate these records, which the caller has locked; uncharged they are only counted."""
    chosen = list(ids) if connection.vendor == "postgresql" else orjson.dumps([id.hex for id in ids]).decode()
    return _settle(_statements(connection.vendor, "given"), {"ids": chosen, "charged": charged}, card=card, now=now)


def _settle(statements: _Statements, parameters: dict[str, Any], *, card: RateCard, now: datetime) -> list[Use]:
    rows = [
        {"model": model, "begins_at": str(_moment(begins_at)), "ends_at": str(_moment(ends_at)), **prices}
        for model, begins_at, ends_at, prices in card.stretches()
    ]
    parameters = {**parameters, "card": orjson.dumps(rows).decode(), "now": _moment(now)}
    run = _run_on_postgresql if connection.vendor == "postgresql" else _run_on_sqlite
    return [Use._make((*row[:4], _read_moment(row[4]), *row[5:])) for row in run(statements, parameters)]


def _run_on_postgresql(statements: _Statements, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(_PLAN_FOR_FEW_OF_MANY)
        cursor.execute(_IN_ONE.substitute(statements._asdict()), parameters)
        return list(cursor.fetchall())


def _run_on_sqlite(statements: _Statements, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS temp.rated")
        cursor.execute(_RATED_TABLE)
        for statement in (f"INSERT INTO temp.rated {statements.rated}", *statements[1:-1]):
            cursor.execute(statement, parameters)
        cursor.execute(statements.uses)
        return list(cursor.fetchall())


def _moment(moment: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(moment)


def _read_moment(value: datetime | str) -> datetime:
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value


# -- the statements -----------------------------------------------------------------------------


class _Statements(NamedTuple):
    rated: str
    charges: str
    latencies: str
    rollups: str
    mark_priced: str
    mark_unpriced: str
    uses: str


@cache
def _statements(vendor: str, which: str) -> _Statements:
    """The statements in a database's dialect, for the queue's `oldest` records or for `given` ones."""
    words = _NAMES | (_POSTGRESQL if vendor == "postgresql" else _SQLITE) | QUARTER_WORDS[vendor]
    words |= {"chosen": words[which], "latency_steps": latency_steps(vendor)}
    texts = (_RATED, _CHARGES, ADD_LATENCIES, _ROLLUPS, _MARK_PRICED, _MARK_UNPRICED, _USES)
    # A word may consist of others.
    return _Statements(*(Template(Template(text).substitute(words)).substitute(words) for text in texts))


# Charged is whatever a 2xx answer delivered. Cached tokens are part of the prompt, and plain input where they have no
# rate; a team's own endpoint counts its units at no price.
_RATED = """
WITH card AS MATERIALIZED ($card),
waiting AS MATERIALIZED (
    SELECT id, $who, status, outcome, started_at,
        prompt_tokens, cached_tokens, completion_tokens, pages, characters, $latency_steps,
        source = 'dedicated' AS is_own, status BETWEEN 200 AND 299 AS is_answered
    FROM $records WHERE rated_at IS NULL AND $chosen
),
counted AS (
    SELECT waiting.*, input, cache_read, output, page, character,
        CASE WHEN is_answered AND %(charged)s THEN $max_tokens ELSE 0 END AS token_limit,
        CASE WHEN is_answered AND %(charged)s THEN $max_pages ELSE 0 END AS page_limit
    FROM waiting LEFT JOIN card
        ON card.model = waiting.model AND NOT is_own AND started_at >= begins_at AND started_at < ends_at
),
split AS (
    SELECT id, $who, started_at, $quarter AS quarter, first_token_step, answer_step, is_own,
        NOT is_answered OR outcome IN ($failed) AS is_failed,
        $greatest(0, $least(prompt_tokens, token_limit)) AS prompt_units,
        CASE WHEN is_own OR cache_read IS NOT NULL
            THEN $greatest(0, $least(cached_tokens, prompt_tokens, token_limit)) ELSE 0 END AS cache_read_units,
        $greatest(0, $least(completion_tokens, token_limit)) AS output_units,
        $greatest(0, $least(pages, page_limit)) AS page_units,
        $greatest(0, $least(characters, token_limit)) AS character_units,
        input, cache_read, output, page, character
    FROM counted
),
priced AS (
    SELECT id, $who, started_at, quarter, first_token_step, answer_step, is_failed,
        NOT is_own AND (
            input IS NULL AND prompt_units > cache_read_units OR output IS NULL AND output_units > 0
            OR page IS NULL AND page_units > 0 OR character IS NULL AND character_units > 0
        ) AS is_unpriced,
        prompt_units - cache_read_units AS input_units, coalesce(input, 0) AS input_ppt,
        cache_read_units, coalesce(cache_read, 0) AS cache_read_ppt,
        output_units, coalesce(output, 0) AS output_ppt,
        page_units, coalesce(page, 0) AS page_ppt,
        character_units, coalesce(character, 0) AS character_ppt
    FROM split
)
SELECT *,
    input_units * input_ppt + cache_read_units * cache_read_ppt + output_units * output_ppt
    + page_units * page_ppt + character_units * character_ppt AS amount_ppt
FROM priced
"""
_CHARGES = """
INSERT INTO $charges (record_id, meter, units, price_ppt, amount_ppt, created_at)
SELECT id, meter, units, price_ppt, units * price_ppt, %(now)s FROM (
    SELECT id, 'input' AS meter, input_units AS units, input_ppt AS price_ppt FROM rated
    UNION ALL SELECT id, 'cache_read', cache_read_units, cache_read_ppt FROM rated
    UNION ALL SELECT id, 'output', output_units, output_ppt FROM rated
    UNION ALL SELECT id, 'page', page_units, page_ppt FROM rated
    UNION ALL SELECT id, 'character', character_units, character_ppt FROM rated
) AS parts WHERE units > 0
"""
# In the order of `Cells.add_to_rollups`: writers of the same cells wait for each other instead of deadlocking.
_ROLLUPS = """
INSERT INTO $rollups (quarter_at, $who, $sums)
SELECT $quarter_at, $who, $summed FROM rated
GROUP BY quarter, $who
ORDER BY team_id, quarter, key_id, member_id, model $bytewise, endpoint $bytewise, source $bytewise
ON CONFLICT (team_id, quarter_at, key_id, member_id, model, endpoint, source) DO UPDATE SET $added
"""
_MARK_PRICED = "UPDATE $records SET rated_at = %(now)s WHERE id $among_priced"
_MARK_UNPRICED = "UPDATE $records SET rated_at = %(now)s, unpriced = true WHERE id $among_unpriced"
_USES = """
SELECT team_id, quarter, key_id, count(*), max(started_at),
    count(*) FILTER (WHERE is_unpriced), min(model) FILTER (WHERE is_unpriced)
FROM rated GROUP BY team_id, quarter, key_id
"""
# Writes run from the last to the first: the rollups' rows, which raters share, are locked last.
_IN_ONE = Template("""
WITH rated AS MATERIALIZED ($rated), summed AS ($rollups), timed AS ($latencies), charged AS ($charges),
marked AS ($mark_priced), flagged AS ($mark_unpriced) $uses
""")
# Whatever the statistics say (none yet, or of an hour ago), a batch is found through the queue's index and its records
# by their key; any other plan reads or sorts the table, or compiles what runs for a tenth of a second.
_PLAN_FOR_FEW_OF_MANY = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true), set_config('work_mem', '32MB', true)
"""
# STRICT: an amount beyond 64 bits, which SQLite would make a float of, is an error.
_RATED_TABLE = """
CREATE TEMP TABLE rated (
    id TEXT, team_id INTEGER, key_id INTEGER, member_id INTEGER, model TEXT, endpoint TEXT, source TEXT,
    started_at TEXT, quarter INTEGER, first_token_step INTEGER, answer_step INTEGER,
    is_failed INTEGER, is_unpriced INTEGER,
    input_units INTEGER, input_ppt INTEGER, cache_read_units INTEGER, cache_read_ppt INTEGER,
    output_units INTEGER, output_ppt INTEGER, page_units INTEGER, page_ppt INTEGER,
    character_units INTEGER, character_ppt INTEGER, amount_ppt INTEGER
) STRICT
"""

# -- the words in them --------------------------------------------------------------------------

_NAMES = {
    "records": UsageRecord._meta.db_table,
    "charges": Charge._meta.db_table,
    "rollups": Rollup._meta.db_table,
    "who": "team_id, key_id, member_id, model, endpoint, source",
    "failed": ", ".join(f"'{outcome}'" for outcome in sorted(FAILED_OUTCOMES)),
    "max_tokens": str(MAX_TOKENS),
    "max_pages": str(MAX_PAGES),
    "sums": ", ".join(SUMS),
    "summed": ", ".join(
        {"requests": "count(*)", "errors": "count(*) FILTER (WHERE is_failed)"}.get(name, f"sum({name})")
        for name in SUMS
    ),
}
_POSTGRESQL = {
    "greatest": "greatest",
    "least": "least",
    "card": """
    SELECT * FROM json_to_recordset(%(card)s::json) AS r(
        model text, begins_at timestamptz, ends_at timestamptz,
        input bigint, cache_read bigint, output bigint, page bigint, character bigint
    )""",
    "oldest": "started_at >= %(since)s ORDER BY started_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
    "given": "id = ANY(%(ids)s)",
    # An array: the planner can do nothing with it but look each up by the key.
    "among_priced": "= ANY(ARRAY(SELECT id FROM rated WHERE NOT is_unpriced))",
    "among_unpriced": "= ANY(ARRAY(SELECT id FROM rated WHERE is_unpriced))",
    "added": ", ".join(f"{name} = $rollups.{name} + excluded.{name}" for name in SUMS),
}
_SQLITE = {
    "greatest": "max",
    "least": "min",
    "card": """
    SELECT json_extract(value, '$$.model') AS model,
        json_extract(value, '$$.begins_at') AS begins_at, json_extract(value, '$$.ends_at') AS ends_at,
        json_extract(value, '$$.input') AS input, json_extract(value, '$$.cache_read') AS cache_read,
        json_extract(value, '$$.output') AS output, json_extract(value, '$$.page') AS page,
        json_extract(value, '$$.character') AS character
    FROM json_each(%(card)s)""",
    "oldest": "started_at >= %(since)s ORDER BY started_at LIMIT %(limit)s",
    "given": "id IN (SELECT value FROM json_each(%(ids)s))",
    "among_priced": "IN (SELECT id FROM rated WHERE NOT is_unpriced)",
    "among_unpriced": "IN (SELECT id FROM rated WHERE is_unpriced)",
    # Beyond 64 bits SQLite would go on with a float; NULL is what the column refuses.
    "added": ", ".join(
        f"{name} = CASE typeof($rollups.{name} + excluded.{name}) WHEN 'integer' THEN"
        f" $rollups.{name} + excluded.{name} END"
        for name in SUMS
    ),
}
