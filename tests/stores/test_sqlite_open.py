"""Opening: what is created, what is refused, and that refusing changes nothing."""

import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from amv.errors import (
    ConfigError,
    SchemaMismatch,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.connection import check_library
from amv.stores.sqlite.migrate import APPLICATION_ID, migrations


def digests(folder: Path) -> dict[str, str]:
    """Return what stands in each file of a folder."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def pragma(path: Path, name: str) -> object:
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(f"PRAGMA {name}").get


def test_a_new_database_has_the_settings_that_the_promises_rest_on(path: Path) -> None:
    SqliteStore.open(path).close()

    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == len(migrations())
    assert pragma(path, "page_size") == 8192
    assert pragma(path, "journal_mode") == "wal"


def test_closing_leaves_one_file(path: Path) -> None:
    """A database that is not in use can be copied or moved as one file."""
    store = SqliteStore.open(path)
    store.write(lambda writer: writer.set_meta("name", "kept"))
    store.close()

    assert [file.name for file in path.parent.iterdir()] == ["amv.db"]


@pytest.mark.parametrize("name", ["synchronous", "secure_delete"])
def test_every_connection_writes_carefully(path: Path, name: str) -> None:
    """These two are settings of a connection, not of the file."""
    store = SqliteStore.open(path)

    value = store.write(lambda writer: writer.execute(f"PRAGMA {name}").get)  # type: ignore[attr-defined]

    assert value == {"synchronous": 2, "secure_delete": 1}[name]
    store.close()


def test_readers_can_not_write(path: Path) -> None:
    with closing(SqliteStore.open(path)) as store:
        with pytest.raises(StoreError) as caught, store.read() as reader:
            reader.execute("DELETE FROM meta")  # type: ignore[attr-defined]

        assert isinstance(caught.value.__cause__, apsw.ReadOnlyError)


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


def newer_database(path: Path) -> None:
    SqliteStore.open(path).close()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA user_version = 999")


def negative_database(path: Path) -> None:
    SqliteStore.open(path).close()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA user_version = -1")


def text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 1000)


def short_text(path: Path) -> None:
    path.write_text("x")


def other_journal(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + bytes(84))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (foreign_database, "another program"),
        (newer_database, "schema version 999"),
        (negative_database, "schema version -1"),
        (text, "no SQLite file"),
        (short_text, "not an AMV database"),
        (other_journal, "not an AMV database"),
    ],
)
def test_what_is_not_ours_or_newer_is_refused_and_not_touched(
    path: Path, make: Callable[[Path], None], says: str
) -> None:
    make(path)
    before = digests(path.parent)

    with pytest.raises(SchemaMismatch, match=says):
        SqliteStore.open(path)

    assert digests(path.parent) == before


def test_a_newer_version_that_stands_only_in_the_log_is_refused_too(path: Path) -> None:
    """The header in the file itself may be older than the database."""
    store = SqliteStore.open(path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.wal_autocheckpoint(0)
        connection.execute("PRAGMA user_version = 999")

        with pytest.raises(SchemaMismatch, match="schema version 999"):
            SqliteStore.open(path)
    store.close()


def test_a_database_in_which_nothing_was_made_yet_becomes_ours(path: Path) -> None:
    """As left where making it failed after its first page."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL")
    assert path.stat().st_size > 0

    SqliteStore.open(path).close()

    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == len(migrations())


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    """As left by a tool that reserves a name."""
    path.touch()

    SqliteStore.open(path).close()

    assert pragma(path, "application_id") == APPLICATION_ID


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; create it"):
        SqliteStore.open(tmp_path / "missing" / "amv.db")

    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        SqliteStore.open(tmp_path)


@pytest.mark.parametrize("version", ["3.7.0", "3.45.1", "3.51.2"])
def test_a_sqlite_that_can_corrupt_a_database_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match="can corrupt"):
        check_library(version)


def test_processes_that_open_a_new_path_at_once_all_succeed(path: Path) -> None:
    """One migrates, the others wait and find it done."""
    script = (
        "import sys; from amv.stores.sqlite import SqliteStore\n"
        "sys.stdin.read()\n"
        "store = SqliteStore.open(sys.argv[1])\n"
        "store.write(lambda w: w.create_namespace((sys.argv[2],), 1.0))\n"
        "store.close()"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(i)], stdin=subprocess.PIPE)
        for i in range(6)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()

    assert [process.wait(60) for process in processes] == [0] * 6
    with closing(SqliteStore.open(path)) as store, store.read() as reader:
        assert [row.name for row in reader.namespaces()] == [(str(i),) for i in range(6)]


def test_a_process_killed_while_creating_leaves_a_path_that_opens(path: Path) -> None:
    """At any of its writes: the journal that it leaves is rolled back first."""
    script = (
        "import os, sys, apsw\n"
        "from amv.stores.sqlite import SqliteStore\n"
        "class File(apsw.VFSFile):\n"
        "    writes = 0\n"
        "    def xWrite(self, data, offset):\n"
        "        File.writes += 1\n"
        "        if File.writes == int(sys.argv[2]): os._exit(9)\n"
        "        super().xWrite(data, offset)\n"
        "class VFS(apsw.VFS):\n"
        "    def __init__(self): super().__init__('dying', 'unix', makedefault=True)\n"
        "    def xOpen(self, name, flags): return File('unix', name, flags)\n"
        "vfs = VFS()\n"
        "SqliteStore.open(sys.argv[1]).close()\n"
    )
    killed = 0
    for at_write in range(1, 1000, 7):
        command = [sys.executable, "-c", script, str(path), str(at_write)]
        code = subprocess.run(command, check=False).returncode
        killed += code == 9
        SqliteStore.open(path).close()
        assert pragma(path, "integrity_check") == "ok"
        if code == 0:
            break
        path.unlink()

    assert code == 0
    assert killed >= 3


def test_a_store_that_is_read_only_reads_and_refuses_to_write(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no database"):
        SqliteStore.open(path, read_only=True)
    with closing(SqliteStore.open(path)) as store:
        store.write(lambda writer: writer.set_meta("name", "kept"))

    with closing(SqliteStore.open(path, read_only=True)) as store:
        with store.read() as reader:
            assert reader.meta("name") == "kept"
        with pytest.raises(StoreError, match="read only"):
            store.write(lambda writer: writer.set_meta("name", "lost"))


def test_a_forked_child_is_told_to_open_its_own(path: Path) -> None:
    """SQLite connections, locks and threads do not survive a fork."""
    with closing(SqliteStore.open(path)) as store:
        child = os.fork()
        if child == 0:
            try:
                store.read()
            except StoreError:
                os._exit(7)
            os._exit(0)
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7


def test_a_damaged_file_is_reported_with_what_to_do(path: Path) -> None:
    """By whatever reads the damaged page, and by the check."""
    with closing(SqliteStore.open(path)) as store:
        store.write(lambda writer: writer.set_meta("name", "x" * 100_000))
    content = bytearray(path.read_bytes())
    content[-50_000:] = b"\xaa" * 50_000
    path.write_bytes(content)

    with closing(SqliteStore.open(path)) as store:
        with pytest.raises(StoreError, match="amv doctor"), store.read() as reader:
            reader.meta("name")
        assert any("damaged" in problem for problem in store.check())


@pytest.mark.parametrize("names", [["0001_a.sql", "0001_b.sql"], ["0001_a.sql", "0003_b.sql"]])
def test_migrations_that_do_not_follow_one_another_are_refused(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two with one number, one would be left out without a word."""
    folder = tmp_path / "sql" / "sqlite"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("SELECT 1;", "utf-8")
    monkeypatch.setattr("amv.stores.sqlite.migrate.files", lambda package: tmp_path)

    with pytest.raises(StoreError, match="not numbered from 1 on"):
        migrations()


def test_a_file_that_is_taken_away_is_not_made_anew(path: Path) -> None:
    """An empty database in its place would be taken for the memory by the next process."""
    with closing(SqliteStore.open(path)) as store:
        store.write(lambda writer: writer.set_meta("name", "kept"))
        for file in path.parent.iterdir():
            file.unlink()
        with suppress(StoreError):
            store.write(lambda writer: writer.set_meta("name", "more"))
        with suppress(StoreError), store.read() as reader:
            reader.meta("name")
        with suppress(StoreError):
            store.erase()

    assert list(path.parent.iterdir()) == []


def test_what_is_no_file_is_refused(path: Path) -> None:
    """SQLite would leave a journal beside a device."""
    os.mkfifo(path)

    with pytest.raises(ConfigError, match="is a device or the like; a store is a file"):
        SqliteStore.open(path)
    assert [file.name for file in path.parent.iterdir()] == ["amv.db"]


def test_a_file_damaged_so_far_that_it_cannot_be_opened_says_what_is_left_to_do(
    path: Path,
) -> None:
    """To run the doctor would be no advice: it can't open the file either."""
    SqliteStore.open(path).close()
    content = bytearray(path.read_bytes())
    content[100:8192] = b"\xaa" * (8192 - 100)
    path.write_bytes(content)

    with pytest.raises(StoreDamaged, match="restore a backup") as raised:
        SqliteStore.open(path)
    assert "doctor" not in str(raised.value)
