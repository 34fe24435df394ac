"""Erasing: what was deleted is in none of the files, not even as a stale copy."""

import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import apsw
import numpy as np
import pytest

from amv.errors import StoreUnavailable
from amv.memory.item import Claim, Status
from amv.memory.ports import (
    PASSAGES_MAX,
    Event,
    HistoryRow,
    Members,
    NewPostings,
    Vectors,
    Writer,
)
from amv.memory.value import EventKind
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.checkpoint import Checkpointer, cleaned
from amv.testing.samples import plain

ITEMS = 1200


def stored_bytes(path: Path) -> bytes:
    """Return all files; read elsewhere, since closing a file here would drop SQLite's locks."""
    files = sorted(str(file) for file in path.parent.iterdir())
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout


def canary(kind: str, number: int) -> str:
    return f"canary-{kind}-{number:06d}!"


def filler(rng: random.Random, most: int) -> str:
    return "x" * rng.randrange(most)


def fill(store: SqliteStore) -> int:
    """Store canaries wherever text is kept, such that pages split and rows move."""
    rng = random.Random(7)
    ns_id = store.write(lambda w: w.create_namespace(("erasing",), 1.0)).ns_id
    numbers = rng.sample(range(ITEMS), ITEMS)

    def add(writer: Writer, number: int) -> None:
        row = replace(
            plain(ns_id, canary("id", number)),
            content=canary("content", number) + filler(rng, 600),
            context=canary("context", number),
            source=canary("source", number),
            claim=Claim(canary("subject", number), canary("attribute", number), "v"),
            metadata={canary("path", number): canary("value", number) + filler(rng, 90)},
            supersedes=canary("older", number),
        )
        (key,) = writer.insert([row])
        writer.add_history(key, HistoryRow(1.0, "updated", canary("history", number), row.claim))
        counts = {canary("term", number): 1, canary("shared", number // 3): 2, "common": 1}
        writer.add_postings(ns_id, [NewPostings(key, counts, 4)])
        if number % 4 == 0:
            # A row that grows pushes its neighbours to other pages.
            grown = replace(row, key=key, context=row.context + filler(rng, 3000))
            writer.update(replace(grown, superseded_by=canary("newer", number)))

    def add_all(writer: Writer, numbers: list[int]) -> None:
        for number in numbers:
            add(writer, number)

    for start in range(0, ITEMS, 50):
        batch = numbers[start : start + 50]
        store.write(partial(add_all, numbers=batch))
    return ns_id


KINDS = (
    *("id", "content", "context", "source", "subject", "attribute"),
    *("path", "value", "older", "newer", "history", "term"),
)


def delete(store: SqliteStore, ns_id: int, numbers: list[int]) -> None:
    def work(writer: Writer) -> None:
        for number in numbers:
            (row,) = writer.rows_with_id(canary("id", number), ns_id)
            terms = [canary("term", number), canary("shared", number // 3), "common"]
            writer.remove_postings(ns_id, row.key, terms)
            writer.delete([row.key])

    store.write(work)


def found(data: bytes, numbers: list[int]) -> set[str]:
    """Return which canaries of these items stand in *data*."""
    names = {canary(kind, number) for kind in KINDS for number in numbers}
    names |= {canary("shared", number // 3) for number in numbers}
    return names & {name.decode() for name in re.findall(rb"canary-[a-z]+-[0-9]{6}!", data)}


def test_nothing_deleted_is_left_in_any_file(store: SqliteStore, path: Path) -> None:
    """Deleting a third in random order also leaves pages half full, which SQLite merges."""
    ns_id = fill(store)
    store.log([Event(ns_id, 1, EventKind.EXPOSED, 1.0)])
    gone = [number for number in range(ITEMS) if number // 3 % 3 == 1]
    left = [number for number in range(ITEMS) if number // 3 % 3 != 1]
    assert len(found(stored_bytes(path), gone)) > 11 * len(gone)

    delete(store, ns_id, random.Random(8).sample(gone, len(gone)))

    assert store.erase()
    data = stored_bytes(path)
    assert found(data, gone) == set()
    assert len(found(data, left[:50])) > 11 * 50


def test_a_dropped_namespace_leaves_nothing_but_the_others(store: SqliteStore, path: Path) -> None:
    ns_id = fill(store)
    store.write(lambda writer: writer.create_namespace(("staying",), 1.0))

    store.write(lambda writer: writer.drop_namespace(ns_id))

    assert store.erase()
    data = stored_bytes(path)
    assert found(data, list(range(ITEMS))) == set()
    assert b"erasing" not in data
    assert b"staying" in data


def test_the_cleaning_of_pages_is_what_makes_it_so(path: Path) -> None:
    """The control: checkpoints that SQLite runs by itself leave stale copies, secure_delete or not.

    Should this fail one day, SQLite has mended it, and `checkpoint` can go.
    """
    store = SqliteStore.open(path)
    ns_id = fill(store)
    with closing(apsw.Connection(str(path))) as other:
        other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        gone = [number for number in range(ITEMS) if number // 3 % 3 == 1]
        delete(store, ns_id, gone)
        other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    left = found(stored_bytes(path), gone)
    store.close()
    assert left


def test_a_vector_and_its_code_in_all_three_cells_are_gone(store: SqliteStore, path: Path) -> None:
    """Vectors can be turned back into text, near enough; so can codes, and ids tell of an item."""
    rng = np.random.default_rng(3)
    count, dimension = 60, 64
    # As bytes, these ids stand nowhere but in cells.
    ids = (np.arange(count, dtype=np.int64) + 0x5A5A5A5A) * PASSAGES_MAX
    matrix = rng.normal(size=(count, dimension)).astype(np.float32)
    codes = rng.integers(0, 256, (count, dimension // 2), np.uint8)

    def add(writer: Writer) -> tuple[int, int, int]:
        ns_id = writer.create_namespace(("a",), 1.0).ns_id
        writer.add_vectors(ns_id, Vectors(ids, matrix))
        writer.stage_vectors(Vectors(ids, matrix))
        first = writer.add_cell(ns_id, matrix[0], Members(ids[:50], codes[:50]))
        second = writer.add_cell(ns_id, matrix[1], Members(ids[:0], codes[:0]))
        for i in range(50, count):
            writer.extend_cells({first: Members(ids[i : i + 1], codes[i : i + 1])})
        for i in range(0, count, 4):
            writer.extend_cells({second: Members(ids[i : i + 4], codes[i : i + 4])})
        third = writer.add_cell(ns_id, matrix[2], Members(ids, codes))
        writer.place(ids, np.full((count, 3), (first, second, third)))
        return first, second, third

    cells = store.write(add)
    with store.read() as reader:
        whole = reader.execute("SELECT data FROM vector_data")  # type: ignore[attr-defined]
        encoded = [data[8:60] for (data,) in whole]
    assert store.erase()
    before = stored_bytes(path)
    assert {before.count(code.tobytes()) for code in codes} == {3}
    assert {before.count(one.tobytes()) for one in ids} == {3}
    assert all(data in before for data in encoded)

    def remove(writer: Writer) -> None:
        for cell_id in cells:
            writer.remove_members(cell_id, ids[::2])
        writer.drop_vectors(ids[::2])

    store.write(remove)

    assert store.erase()
    after = stored_bytes(path)
    assert [after.count(code.tobytes()) for code in codes] == [0, 3] * (count // 2)
    assert [after.count(one.tobytes()) for one in ids] == [0, 3] * (count // 2)
    assert [i for i in range(count) if encoded[i] in after] == list(range(1, count, 2))


def test_replaced_text_is_gone_too(store: SqliteStore, path: Path) -> None:
    def add(writer: Writer) -> None:
        ns_id = writer.create_namespace(("a",), 1.0).ns_id
        row = replace(plain(ns_id, "one"), content="canary-before " * 700, metadata={"canary-k": 1})
        (key,) = writer.insert([row])
        writer.update(replace(row, key=key, content="after", metadata={}, status=Status.REFUTED))
        writer.set_meta("name", "canary-meta")
        writer.set_meta("name", None)
        writer.put_cell_snapshot(ns_id, b"canary-snapshot" * 3000)
        writer.put_cell_snapshot(ns_id, b"short")

    store.write(add)

    assert store.erase()
    assert b"canary" not in stored_bytes(path)


def test_a_reader_delays_erasing_and_then_it_succeeds(store: SqliteStore, path: Path) -> None:
    """Readers are bounded to a second, so waiting for them is enough."""
    store.write(lambda writer: writer.set_meta("name", "canary"))
    opened, release = threading.Event(), threading.Event()

    def read() -> None:
        with store.read() as reader:
            reader.meta("name")
            opened.set()
            release.wait(10)

    thread = threading.Thread(target=read)
    thread.start()
    opened.wait(10)
    store.write(lambda writer: writer.set_meta("name", None))
    threading.Timer(0.3, release.set).start()

    assert store.erase()
    assert b"canary" not in stored_bytes(path)
    thread.join()


def test_a_reader_of_another_process_that_stays_is_reported(store: SqliteStore, path: Path) -> None:
    """False is the honest answer: the receipt of a forget must not claim what isn't so."""
    script = (
        "import sys; from amv.stores.sqlite import SqliteStore\n"
        "store = SqliteStore.open(sys.argv[1])\n"
        "with store.read() as reader:\n"
        "    reader.meta('name'); print('reading', flush=True); sys.stdin.read()\n"
    )
    store.write(lambda writer: writer.set_meta("name", "kept"))
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    store.write(lambda writer: writer.set_meta("name", None))

    assert not store.erase()
    assert store.write(lambda writer: writer.meta("name")) is None

    process.communicate("")
    assert store.erase()


SECRET = b"canary-meta"


class Full:
    """Lets the log be copied into the database, or find the disk full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full, self.tried = True, 0
        run = Checkpointer._run

        def tried(checkpointer: Checkpointer, mode: int) -> None:
            self.tried += 1
            if self.is_full:
                raise apsw.FullError("the disk is full")
            run(checkpointer, mode)

        monkeypatch.setattr(Checkpointer, "_run", tried)


def leave_in_the_log(store: SqliteStore, path: Path) -> None:
    """Write what is secret, delete it and fail to erase it."""
    store.write(lambda writer: writer.set_meta("name", SECRET.decode()))
    store.write(lambda writer: writer.set_meta("name", None))
    with pytest.raises(StoreUnavailable, match=r"gone for every reader.*free some space") as raised:
        store.erase()
    assert "nothing was written" not in str(raised.value)
    assert SECRET in stored_bytes(path)


def fold_nothing(store: SqliteStore) -> None:
    assert store.fold(lambda writer, events: None) == 0


def test_what_could_not_be_erased_is_by_the_next_fold(
    store: SqliteStore,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody has to ask again: a sweep folds first, and upkeep sweeps every minute."""
    disk = Full(monkeypatch)
    leave_in_the_log(store, path)

    fold_nothing(store)
    assert "free some space" in caplog.text
    assert SECRET in stored_bytes(path)
    disk.is_full = False
    fold_nothing(store)

    assert SECRET not in stored_bytes(path)
    tried = disk.tried
    fold_nothing(store)
    assert disk.tried == tried


def test_what_a_process_could_not_erase_is_by_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been killed, or have closed while the disk was full, which is no error."""
    disk = Full(monkeypatch)
    with closing(SqliteStore.open(path)) as store:
        leave_in_the_log(store, path)
    assert "the next process tries: the disk is full" in caplog.text
    assert SECRET in stored_bytes(path)

    disk.is_full = False
    with closing(SqliteStore.open(path)) as store:
        fold_nothing(store)

        assert SECRET not in stored_bytes(path)


def delete_one(writer: Writer) -> None:
    writer.delete([row.key for row in writer.rows_with_id("one")])


def drop_all(writer: Writer) -> None:
    for ns in writer.namespaces():
        writer.drop_namespace(ns.ns_id)


@pytest.mark.parametrize("deletes", [delete_one, drop_all])
def test_what_any_write_deleted_is_erased_by_the_next_fold(
    store: SqliteStore, path: Path, deletes: Callable[[Writer], None]
) -> None:
    """Whoever deletes and does not ask to erase, such as an add over what has expired."""

    def add(writer: Writer) -> None:
        ns_id = writer.create_namespace(("a",), 1.0).ns_id
        writer.insert([replace(plain(ns_id, "one"), content=SECRET.decode())])

    store.write(add)
    store.write(deletes)
    assert SECRET in stored_bytes(path)

    fold_nothing(store)

    assert SECRET not in stored_bytes(path)


def test_what_is_deleted_while_the_log_is_emptied_is_owed_still(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stay until something else is deleted."""
    store.write(lambda writer: writer.create_namespace(("a",), 1.0))
    run = Checkpointer.copy_and_truncate
    others: list[threading.Thread] = []

    def meanwhile(checkpointer: Checkpointer) -> bool:
        done = run(checkpointer)
        if not others:
            # It gets its turn once the log is empty.
            others.append(threading.Thread(target=store.write, args=(drop_all,)))
            others[0].start()
        return done

    monkeypatch.setattr(Checkpointer, "copy_and_truncate", meanwhile)
    assert store.erase()
    others[0].join()
    assert (path.parent / "amv.db-wal").stat().st_size > 0

    fold_nothing(store)

    assert (path.parent / "amv.db-wal").stat().st_size == 0


def test_on_a_full_disk_nobody_is_told_of_what_was_never_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that was left is emptied in case something in it was deleted, which is rare."""
    caplog.set_level("INFO")
    disk = Full(monkeypatch)
    with closing(SqliteStore.open(path)) as store:
        store.write(lambda writer: writer.set_meta("name", "kept"))
    caplog.clear()
    with closing(SqliteStore.open(path)) as store:
        fold_nothing(store)

        assert disk.tried == 2
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "an earlier process can't be emptied yet" in caplog.text


def test_a_fold_waits_for_no_reader_where_nothing_is_owed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting the log waits for readers, which folding must not do without need."""
    disk = Full(monkeypatch)
    with closing(SqliteStore.open(path)) as store:
        store.write(lambda writer: writer.set_meta("name", "kept"))
        fold_nothing(store)

        assert disk.tried == 0


# ---------------------------------------------------------------- pages


def page(kind: int, cells: int, content_start: int, start: int = 0) -> bytearray:
    content = bytearray(b"\xee" * 8192)
    content[start] = kind
    content[start + 3 : start + 5] = cells.to_bytes(2)
    content[start + 5 : start + 7] = content_start.to_bytes(2)
    return content


@pytest.mark.parametrize(("kind", "header_bytes"), [(2, 12), (5, 12), (10, 8), (13, 8)])
@pytest.mark.parametrize("start", [0, 100])
def test_a_page_loses_its_gap_and_nothing_else(kind: int, header_bytes: int, start: int) -> None:
    before = bytes(page(kind, 3, 5000, start))

    after = cleaned(before, is_first=start == 100)

    gap = start + header_bytes + 6
    assert after == before[:gap] + bytes(5000 - gap) + before[5000:]


def make_overflow(content: bytearray) -> None:
    content[0] = 0


def make_overfull(content: bytearray) -> None:
    content[5:7] = (9000).to_bytes(2)


def make_no_gap(content: bytearray) -> None:
    content[5:7] = (14).to_bytes(2)


@pytest.mark.parametrize("change", [make_overflow, make_overfull, make_no_gap])
def test_any_other_page_is_written_as_it_is(change: Callable[[bytearray], None]) -> None:
    """A page that makes no sense is SQLite's to report, not ours to alter."""
    content = page(13, 3, 5000)
    change(content)

    assert cleaned(bytes(content), is_first=False) == bytes(content)
