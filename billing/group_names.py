"""How the values that a report is grouped by read to a person."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext

from accounts.models import ApiKey, User
from billing.models import Source
from billing.readings import GroupBy, GroupKey, Value


class Group(NamedTuple):
    """One row of a report's grouping: the values in the columns, and how a person reads them."""

    key: GroupKey
    label: str


def labelled(team_id: int, group_by: Sequence[GroupBy], keys: Sequence[GroupKey]) -> Iterator[Group]:
    names = [names_of(by, {key[place] for key in keys}, team_id=team_id) for place, by in enumerate(group_by)]
    for key in keys:
        label = " · ".join(named.get(value, str(value)) for named, value in zip(names, key, strict=True))
        yield Group(key, label)


def names_of(by: GroupBy, values: Collection[Value], *, team_id: int) -> dict[Any, str]:
    """Values without a name show as they are, and are missing here."""
    if by == GroupBy.KEY:
        named = ApiKey.objects.filter(team_id=team_id, pk__in=values).only("name", "prefix", "last_four")
        return {0: gettext("Without a key")} | {key.pk: f"{key.name} ({key.hint})" for key in named}
    if by == GroupBy.MEMBER:
        people = User.objects.filter(pk__in=values).only("name", "email")
        return {0: gettext("Somebody who left")} | {person.pk: str(person) for person in people}
    if by == GroupBy.SOURCE:
        return {source.value: str(source.label) for source in Source}
    return {}
