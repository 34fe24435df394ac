"""An acknowledged write survives a power loss at `synchronous=FULL`.

A workload runs once, traced; then power is lost at many moments of it, each
time in two ways: nothing that was not synced has reached the disk, or a random
half of its sectors has, so that pages are torn and later writes are there
without earlier ones.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.power import Disk, traced
from tests.faults.strace import Scene, needs_strace, prepared, problems, spread

pytestmark = [
    pytest.mark.faults,
    pytest.mark.long,
    needs_strace("an acknowledged write survives a power loss"),
]

MOMENTS_MAX = 20
SHARES = (0.0, 0.5)


def losses(scene: Scene, folder: Path, **how: str) -> tuple[list[str], int]:
    """Lose power at many moments of a workload; return what was wrong, and how often that was."""
    folder.mkdir()
    with scene.copied() as path:
        job = {"workload": scene.name, "path": str(path), **how}
        asked = traced(job, folder / "trace")
    disk, wrong, count = Disk(scene.folder), [], 0
    chance = random.Random(scene.name)
    moments = set(spread(len(asked), MOMENTS_MAX))
    for number, one in enumerate(asked, start=1):
        disk.ask(one)
        for share in SHARES if number in moments else ():
            left = folder / f"{number}-{share}"
            left.mkdir()
            disk.lose_power(left, chance, share)
            found = problems(scene, disk.said, left / "amv.db", counts_are_exact=False)
            wrong += [f"after {number} calls, {share} of the rest kept: {what}" for what in found]
            count += 1
    return wrong, count


@pytest.mark.parametrize("name", ["first", "life", "cells", "fold", "sweep", "erase"])
def test_what_was_acknowledged_before_a_power_loss_is_there_after_it(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    wrong, count = losses(prepared(name, tmp_path / name), tmp_path / "losses")

    record_property("faults_injected", count)
    assert wrong == []
    assert count == MOMENTS_MAX * len(SHARES)


def test_control_without_a_sync_at_each_commit_writes_are_lost(tmp_path: Path) -> None:
    """NORMAL is the named, weaker mode; if it lost nothing, the disk here would be too kind."""
    scene = prepared("life", tmp_path / "life")

    wrong, _ = losses(scene, tmp_path / "losses", synchronous="NORMAL")

    assert wrong
