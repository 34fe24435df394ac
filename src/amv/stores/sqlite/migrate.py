"""Creating the schema, bringing an old one up to date, and refusing what isn't ours.

Migrations only go forward.  Each runs in a transaction of its own that takes
the write lock first, so of two processes that open a file at once one migrates
and the other finds it done.  A file is recognised by its header before SQLite
opens it, so that one that is not ours is not touched at all.
"""

import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from amv.errors import ConfigError, SchemaMismatch, StoreError
from amv.memory.repeats import digest
from amv.stores.sqlite.codec import narrowed
from amv.stores.sqlite.connection import PAGE_BYTES, mapped

APPLICATION_ID = 0x414D5631  # "AMV1"

_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")


def migrations() -> dict[int, str]:
    """Return the migrations by number, from 1 without a gap, each number once."""
    found = [
        (int(match[1]), file.read_text("utf-8"))
        for file in files("amv.stores").joinpath("sql", "sqlite").iterdir()
        if (match := _NUMBERED.fullmatch(file.name))
    ]
    numbers = sorted(number for number, _ in found)
    if numbers != list(range(1, len(found) + 1)):
        raise StoreError(f"the migrations are not numbered from 1 on: {numbers}")
    return dict(sorted(found))


def check_file(path: str) -> None:
    """Raise unless *path* is missing, empty, or looks like an AMV database."""
    # SQLite itself reads the header: were we to open and close the file, this process
    # would lose the locks that other connections of its hold on it (POSIX).
    file = Path(path)
    if not file.parent.is_dir():
        raise ConfigError(f"the folder {str(file.parent)!r} does not exist; create it first")
    if file.is_dir():
        raise ConfigError(f"{path!r} is a folder; a store is a file")
    if file.exists() and not file.is_file():
        raise ConfigError(f"{path!r} is a device or the like; a store is a file")
    if not file.exists() or not file.stat().st_size:
        return
    journal = Path(path + "-journal")
    if journal.is_file() and journal.stat().st_size:
        # A process died while it wrote this header; SQLite undoes that on opening.
        return
    try:
        if (versions := _header_versions(path)) is not None:
            _check(path, *versions)
    except apsw.NotADBError as error:
        raise SchemaMismatch(f"{path!r} is not an AMV database: it is no SQLite file") from error
    except apsw.CorruptError:
        # A process died while it copied the log into it: only with its log it is whole.
        return
    except apsw.Error as error:
        raise mapped(error, f"{path!r} could not be read") from error


def migrate(connection: apsw.Connection, path: str, deadline_s: float) -> None:
    """Bring the schema up to date, in WAL mode: a new file at once, another step by step."""
    scripts = migrations()
    add_functions(connection)
    if _versions(connection) == (0, 0):
        # Neither has an effect once there is a page.
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        scripts = {max(scripts): "\n".join(scripts.values())}
    for number, script in scripts.items():
        if _versions(connection)[1] >= number:
            continue
        connection.execute("BEGIN IMMEDIATE")
        with_version = f"PRAGMA user_version = {number}; PRAGMA application_id = {APPLICATION_ID}"
        try:
            application, version = _versions(connection)
            if application == 0 and version == 0 and _has_tables(connection):
                raise _foreign(path)
            if version < number:
                connection.execute(script)
                connection.execute(with_version)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    check_schema(connection, path)
    _enter_wal(connection, deadline_s)


def add_functions(connection: apsw.Connection) -> None:
    """Add the functions that migrations call."""
    function: Any = narrowed
    connection.create_scalar_function("narrowed_postings", function, 1)
    digested: Any = digest
    connection.create_scalar_function("content_digest", digested, 1)


def check_schema(connection: apsw.Connection, path: str) -> None:
    """Raise SchemaMismatch unless the open database is ours and of a version we know."""
    _check(path, *_versions(connection))
    version = _versions(connection)[1]
    if version < len(migrations()):
        raise SchemaMismatch(
            f"{path!r} has schema version {version}, this AMV needs {len(migrations())}; "
            "open it once for writing, which brings it up to date"
        )


def _check(path: str, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise _foreign(path)
    newest = len(migrations())
    if not 0 <= version <= newest:
        raise SchemaMismatch(
            f"{path!r} has schema version {version}, this AMV knows up to {newest}; "
            "use the AMV that wrote it, or a newer one"
        )


def _foreign(path: str) -> SchemaMismatch:
    return SchemaMismatch(f"{path!r} is not an AMV database: it is another program's SQLite file")


def _header_versions(path: str) -> tuple[int, int] | None:
    """Return what the file itself says, without its log, and without touching anything.

    None if nothing was ever made in it, as where making a database failed early.
    """
    connection = apsw.Connection(
        f"file:{quote(path)}?immutable=1",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )
    try:
        found = _versions(connection)
        # What is too short to be one passes for an empty database.
        is_begun = connection.pragma("page_count") > 0 and not _has_tables(connection)
        return None if is_begun and found == (0, 0) else found
    finally:
        connection.close()


def _versions(connection: apsw.Connection) -> tuple[int, int]:
    application = connection.execute("PRAGMA application_id").get
    version = connection.execute("PRAGMA user_version").get
    return int(application), int(version)


def _has_tables(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None


def _enter_wal(connection: apsw.Connection, deadline_s: float) -> None:
    """Switch to WAL; SQLite doesn't wait for the lock that this takes, so we do."""
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = WAL").get == "wal":
                return
        except apsw.BusyError:
            if time.monotonic() >= deadline_s:
                raise
        else:
            raise StoreError("the file system does not support WAL, which needs shared memory")
        time.sleep(0.002)
