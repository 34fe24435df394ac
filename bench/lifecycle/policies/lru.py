"""LRU: those written or used last."""

from collections import OrderedDict
from collections.abc import Collection

from bench.lifecycle.policies.protocol import Entry


class Lru:
    """Keeps the *capacity* items written or used last."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: OrderedDict[int, None] = OrderedDict()

    def add(self, entry: Entry) -> None:
        """Hold an item as the last one used."""
        self._held[entry.key] = None
        self._held.move_to_end(entry.key)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)

    use = add

    def near(self, now_s: float) -> Collection[int]:
        """Return what is held."""
        return self._held.keys()
