"""Writing: what is shared, what is undone, and what a caller is told when the disk fails."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from amv.errors import OutcomeUnknown, StoreClosed, StoreError, StoreUnavailable
from amv.memory.ports import Writer
from amv.stores.sqlite import SqliteStore, checkpoint
from amv.stores.sqlite.checkpoint import VFS, Checkpointer
from amv.stores.sqlite.committer import Committer
from amv.stores.sqlite.connection import connect


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of a database that exists."""
    path = str(tmp_path / "amv.db")
    SqliteStore.open(path).close()
    return path


@pytest.fixture
def store(path: str) -> Iterator[SqliteStore]:
    store = SqliteStore.open(path, busy_timeout_s=0.3)
    yield store
    store.close()


def put(name: str) -> Callable[[Writer], str]:
    """Return a work that keeps a setting and returns its name."""

    def work(writer: Writer) -> str:
        writer.set_meta(name, "kept")
        return name

    return work


def kept(path: str) -> set[str]:
    """Return the settings that a new connection sees."""
    with closing(apsw.Connection(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM meta")}


class Journal:
    """Commits counted by SQLite's own hook, which can also refuse one."""

    def __init__(self, path: str, **options: str) -> None:
        self.commits = 0
        self.refuse = False
        self._open = partial(connect, path, synchronous="FULL", **options)  # type: ignore[arg-type]

    def connect(self) -> apsw.Connection:
        connection = self._open()
        connection.set_commit_hook(self._on_commit)
        return connection

    def _on_commit(self) -> bool:
        self.commits += 1
        return self.refuse


def committer(path: str, journal: Journal) -> Committer:
    checkpointer = Checkpointer(partial(connect, path, synchronous="FULL", vfs=VFS))
    return Committer(journal.connect, checkpointer, busy_timeout_s=5.0)


def slowly(writer: Writer) -> None:
    """Take so long that others queue up."""
    time.sleep(0.2)
    writer.set_meta("slow", "kept")


# ---------------------------------------------------------------- sharing


def test_threads_that_write_at_once_share_commits(path: str) -> None:
    """Counted, not timed: one fsync for many is what makes many small writes fast."""
    journal = Journal(path)
    writes = committer(path, journal)
    names = [f"name{i}" for i in range(40)]

    with ThreadPoolExecutor(41) as threads:
        first = threads.submit(writes.write, slowly)
        rest = list(threads.map(writes.write, map(put, names)))
        first.result()

    assert rest == names
    assert kept(path) == {"slow", *names}
    assert journal.commits <= 20
    writes.close()


def test_a_thread_alone_commits_each_write(path: str) -> None:
    """The control of the test above, and the promise: nobody returns before the commit."""
    journal = Journal(path)
    writes = committer(path, journal)

    for i in range(5):
        writes.write(put(f"name{i}"))
        assert journal.commits == i + 1

    writes.close()


def test_a_write_that_fails_undoes_itself_and_not_its_neighbours(path: str) -> None:
    """They may be in one transaction, each in a savepoint of its own."""
    journal = Journal(path)
    writes = committer(path, journal)

    def fail(name: str) -> None:
        def work(writer: Writer) -> None:
            writer.set_meta(name, "never")
            raise KeyboardInterrupt if name.endswith("0") else ValueError(name)

        with pytest.raises((ValueError, KeyboardInterrupt)):
            writes.write(work)

    with ThreadPoolExecutor(41) as threads:
        first = threads.submit(writes.write, slowly)
        failing = [threads.submit(fail, f"bad{i}") for i in range(20)]
        working = [threads.submit(writes.write, put(f"good{i}")) for i in range(20)]
        first.result()
        for failed in failing:
            failed.result()
        for worked in working:
            worked.result()

    assert kept(path) == {"slow", *(f"good{i}" for i in range(20))}
    assert journal.commits < 21
    writes.close()


def test_every_write_is_seen_by_its_own_thread_as_soon_as_it_returns(store: SqliteStore) -> None:
    """Also while others commit in between: a reader's snapshot is taken after the commit."""

    def write_and_read(thread: int) -> int:
        missing = 0
        for i in range(25):
            name = f"{thread}/{i}"
            store.write(put(name))
            with store.read() as reader:
                missing += reader.meta(name) is None
        return missing

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(write_and_read, range(8))) == 0


def test_two_processes_that_write_at_once_lose_nothing(path: str) -> None:
    script = (
        "import sys; from amv.stores.sqlite import SqliteStore\n"
        "store = SqliteStore.open(sys.argv[1])\n"
        "for i in range(150):\n"
        "    store.write(lambda w: w.set_meta(f'{sys.argv[2]}/{i}', 'kept'))\n"
        "store.close()"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, path, str(number)]) for number in range(2)
    ]

    assert [process.wait(60) for process in processes] == [0, 0]
    assert kept(path) == {f"{number}/{i}" for number in range(2) for i in range(150)}


# ---------------------------------------------------------------- refusals


def test_a_write_inside_a_write_is_refused(store: SqliteStore) -> None:
    """It would wait for itself."""
    with pytest.raises(StoreError, match="inside a write"):
        store.write(lambda _: store.write(put("inner")))

    assert store.write(put("later")) == "later"


def test_a_database_that_another_process_keeps_busy_is_unavailable(
    store: SqliteStore, path: str
) -> None:
    """The caller may try again: it is certain that nothing was written."""
    with closing(apsw.Connection(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="try again") as caught:
            store.write(put("name"))
        other.execute("ROLLBACK")

    assert isinstance(caught.value.__cause__, apsw.BusyError)
    assert kept(path) == set()
    assert store.write(put("name")) == "name"


def test_threads_that_queue_behind_a_busy_database_all_return_in_time(
    store: SqliteStore, path: str
) -> None:
    """Each waits for its own deadline, not one after another."""
    with closing(apsw.Connection(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        started_s = time.monotonic()
        with ThreadPoolExecutor(10) as threads:
            futures = [threads.submit(store.write, put(f"name{i}")) for i in range(10)]
            errors = [future.exception() for future in futures]
        took_s = time.monotonic() - started_s
        other.execute("ROLLBACK")

    assert [type(error) for error in errors] == [StoreUnavailable] * 10
    assert took_s < 2.0
    assert kept(path) == set()


def test_a_closed_store_says_so(store: SqliteStore) -> None:
    store.close()

    with pytest.raises(StoreClosed):
        store.write(put("name"))


def test_closing_lets_writes_under_way_finish(path: str) -> None:
    """Each of them either happened or was told that it didn't."""
    store = SqliteStore.open(path)
    outcomes: list[str] = []

    def write_until_closed(thread: int) -> None:
        for i in range(10_000):
            try:
                outcomes.append(store.write(put(f"{thread}/{i}")))
            except StoreClosed:
                return

    threads = [threading.Thread(target=write_until_closed, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    store.close()
    for thread in threads:
        thread.join(10)

    assert not any(thread.is_alive() for thread in threads)
    assert kept(path) == set(outcomes)


# ---------------------------------------------------------------- faults


def test_when_a_commit_fails_all_in_the_group_are_told_that_the_outcome_is_unknown(
    path: str,
) -> None:
    """Never an acknowledgement, and never a promise that nothing happened."""
    journal = Journal(path)
    writes = committer(path, journal)
    journal.refuse = True

    with ThreadPoolExecutor(11) as threads:
        works: list[Callable[[Writer], object]] = [slowly, *(put(f"name{i}") for i in range(10))]
        futures = [threads.submit(writes.write, work) for work in works]
        errors = [future.exception() for future in futures]

    assert [type(error) for error in errors] == [OutcomeUnknown] * 11
    assert all(isinstance(error.__cause__, apsw.Error) for error in errors if error)
    assert len({id(error) for error in errors}) == 11
    assert journal.commits < 11

    journal.refuse = False
    assert writes.write(put("later")) == "later"
    assert kept(path) == {"later"}
    writes.close()


class FaultyFile(apsw.VFSFile):
    """A write-ahead log on a disk that fails when told to."""

    fault: type[apsw.Error] | None = None
    in_sync = False
    injected = 0

    def xWrite(self, data: bytes, offset: int) -> None:
        self._fail(in_sync=False)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._fail(in_sync=True)
        super().xSync(flags)

    def _fail(self, *, in_sync: bool) -> None:
        if FaultyFile.fault is not None and FaultyFile.in_sync is in_sync:
            FaultyFile.injected += 1
            raise FaultyFile.fault("injected")


class FaultyVFS(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("faulty", "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        kind = FaultyFile if flags[0] & apsw.SQLITE_OPEN_WAL else apsw.VFSFile
        return kind("", name, flags)


@pytest.fixture
def faulty() -> Iterator[type[FaultyFile]]:
    vfs = FaultyVFS()
    FaultyFile.injected = 0
    yield FaultyFile
    FaultyFile.fault = None
    vfs.unregister()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", [apsw.IOError, apsw.FullError])
@pytest.mark.parametrize("in_sync", [False, True])
def test_a_disk_that_fails_is_never_acknowledged_and_the_store_recovers(
    path: str, faulty: type[FaultyFile], fault: type[apsw.Error], in_sync: bool
) -> None:
    """Whatever is there afterwards, the caller was told that it may or may not be."""
    journal = Journal(path, vfs="faulty")
    writes = committer(path, journal)
    writes.write(put("before"))

    faulty.fault, faulty.in_sync = fault, in_sync
    with pytest.raises(StoreError) as caught:
        writes.write(put("during"))
    faulty.fault = None

    assert faulty.injected > 0
    assert isinstance(caught.value, OutcomeUnknown)
    assert isinstance(caught.value.__cause__, apsw.Error)
    assert writes.write(put("after")) == "after"
    assert {"before", "after"} <= kept(path)
    with closing(apsw.Connection(path)) as other:
        assert other.execute("PRAGMA integrity_check").get == "ok"
    writes.close()


def test_a_full_disk_within_a_write_is_unavailable_and_leaves_nothing(
    store: SqliteStore, path: str
) -> None:
    """Nothing was committed, so it is certain; reads go on, and so do writes once there is room."""

    def fill(writer: Writer) -> None:
        pages = writer.execute("PRAGMA page_count").get  # type: ignore[attr-defined]
        writer.execute(f"PRAGMA max_page_count = {pages + 3}")  # type: ignore[attr-defined]
        writer.set_meta("big", "x" * 1_000_000)

    with pytest.raises(StoreUnavailable, match="nothing was written") as caught:
        store.write(fill)

    assert isinstance(caught.value.__cause__, apsw.FullError)
    with store.read() as reader:
        assert reader.meta("big") is None

    store.write(lambda w: w.execute("PRAGMA max_page_count = 1000000"))  # type: ignore[attr-defined]
    assert store.write(put("later")) == "later"


# ---------------------------------------------------------------- copying the log


def written(path: str) -> Checkpointer:
    """Return what copies the log of a database in which there is something to copy."""
    checkpointer = Checkpointer(partial(connect, path, synchronous="FULL", vfs=VFS))
    checkpointer.copy()
    with closing(connect(path, synchronous="FULL")) as connection:
        connection.execute("CREATE TABLE more (name TEXT)")
    return checkpointer


def test_a_copied_log_is_synced_while_other_threads_go_on(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.fdatasync` lets go of Python's lock, which the sync of a layer over SQLite holds."""
    checkpointer, synced = written(path), list[str]()
    sync = os.fdatasync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    checkpointer.copy()
    checkpointer.close()

    assert synced[0] == os.path.realpath(path)


@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.EBADF, False)])
def test_a_sync_that_fails_is_not_taken_for_one(
    path: str, monkeypatch: pytest.MonkeyPatch, number: int, fails: bool
) -> None:
    """The system tells of an error once: asked again, it would say that all is well."""
    checkpointer = written(path)

    def failing(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        if fails:
            with pytest.raises(apsw.IOError):
                checkpointer.copy()
        else:
            checkpointer.copy()
    checkpointer.copy()
    checkpointer.close()


@pytest.mark.parametrize(("answers", "synced"), [((False,), 0), ((True, False), 1)])
def test_a_descriptor_of_another_file_is_no_stand_in(
    path: str, monkeypatch: pytest.MonkeyPatch, answers: tuple[bool, ...], synced: int
) -> None:
    """Before the sync or after it: then the layer syncs what it has written to, as ever."""
    checkpointer, left, done = written(path), iter(answers), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_is_of", lambda descriptor, path: next(left))
        patch.setattr(os, "fdatasync", done.append)
        checkpointer.copy()

    assert (len(done), list(left)) == (synced, [])
    checkpointer.close()


def test_without_a_list_of_descriptors_the_layer_syncs_by_itself(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the system has none; nothing may then be synced that is not the database."""
    monkeypatch.setattr(checkpoint, "_DESCRIPTORS", "/nowhere")
    checkpointer = written(path)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: pytest.fail("synced what?"))

    checkpointer.copy()
    checkpointer.close()
