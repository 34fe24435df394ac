"""The log of value events: beside the database, so that reading writes nothing to it.

One file a process, `<database>.events-<pid>-<random>`, held by a lock (flock)
for as long as the process lives.  A record is 32 bytes with a checksum and no
content.  Records are appended from memory every 250 ms, and not synced: a crash
may lose that much of how often items were used, never an item.

Folding moves events into the database.  A log is sealed first (the next event
goes to a file with a new name) and then applied in batches; the transaction that
applies a batch also notes how far the log was read, so each event is applied
once, wherever a crash strikes.  A log whose lock is free has no process any
more, and is folded by whoever finds it.

A log is read window by window, and a window namespace by namespace: a batch then
touches few namespaces and pages, where in the order of arrival each batch would
touch nearly all.  Events of one namespace keep their order.
"""

import fcntl
import logging
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from amv.errors import StoreClosed, StoreError, StoreUnavailable
from amv.memory.ports import Event
from amv.memory.value import EventKind
from amv.stores.sqlite.connection import file_bytes
from amv.stores.sqlite.writer import SqliteWriter

T = TypeVar("T")

_log = logging.getLogger("amv")

_BODY = struct.Struct("<QQdBB2x")
_CHECKSUM = struct.Struct("<I")
_RECORD = struct.Struct("<QQdBB2xI")
RECORD_BYTES = _RECORD.size

FLUSH_EVERY_S = 0.25
BATCH_MAX = 4096
WINDOW_MAX = 64 * BATCH_MAX

#: This many events (64 KB) are written at once; ten times as many are kept when writing fails.
_FLUSH_EVENTS = 2048
_KEPT_MAX = 10 * _FLUSH_EVENTS


class _Write(Protocol):
    def __call__(self, work: Callable[[SqliteWriter], T]) -> T:
        """Run *work* in a durable transaction."""


@dataclass(slots=True)
class _File:
    """A log whose lock this process holds; *size* is up to where its records are whole."""

    path: Path
    descriptor: int
    size: int = 0

    def close(self) -> None:
        """Release the lock."""
        os.close(self.descriptor)


class EventLog:
    """The events of this process, on their way to the database at *database*.

    Attributes:
        lost: how many events were dropped because they could not be written.
        corrupt: how many damaged records were skipped.
    """

    def __init__(self, database: str) -> None:
        self.lost = 0
        self.corrupt = 0
        self._database = Path(database)
        self._buffer: list[Event] = []
        self._buffer_lock = threading.Lock()
        # Taken before the buffer's, and never the other way round.
        self._file_lock = threading.RLock()
        self._fold_lock = threading.Lock()
        self._current: _File | None = None
        self._sealed: list[_File] = []
        self._folded: list[str] | None = None
        self._has_some = threading.Event()
        self._has_many = threading.Event()
        self._flusher: threading.Thread | None = None
        self._is_closed = False

    def append(self, events: Sequence[Event]) -> None:
        """Keep events; they reach the file within FLUSH_EVERY_S."""
        with self._buffer_lock:
            if self._is_closed:
                raise StoreClosed("the store was closed; open it again")
            was_empty = not self._buffer
            self._buffer.extend(events)
            count = len(self._buffer)
            if self._flusher is None:
                self._flusher = threading.Thread(
                    target=self._flush_for_ever, name="amv-events", daemon=True
                )
                self._flusher.start()
        if was_empty:
            self._has_some.set()
        if count >= _FLUSH_EVENTS:
            self._has_many.set()

    def fold(self, write: _Write, apply: Callable[[SqliteWriter, Sequence[Event]], None]) -> int:
        """Apply this process's events and those of processes that are gone; count them."""
        try:
            with self._fold_lock:
                return self._fold(write, apply)
        except OSError as error:
            # How far each log was read is in the database, so nothing is applied twice.
            raise StoreError(f"the logs of events can't be folded: {error}") from error

    def _fold(self, write: _Write, apply: Callable[[SqliteWriter, Sequence[Event]], None]) -> int:
        self._seal()
        count = 0
        for log in list(self._sealed):
            count += self._fold_one(log, write, apply)
            self._remove(log)
            self._sealed.remove(log)
        for log in self._orphans():
            try:
                count += self._fold_one(log, write, apply)
                self._remove(log, is_closed=False)
            finally:
                log.close()
        return count

    def unfolded(self) -> int:
        """Return how many events of this process wait in the buffer and in its logs."""
        logs = [*self._sealed, *filter(None, [self._current])]
        return len(self._buffer) + sum(log.size // RECORD_BYTES for log in logs)

    def size_bytes(self) -> int:
        """Return how much all logs of this database take."""
        return sum(map(file_bytes, self._paths()))

    def close(self) -> None:
        """Write what is left and release the logs, for the next process to fold.

        What can't be written even now is lost.  Raises StoreError then, unless it is
        only that items were shown, which nobody asked to keep: that is a warning.
        """
        with self._buffer_lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._has_some.set()
        self._has_many.set()
        if self._flusher is not None:
            self._flusher.join()
        with self._fold_lock, self._file_lock:
            try:
                self._flush()
            except StoreUnavailable as error:
                self._lose(error)
            finally:
                if self._current is not None:
                    self._sealed.append(self._current)
                    self._current = None
                for log in self._sealed:
                    log.close()
                self._sealed.clear()

    def _lose(self, error: StoreUnavailable) -> None:
        lost, self._buffer = self._buffer, []
        self.lost += len(lost)
        what = f"{len(lost)} value events are lost: {error}"
        if any(event.kind is not EventKind.EXPOSED for event in lost):
            raise StoreError(what) from error.__cause__
        _log.warning(what)

    # ------------------------------------------------------------ writing

    def _flush_for_ever(self) -> None:
        while not self._is_closed:
            self._has_some.wait()
            self._has_many.wait(FLUSH_EVERY_S)
            try:
                self._flush()
            except StoreUnavailable:
                # The events are kept, and written with the next ones or by fold().
                continue

    def _flush(self) -> None:
        with self._file_lock:
            with self._buffer_lock:
                events, self._buffer = self._buffer, []
                self._has_some.clear()
                self._has_many.clear()
            if not events:
                return
            try:
                if self._current is None:
                    self._current = self._created()
                self._write(self._current, b"".join(map(_record, events)))
            except OSError as error:
                self._keep(events)
                raise StoreUnavailable(f"the log of events can't be written: {error}") from error

    def _keep(self, events: list[Event]) -> None:
        with self._buffer_lock:
            kept = events + self._buffer
            self.lost += max(0, len(kept) - _KEPT_MAX)
            self._buffer = kept[-_KEPT_MAX:]
        self._has_some.set()

    def _write(self, log: _File, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(log.descriptor, view) :]
        except OSError:
            # What was written of it is kept in memory too, and must not count twice.
            os.ftruncate(log.descriptor, log.size)
            raise
        log.size += len(data)

    def _created(self) -> _File:
        while True:
            name = f"{self._prefix}{os.getpid()}-{secrets.token_hex(8)}"
            path = self._database.with_name(name)
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600)
            log = _File(path, descriptor)
            # Another process may take it for an orphan before it is locked.
            if _locked(log):
                return log
            log.close()

    def _seal(self) -> None:
        """Write what is in memory, and let later events go to another file."""
        with self._file_lock:
            self._flush()
            if self._current is not None:
                self._sealed.append(self._current)
                self._current = None

    # ------------------------------------------------------------ folding

    def _fold_one(
        self,
        log: _File,
        write: _Write,
        apply: Callable[[SqliteWriter, Sequence[Event]], None],
    ) -> int:
        """Apply what is left of one log; half a record at its end was never finished."""
        size = log.size // RECORD_BYTES * RECORD_BYTES
        if size > BATCH_MAX * RECORD_BYTES:
            # What an offset means depends on the whole window, which must not be lost alone.
            os.fsync(log.descriptor)
        window = _Window(log.descriptor, size)

        def fold_batch(writer: SqliteWriter) -> tuple[int, int, int]:
            self._forget_folded(writer)
            # After a power loss a log may end before what was read of it.
            offset = writer.event_offset(log.path.name)
            records = window.batch(offset)
            events = list(_events(records))
            if events:
                apply(writer, events)
            following = offset + len(records) * RECORD_BYTES
            if records:
                writer.set_event_offset(log.path.name, following)
            return following, len(events), len(records) - len(events)

        count = 0
        while True:
            offset, applied, corrupt = write(fold_batch)
            self._folded = []
            count += applied
            self.corrupt += corrupt
            if offset >= size:
                return count

    def _forget_folded(self, writer: SqliteWriter) -> None:
        """Drop the notes about logs that were removed, once it is certain that they stay so."""
        if self._folded is None:
            logs = [name for name in writer.event_logs() if not self._path(name).exists()]
        else:
            logs = self._folded
        if logs:
            _sync_folder(self._database.parent)
            writer.forget_event_logs(logs)

    def _remove(self, log: _File, *, is_closed: bool = True) -> None:
        log.path.unlink(missing_ok=True)
        if is_closed:
            log.close()
        if self._folded is not None:
            self._folded.append(log.path.name)

    def _orphans(self) -> Iterator[_File]:
        """Yield the logs of processes that are gone, locked."""
        for path in self._paths():
            try:
                log = _File(path, os.open(path, os.O_RDWR))
            except FileNotFoundError:
                continue
            if _locked(log):
                log.size = os.fstat(log.descriptor).st_size
                yield log
            else:
                log.close()

    @property
    def _prefix(self) -> str:
        return f"{self._database.name}.events-"

    def _path(self, name: str) -> Path:
        return self._database.with_name(name)

    def _paths(self) -> list[Path]:
        with os.scandir(self._database.parent) as entries:
            return sorted(Path(entry) for entry in entries if entry.name.startswith(self._prefix))


def _locked(log: _File) -> bool:
    """Take the lock of a log; False if another process has it, or has removed the file."""
    try:
        fcntl.flock(log.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(log.descriptor).st_nlink > 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _record(event: Event) -> bytes:
    body = _BODY.pack(event.ns_id, event.key, event.at_s, event.kind, event.rank)
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _events(records: Sequence[bytes]) -> Iterator[Event]:
    """Yield the events of whole records; damaged ones are left out."""
    fields = _RECORD.iter_unpack(b"".join(records))
    for record, (ns_id, key, at_s, kind, rank, checksum) in zip(records, fields, strict=True):
        if checksum == zlib.crc32(record[: _BODY.size]) and kind in _KINDS:
            yield Event(ns_id, key, _KINDS[kind], at_s, rank)


_KINDS = {kind.value: kind for kind in EventKind}


class _Window:
    """The records of a log, in the order they are folded in; see the top of this module."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._start = -1
        self._data = b""
        self._order: list[int] = []

    def batch(self, offset: int) -> list[bytes]:
        """Return at most BATCH_MAX records of one window, of which *offset* bytes are folded."""
        if offset >= self._size:
            return []
        place = offset // RECORD_BYTES
        within = place % WINDOW_MAX
        if self._start != place - within:
            self._start = place - within
            self._read()
        return [
            self._data[i * RECORD_BYTES : (i + 1) * RECORD_BYTES]
            for i in self._order[within : within + BATCH_MAX]
        ]

    def _read(self) -> None:
        start = self._start * RECORD_BYTES
        length = min(self._size - start, WINDOW_MAX * RECORD_BYTES)
        self._data = os.pread(self._descriptor, length, start)
        # Records begin with the namespace.
        words = np.frombuffer(self._data, "<u8").reshape(-1, RECORD_BYTES // 8)
        self._order = np.argsort(words[:, 0], kind="stable").tolist()
