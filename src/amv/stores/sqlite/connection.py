"""Connections: how one is opened, and what its errors mean to a caller."""

import os
import random
import time
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import apsw

from amv.errors import (
    ConfigError,
    SchemaMismatch,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)

Synchronous = Literal["FULL", "NORMAL"]

PAGE_BYTES = 8192

#: Enough for what holds a database for a moment: opening, recovery, the last one's closing.
_BUSY_TIMEOUT_MS = 5000
_STATEMENTS_CACHED = 256
_CACHE_KIB = 16_384
_WAL_KEPT_BYTES = 64 << 20

#: A bug in these could corrupt a database when a checkpoint met a write (WAL reset).
_UNSAFE = ((3, 7, 0), (3, 51, 2))

_BUSY = (apsw.BusyError, apsw.LockedError)
_UNWRITTEN = (apsw.FullError, apsw.CantOpenError, apsw.NoMemError)


def check_library(version: str) -> None:
    """Raise ConfigError for a SQLite that could lose data.

    >>> check_library("3.51.3")
    """
    number = tuple(int(part) for part in version.split(".")[:3])
    if _UNSAFE[0] <= number <= _UNSAFE[1]:
        raise ConfigError(
            f"SQLite {version} can corrupt a database in WAL mode; "
            "install apsw >= 3.51.3, which brings its own SQLite"
        )


def connect(
    path: str,
    *,
    synchronous: Synchronous,
    is_read_only: bool = False,
    is_frozen: bool = False,
    makes_it: bool = False,
    vfs: str | None = None,
) -> apsw.Connection:
    """Open the database file as every connection of a store is opened.

    One on the default file system runs no checkpoint, also not when it is
    closed: that is left to `checkpoint`, which passes its own.  A *frozen* file
    is read as it lies there, without locks and without its log; see `Frozen`.
    Only who *makes_it* gets a new file where there is none, not any more say.
    """
    flags = (
        apsw.SQLITE_OPEN_READONLY
        if is_read_only
        else (apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if makes_it else 0))
    )
    # One thread at a time uses a connection, which the store sees to.
    if is_frozen:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(
        f"file:{quote(path)}?immutable=1" if is_frozen else path,
        flags=flags | apsw.SQLITE_OPEN_NOMUTEX,
        vfs=vfs,
        statementcachesize=_STATEMENTS_CACHED,
    )
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    connection.wal_autocheckpoint(0)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(vfs is None))
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    return connection


class Frozen:
    """What tells whether a file that is read without locks was written to since.

    What is written goes to the log first, and from there into the file, so it is
    enough to look at both; before a snapshot, and once more after it, as what it
    read may have been written meanwhile.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._look()

    def check(self) -> None:
        """Raise StoreUnavailable if the file is not what it was."""
        if self._look() != self._seen:
            raise StoreUnavailable(
                f"{self._path!r} is written to by another process, which was opened here when it "
                "could only be read; open it again"
            )

    def _look(self) -> tuple[int, int, int]:
        status = os.stat(self._path)
        return status.st_mtime_ns, status.st_size, log_bytes(self._path)


def log_bytes(path: str) -> int:
    """Return how much of a database is in its logs only."""
    return sum(file_bytes(Path(path + ending)) for ending in ("-wal", "-journal"))


def file_bytes(path: Path) -> int:
    """Return how large a file is; 0 if it is not there, or not any more."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class BusyWait:
    """What a connection does while another process holds the lock: asks again, soon, for a while.

    SQLite's own handler pauses up to 100 ms, in which a busy process gives the
    lock away and takes it back many times.
    """

    def __init__(self) -> None:
        self.deadline_s = 0.0

    def __call__(self, _attempts: int) -> bool:
        """Pause and return True; False once the deadline has passed."""
        if time.monotonic() >= self.deadline_s:
            return False
        time.sleep(random.uniform(0.0003, 0.002))
        return True


def is_of_full_disk(error: apsw.Error) -> bool:
    """Return whether the disk was full; SQLite has an error of its own for shared memory."""
    return (
        isinstance(error, apsw.FullError)
        or getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE
    )


def mapped(error: apsw.Error, what: str) -> StoreError:
    """Return the error to raise for one of the driver's, which becomes its cause."""
    text = f"{what}: {error}"
    if isinstance(error, _BUSY):
        return StoreUnavailable(f"{text}; another process holds the database, try again")
    if is_of_full_disk(error):
        return StoreUnavailable(
            f"{what}: the disk is full, or fails ({error}); nothing was written, free some space "
            "and try again"
        )
    if isinstance(error, apsw.ReadOnlyError):
        return StoreUnavailable(
            f"{text}; the file must be writable, and its folder, for the log beside it"
        )
    if isinstance(error, _UNWRITTEN):
        return StoreUnavailable(text)
    if isinstance(error, apsw.CorruptError):
        return StoreDamaged(f"{text}; run `amv doctor` on the file")
    if isinstance(error, apsw.NotADBError):
        return SchemaMismatch(f"{text}; the file is not an AMV database, or is damaged")
    return StoreError(text)
