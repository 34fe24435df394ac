"""Reading: a pool of connections, one for each snapshot that is open at once."""

import threading
import time
from collections.abc import Callable
from types import TracebackType

import apsw

from amv.errors import StoreClosed, StoreUnavailable
from amv.stores.sqlite.connection import Frozen, mapped
from amv.stores.sqlite.reader import SqliteReader

#: Each has a cache of its own, which a write by any connection empties; the
#: operating system's is shared, and a read from it takes a microsecond or two.
_CACHE_KIB = 4096


class _Connected:
    """A reader and its connection."""

    __slots__ = ("connection", "execute", "reader")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.reader = SqliteReader(connection)


class ReaderPool:
    """At most *readers_max* connections that only read; the last one used is used next."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        readers_max: int,
        timeout_s: float,
        frozen: Frozen | None = None,
    ) -> None:
        self._connect = connect
        self._frozen = frozen
        self._readers_max = readers_max
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._idle: list[_Connected] = []
        self._count = 0
        self._is_closed = False

    def take(self) -> _Connected:
        """Return a connection that no one else uses, in a new snapshot."""
        try:
            # Both a pop and an append are atomic, so this needs no lock.
            connected = self._idle.pop()
        except IndexError:
            connected = self._waited_for()
        if self._is_closed:
            self._discard(connected)
            raise StoreClosed("the store was closed; open it again")
        try:
            if self._frozen is not None:
                self._frozen.check()
            connected.execute("BEGIN")
        except BaseException:
            self._discard(connected)
            raise
        return connected

    def give_back(self, connected: _Connected) -> None:
        """End the snapshot and make the connection available."""
        try:
            connected.execute("COMMIT")
            if self._frozen is not None:
                self._frozen.check()
        except BaseException:
            self._discard(connected)
            raise
        self._idle.append(connected)
        if self._is_closed:
            # Only now: closing may have gone through the idle ones a moment ago.
            self.close()
        elif self._count >= self._readers_max:
            with self._changed:
                self._changed.notify()

    def close(self) -> None:
        """Close connections; those in use are closed when they are given back."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        while self._idle:
            self._discard(self._idle.pop())

    def _waited_for(self) -> _Connected:
        deadline_s = time.monotonic() + self._timeout_s
        with self._changed:
            while not self._is_closed:
                if self._idle:
                    return self._idle.pop()
                if self._count < self._readers_max:
                    self._count += 1
                    break
                if not self._changed.wait(min(0.05, max(0.0, deadline_s - time.monotonic()))) and (
                    time.monotonic() >= deadline_s
                ):
                    raise StoreUnavailable(
                        f"all {self._readers_max} readers were in use for {self._timeout_s} s"
                    )
            else:
                raise StoreClosed("the store was closed; open it again")
        try:
            return self._opened()
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise

    def _opened(self) -> _Connected:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return _Connected(connection)

    def _discard(self, connected: _Connected) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()
        try:
            connected.connection.close(force=True)
        except apsw.Error:
            return


class Snapshot:
    """What `Store.read` returns; a reader inside the `with` block."""

    __slots__ = ("_connected", "_pool")

    def __init__(self, pool: ReaderPool) -> None:
        self._pool = pool
        self._connected: _Connected | None = None

    def __enter__(self) -> SqliteReader:
        try:
            connected = self._pool.take()
        except apsw.Error as error:
            raise mapped(error, "the database could not be read") from error
        self._connected = connected
        return connected.reader

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connected, self._connected = self._connected, None
        assert connected is not None
        try:
            self._pool.give_back(connected)
        except apsw.Error as ending:
            raise mapped(ending, "the database could not be read") from ending
        if isinstance(error, apsw.Error):
            raise mapped(error, "the database could not be read") from error
