"""LFU: those used most often while they were held; of equals, the one used last."""

from collections import OrderedDict, defaultdict
from collections.abc import Collection

from bench.lifecycle.policies.protocol import Entry


class Lfu:
    """Keeps the *capacity* items used most; what is dropped starts again from one.

    Items are kept by how often they were used, each lot in the order of their last
    use (Shah, Mitra and Matani, "An O(1) algorithm for implementing the LFU cache
    eviction scheme", 2010).
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._uses: dict[int, int] = {}
        self._lots: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)

    def add(self, entry: Entry) -> None:
        """Count a use, and drop the least used item for one that is new."""
        key, uses = entry.key, self._uses.get(entry.key, 0)
        if uses:
            self._take(key, uses)
        elif len(self._uses) >= self._capacity:
            least = min(self._lots)
            gone = next(iter(self._lots[least]))
            self._take(gone, least)
            del self._uses[gone]
        self._uses[key] = uses + 1
        self._lots[uses + 1][key] = None

    use = add

    def near(self, now_s: float) -> Collection[int]:
        """Return what is held."""
        return self._uses.keys()

    def _take(self, key: int, uses: int) -> None:
        del self._lots[uses][key]
        if not self._lots[uses]:
            del self._lots[uses]
