"""FIFO: those that came last, however often they are used."""

from collections import OrderedDict
from collections.abc import Collection

from bench.lifecycle.policies.protocol import Entry


class Fifo:
    """Keeps the *capacity* items that came last; one that is used when it is gone comes again."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: OrderedDict[int, None] = OrderedDict()

    def add(self, entry: Entry) -> None:
        """Hold an item behind all others, unless it is held."""
        self._held.setdefault(entry.key)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)

    use = add

    def near(self, now_s: float) -> Collection[int]:
        """Return what is held."""
        return self._held.keys()
