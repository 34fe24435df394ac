"""A store in one SQLite file: durable, shared by threads and processes."""

import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from amv.checks import check_independent
from amv.errors import StoreClosed, StoreDamaged, StoreError, StoreUnavailable
from amv.memory.ports import Event, Reader, Writer
from amv.stores.sqlite.check import problems
from amv.stores.sqlite.checkpoint import VFS, Checkpointer, register_vfs
from amv.stores.sqlite.committer import Committer
from amv.stores.sqlite.connection import (
    Frozen,
    Synchronous,
    check_library,
    connect,
    file_bytes,
    is_of_full_disk,
    log_bytes,
    mapped,
)
from amv.stores.sqlite.events import EventLog
from amv.stores.sqlite.migrate import check_file, check_schema, migrate
from amv.stores.sqlite.pool import ReaderPool, Snapshot
from amv.stores.sqlite.writer import SqliteWriter

T = TypeVar("T")

_log = logging.getLogger("amv")

_ERASE_TIMEOUT_S = 2.0

#: A disk with less is full; with more, an error that says so is of a moment.
_ROOM_BYTES = 1 << 16


class SqliteStore:
    """A `Store` in the file at *path*; use `open`.

    A store belongs to the process that opened it: after a fork, the child opens
    its own.
    """

    def __init__(
        self,
        path: str,
        committer: Committer,
        pool: ReaderPool,
        *,
        read_only: StoreError | None,
    ) -> None:
        self.path = path
        self._committer = committer
        self._pool = pool
        self._events = EventLog(path)
        self._read_only = read_only
        self._is_closed = False
        # What another process left in the log may be of what was deleted.
        self._owes_erasure = file_bytes(Path(path + "-wal")) > 0
        self._has_deleted = False
        self._pid = os.getpid()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        readers_max: int = 8,
        read_only: bool = False,
        busy_timeout_s: float = 10.0,
    ) -> "SqliteStore":
        """Open the database, made if missing; its folder must exist.

        One that may not be written, and one that nobody has open while the disk
        is full, is opened to be read only: then nothing is written beside it.

        Args:
            path: the database file; its logs stand beside it.
            synchronous: FULL loses no acknowledged write; NORMAL may lose the
                last ones on power loss, and is faster.
            readers_max: how many snapshots may be open at once; more wait.
            read_only: refuse to write, and keep no events.
            busy_timeout_s: how long to wait while another process writes.

        Raises:
            ConfigError: for a missing folder or an unsafe SQLite.
            SchemaMismatch: for a file that is not an AMV database, or a newer one.
            StoreUnavailable: when another process keeps the file locked.
        """
        check_library(apsw.sqlite_lib_version())
        # As SQLite sees it: through another link, the logs must be the same files.
        absolute = os.path.realpath(os.fspath(path))
        check_file(absolute)
        if read_only and not Path(absolute).is_file():
            raise StoreUnavailable(f"there is no database at {absolute!r} to read")
        register_vfs()
        opened_to_checkpoint = partial(connect, absolute, synchronous=synchronous, vfs=VFS)
        try:
            way = _way_in(absolute, synchronous, busy_timeout_s, read_only=read_only)
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            # What SQLite says of a damaged schema quotes it, which need not be text.
            said = error if isinstance(error, apsw.Error) else "its schema is damaged"
            raise StoreDamaged(
                f"{absolute!r} is damaged so far that it can't be opened: {said}; restore a "
                "backup, or an export; the recovery of SQLite's own shell may save some of it"
            ) from error
        except apsw.Error as error:
            raise mapped(error, f"{absolute!r} could not be opened") from error
        return cls(
            absolute,
            Committer(way.opened, Checkpointer(opened_to_checkpoint), busy_timeout_s),
            ReaderPool(way.opened, readers_max, busy_timeout_s, way.frozen),
            read_only=way.read_only,
        )

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened so, or could be opened in no other way."""
        return self._read_only is not None

    def read(self) -> AbstractContextManager[Reader]:
        """Open a snapshot, for use by one thread; it is taken by the first thing read."""
        check_independent()
        self._check_process()
        return Snapshot(self._pool)

    def write(self, work: Callable[[Writer], T]) -> T:
        """Run *work* in a transaction; return its result once the change is durable.

        Raises:
            StoreUnavailable: nothing was written; a retry is safe.
            OutcomeUnknown: the commit failed; the change may or may not be there.
            StoreClosed: after `close`.
        """
        check_independent()
        self._check_writable()
        deletions = 0

        def counted(writer: SqliteWriter) -> T:
            nonlocal deletions
            before = writer.deletions
            try:
                return work(writer)
            finally:
                deletions = writer.deletions - before

        try:
            return self._committer.write(counted)
        finally:
            # Only now: a log that was emptied before the commit did not hold it yet.
            if deletions:
                self._has_deleted = self._owes_erasure = True

    def log(self, events: Sequence[Event]) -> None:
        """Keep value events; they reach their log within 250 ms."""
        self._check_process()
        if not self.is_read_only:
            self._events.append(events)

    def fold(self, apply: Callable[[Writer, Sequence[Event]], None]) -> int:
        """Apply logged events, each exactly once; return how many.

        Then empty the write-ahead log, if something was deleted and not erased since,
        or if a process before left one.
        """
        self._check_process()
        self._check_open()
        if self.is_read_only:
            return 0
        count = self._events.fold(self._committer.write, apply)
        self._erase_owed()
        return count

    def _erase_owed(self) -> None:
        if not self._owes_erasure:
            return
        try:
            self._has_emptied_log()
        except StoreError as error:
            if self._has_deleted:
                _log.warning("%s", error)
            else:
                # Who deleted what is in there, if anybody did, was told so.
                _log.info("the log of an earlier process can't be emptied yet: %s", error)

    def _has_emptied_log(self) -> bool:
        # First, so that what another thread deletes meanwhile is owed still.
        self._owes_erasure, is_empty = False, False
        try:
            is_empty = self._committer.truncate_log()
        finally:
            if not is_empty:
                self._owes_erasure = True
        return is_empty

    @property
    def lost_events(self) -> int:
        """How many value events this process dropped because they could not be written."""
        return self._events.lost

    @property
    def corrupt_events(self) -> int:
        """How many damaged records of value events this process came across."""
        return self._events.corrupt

    def unfolded(self) -> int:
        self._check_open()
        return self._events.unfolded()

    def erase(self) -> bool:
        """Empty the write-ahead log; False if a reader kept it from being so for 2 s."""
        self._check_writable()
        deadline_s = time.monotonic() + _ERASE_TIMEOUT_S
        self._has_deleted = True
        while True:
            if self._has_emptied_log():
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.01)

    def size_bytes(self) -> int:
        """Return how much the database and its logs take on disk."""
        self._check_open()
        files = [Path(self.path + ending) for ending in ("", "-wal", "-shm")]
        return sum(map(file_bytes, files)) + self._events.size_bytes()

    def check(self) -> list[str]:
        """Return what is wrong: the file itself, totals, and what should refer to what."""
        self._check_process()
        found: list[str] = []
        try:
            with Snapshot(self._pool) as reader:
                for problem in problems(reader.execute):
                    found.append(problem)
                return found
        except UnicodeDecodeError as error:
            return [*found, f"the file is damaged: there is text where none may be: {error}"]
        except StoreError as error:
            if isinstance(error.__cause__, apsw.CorruptError):
                return [f"the file is damaged: {error.__cause__}"]
            raise

    def close(self) -> None:
        """Finish what is under way and close the files; closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._pool.close()
        try:
            self._events.close()
        finally:
            # Last, so that the log is copied into the database and removed.
            if not self.is_read_only:
                self._committer.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store was closed; open it again")

    def _check_writable(self) -> None:
        self._check_process()
        if self._read_only is not None:
            self._check_open()
            # An exception object belongs to one thread, so each gets its own.
            raise type(self._read_only)(*self._read_only.args) from self._read_only.__cause__

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("the store was opened before a fork; open it again in this process")


class _Way(NamedTuple):
    """How to connect to a database; *read_only* is why nothing can be written."""

    opened: Callable[[], apsw.Connection]
    read_only: StoreError | None = None
    frozen: Frozen | None = None


def _way_in(path: str, synchronous: Synchronous, timeout_s: float, *, read_only: bool) -> _Way:
    """Return how a database can be opened, after that was tried."""
    deadline_s = time.monotonic() + timeout_s
    why = StoreError("the store was opened to be read only") if read_only else _unwritable(path)
    opened = partial(connect, path, synchronous=synchronous, is_read_only=why is not None)
    # Whoever reads leaves no files beside what others own.
    is_frozen = why is not None and not read_only and not os.path.exists(path + "-wal")
    try:
        if not is_frozen:
            _prepare(partial(opened, makes_it=True), path, deadline_s, is_read_only=why is not None)
            return _Way(opened, why)
    except (apsw.IOError, apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
        if is_of_full_disk(error) and shutil.disk_usage(os.path.dirname(path)).free < _ROOM_BYTES:
            why = StoreUnavailable(
                f"the disk was full when {path!r} was opened, so that it can only be read; "
                "nothing was written, free some space and open it again"
            )
            why.__cause__ = error
        if why is None or not file_bytes(Path(path)):
            raise
        if log_bytes(path):
            raise StoreUnavailable(
                f"{why}; and what is in its log can't be read: {error}"
            ) from error
    if isinstance(why, StoreUnavailable):
        _log.warning("%s", why)
    frozen = Frozen(path)
    opened = partial(connect, path, synchronous=synchronous, is_frozen=True)
    _prepare(opened, path, deadline_s, is_read_only=True)
    return _Way(opened, why, frozen)


def _unwritable(path: str) -> StoreError | None:
    """Return why this process may not write a database; None if it may."""
    folder = os.path.dirname(path)
    is_there = os.path.exists(path)
    has_logs = all(os.access(path + ending, os.W_OK) for ending in ("-wal", "-shm"))
    if is_there and not os.access(path, os.W_OK):
        what = "it is not writable"
    elif not os.access(folder, os.W_OK) and not (is_there and has_logs):
        what = f"its folder {folder!r} is not writable, where its log stands"
    else:
        return None
    if not is_there:
        raise StoreUnavailable(f"{path!r} can't be made: {what}")
    return StoreError(f"{path!r} can only be read: {what}")


def _prepare(
    opened: Callable[[], apsw.Connection], path: str, deadline_s: float, *, is_read_only: bool
) -> None:
    connection = opened()
    try:
        connection.set_busy_timeout(max(1, int(1000 * (deadline_s - time.monotonic()))))
        if is_read_only:
            check_schema(connection, path)
        else:
            migrate(connection, path, deadline_s)
    finally:
        connection.close()
