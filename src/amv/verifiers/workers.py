"""Threads in which checks run, kept for the next one.

Starting a thread costs more than most checks, and on a busy machine now and
then some milliseconds.  So a thread that has ended its work waits a while for
more.  One that hangs is simply not among those that wait.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue

Work = Callable[[], None]

IDLE_S = 10.0
"""How long a thread waits for another check before it ends."""


class Workers:
    """Runs works, each in a thread of its own and in a context of its own."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: deque[SimpleQueue[Work]] = deque()

    def start(self, work: Work) -> None:
        """Have *work*, which raises nothing, run at once; raises RuntimeError if no thread can."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(
                target=self._serve, args=(inbox,), name="amv-verifier", daemon=True
            ).start()
        inbox.put(work)

    def _serve(self, inbox: "SimpleQueue[Work]") -> None:
        while (work := self._next(inbox)) is not None:
            Context().run(work)
            del work
            with self._lock:
                self._idle.append(inbox)

    def _next(self, inbox: "SimpleQueue[Work]") -> Work | None:
        """Return the next work; None once none has come for a while."""
        try:
            return inbox.get(timeout=self._idle_s)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return None
        # It was given work at the last moment.
        return inbox.get()
