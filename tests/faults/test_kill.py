"""An acknowledged write survives `kill -9`, wherever it strikes.

A child is killed at every sync, truncation, unlink and write of an event log,
and at a spread of its other writes.  Afterwards the file holds what was
acknowledged and, of what was under way, all of a part or nothing; it is sound,
what it holds is found, what was forgotten is not, and writing goes on.
"""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.faults.strace import (
    Child,
    Scene,
    injecting,
    needs_strace,
    prepared,
    problems,
    spread,
)
from tests.faults.workloads import WORKLOADS

pytestmark = [
    pytest.mark.faults,
    pytest.mark.long,
    needs_strace("an acknowledged write survives kill -9"),
]

CALLS = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink")
SPREAD = ("pwrite64",)
"""Of these calls, which are many, only some are struck."""

KILLS_MAX = {"import": 4, "reembed": 6}
"""By workload; they take long."""


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with injecting("signal=KILL", CALLS, tmp_path_factory.mktemp("kill")) as child:
        yield child


def kills(child: Child, scene: Scene) -> list[tuple[str, int]]:
    """Return where to kill a workload, known from a run of it that ends well."""
    with scene.copied() as path:
        run = child.run(scene.name, path)
        assert (run.exit_code, run.crash) == (0, "")
        assert problems(scene, run.said, path) == []
    return [
        (call, nth)
        for call, count in run.calls.items()
        for nth in spread(count, KILLS_MAX.get(scene.name, 20 if call in SPREAD else count))
    ]


@pytest.mark.parametrize("name", [name for name in WORKLOADS if not WORKLOADS[name].threads])
def test_what_was_acknowledged_before_a_kill_is_there_after_it(
    child: Child,
    name: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    scene = prepared(name, tmp_path / name)
    wrong, killed = [], 0
    points = kills(child, scene)

    for call, nth in points:
        with scene.copied() as path:
            run = child.run(name, path, call, nth)
            killed += run.was_killed
            wrong += [f"killed at {call} {nth}: {what}" for what in problems(scene, run.said, path)]

    record_property("faults_injected", killed)
    assert wrong == []
    # All but a few: a thread of its own may have written a log of events before.
    assert killed > 0.8 * len(points) > 10


def test_a_commit_shared_by_threads_survives_as_a_whole(
    child: Child, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Whichever thread commits for the others, none has returned before that is durable."""
    scene = prepared("crowd", tmp_path / "crowd")
    wrong, killed = [], 0

    for call, nth in product(("pwrite64", "fdatasync"), (1, 2, 3, 5, 8, 12)):
        with scene.copied() as path:
            run = child.run("crowd", path, call, nth)
            killed += run.was_killed
            wrong += [f"killed at {call} {nth}: {what}" for what in problems(scene, run.said, path)]

    record_property("faults_injected", killed)
    assert wrong == []
    assert killed > 5


def test_control_acknowledging_before_the_commit_is_found_out(child: Child, tmp_path: Path) -> None:
    """A check that can not fail proves nothing: here it must."""
    scene = prepared("life", tmp_path / "life")
    lost = 0

    for nth in spread(200, 8):
        with scene.copied() as path:
            run = child.run("life", path, "pwrite64", nth, acknowledges_early=True)
            assert run.was_killed
            lost += bool(problems(scene, run.said, path))

    assert lost > 0


def test_control_a_lost_log_is_found_out(child: Child, tmp_path: Path) -> None:
    """What was acknowledged stands in the write-ahead log; without it, it is lost."""
    scene = prepared("life", tmp_path / "life")
    lost = 0

    for nth in spread(200, 8):
        with scene.copied() as path:
            run = child.run("life", path, "pwrite64", nth)
            assert run.was_killed
            path.with_name("amv.db-wal").unlink(missing_ok=True)
            lost += bool(problems(scene, run.said, path))

    assert lost > 0
