"""At most one grant a key, wherever `kill -9` strikes.

A child that cancels orders is killed at each write, sync and truncation it
makes.  The process after it tries to cancel them all again: none that was
cancelled is, what was reserved or dispatched without an outcome is UNKNOWN, and
the log is whole, with all that was acknowledged in it.  The memory knows of a check if, and
only if, the log does.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.guard.ports import State
from tests.faults.guard_child import ORDERS
from tests.faults.strace import Child, Run, injecting, needs_strace, spread
from tests.guard.gates import OWNER, cancel, opened, remember

pytestmark = [
    pytest.mark.faults,
    needs_strace("at most one grant a key, also after kill -9"),
]

CALLS = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink")
UNENDED = (State.RESERVED, State.DISPATCHED)

KILLS_MAX = 60
"""Of one sort of call; all of them where there are fewer, or with `--every-fault`."""


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    folder = tmp_path_factory.mktemp("kill")
    with injecting("signal=KILL", CALLS, folder, module="tests.faults.guard_child") as child:
        yield child


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a file in which all orders are remembered as pending."""
    path = tmp_path_factory.mktemp("scene") / "amv.db"
    with opened(str(path)) as guard:
        for order_id in ORDERS:
            remember(guard, order_id=order_id)
    return path


def killed(
    child: Child, scene: Path, folder: Path, call: str, nth: int, *, broken: str = ""
) -> tuple[Run, Path]:
    """Run a child on a copy of the file; return what it said, and the file."""
    shutil.copytree(scene.parent, folder)
    path = folder / "amv.db"
    job = {"path": str(path), "call": call, "nth": nth, "broken": broken}
    return child.do(job, lambda line: None), path


def said(run: Run, what: str) -> set[str]:
    """Return the orders of which a child said something."""
    return {str(line["order"]) for line in run.said if what in line}


def problems(run: Run, path: Path) -> list[str]:
    """Return what is wrong with a file, and with what the next process does on it."""
    cancelled = said(run, "cancelled")
    with opened(str(path)) as guard:
        wrong = guard.replay() + guard.memory.check()
        before = states(guard)
        checked = {str(d.premises[0].subject) for _, d in guard.decisions() if d.values}
        wrong += [
            f"the memory and the log do not say the same of {order}"
            for order in ORDERS
            if (f"order/{order}" in checked) != is_verified(guard, order)
        ]
        wrong += [
            f"{order} was settled, and is {before.get(order)}"
            for order in said(run, "settled")
            if before.get(order) is not State.SUCCEEDED
        ]
        wrong += [
            f"{order} was decided, of which nothing is known"
            for order in said(run, "decided") - before.keys()
        ]
        guard.reconcile(-1.0)
        after = states(guard)
        wrong += [
            f"{order} was {before[order]} and is {state}"
            for order, state in after.items()
            if state is not (State.UNKNOWN if before[order] in UNENDED else before[order])
        ]
        guard.verifier("order_status")(lambda order_id: "pending")
        again = {order for order in ORDERS if is_granted(guard, order)}
        wrong += [f"{order} is cancelled twice" for order in sorted(cancelled & again)]
        wrong += [
            f"{order} was {before[order]} and is granted again"
            for order in again & before.keys()
            if before[order] is not State.APPROVED
        ]
        return wrong + guard.replay()


def states(guard: amv.Guard) -> dict[str, State]:
    """Return how far the cancelling of each order has come."""
    with guard._store.read() as reader:
        rows = [row for state in State for row in reader.in_state(state, 1e12)]
    by_digest = {cancel(order).digest(): order for order in ORDERS}
    return {by_digest[row.digest]: row.state for row in rows}


def is_verified(guard: amv.Guard, order: str) -> bool:
    """Return whether the memory knows that a check found its claim to hold."""
    item = guard.memory.find_claim(OWNER, f"order/{order}", "status")
    assert item is not None
    return item.last_verified_at is not None


def is_granted(guard: amv.Guard, order: str) -> bool:
    decision = guard.decide(cancel(order))
    if decision.permit is None:
        return False
    guard.redeem(decision.permit.token, cancel(order))
    return True


def points(child: Child, scene: Path, folder: Path, most: int = KILLS_MAX) -> list[tuple[str, int]]:
    """Return where to kill, known from a run that ends well: at so many calls of each sort."""
    run, path = killed(child, scene, folder, "", 0)
    assert (run.exit_code, run.crash) == (0, "")
    assert said(run, "settled") == set(ORDERS)
    assert problems(run, path) == []
    return [(call, nth) for call, count in run.calls.items() for nth in spread(count, most)]


def test_no_key_is_granted_twice_however_a_process_was_killed(
    child: Child,
    scene: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    wrong: list[str] = []
    count, met = 0, set[Any]()
    most = 10**6 if request.config.getoption("--every-fault") else KILLS_MAX
    places = points(child, scene, tmp_path / "whole", most)

    for call, nth in places:
        run, path = killed(child, scene, tmp_path / f"{call}{nth}", call, nth)
        count += run.was_killed
        met.add(len(run.said))
        wrong += [f"killed at {call} {nth}: {what}" for what in problems(run, path)]
        shutil.rmtree(path.parent)

    record_property("faults_injected", count)
    record_property("granted twice", sum("twice" in what or "again" in what for what in wrong))
    assert wrong == []
    assert count > 0.8 * len(places) > 20
    # It was struck between all the steps that it takes.
    assert len(met) > 8


def test_control_acting_before_that_is_written_down_is_found_out(
    child: Child, scene: Path, tmp_path: Path
) -> None:
    """A check that can not fail proves nothing: here it must."""
    places = points(child, scene, tmp_path / "whole")
    twice = 0

    for call, nth in places[:: max(1, len(places) // 40)]:
        run, path = killed(child, scene, tmp_path / f"{call}{nth}", call, nth, broken="acts_early")
        twice += any("is cancelled twice" in what for what in problems(run, path))

    assert twice > 0


def test_control_telling_the_memory_before_the_log_is_found_out(
    child: Child, scene: Path, tmp_path: Path
) -> None:
    places = points(child, scene, tmp_path / "whole")
    apart = 0

    for call, nth in places[:: max(1, len(places) // 40)]:
        run, path = killed(child, scene, tmp_path / f"{call}{nth}", call, nth, broken="tells_early")
        apart += any("do not say the same" in what for what in problems(run, path))

    assert apart > 0
