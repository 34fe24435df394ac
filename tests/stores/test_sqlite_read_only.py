"""A file that can only be read: it is read, and nothing is left beside it."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import amv
from amv.errors import SchemaMismatch, StoreClosed, StoreError, StoreUnavailable
from amv.memory.ports import Event
from amv.memory.value import EventKind
from amv.stores.sqlite import SqliteStore

Lock = Callable[[Path], None]


def lock_file(path: Path) -> None:
    path.chmod(0o444)


def lock_folder(path: Path) -> None:
    path.parent.chmod(0o555)


def unlock(path: Path) -> None:
    path.parent.chmod(0o755)
    path.chmod(0o644)


@pytest.fixture(autouse=True)
def modes_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let modes say what may be written, as they do to all but root."""

    def access(path: str, mode: int) -> bool:
        with suppress(FileNotFoundError):
            return bool(os.stat(path).st_mode & 0o200)
        return False

    assert not access("/nowhere/at/all", os.W_OK)
    monkeypatch.setattr(os, "access", access)


@pytest.fixture
def kept(path: Path) -> Iterator[Path]:
    """Give the path of a database that holds something, and nobody has open."""
    with closing(SqliteStore.open(path)) as store:
        store.write(lambda writer: writer.set_meta("name", "kept"))
    yield path
    unlock(path)


def name_in(store: SqliteStore) -> str | None:
    with store.read() as reader:
        return reader.meta("name")


@pytest.mark.parametrize("lock", [lock_file, lock_folder])
def test_what_may_not_be_written_is_read_and_left_as_it_is(kept: Path, lock: Lock) -> None:
    """A log of ours beside it could keep its owner from opening it."""
    lock(kept)
    before = {file.name: file.read_bytes() for file in kept.parent.iterdir()}

    with closing(SqliteStore.open(kept)) as store:
        assert store.is_read_only
        assert name_in(store) == "kept"
        store.log([Event(1, 1, EventKind.EXPOSED, 1.0)])
        assert store.fold(lambda writer, events: None) == 0
        assert store.check() == []
        for call in (lambda: store.write(lambda writer: None), store.erase):
            with pytest.raises(StoreError, match=r"can only be read: .* not writable"):
                call()

    assert {file.name: file.read_bytes() for file in kept.parent.iterdir()} == before
    with pytest.raises(StoreClosed):
        store.write(lambda writer: None)


def test_what_others_write_at_the_time_is_read_from_their_log(kept: Path) -> None:
    """They may write what we may not."""
    with closing(SqliteStore.open(kept)) as writing:
        writing.write(lambda writer: writer.set_meta("name", "new"))
        lock_file(kept)

        with closing(SqliteStore.open(kept)) as store:
            assert name_in(store) == "new"
            writing.write(lambda writer: writer.set_meta("name", "newer"))
            assert name_in(store) == "newer"
            with pytest.raises(StoreError, match="can only be read"):
                store.write(lambda writer: None)


def test_who_reads_without_locks_is_told_when_the_file_is_written(kept: Path) -> None:
    """What it reads may be of two moments; opened again it takes part in the locking."""
    lock_file(kept)
    with closing(SqliteStore.open(kept)) as store:
        unlock(kept)
        with closing(SqliteStore.open(kept)) as writing:
            with (  # noqa: PT012
                pytest.raises(StoreUnavailable, match="open it again"),
                store.read() as reader,
            ):
                assert reader.meta("name") == "kept"
                writing.write(lambda writer: writer.set_meta("name", "new"))
            with pytest.raises(StoreUnavailable, match="open it again"):
                name_in(store)
            lock_file(kept)
            with closing(SqliteStore.open(kept)) as again:
                assert name_in(again) == "new"


def test_a_new_file_needs_a_folder_to_write_to(path: Path) -> None:
    path.parent.chmod(0o555)
    try:
        with pytest.raises(StoreUnavailable, match=r"can't be made: its folder .* not writable"):
            SqliteStore.open(path)
    finally:
        path.parent.chmod(0o755)


def test_what_is_no_database_is_refused_when_read_only_too(path: Path) -> None:
    path.write_bytes(b"")
    lock_file(path)

    with pytest.raises(SchemaMismatch, match="not an AMV database"):
        SqliteStore.open(path)


@pytest.mark.parametrize("lock", [lock_file, lock_folder])
def test_a_memory_that_can_only_be_read_answers(
    path: Path, lock: Lock, caplog: pytest.LogCaptureFixture
) -> None:
    """Quietly, and without upkeep, which would fail every few seconds."""
    with amv.Memory.open(str(path), embedder="hashing") as memory:
        item = memory.add("Alice moved to Rome", namespace=("alice",))
    lock(path)
    before = sorted(os.listdir(path.parent))

    with amv.Memory.open(str(path)) as memory:
        assert memory._upkeep is None
        assert memory.search("Rome", namespace=("alice",)).hits[0].item.id == item.id
        assert "Rome" in memory.context("Rome", namespace=("alice",)).text
        assert [line["id"] for line in memory.export_items()] == [item.id]
        assert memory.sweep().moves == ()
        with pytest.raises(StoreError, match="can only be read"):
            memory.add("more", namespace=("alice",))
        with pytest.raises(StoreError, match="can only be read"):
            memory.forget(item.id)

    unlock(path)
    assert caplog.records == []
    assert sorted(os.listdir(path.parent)) == before
