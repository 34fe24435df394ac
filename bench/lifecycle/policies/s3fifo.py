"""S3-FIFO: three queues, of which a small one lets most items go again soon.

Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

from collections import OrderedDict
from collections.abc import Collection

from bench.lifecycle.policies.protocol import Entry

_SMALL_SHARE = 0.1
_USES_MAX = 3


class S3Fifo:
    """Keeps *capacity* items, a tenth in the small queue; ghosts are as many as the main holds."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._small_max = max(1, round(_SMALL_SHARE * capacity))
        self._small: OrderedDict[int, None] = OrderedDict()
        self._main: OrderedDict[int, None] = OrderedDict()
        self._ghosts: OrderedDict[int, None] = OrderedDict()
        self._uses: dict[int, int] = {}

    def add(self, entry: Entry) -> None:
        """Count a use of what is held; put what is not into the small queue, or main if known."""
        key = entry.key
        if key in self._uses:
            self._uses[key] = min(_USES_MAX, self._uses[key] + 1)
            return
        while len(self._uses) >= self._capacity:
            self._make_room()
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = None
        else:
            self._small[key] = None
        self._uses[key] = 0

    use = add

    def near(self, now_s: float) -> Collection[int]:
        """Return what is held."""
        return self._uses.keys()

    def _make_room(self) -> None:
        if len(self._small) >= self._small_max or not self._main:
            self._from_small()
        else:
            self._from_main()

    def _from_small(self) -> None:
        key, _ = self._small.popitem(last=False)
        if self._uses[key] > 1:
            self._uses[key] = 0
            self._main[key] = None
            if len(self._main) > self._capacity - self._small_max:
                self._from_main()
            return
        del self._uses[key]
        self._ghosts[key] = None
        if len(self._ghosts) > self._capacity - self._small_max:
            self._ghosts.popitem(last=False)

    def _from_main(self) -> None:
        while True:
            key, _ = self._main.popitem(last=False)
            if not self._uses[key]:
                del self._uses[key]
                return
            self._uses[key] -= 1
            self._main[key] = None
