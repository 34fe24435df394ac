"""A disk that fails or is full never leads to a false acknowledgement.

One call, or all from one on, is made to fail.  What the memory then raises is
an error of its own, with the driver's as cause, and true: after
StoreUnavailable nothing is written, after OutcomeUnknown all of it or nothing.
Reading goes on, and once the disk works again so does writing.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest

import amv
from tests.faults.strace import (
    Child,
    Run,
    Scene,
    injecting,
    needs_strace,
    prepared,
    problems,
    spread,
)
from tests.faults.workloads import (
    ALICE,
    WORKLOADS,
    adds_many,
    numbered,
    opened,
    text_of,
    world_of,
)

pytestmark = [pytest.mark.faults]

Record = Callable[[str, object], None]

PROMISE = "a write that fails is never acknowledged, and reading goes on"
WRITES = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink")


def misbehaviour(
    scene: Scene, run: Run, path: Path, *, lasting: bool, reads_fail: bool
) -> list[str]:
    """Return what a run did wrong, and what is wrong with the file it left."""
    wrong = problems(scene, run.said, path)
    if run.crash or run.exit_code:
        wrong.append(f"the child ended with {run.exit_code}: {run.crash}")
    for failure in run.failures:
        if failure["cause"] is None:
            wrong.append(f"without a cause: {failure}")
        if failure["failed"] == "StoreUnavailable" and failure["parts_done"] != 0:
            wrong.append(f"it said that nothing was written: {failure}")
        if failure["where"] == "read" and not reads_fail:
            wrong.append(f"reading did not go on: {failure}")
    if not lasting and any("given_up" in line for line in run.said):
        wrong.append(f"writing did not recover after one failure: {run.failures}")
    return wrong


def struck(
    child: Child, scene: Scene, calls: tuple[str, ...], most: int, *, lasting: bool = False
) -> tuple[list[str], int, int]:
    """Run a workload with faults at *most* places of each call.

    Return what went wrong, how many faults were injected, and how many errors
    the memory raised.
    """
    with scene.copied() as path:
        counts = child.run(scene.name, path).calls
    wrong, injected, raised = [], 0, 0
    for call in calls:
        for nth in spread(counts[call], most):
            with scene.copied() as path:
                run = child.run(scene.name, path, call, nth, is_tolerant=True)
                found = misbehaviour(
                    scene, run, path, lasting=lasting, reads_fail=call == "pread64"
                )
            wrong += [f"{call} {nth}: {what}" for what in found]
            injected += run.injected
            raised += len(run.failures)
    return wrong, injected, raised


@pytest.fixture(scope="module")
def failing_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with injecting("error=EIO", WRITES, tmp_path_factory.mktemp("once")) as child:
        yield child


@needs_strace(PROMISE)
@pytest.mark.parametrize("name", ["first", "life", "cells", "fold", "sweep", "erase"])
def test_a_write_that_fails_is_not_acknowledged_and_can_be_repeated(
    failing_once: Child, name: str, tmp_path: Path, record_property: Record
) -> None:
    scene = prepared(name, tmp_path / name)
    wrong, injected, raised = struck(failing_once, scene, WRITES, 5)

    record_property("faults_injected", injected)
    assert wrong == []
    assert injected > 10
    assert raised > 5


@needs_strace(PROMISE)
def test_no_thread_is_told_that_a_shared_commit_succeeded_when_it_failed(
    failing_once: Child, tmp_path: Path, record_property: Record
) -> None:
    """One thread meets the error, and those whose writes it carried must hear of it too."""
    scene, wrong, injected, raised = prepared("crowd", tmp_path / "crowd"), [], 0, 0

    for call, nth in product(("pwrite64", "fdatasync"), (1, 2, 4, 8)):
        with scene.copied() as path:
            run = failing_once.run("crowd", path, call, nth, is_tolerant=True)
            found = [*problems(scene, run.said, path), *filter(None, [run.crash])]
        wrong += [f"{call} {nth}: {what}" for what in found]
        injected += run.injected
        raised += len(run.failures)

    record_property("faults_injected", injected)
    assert wrong == []
    assert injected > 5
    # Each thread meets one error at most by itself; the rest were told.
    assert raised > injected


@needs_strace(PROMISE)
def test_a_read_that_fails_is_an_error_and_not_an_answer(
    tmp_path: Path, record_property: Record
) -> None:
    """A page that can't be read must not look like an item that isn't there."""
    scene = prepared("life", tmp_path / "life")
    with injecting("error=EIO", ("pread64",), tmp_path) as child:
        wrong, injected, raised = struck(child, scene, ("pread64",), 24)

    record_property("faults_injected", injected)
    assert wrong == []
    assert injected > 10
    assert raised > 5


@needs_strace(PROMISE)
@pytest.mark.parametrize("fault", ["EIO", "ENOSPC"])
def test_reading_goes_on_while_no_write_succeeds_any_more(
    fault: str, tmp_path: Path, record_property: Record
) -> None:
    scene = prepared("life", tmp_path / "life")
    with injecting(f"error={fault}", WRITES, tmp_path, lasting=True) as child:
        wrong, injected, raised = struck(child, scene, ("pwrite64", "fdatasync"), 6, lasting=True)

    record_property("faults_injected", injected)
    assert wrong == []
    assert injected > 10
    assert raised > 5


@needs_strace(PROMISE)
def test_control_acknowledging_before_the_commit_is_found_out(tmp_path: Path) -> None:
    scene, lost = prepared("life", tmp_path / "life"), 0

    with injecting("error=EIO", WRITES, tmp_path, lasting=True) as child:
        for nth in (60, 120):
            with scene.copied() as path:
                run = child.run(
                    "life", path, "pwrite64", nth, is_tolerant=True, acknowledges_early=True
                )
                lost += bool(problems(scene, run.said, path))

    assert lost > 0


# ---------------------------------------------------------------- a full disk

DISK_BYTES = 3 << 20


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of DISK_BYTES at *folder*; skip where that is not permitted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "amv-test", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip(f"no file system may be mounted here; not tested on a full disk: {PROMISE}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path) -> None:
    """Take all the space there is."""
    with file.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def refused(call: Callable[[], object]) -> bool:
    """Return whether a call failed, as it may, with an error of the store that has a cause."""
    try:
        call()
    except amv.StoreError as error:
        if error.__cause__ is None:
            raise
        return True
    return False


def test_a_full_disk_refuses_writes_goes_on_reading_and_recovers(tmp_path: Path) -> None:
    """Freeing space is enough; nobody has to reopen, repair or repeat what was acknowledged."""
    with (
        small_disk(tmp_path / "disk") as disk,
        opened(disk / "amv.db", WORKLOADS["life"]) as memory,
    ):
        kept = numbered("kept", 20)
        adds_many(kept, ALICE).run(memory)
        before = world_of(memory)
        fill(disk / "ballast")

        refusals = 0
        for item_id in numbered("more", 200):
            if refused(partial(memory.add, text_of(item_id) * 20, namespace=ALICE, id=item_id)):
                refusals += 1
                assert memory.search("kept0007x", namespace=ALICE).hits[0].item.id == "kept0007x"
            if refusals == 5:
                break
        memory.reinforce(["kept0001x"], namespace=ALICE)
        assert refused(memory.flush)
        refused(lambda: memory.forget("kept0003x"))
        while_full = world_of(memory)

        (disk / "ballast").unlink()
        memory.flush()
        if "kept0003x" in world_of(memory):
            memory.forget("kept0003x")
        memory.add(text_of("last"), namespace=ALICE, id="last")

        assert refusals == 5
        assert all(while_full[i] == before[i] for i in kept if i != "kept0003x")
        assert memory.check() == []
        assert memory.get("kept0001x").contributed_count == 1
        assert memory.search("last", namespace=ALICE).hits[0].item.id == "last"


def leave(file: Path, free_bytes: int) -> None:
    """Take all the space there is but for so much."""
    fill(file)
    os.truncate(file, file.stat().st_size - free_bytes)


def test_what_is_forgotten_on_a_full_disk_is_erased_once_there_is_room(tmp_path: Path) -> None:
    """The forget is one, the block ends as it would, and whoever opens the file next erases."""
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "amv.db"
        with opened(path, WORKLOADS["life"]) as memory:
            items = numbered("item", 100)
            memory.add_many(
                {"content": text_of(i) * 20, "namespace": ALICE, "id": i} for i in items
            )
            memory.search("item0007x", namespace=ALICE)
            # Enough for the log to grow, and too little for the database.
            leave(disk / "ballast", 150_000)

            receipt = memory.forget("item0007x")

            assert (receipt.count, receipt.erased) == (1, False)
            assert "free some space" in receipt.reason
            assert "item0007x" not in world_of(memory)
            fill(disk / "rest")
        left = [file for file in disk.iterdir() if b"item0007x" in file.read_bytes()]
        assert left != []
        (disk / "ballast").unlink()
        (disk / "rest").unlink()

        with opened(path, WORKLOADS["life"]) as memory:
            memory.sweep()
            held = [file for file in disk.iterdir() if b"item0007x" in file.read_bytes()]
            assert held == []
            assert memory.check() == []


def test_a_memory_that_filled_the_disk_can_be_thinned_out(tmp_path: Path) -> None:
    """Deleting needs a little room for the log; what it frees in the file is used again."""
    with (
        small_disk(tmp_path / "disk") as disk,
        opened(disk / "amv.db", WORKLOADS["life"]) as memory,
    ):
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(DISK_BYTES // 3))
        added = []
        for item_id in numbered("item", 2000):
            if refused(partial(memory.add, text_of(item_id) * 50, namespace=ALICE, id=item_id)):
                break
            added.append(item_id)
        ballast.unlink()
        gone, kept = added[::2], added[1::2]
        assert memory.forget(gone[0]).erased
        size = memory.stats().store_bytes
        assert all(memory.forget(item_id).erased for item_id in gone[1:])

        memory.add_many(
            {"content": text_of(item_id) * 50, "namespace": ALICE, "id": item_id}
            for item_id in gone[:-2]
        )

        assert 10 < len(added) < 2000
        assert memory.stats().live == len(kept) + len(gone) - 2
        assert memory.forget(kept[0]).erased
        # But for a page or two of the log of changes.
        assert memory.stats().store_bytes <= size + 4 * 8192
        assert memory.check() == []


def test_a_file_that_nobody_has_open_is_read_on_a_full_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite itself needs room for its locks; without writers it can do without."""
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "amv.db"
        with opened(path, WORKLOADS["life"]) as memory:
            adds_many(numbered("kept", 20), ALICE).run(memory)
        fill(disk / "ballast")

        for _ in range(2):
            with opened(path, WORKLOADS["life"]) as memory:
                found = memory.search("kept0007x", namespace=ALICE)
                assert found.hits[0].item.id == "kept0007x"
                assert len(list(memory.export_items())) == 20
                with pytest.raises(amv.StoreUnavailable, match=r"disk was full .* free some space"):
                    memory.add(text_of("more"), namespace=ALICE)
        assert "disk was full" in caplog.text

        (disk / "ballast").unlink()
        with opened(path, WORKLOADS["life"]) as memory:
            memory.add(text_of("last"), namespace=ALICE, id="last")
            assert memory.check() == []


def test_a_log_that_needs_room_to_be_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    """What is in it was acknowledged, so leaving it out would be a wrong answer."""
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "amv.db"
        with opened(tmp_path / "amv.db", WORKLOADS["life"]) as memory:
            adds_many(numbered("kept", 20), ALICE).run(memory)
            shutil.copy(tmp_path / "amv.db", path)
            shutil.copy(tmp_path / "amv.db-wal", disk / "amv.db-wal")
        fill(disk / "ballast")

        with pytest.raises(amv.StoreUnavailable, match=r"disk was full .* log can't be read"):
            opened(path, WORKLOADS["life"])

        (disk / "ballast").unlink()
        with opened(path, WORKLOADS["life"]) as memory:
            assert len(list(memory.export_items())) == 20
