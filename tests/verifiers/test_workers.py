"""Threads that run checks are used again, and none waits for one that hangs."""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from queue import SimpleQueue

from amv.verifiers.workers import Work, Workers

WAIT_S = 30.0


def ran(workers: Workers, work: Callable[[], object] = lambda: None) -> int:
    """Run a work to its end; return which thread ran it."""
    done, thread = threading.Event(), [0]

    def noted() -> None:
        work()
        thread[0] = threading.get_ident()
        done.set()

    workers.start(noted)
    assert done.wait(WAIT_S)
    return thread[0]


def until(condition: Callable[[], bool]) -> bool:
    """Return whether a condition comes true."""
    end_s = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.001)
    return condition()


def test_one_thread_runs_one_work_after_another() -> None:
    workers = Workers()
    first = ran(workers)

    for _ in range(50):
        assert until(lambda: len(workers._idle) == 1)
        assert ran(workers) == first


def test_works_at_the_same_time_have_threads_of_their_own() -> None:
    """One that hangs keeps nothing else from running."""
    workers, hangs = Workers(), threading.Event()
    hanging = [0]

    def hang() -> None:
        hanging[0] = threading.get_ident()
        hangs.wait(WAIT_S)

    workers.start(hang)

    assert until(lambda: hanging[0] != 0)
    assert hanging[0] not in {ran(workers) for _ in range(3)}
    hangs.set()


def test_a_thread_ends_when_nothing_comes_for_a_while() -> None:
    workers = Workers(idle_s=0.01)
    first = ran(workers)

    assert until(lambda: first not in {t.ident for t in threading.enumerate()})
    assert not workers._idle
    assert ran(workers)


def test_work_that_comes_at_the_last_moment_is_done() -> None:
    """The thread was given it just when it gave up waiting."""
    workers, inbox = Workers(idle_s=0.0), SimpleQueue[Work]()

    def work() -> None:
        raise AssertionError("it is only handed over here")

    threading.Timer(0.05, lambda: inbox.put(work)).start()

    assert workers._next(inbox) is work


def test_a_work_sees_no_context_of_another() -> None:
    var: ContextVar[str] = ContextVar("var", default="nothing")
    workers, seen = Workers(), list[str]()

    def work() -> None:
        seen.append(var.get())
        var.set("left behind")

    ran(workers, work)
    assert until(lambda: len(workers._idle) == 1)
    ran(workers, work)

    assert seen == ["nothing", "nothing"]
