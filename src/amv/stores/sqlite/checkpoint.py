"""Copying the write-ahead log into the database, so that no deleted byte is copied with it.

`secure_delete` overwrites a cell that is deleted with zeros.  But when SQLite
moves cells from one page to another to balance a tree, the old page keeps their
bytes in its unallocated middle; a row deleted later is overwritten where it
stands then, and the stale copy survives (measured: 20 of 3,000 deleted rows).

So every page is cleaned on its way into the database: a thin layer over the
file system zeroes what the page itself says is unused.  Nothing but a
checkpoint writes to a database in WAL mode, and only the connection here runs
them; the others are told not to.

Such a layer runs under Python's lock, and so does a sync that passes through
it: no other thread could go on, not even to say that the server is well, for
as long as the disk takes.  So the layer syncs by the file's descriptor, which
needs no lock, wherever the system tells which one that is.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

import apsw

VFS = "amv"

_log = logging.getLogger("amv")

_READERS_WAIT_MS = 100

_BTREE_PAGES = {2: 12, 5: 12, 10: 8, 13: 8}
"""Size of the header by the type of a page, which is its first byte."""

_FILE_HEADER_BYTES = 100
_RESERVED = 20
"""Where the file's header tells how many bytes at the end of each page are not used."""
_LARGEST_ROOT = slice(52, 56)
"""Where the file's header has zeros if the file does not vacuum itself."""
_POINTER_KINDS = range(1, 6)
"""With which a page of the pointer map begins; two of them are types of pages of trees, too."""

CLEANED_BYTES_MAX = 8192 << 24
"""2^24 pages, 128 GiB; the pages of a larger database are copied as they are."""


_PENDING_BYTE = 1 << 30
"""Where locks are taken; the page it lies on is never used."""


def cleaned(page: bytes, *, is_first: bool) -> bytes:
    """Return a page of a tree with zeros where it says that nothing is.

    Overflow pages and those of the free list are returned as they are: each
    begins with the number of another page, whose first byte is 0 in a file of
    up to `CLEANED_BYTES_MAX`.  A page of the pointer map can't be told from one
    of a tree by what it holds; see `may_be_pointer_map`.
    Source: https://sqlite.org/fileformat2.html#b_tree_pages
    """
    start = _FILE_HEADER_BYTES if is_first else 0
    header_bytes = _BTREE_PAGES.get(page[start])
    if header_bytes is None:
        return page
    cells = int.from_bytes(page[start + 3 : start + 5])
    gap_start = start + header_bytes + 2 * cells
    gap_end = int.from_bytes(page[start + 5 : start + 7]) or 65_536
    if not gap_start < gap_end <= len(page):
        return page
    return page[:gap_start] + bytes(gap_end - gap_start) + page[gap_end:]


def may_be_pointer_map(number: int, page_bytes: int, usable_bytes: int) -> bool:
    """Return whether page *number*, from 1, is one of a pointer map, if the file has one.

    Each but the first follows the *usable_bytes* / 5 pages that the one before tells of.

    >>> [n for n in range(1, 400) if may_be_pointer_map(n, 512, 512)]
    [2, 105, 208, 311]

    Source: https://sqlite.org/fileformat2.html#pointer_map_or_ptrmap_pages
    """
    step = usable_bytes // 5 + 1
    pending = _PENDING_BYTE // page_bytes + 1
    # One that would lie on the page of the locks is the one after it.
    places = {number} - {pending} | ({pending} if number == pending + 1 else set())
    return any(place > 1 and (place - 2) % step == 0 for place in places)


_DESCRIPTORS = "/proc/self/fd"


def _descriptors_of(path: str) -> set[int]:
    """Return the descriptors of a file in this process; none where the system does not tell."""
    try:
        listed = os.listdir(_DESCRIPTORS)
    except OSError:
        return set()
    return {n for n in map(int, listed) if _is_of(n, path)}


def _is_of(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


class _CleaningFile(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        before = _descriptors_of(self._path)
        super().__init__("", name, flags)
        # Its own one, of which SQLite does not tell; without it all is synced under the lock.
        new = list(_descriptors_of(self._path) - before)
        self._descriptor = new[0] if len(new) == 1 else None

    def xSync(self, flags: int) -> None:
        if not self._synced():
            super().xSync(flags)

    def _synced(self) -> bool:
        """Sync without Python's lock, as SQLite does; return whether it was this file."""
        if self._descriptor is None or not _is_of(self._descriptor, self._path):
            return False
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            if error.errno == errno.EBADF:
                return False
            # The system tells of it once only: asked again it would say that all is well.
            raise apsw.IOError(f"the database could not be synced: {error}") from error
        return _is_of(self._descriptor, self._path)

    def xWrite(self, data: bytes, offset: int) -> None:
        # In a larger file the number of a page could pass for the type of one.
        is_small = max(offset, self.xFileSize()) < CLEANED_BYTES_MAX
        if is_small and not self._is_pointer_map(data, offset):
            data = cleaned(data, is_first=offset == 0)
        super().xWrite(data, offset)

    def _is_pointer_map(self, page: bytes, offset: int) -> bool:
        """Return whether a page is one of a pointer map, though it may look like one of a tree.

        The first page, which tells whether there is such a map, is copied before all others.
        """
        if offset == 0 or page[0] not in _POINTER_KINDS:
            return False
        header = self.xRead(_FILE_HEADER_BYTES, 0)
        number, usable_bytes = offset // len(page) + 1, len(page) - header[_RESERVED]
        return any(header[_LARGEST_ROOT]) and may_be_pointer_map(number, len(page), usable_bytes)


class _LogFile(apsw.VFSFile):
    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        # SQLite needs no sync here; but a power loss must not bring back what was erased.
        self.xSync(apsw.SQLITE_SYNC_FULL)


class _CleaningVFS(apsw.VFS):
    """The default file system, but for writes to a database."""

    def __init__(self) -> None:
        super().__init__(VFS, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _CleaningFile(name, flags)
        if flags[0] & apsw.SQLITE_OPEN_WAL:
            return _LogFile("", name, flags)
        return apsw.VFSFile("", name, flags)


_registered: list[_CleaningVFS] = []
_registering = threading.Lock()


def register_vfs() -> None:
    """Make the cleaning file system known to SQLite, once a process."""
    with _registering:
        if not _registered:
            _registered.append(_CleaningVFS())


class Checkpointer:
    """The one connection of this process that runs checkpoints; used by one thread at a time."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._connection: apsw.Connection | None = None

    def copy(self) -> None:
        """Copy what no reader holds back; waits for nobody."""
        self._run(apsw.SQLITE_CHECKPOINT_PASSIVE)

    def copy_and_truncate(self) -> bool:
        """Copy all of the log and cut it to nothing; False if a reader or writer is using it."""
        try:
            self._run(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return False
        return True

    def close(self) -> None:
        """Copy what can be copied and close; the last connection removes the log."""
        try:
            self.copy_and_truncate()
        except apsw.Error as error:
            # What was committed is safe in the log.
            _log.warning(
                "the log could not be copied into the database, and the next process tries: %s",
                error,
            )
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close(force=True)

    def _run(self, mode: int) -> None:
        if self._connection is None:
            self._connection = self._connect()
            # For truncating, which waits for readers; copying doesn't.
            self._connection.set_busy_timeout(_READERS_WAIT_MS)
        self._connection.wal_checkpoint(mode=mode)
