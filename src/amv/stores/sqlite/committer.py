"""Writing: one transaction at a time, shared by threads that write at once.

A commit waits for the disk, which takes longer than most writes.  So a thread
that finishes its work while others wait for their turn doesn't commit: it hands
the open transaction to the next, and the last in the row commits for all of
them (group commit).  Each thread runs its own work, inside a savepoint, so an
exception undoes that work alone; nobody returns before the commit.

A thread that comes alone does everything itself and waits for no other thread.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import apsw

from amv.errors import OutcomeUnknown, StoreClosed, StoreError, StoreUnavailable
from amv.stores.sqlite.checkpoint import Checkpointer
from amv.stores.sqlite.connection import BusyWait, mapped
from amv.stores.sqlite.writer import SqliteWriter

T = TypeVar("T")

#: A group is committed once it holds this many works, or is this old.
GROUP_MAX = 256
GROUP_AGE_MAX_S = 0.02

#: Whenever the log has grown by this many pages, it is copied into the database.
_CHECKPOINT_PAGES = 2000
#: Readers that come and go without a pause keep the log from starting anew.  From this
#: size on (64 MB), writes wait a moment for them.
_TRUNCATE_PAGES = 8000

#: How long closing may take to make the file smaller, and by how many pages at once.
_GIVE_BACK_S = 0.25
_GIVE_BACK_PAGES = 64


class _Group:
    """One transaction, and the works in it that ended well and wait for its commit."""

    __slots__ = ("done", "error", "started_s", "works")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: StoreError | None = None
        self.started_s = time.monotonic()
        self.works = 0

    def end(self, error: StoreError | None = None) -> None:
        """Let those that wait return, or raise *error*."""
        self.error = error
        self.done.set()

    def wait(self) -> None:
        """Return once the transaction is durable, or raise why it isn't."""
        self.done.wait()
        if self.error is not None:
            # An exception object belongs to one thread, so each gets its own.
            raise type(self.error)(*self.error.args) from self.error.__cause__


class Committer:
    """The one connection of this process that writes.

    Whoever holds the *turn* may use the connection and the open group; turns
    are taken in order of arrival.
    """

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        checkpointer: Checkpointer,
        busy_timeout_s: float,
    ) -> None:
        self._connect = connect
        self._checkpointer = checkpointer
        self._busy_timeout_s = busy_timeout_s
        self._busy_wait = BusyWait()
        self._connection: apsw.Connection | None = None
        self._writer: SqliteWriter | None = None
        self._group: _Group | None = None
        self._wal_pages = 0
        self._checkpointed_pages = 0
        self._is_closed = False
        self._mutex = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()
        self._working_thread: int | None = None

    def write(self, work: Callable[[SqliteWriter], T]) -> T:
        """Run *work* in a transaction; return its result once that is durable."""
        deadline_s = time.monotonic() + self._busy_timeout_s
        self._take_turn(deadline_s)
        try:
            group = self._opened_group(deadline_s)
            result = self._run(group, work)
            group.works += 1
        except apsw.Error as error:
            self._end_turn()
            raise mapped(error, "the write failed and was undone") from error
        except BaseException:
            self._end_turn()
            raise
        self._end_turn()
        group.wait()
        return result

    def truncate_log(self) -> bool:
        """Copy the log into the database and cut it to nothing, unless it is in use."""
        self._take_turn(time.monotonic() + self._busy_timeout_s)
        try:
            if self._is_closed:
                raise StoreClosed("the store was closed; open it again")
            self._commit()
            return self._checkpointer.copy_and_truncate()
        except apsw.FullError as error:
            raise StoreUnavailable(
                "what was deleted is gone for every reader, but bytes of it stay on disk until "
                f"the log can be copied into the database: {error}; free some space, "
                "sweeps try again"
            ) from error
        except apsw.Error as error:
            raise mapped(error, "the log could not be copied into the database") from error
        finally:
            self._end_turn()

    def close(self) -> None:
        """Commit what is under way and close; later writes raise StoreClosed."""
        self._take_turn(math.inf)
        try:
            self._commit()
            self._give_back()
            self._is_closed = True
            self._drop_connection()
            self._checkpointer.close()
        finally:
            self._end_turn()

    # ------------------------------------------------------------ the transaction

    def _opened(self, deadline_s: float) -> apsw.Connection:
        if self._is_closed:
            raise StoreClosed("the store was closed; open it again")
        self._busy_wait.deadline_s = deadline_s
        if self._connection is None:
            connection = self._connect()
            connection.set_busy_handler(self._busy_wait)
            connection.set_wal_hook(self._note_wal_pages)
            self._writer = SqliteWriter(connection)
            self._connection = connection
        return self._connection

    def _opened_group(self, deadline_s: float) -> _Group:
        """Return the open group; begin a transaction if there is none."""
        if self._group is None:
            self._opened(deadline_s).execute("BEGIN IMMEDIATE")
            self._group = _Group()
        return self._group

    def _run(self, group: _Group, work: Callable[[SqliteWriter], T]) -> T:
        """Run *work* such that failing undoes it, and it alone."""
        connection, writer = self._connection, self._writer
        assert connection is not None
        assert writer is not None
        self._working_thread = threading.get_ident()
        # The first has the transaction to itself, and needs no savepoint.
        is_first = group.works == 0
        try:
            if is_first:
                return work(writer)
            connection.execute("SAVEPOINT work")
            result = work(writer)
            connection.execute("RELEASE work")
            return result
        except BaseException:
            self._undo(connection, group, is_first=is_first)
            raise
        finally:
            self._working_thread = None

    def _undo(self, connection: apsw.Connection, group: _Group, *, is_first: bool) -> None:
        try:
            if connection.in_transaction and is_first:
                connection.execute("ROLLBACK")
            elif connection.in_transaction:
                connection.execute("ROLLBACK TO work")
                connection.execute("RELEASE work")
                return
        except apsw.Error:
            self._drop_connection()
        # All of the transaction is gone, by us or because SQLite gave it up.
        self._group = None
        group.end(
            StoreUnavailable("another write in the same transaction failed; nothing was written")
        )

    def _commit(self) -> None:
        """Commit the open group, if there is one, and let those in it return."""
        group, connection = self._group, self._connection
        if group is None or connection is None:
            return
        self._group = None
        # Until it is known better: an interrupt may strike between any two lines.
        error: StoreError | None = OutcomeUnknown(
            "the commit was interrupted; whether the write happened is unknown, "
            "repeat it with the same item id"
        )
        try:
            connection.execute("COMMIT")
            error = None
        except apsw.Error as driver_error:
            error = self._commit_error(connection, driver_error)
        except BaseException:
            self._drop_connection()
            raise
        finally:
            group.end(error)
        self._checkpoint_if_grown()

    def _commit_error(self, connection: apsw.Connection, error: apsw.Error) -> StoreError:
        if isinstance(error, apsw.BusyError) and connection.in_transaction:
            mapped_error = mapped(error, "the commit found the database busy")
        else:
            mapped_error = OutcomeUnknown(
                f"the commit failed: {error}; whether the write happened is unknown, "
                "repeat it with the same item id"
            )
        mapped_error.__cause__ = error
        # Begin anew from the file: what this connection believes of it may be wrong.
        self._drop_connection()
        return mapped_error

    def _give_back(self) -> None:
        """Cut unused pages off the end of the file, for a moment; the rest waits for the next one.

        A file made before files could shrink keeps its size.
        """
        connection = self._connection
        if connection is None:
            return
        until_s = time.monotonic() + _GIVE_BACK_S
        self._busy_wait.deadline_s = 0.0
        try:
            while connection.pragma("freelist_count") and time.monotonic() < until_s:
                before = connection.pragma("page_count")
                connection.execute(f"PRAGMA incremental_vacuum({_GIVE_BACK_PAGES})").fetchall()
                if connection.pragma("page_count") == before:
                    return
        except apsw.Error:
            # Space only: what is unused is used again, and another close tries once more.
            return

    def _drop_connection(self) -> None:
        connection, self._connection, self._writer = self._connection, None, None
        self._checkpointed_pages = 0
        if connection is None:
            return
        try:
            connection.close(force=True)
        except apsw.Error:
            # A connection that can't even be closed is left to the garbage collector.
            return

    def _note_wal_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_if_grown(self) -> None:
        if self._wal_pages < self._checkpointed_pages:
            # The log has begun anew.
            self._checkpointed_pages = 0
        if self._wal_pages - self._checkpointed_pages < _CHECKPOINT_PAGES:
            return
        self._checkpointed_pages = self._wal_pages
        try:
            if self._wal_pages < _TRUNCATE_PAGES:
                self._checkpointer.copy()
            else:
                self._checkpointer.copy_and_truncate()
        except apsw.Error:
            # The write is durable in the log; copying it is tried again later.
            return

    # ------------------------------------------------------------ turns

    def _take_turn(self, deadline_s: float) -> None:
        if self._working_thread == threading.get_ident():
            raise StoreError("write() was called inside a write; use the writer passed to it")
        with self._mutex:
            if not self._is_taken:
                self._is_taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        timeout_s = max(0.0, deadline_s - time.monotonic())
        try:
            is_ours = turn.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        except BaseException:
            if not self._has_left(turn):
                self._end_turn()
            raise
        if not is_ours and self._has_left(turn):
            raise StoreUnavailable("the database was busy with other writes; try again")

    def _has_left(self, turn: threading.Lock) -> bool:
        """Stop waiting; False if the turn was given to us meanwhile."""
        with self._mutex:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def _end_turn(self) -> None:
        """Hand on the turn, with the transaction while others wait; else commit first."""
        try:
            if self._group is not None:
                if self._may_grow(self._group) and self._hand_over():
                    return
                self._commit()
        except BaseException:
            self._pass_turn()
            raise
        self._pass_turn()

    def _may_grow(self, group: _Group) -> bool:
        age_s = time.monotonic() - group.started_s
        return group.works < GROUP_MAX and age_s < GROUP_AGE_MAX_S

    def _hand_over(self) -> bool:
        """Give the turn to whoever has waited longest; False if nobody waits."""
        with self._mutex:
            if not self._waiting:
                return False
            self._waiting.popleft().release()
            return True

    def _pass_turn(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False
