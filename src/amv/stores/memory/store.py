"""A store in the memory of one process: for tests, and the model other stores are checked against.

Everything lives in plain dictionaries under one lock, so a read or a write sees
a consistent state by holding it.  Each change to a dictionary first notes its
own inverse; when a write fails, the notes are played back in reverse.  Values
inside the dictionaries are never changed in place, only replaced.

What the dictionaries hold, and what of it must agree, is in `tables`.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from amv.checks import check_independent
from amv.errors import StoreClosed
from amv.memory.item import Namespace
from amv.memory.ports import (
    Event,
    Reader,
    Writer,
)
from amv.stores.memory.reader import MemoryReader
from amv.stores.memory.tables import (
    Tables,
    payload_bytes,
    problems,
)
from amv.stores.memory.writer import MemoryWriter

T = TypeVar("T")


class MemoryStore:
    """A `Store` that keeps nothing beyond its own life.

    Calls from several threads take turns.  A write made while the same thread
    has a snapshot open shows in that snapshot.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tables = Tables()
        self._events: list[Event] = []
        self._is_closed = False
        self._watchers: list[Callable[[Namespace, str | None], None]] = []

    def watch(self, watcher: Callable[[Namespace, str | None], None]) -> None:
        """Have *watcher* told what is deleted: items by id, or (None) a whole namespace.

        It is told within the write that deletes, once nothing can undo that.
        """
        self._watchers.append(watcher)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Hold the lock, and so the state, for as long as the snapshot is open."""
        with self._opened():
            yield MemoryReader(self._tables)

    def write(self, work: Callable[[Writer], T]) -> T:
        """Run *work*; undo all it did if it raises."""
        with self._opened():
            writer = MemoryWriter(self._tables)
            try:
                result = work(writer)
            except BaseException:
                writer.undo()
                raise
            for watcher in self._watchers:
                for namespace, item_id in writer.deleted:
                    watcher(namespace, item_id)
            return result

    def log(self, events: Sequence[Event]) -> None:
        """Keep events until the next fold."""
        with self._opened():
            self._events.extend(events)

    def fold(self, apply: Callable[[Writer, Sequence[Event]], None]) -> int:
        """Apply all logged events in one write, then drop them."""
        with self._opened():
            events = tuple(self._events)
            if events:
                self.write(lambda writer: apply(writer, events))
                del self._events[: len(events)]
            return len(events)

    def unfolded(self) -> int:
        with self._opened():
            return len(self._events)

    def erase(self) -> bool:
        """Return True: what was deleted is referred to by nothing."""
        with self._opened():
            return True

    def size_bytes(self) -> int:
        """Estimate the payload: texts as UTF-8, vectors, cells, snapshots and postings.

        Python's own cost for objects and dictionaries comes on top of it.
        """
        with self._opened():
            return payload_bytes(self._tables)

    def check(self) -> list[str]:
        """Compare totals with counts, placements with cells, and owners with rows."""
        with self._opened():
            return problems(self._tables)

    def close(self) -> None:
        """Forget everything; closing twice is fine."""
        with self._lock:
            self._tables = Tables()
            self._events = []
            self._is_closed = True

    @contextmanager
    def _opened(self) -> Iterator[None]:
        check_independent()
        with self._lock:
            if self._is_closed:
                raise StoreClosed("this store was closed; open another one")
            yield
