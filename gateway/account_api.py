"""`/api/me`, `/api/profile/…`, `/api/usage`: what a program may ask about the credential it holds.

Not part of the models' API and not hot: each answer is made in one hop to a thread, from the same queries as the
pages. Points are exact decimal strings, and only what is rated counts; what still waits is `unrated`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import orjson
from django.db.models import Max
from django.utils import timezone, translation

from accounts.audit import Actor
from accounts.keys import MAX_GRACE_SECONDS, KeyChanged, rotate_key
from accounts.models import ApiKey, Membership, Team, User
from billing.buckets import QUARTER, midnight
from billing.exports import csv_parts, json_parts, streamed, token_counts
from billing.models import UsageRecord
from billing.pricing import format_points
from billing.quota import Period, period_at, rolling_start, used_ppt
from billing.reports import UsageQuery, totals_by_model, usage_totals
from billing.request_log import amounts_of, records_of
from gateway.caller import Caller
from gateway.database import in_database
from gateway.errors import Forbidden, InvalidRequest
from gateway.http import JSON, Headers, read_body, send_answer
from gateway.schema import parse_json_object
from gateway.usage_parameters import read_flag, read_parameters, read_usage_query

if TYPE_CHECKING:
    from gateway.app import Request

RECENT = 20
NO_STORE = (b"cache-control", b"no-store")
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


async def _in_thread[T](work: Callable[[], T]) -> T:
    """Database work whose texts are a program's, not a page's."""
    return await in_database(translation.override("en")(work))


async def _caller(request: Request) -> Caller:
    """Counts as a request of the key; what a key is limited to names models' endpoints, never these."""
    caller = await request.caller()
    allowance = replace(caller.allowance, endpoints=frozenset())
    await request.count(replace(caller, allowance=allowance), endpoint="account")
    return caller


async def _send_json(request: Request, document: Any) -> None:
    headers = [JSON, NO_STORE, (b"x-request-id", request.request_id), *request.limits]
    await send_answer(request.send, status=200, headers=headers, body=orjson.dumps(document))


# -- GET /api/me ---------------------------------------------------------------------------------


async def me(request: Request) -> None:
    caller = await _caller(request)
    await _send_json(request, await _in_thread(lambda: _me(caller)))


def _me(caller: Caller) -> dict[str, Any]:
    team = Team.objects.get(pk=caller.team_id)
    person = User.objects.filter(pk=caller.member_id).first()
    membership = Membership.objects.filter(team=team, user_id=caller.member_id).first()
    key = ApiKey.objects.filter(pk=caller.key_id, team=team).first()
    return {
        "object": "credential",
        "person": {"id": person.pk, "email": person.email, "name": str(person)} if person else None,
        "team": {"id": team.pk, "name": team.name, "time_zone": team.time_zone},
        "role": membership.role if membership else None,
        "key": _key(key, caller) if key else None,
    }


def _key(key: ApiKey, caller: Caller) -> dict[str, Any]:
    """Scopes: an empty list allows all. Limits: the ones in force, null where there is none."""
    allowance = caller.allowance
    return {
        "id": key.pk,
        "name": key.name,
        "prefix": key.prefix,
        "last_four": key.last_four,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "portable": allowance.portable,
        "scopes": {
            "models": sorted(allowance.models),
            "endpoints": sorted(allowance.endpoints),
            "networks": [str(network) for network in allowance.networks],
        },
        "limits": {
            "rpm": allowance.key_rpm or None,
            "concurrency": allowance.key_concurrency or None,
            "points": format_points(allowance.key_points_ppt) if allowance.key_points_ppt else None,
            "team_rpm": allowance.team_rpm or None,
            "team_points": format_points(allowance.team_points_ppt) if allowance.team_points_ppt else None,
            "period": allowance.period,
        },
    }


# -- GET /api/profile/model-usage ----------------------------------------------------------------


async def model_usage(request: Request) -> None:
    caller = await _caller(request)
    parameters = read_parameters(request.scope["query_string"])
    with_recent = read_flag(parameters, "include_recent")
    await _send_json(request, await _in_thread(lambda: _model_usage(caller, with_recent=with_recent)))


def _model_usage(caller: Caller, *, with_recent: bool) -> dict[str, Any]:
    team = Team.objects.get(pk=caller.team_id)
    zone, now = ZoneInfo(team.time_zone), timezone.now()
    period, used = _period_used(caller, now)
    limit = caller.allowance.team_points_ppt
    today = now.astimezone(zone).date()
    end = midnight(today + timedelta(days=1), zone)
    return {
        "status": "ok",
        "unit": "pts",
        "rpm_limit": caller.allowance.key_rpm or None,
        "daily_points_limit": format_points(limit) if limit else None,
        "daily_points_used": format_points(used),
        "daily_points_remaining": format_points(max(0, limit - used)) if limit else None,
        "daily_reset_timezone": zone.key,
        "daily_reset_at": period.end.astimezone(zone).isoformat(),
        "today": _summary(team.pk, midnight(today, zone), end),
        "last_30_days": _summary(team.pk, midnight(today - timedelta(days=29), zone), end),
        "all_time": _summary(team.pk, BEGINNING, end),
        "by_model": _by_model(team.pk),
        "recent": _recent(team.pk) if with_recent else [],
        "unrated": records_of(team.pk).filter(rated_at=None).count(),
    }


def _period_used(caller: Caller, now: datetime) -> tuple[Period, int]:
    """The period in force and the rated picopoints in it."""
    allowance = caller.allowance
    first = rolling_start(team_id=caller.team_id, now=now) if allowance.period == "rolling" else None
    period = period_at(allowance.period, allowance.zone, now, first_charged_at=first)
    if allowance.period == "rolling":
        return period, used_ppt(team_id=caller.team_id, period=period)
    return period, usage_totals(caller.team_id, period.start, period.end).amount_ppt


def _summary(team_id: int, start: datetime, end: datetime) -> dict[str, Any]:
    last = _last_request(team_id)
    sums = usage_totals(team_id, start, end)
    return token_counts(sums) | {"last_request_at": last.isoformat() if last and last >= start else None}


def _by_model(team_id: int) -> list[dict[str, Any]]:
    """Of all time, most points first."""
    found = totals_by_model(team_id)
    ordered = sorted(found, key=lambda model: (-found[model][0].amount_ppt, -found[model][0].tokens, model))
    return [
        {"model": model, **token_counts(found[model][0]), "last_request_at": _last(team_id, model, found[model][1])}
        for model in ordered
    ]


def _last(team_id: int, model: str, quarter_at: datetime) -> str:
    """The exact moment within the last quarter hour; that quarter itself where its records are gone."""
    rated = (
        records_of(team_id)
        .exclude(rated_at=None)
        .filter(model=model, started_at__gte=quarter_at, started_at__lt=quarter_at + QUARTER)
    )
    return (rated.aggregate(at=Max("started_at"))["at"] or quarter_at).isoformat()


def _last_request(team_id: int) -> datetime | None:
    latest = records_of(team_id).exclude(rated_at=None).order_by("-started_at", "-id")
    return latest.values_list("started_at", flat=True).first()


def _recent(team_id: int) -> list[dict[str, Any]]:
    records = records_of(team_id).exclude(rated_at=None).order_by("-started_at", "-id").defer("usage")[:RECENT]
    amounts = amounts_of([record.pk for record in records])
    return [_record(record, amounts.get(record.pk, 0)) for record in records]


def _record(record: UsageRecord, amount_ppt: int) -> dict[str, Any]:
    return {
        "request_id": str(record.id),
        "model": record.model,
        "endpoint": record.endpoint,
        "source": record.source,
        "key_id": record.key_id or None,
        "status": record.status,
        "outcome": record.outcome,
        "stream": record.stream,
        "started_at": record.started_at.isoformat(),
        "finished_at": record.finished_at.isoformat(),
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "completion_tokens": record.completion_tokens,
        "total_tokens": record.prompt_tokens + record.completion_tokens,
        "pages": record.pages,
        "characters": record.characters,
        "points": format_points(amount_ppt),
        "estimated": record.estimated,
        "unpriced": record.unpriced,
    }


# -- POST /api/profile/api-token -----------------------------------------------------------------


async def rotate(request: Request) -> None:
    """Another secret for the calling key, shown in this answer alone."""
    caller = await _caller(request)
    body = await read_body(request.headers, request.receive)
    document = parse_json_object(body) if body.strip() else {}
    grace_seconds = document.get("grace_seconds")
    grace_seconds = 0 if grace_seconds is None else grace_seconds
    if type(grace_seconds) is not int or not 0 <= grace_seconds <= MAX_GRACE_SECONDS:
        text = f"grace_seconds must be a whole number from 0 to {MAX_GRACE_SECONDS}"
        raise InvalidRequest(text, param="grace_seconds")
    if not caller.key_id:
        raise Forbidden("Only a key can be rotated here: call with the key itself, not with a browser session.")
    await _send_json(request, await _in_thread(lambda: _rotate(caller, grace_seconds, request.address)))


def _rotate(caller: Caller, grace_seconds: int, address: str) -> dict[str, Any]:
    key = ApiKey.objects.usable().get(pk=caller.key_id, team_id=caller.team_id)
    try:
        issued = rotate_key(
            key=key, grace_seconds=grace_seconds, actor=Actor(None, f"{key.name} ({key.hint})", address)
        )
    except KeyChanged:
        raise InvalidRequest("The key was changed by somebody else meanwhile.", status=409, code="conflict") from None
    return {
        "object": "api_key",
        "id": issued.key.pk,
        "name": issued.key.name,
        "api_key": issued.secret,
        "prefix": issued.key.prefix,
        "last_four": issued.key.last_four,
        "previous_until": issued.key.previous_until.isoformat() if issued.key.previous_until else None,
    }


# -- GET /api/usage ------------------------------------------------------------------------------


async def usage(request: Request) -> None:
    """The report of the usage page, its cells streamed as they are read."""
    caller = await _caller(request)
    parameters = read_parameters(request.scope["query_string"])
    query, unrated = await _in_thread(lambda: _query(caller, parameters))
    is_csv = parameters.get("format", "json") == "csv"
    parts = csv_parts(query) if is_csv else json_parts(query, unrated=unrated)
    headers: Headers = [
        *(_CSV_FILE if is_csv else (JSON,)),
        NO_STORE,
        (b"x-request-id", request.request_id),
        *request.limits,
    ]
    await _stream(request, streamed(parts, in_thread=_in_thread), headers)


def _query(caller: Caller, parameters: Mapping[str, str]) -> tuple[UsageQuery, int]:
    team = Team.objects.get(pk=caller.team_id)
    query = read_usage_query(parameters, team_id=team.pk, zone=ZoneInfo(team.time_zone), now=timezone.now())
    return query, records_of(team.pk).filter(rated_at=None).count()


_CSV_FILE = (
    (b"content-type", b"text/csv; charset=utf-8"),
    (b"content-disposition", b'attachment; filename="usage.csv"'),
)


async def _stream(request: Request, texts: AsyncIterator[str], headers: Headers) -> None:
    """The first text is there before the status is said: what cannot be read at all is an error, not half a file."""
    first = await anext(texts)
    await request.send({"type": "http.response.start", "status": 200, "headers": headers})
    await request.send({"type": "http.response.body", "body": first.encode(), "more_body": True})
    async for text in texts:
        await request.send({"type": "http.response.body", "body": text.encode(), "more_body": True})
    await request.send({"type": "http.response.body", "body": b""})


ROUTES: dict[str, dict[str, Callable[[Request], Awaitable[None]]]] = {
    "/api/me": {"GET": me},
    "/api/profile/model-usage": {"GET": model_usage},
    "/api/profile/api-token": {"POST": rotate},
    "/api/usage": {"GET": usage},
}
