"""Connections: how one is opened, and what its errors mean to a caller."""

import random
import time
from typing import Literal

import apsw

from amv.errors import ConfigError, SchemaMismatch, StoreError, StoreUnavailable

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
    vfs: str | None = None,
) -> apsw.Connection:
    """Open the database file as every connection of a store is opened.

    One on the default file system runs no checkpoint, also not when it is
    closed: that is left to `checkpoint`, which passes its own.
    """
    flags = (
        apsw.SQLITE_OPEN_READONLY
        if is_read_only
        else (apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    )
    # One thread at a time uses a connection, which the store sees to.
    connection = apsw.Connection(
        path,
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


def mapped(error: apsw.Error, what: str) -> StoreError:
    """Return the error to raise for one of the driver's, which becomes its cause."""
    text = f"{what}: {error}"
    if isinstance(error, _BUSY):
        return StoreUnavailable(f"{text}; another process holds the database, try again")
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(f"{text}; nothing was written, free some space and try again")
    if isinstance(error, _UNWRITTEN):
        return StoreUnavailable(text)
    if isinstance(error, apsw.CorruptError):
        return StoreError(f"{text}; run `amv doctor` on the file")
    if isinstance(error, apsw.NotADBError):
        return SchemaMismatch(f"{text}; the file is not an AMV database, or is damaged")
    return StoreError(text)
