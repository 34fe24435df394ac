"""GDSF: those of the highest clock + uses / size (Cherkasova, HPL-98-69, 1998)."""

import heapq
from collections.abc import Collection

from bench.lifecycle.policies.protocol import Entry


class Gdsf:
    """Keeps *capacity* items; the clock is the priority of the one dropped last.

    All cost the same to fetch.  Of the priorities in the heap that of an item
    is the last one pushed; earlier ones are passed over when they come up.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._clock = 0.0
        self._uses: dict[int, int] = {}
        self._priority: dict[int, float] = {}
        self._heap: list[tuple[float, int, int]] = []
        self._pushed = 0

    def add(self, entry: Entry) -> None:
        """Count a use, and drop the item of the lowest priority for one that is new."""
        key = entry.key
        if key not in self._priority and len(self._priority) >= self._capacity:
            self._drop()
        self._uses[key] = self._uses.get(key, 0) + 1
        priority = self._clock + self._uses[key] / max(1, entry.size)
        self._priority[key] = priority
        self._pushed += 1
        heapq.heappush(self._heap, (priority, self._pushed, key))

    use = add

    def near(self, now_s: float) -> Collection[int]:
        """Return what is held."""
        return self._priority.keys()

    def _drop(self) -> None:
        while True:
            priority, _, key = heapq.heappop(self._heap)
            if self._priority.get(key) == priority:
                self._clock = priority
                del self._priority[key], self._uses[key]
                return
