"""What the usage pages can be narrowed to: what was used in a period, and whom the team has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from html import escape
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.utils.safestring import SafeString

from accounts.models import ApiKey, Team, User
from billing.group_names import names_of
from billing.models import Source
from billing.readings import MODEL_COLUMNS, GroupBy, GroupKey, Reading, Value

# A list of more is no help; any other key is a click in the table, or its number in the address.
MOST_OPTIONS = 100
LOOK_BACK = timedelta(days=90)


class Option(NamedTuple):
    value: str
    label: str


def filter_options(
    team: Team, used: Collection[GroupKey], chosen: Mapping[GroupBy, Value]
) -> dict[GroupBy, list[Option]]:
    """Of models, endpoints and sources those `used`, the team's keys and members; what is chosen is among them."""
    models, endpoints, sources = (sorted({str(group[place]) for group in used}) for place in range(len(MODEL_COLUMNS)))
    labels = {source.value: str(source.label) for source in Source}
    options = {
        GroupBy.MODEL: [Option(model, model) for model in models],
        GroupBy.KEY: list(_keys(team)),
        GroupBy.MEMBER: list(_members(team)),
        GroupBy.ENDPOINT: [Option(endpoint, endpoint) for endpoint in endpoints],
        GroupBy.SOURCE: [Option(source, labels.get(source, source)) for source in sources],
    }
    for by, value in chosen.items():
        if all(option.value != str(value) for option in options[by]):
            label = names_of(by, {value}, team_id=team.pk).get(value, str(value))
            options[by].insert(0, Option(str(value), label))
    return options


def log_options(team: Team, chosen: Mapping[GroupBy, Value], *, now: datetime) -> dict[GroupBy, list[Option]]:
    """The same for the log, which has no period: what was used in the last ninety days."""
    zone = ZoneInfo(team.time_zone)
    reading = Reading(team.pk, now - LOOK_BACK, now, zone, group_by=MODEL_COLUMNS)
    return filter_options(team, reading.groups().keys(), chosen)


def _keys(team: Team) -> Iterable[Option]:
    """Those in use first."""
    keys = ApiKey.objects.filter(team=team).order_by("revoked_at", "-last_used_at", "-pk")
    for pk, name, prefix, last_four in keys.values_list("pk", "name", "prefix", "last_four")[:MOST_OPTIONS]:
        yield Option(str(pk), f"{name} ({prefix}…{last_four})")


def _members(team: Team) -> Iterable[Option]:
    people = User.objects.filter(memberships__team=team).order_by("name", "email").only("name", "email")
    return (Option(str(person.pk), str(person)) for person in people[:MOST_OPTIONS])


def options_html(options: Iterable[Option], chosen: object) -> SafeString:
    """As the options of a select, written at once: there may be a hundred."""
    parts = (
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(label)}</option>'
        for value, label in options
    )
    return SafeString("".join(parts))
