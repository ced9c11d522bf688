"""The tree of a conversation's turns, by their ids: which path is shown, what the alternatives are.

A child's id is always greater than its parent's, so a path is in the order of its ids. Nothing here
touches the database but `tree_of`, which reads three small columns of each turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2s

from playground.models import Conversation, Turn

type Row = tuple[int, int | None, bool]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a turn stands among its alternatives; `number` counts from 1."""

    number: int = 1
    count: int = 1
    before: int | None = None
    after: int | None = None


ALONE = Place()


class Tree:
    """`rows`: id, parent's id and whether it is the chosen one, of every turn that is not deleted."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._parent: dict[int, int | None] = {}
        self._children: defaultdict[int | None, list[int]] = defaultdict(list)
        self._chosen: dict[int | None, int] = {}
        for id, parent, chosen in sorted(rows):
            self._parent[id] = parent
            self._children[parent].append(id)
            if chosen:
                self._chosen[parent] = id

    def path(self, *, through: int | None = None) -> list[int]:
        """From the first turn along the chosen ones to the last; or that of the branch a turn is in."""
        path = [] if through is None else self.path_to(through)
        while children := self._children.get(path[-1] if path else None):
            path.append(self._chosen.get(path[-1] if path else None, children[-1]))
        return path

    def path_to(self, id: int) -> list[int]:
        """The first turn to this one. Empty where it, or one before it, is deleted."""
        path: list[int] = []
        at: int | None = id
        while at is not None:
            if at not in self._parent:
                return []
            path.append(at)
            at = self._parent[at]
        return path[::-1]

    def children(self, id: int) -> list[int]:
        return self._children.get(id, [])

    def alternatives(self, id: int) -> list[int]:
        return self._children[self._parent[id]]

    def place(self, id: int) -> Place:
        if id not in self._parent:
            return Place()
        all = self.alternatives(id)
        at = all.index(id)
        before, after = (all[at - 1] if at else None), (all[at + 1] if at + 1 < len(all) else None)
        return Place(at + 1, len(all), before, after)

    def mark(self, path: Sequence[int]) -> str:
        """A short name of this path: its turns, and where each stands among its alternatives."""
        places = [(id, self.place(id).number, self.place(id).count) for id in path]
        return blake2s(repr(places).encode(), digest_size=8).hexdigest()

    def below(self, id: int) -> list[int]:
        """This turn and everything that follows it, in all its branches."""
        found = [id]
        for one in found:
            found += self._children.get(one, ())
        return found

    def __contains__(self, id: object) -> bool:
        return id in self._parent


def tree_of(conversation: Conversation) -> Tree:
    rows = conversation.turns.filter(deleted_at=None).values_list("id", "parent_id", "chosen")
    return Tree(rows.order_by())


def choose(conversation: Conversation, tree: Tree, path: list[int]) -> None:
    """Make this the path that is shown: each turn of it the chosen one among its alternatives."""
    others = [other for id in path for other in tree.alternatives(id) if other != id]
    if others:
        conversation.turns.filter(pk__in=others, chosen=True).update(chosen=False)
    conversation.turns.filter(pk__in=path, chosen=False).update(chosen=True)


def turns_of(conversation: Conversation, path: list[int]) -> list[Turn]:
    """The turns of a path, whole."""
    found = conversation.turns.in_bulk(path)
    return [found[id] for id in path if id in found]
