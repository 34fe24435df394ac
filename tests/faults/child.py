"""The process that faults are injected into; run as a module, under strace.

It reads jobs, one JSON object a line, forks for each, and the fork runs one
workload.  Each step is announced and, when it has returned, acknowledged by a
line of JSON; when the fork has ended, its exit status follows.

strace injects a fault into the call number `reach` of each sort that a thread
makes.  Where a job wants it at the n-th call, the fork first makes reach - n
calls that do nothing.  So one process, with everything imported, serves any
number of faults.
"""

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import amv
from tests.faults.workloads import WORKLOADS, Step, World, changed, opened, world_of


def reach(call: str) -> int:
    """Return the most calls of a sort that a workload may make; the fewer, the faster."""
    return 600 if call in ("pwrite64", "pread64") else 60


TRIES = 4
"""How often a step is tried before it is given up."""

_NO_FILE = 999_999
_NOWHERE = "/nonexistent/file"

DUMMY_CALLS: dict[str, Callable[[], object]] = {
    "pwrite64": lambda: os.pwrite(_NO_FILE, b"", 0),
    "pread64": lambda: os.pread(_NO_FILE, 1, 0),
    "write": lambda: os.write(_NO_FILE, b""),
    "fdatasync": lambda: os.fdatasync(_NO_FILE),
    "fsync": lambda: os.fsync(_NO_FILE),
    "ftruncate": lambda: os.ftruncate(_NO_FILE, 0),
    "unlink": lambda: os.unlink(_NOWHERE),
}
"""A call of each sort that fails and changes nothing."""


def serve_jobs(run: Callable[[dict[str, Any]], None]) -> None:
    """Run jobs, each in a fork, until there are no more."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _fork(partial(run, json.loads(line)))
        _, status = os.waitpid(pid, 0)
        say(end=os.waitstatus_to_exitcode(status))


def say(**what: Any) -> None:
    """Tell the test, at once and in one piece."""
    # Not by write(), which faults are injected into.
    os.writev(1, [json.dumps(what).encode() + b"\n"])


def take_aim(call: str, nth: int) -> None:
    """Have the fault strike this thread's *nth* call from here; 0: none."""
    if nth:
        for _ in range(reach(call) - nth):
            with suppress(OSError):
                DUMMY_CALLS[call]()


def _fork(run: Callable[[], None]) -> None:
    code = 1
    try:
        run()
        code = 0
    except BaseException:  # noqa: BLE001 - told to the test, which fails
        say(crash=traceback.format_exc())
    os._exit(code)


class Job:
    """One workload with a fault at the *nth* call of a sort; 0: without.

    *is_tolerant* has a step that fails tried again, after a look at what the
    failure left.  The other two are broken on purpose, as positive controls.
    """

    def __init__(
        self,
        *,
        workload: str,
        path: str,
        call: str = "",
        nth: int = 0,
        is_tolerant: bool = False,
        acknowledges_early: bool = False,
        synchronous: str = "FULL",
    ) -> None:
        self._workload = WORKLOADS[workload]
        self._path = Path(path)
        self._call = call
        self._nth = nth
        self._is_tolerant = is_tolerant
        self._acknowledges_early = acknowledges_early
        self._synchronous = synchronous

    def run(self) -> None:
        """Run all steps, then close."""
        if not self._workload.threads:
            take_aim(self._call, self._nth)
        memory = self._opened()
        if memory is None:
            return
        steps = self._workload.steps(memory, self._path.parent)
        if self._workload.threads:
            self._share_out(memory, list(steps))
        else:
            self._take(memory, steps)
        try:
            memory.close()
        except amv.AmvError as error:
            _tell(error, "close")
            if not self._is_tolerant:
                raise

    def _opened(self) -> amv.Memory | None:
        for _ in range(TRIES if self._is_tolerant else 1):
            try:
                return opened(self._path, self._workload, synchronous=self._synchronous)
            except amv.AmvError as error:
                _tell(error, "open")
                if not self._is_tolerant:
                    raise
        return None

    def _share_out(self, memory: amv.Memory, steps: list[Step]) -> None:
        """Have threads take every n-th step; the fault strikes the first that comes that far."""
        count = self._workload.threads

        def take(number: int) -> None:
            try:
                take_aim(self._call, self._nth)
                self._take(memory, steps[number::count], who=number)
            except BaseException:
                say(crash=traceback.format_exc())
                raise

        threads = [threading.Thread(target=partial(take, number)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _take(self, memory: amv.Memory, steps: Iterable[Step], who: int = 0) -> None:
        for step in steps:
            say(begin=step.parts, who=who)
            if self._acknowledges_early:
                say(done=True, who=who)
            if not self._is_tolerant:
                step.run(memory)
            elif not self._survives(memory, step):
                say(given_up=True)
                return
            say(done=True, who=who)

    def _survives(self, memory: amv.Memory, step: Step) -> bool:
        """Run a step that may fail, look at what each failure left, and try again."""
        before = self._seen(memory)
        for attempt in range(TRIES):
            try:
                step.run(memory)
            except amv.ItemNotFound:
                # A forget whose outcome was unknown had taken place.
                if not attempt:
                    raise
                return True
            except amv.AmvError as error:
                _tell(error, "step", _parts_done(self._seen(memory), before, step))
            else:
                return True
        return False

    def _seen(self, memory: amv.Memory) -> World:
        """Return what is there, though one read may fail."""
        try:
            return world_of(memory)
        except amv.StoreError as error:
            _tell(error, "read")
            return world_of(memory)


def _parts_done(now: World, before: World, step: Step) -> int | None:
    """Return after how many of its parts a failed step stopped; None: inside one."""
    world = before
    for done in range(len(step.parts) + 1):
        if now == world:
            return done
        if done < len(step.parts):
            world = changed(world, step.parts[done])
    return None


def _tell(error: amv.AmvError, where: str, parts_done: int | None = 0) -> None:
    cause = error.__cause__
    say(
        failed=type(error).__name__,
        cause=None if cause is None else type(cause).__name__,
        where=where,
        parts_done=parts_done,
        message=str(error),
    )


if __name__ == "__main__":
    serve_jobs(lambda given: Job(**given).run())
