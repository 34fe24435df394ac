"""Where requests do their work: bounded, so that a flood is turned away and not queued.

What may touch a disk or run a model runs in a pool of threads with a bounded
queue.  What is resident in memory runs on the event loop itself, which is
cheaper than a hand-over: a few milliseconds of it between two looks at what has
arrived, so that who is turned away need not wait for those let in.  There, too,
only so many may wait.  A request that finds its queue full is told so at once,
with the time after which to try again; one whose deadline passed while it
waited is not begun.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from amv.config import ServerSettings
from amv.errors import AmvError
from amv.server.access import Principal

T = TypeVar("T")


class Overloaded(AmvError):
    """The queue is full; nothing was done."""


class TooManyRequests(AmvError):
    """This key has more requests under way than its share; nothing was done."""


class DeadlineExceeded(AmvError):
    """The time the caller allows ran out."""


class Lane:
    """A pool of threads with a bounded queue; `close` waits for what is under way."""

    def __init__(self, name: str, threads: int, queue_max: int) -> None:
        self._name = name
        self._most = threads + queue_max
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"amv-{name}")
        self.under_way = 0

    async def run(self, work: Callable[[], T], deadline_s: float) -> T:
        """Run *work* in the pool; *deadline_s* is a reading of `time.monotonic`.

        Raises Overloaded if too many wait, DeadlineExceeded if the time ran
        out: before it was begun, or while it ran on.
        """
        if self.under_way >= self._most:
            raise Overloaded(
                f"{self.under_way} requests that {self._name} are under way, and no more can wait"
            )
        self.under_way += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        timer = loop.call_later(max(0.0, deadline_s - time.monotonic()), _expire, answer)

        def ended(done: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._note_end, answer, done)

        self._pool.submit(begun, work, deadline_s).add_done_callback(ended)
        try:
            return await answer
        finally:
            timer.cancel()

    def _note_end(self, answer: "asyncio.Future[T]", done: Future[T]) -> None:
        self.under_way -= 1
        if answer.done():
            return  # whoever asked is gone, or was told that it took too long
        if done.cancelled():
            answer.cancel()
        elif (error := done.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result())

    def close(self) -> None:
        """Let what was begun finish."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _expire(answer: "asyncio.Future[Any]") -> None:
    if not answer.done():
        answer.set_exception(
            DeadlineExceeded(
                "the request took longer than allowed; if it writes, whether it did is unknown: "
                "repeat it with the same item id or Idempotency-Key; a decision about an action "
                "can just be asked for again"
            )
        )


def begun(work: Callable[[], T], deadline_s: float) -> T:
    """Do work whose turn has come; raises DeadlineExceeded if it came too late."""
    if time.monotonic() >= deadline_s:
        raise DeadlineExceeded("the time allowed was over before the request's turn came")
    return work()


SLICE_S = 0.004
"""How long the event loop works before it looks at what has arrived meanwhile."""


class Turns:
    """Whose turn it is to work on the event loop itself; all calls come from there."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._spent_s = 0.0
        self._is_ticking = False

    @property
    def are_taken(self) -> bool:
        """Whether no more can wait."""
        return len(self._waiting) >= self._most

    async def run(self, work: Callable[[], T]) -> T:
        """Do work, now or when its turn comes; raises Overloaded if too many wait."""
        if not self._waiting and self._spent_s < SLICE_S:
            self._tick_soon()
            return self._timed(work)
        if self.are_taken:
            raise Overloaded(f"{len(self._waiting)} searches wait, and no more can")
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, turn))
        self._tick_soon()
        return await turn

    def _timed(self, work: Callable[[], T]) -> T:
        began_s = time.perf_counter()
        try:
            return work()
        finally:
            self._spent_s += time.perf_counter() - began_s

    def _tick_soon(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        """Work for a slice of time: the loop has looked at what arrived."""
        self._is_ticking, self._spent_s = False, 0.0
        while self._waiting and self._spent_s < SLICE_S:
            work, turn = self._waiting.popleft()
            if turn.done():
                continue  # whoever waited is gone
            try:
                turn.set_result(self._timed(work))
            except Exception as error:  # noqa: BLE001 - it is told to whoever waited
                turn.set_exception(error)
        if self._waiting:
            self._tick_soon()


class Lanes:
    """Where the requests of one gateway do their work, and how many each key has under way."""

    def __init__(self, settings: ServerSettings) -> None:
        self.read = Lane("read", settings.read_threads, settings.queue_max)
        self.write = Lane("write", settings.write_threads, settings.queue_max)
        self.turns = Turns(settings.queue_max)
        self._of_key: dict[str, int] = {}
        self._of_key_max = settings.per_key_max

    def enter(self, principal: Principal) -> None:
        """Count a request of a key; raises TooManyRequests above its share."""
        under_way = self._of_key.get(principal.key_id, 0)
        if principal.key_id and under_way >= self._of_key_max:
            raise TooManyRequests(f"this key has {under_way} requests under way, and no more can")
        self._of_key[principal.key_id] = under_way + 1

    def leave(self, principal: Principal) -> None:
        """Count a request of a key as done."""
        left = self._of_key[principal.key_id] - 1
        if left:
            self._of_key[principal.key_id] = left
        else:
            del self._of_key[principal.key_id]

    def close(self) -> None:
        """Let what was begun finish."""
        self.read.close()
        self.write.close()
