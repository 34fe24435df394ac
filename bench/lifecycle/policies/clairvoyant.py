"""A clairvoyant: those that will be needed soonest (after Bélády, 1966).

A heuristic bound: it knows when which item is needed, and not what else each
search would find.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

from bench.lifecycle.policies.protocol import Entry


class Clairvoyant:
    """Keeps the *capacity* items whose next need is nearest.

    *needs* are the moments at which items are needed, by id, ascending.
    """

    def __init__(self, capacity: int, needs: Mapping[str, Sequence[float]]) -> None:
        self._capacity = capacity
        self._needs = needs
        self._ids: dict[int, str] = {}

    def add(self, entry: Entry) -> None:
        """Know of an item, if it is ever needed."""
        if entry.item_id in self._needs:
            self._ids[entry.key] = entry.item_id

    def use(self, entry: Entry) -> None:
        """Do nothing: what was is no matter."""

    def near(self, now_s: float) -> Collection[int]:
        """Return what is needed soonest; what is never needed again is not among it."""
        soon = ((self._next_s(item_id, now_s), key) for key, item_id in self._ids.items())
        return {key for at_s, key in heapq.nsmallest(self._capacity, soon) if at_s < math.inf}

    def _next_s(self, item_id: str, now_s: float) -> float:
        moments = self._needs[item_id]
        place = bisect_right(moments, now_s)
        return moments[place] if place < len(moments) else math.inf
