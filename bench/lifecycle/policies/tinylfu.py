"""W-TinyLFU: a small window of the last, then those that were used more often of late.

Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission
Policy", ACM TOS 2017.  Frequencies are counted exactly here, where the paper
has a sketch: that is as good as the policy can be.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection

from bench.lifecycle.policies.protocol import Entry

_WINDOW_SHARE = 0.01
_PROTECTED_SHARE = 0.8
_COUNT_MAX = 15
_AGED_AFTER = 10


class TinyLfu:
    """Keeps *capacity* items: a window of 1 %, and of the rest four fifths used twice."""

    def __init__(self, capacity: int) -> None:
        self._window_max = max(1, round(_WINDOW_SHARE * capacity))
        self._main_max = max(1, capacity - self._window_max)
        self._protected_max = int(_PROTECTED_SHARE * self._main_max)
        self._age_at = _AGED_AFTER * capacity
        self._window: OrderedDict[int, None] = OrderedDict()
        self._probation: OrderedDict[int, None] = OrderedDict()
        self._protected: OrderedDict[int, None] = OrderedDict()
        self._counts: Counter[int] = Counter()
        self._counted = 0

    def add(self, entry: Entry) -> None:
        """Count a use, and hold the item as the last one used."""
        key = entry.key
        self._count(key)
        if key in self._window:
            self._window.move_to_end(key)
        elif key in self._protected:
            self._protected.move_to_end(key)
        elif key in self._probation:
            del self._probation[key]
            self._protected[key] = None
            if len(self._protected) > self._protected_max:
                self._probation[self._protected.popitem(last=False)[0]] = None
        else:
            self._window[key] = None
            if len(self._window) > self._window_max:
                self._let_in(self._window.popitem(last=False)[0])

    use = add

    def near(self, now_s: float) -> Collection[int]:
        """Return what is held."""
        return [*self._window, *self._probation, *self._protected]

    def _let_in(self, key: int) -> None:
        """Let an item from the window into the main part if it was used more than who leaves."""
        if len(self._probation) + len(self._protected) < self._main_max:
            self._probation[key] = None
            return
        part = self._probation or self._protected
        victim = next(iter(part))
        if self._counts[key] > self._counts[victim]:
            del part[victim]
            self._probation[key] = None

    def _count(self, key: int) -> None:
        self._counts[key] = min(_COUNT_MAX, self._counts[key] + 1)
        self._counted += 1
        if self._counted >= self._age_at:
            self._counted //= 2
            self._counts = Counter({k: n // 2 for k, n in self._counts.items() if n > 1})
