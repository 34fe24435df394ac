"""A checkpoint cleans pages of trees, and leaves alone those that only look like one."""

import ctypes
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.checkpoint import VFS, may_be_pointer_map, register_vfs
from amv.testing.samples import plain

PAGE_BYTES = 512
"""So small that a small file has many pages of the pointer map."""


def small_paged(path: Path, vacuum: str, reserved: int) -> apsw.Connection:
    register_vfs()
    connection = apsw.Connection(str(path), vfs=VFS)
    count = ctypes.c_int(reserved)
    connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(count))
    connection.execute(
        f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA auto_vacuum = {vacuum};"
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA secure_delete = ON;"
        "CREATE TABLE item (key INTEGER PRIMARY KEY, name TEXT, body BLOB);"
        "CREATE INDEX by_name ON item (name, key)"
    ).fetchall()
    return connection


def assert_sound(connection: apsw.Connection) -> None:
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("vacuum", ["NONE", "INCREMENTAL", "FULL"])
@pytest.mark.parametrize("reserved", [0, 12, 32])
def test_a_file_that_is_checkpointed_stays_sound(
    tmp_path: Path, vacuum: str, reserved: int
) -> None:
    """However pages move: what is no page of a tree is written as SQLite has it."""
    chance = random.Random(vacuum)
    kept: dict[int, tuple[str, bytes]] = {}
    path = tmp_path / "small.db"
    with closing(small_paged(path, vacuum, reserved)) as connection:
        for number in range(12):
            with connection:
                for key in range(number * 400, (number + 1) * 400):
                    name, body = f"{chance.random()}", chance.randbytes(chance.choice([9, 90, 900]))
                    kept[key] = name, body
                    connection.execute("INSERT INTO item VALUES (?, ?, ?)", (key, name, body))
                for key in chance.sample(sorted(kept), len(kept) // 3):
                    del kept[key]
                    connection.execute("DELETE FROM item WHERE key = ?", (key,))
            connection.execute("PRAGMA incremental_vacuum(50)").fetchall()
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            assert_sound(connection)

    with closing(apsw.Connection(str(path))) as connection:
        assert_sound(connection)
        assert connection.pragma("page_count") > 5 * PAGE_BYTES // 5
        found = connection.execute("SELECT key, name, body FROM item")
        assert {key: (name, body) for key, name, body in found} == kept


def test_a_store_of_many_pages_is_sound_and_goes_on(tmp_path: Path) -> None:
    """Of pages as AMV has them: beyond those that the first page of the map tells of."""
    path = tmp_path / "amv.db"
    chance = random.Random(1)
    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        ns_id = store.write(lambda tx: tx.create_namespace(("a",), 1.0)).ns_id
        for _ in range(12):
            rows = [
                replace(plain(ns_id, f"{chance.random()}"), content=chance.randbytes(4000).hex())
                for _ in range(500)
            ]
            keys = store.write(lambda tx, rows=rows: tx.insert(rows))  # type: ignore[misc]
            store.write(lambda tx, keys=keys: tx.delete(keys[::3]))  # type: ignore[misc]
            with closing(apsw.Connection(str(path))) as connection:
                assert_sound(connection)

    with closing(apsw.Connection(str(path))) as connection:
        assert_sound(connection)
        assert connection.pragma("page_count") > 2 * 8192 // 5


@pytest.mark.parametrize(
    ("number", "page_bytes", "usable_bytes", "is_one"),
    [
        (1, 8192, 8192, False),
        (2, 8192, 8192, True),
        (3, 8192, 8192, False),
        (1640, 8192, 8192, False),
        (1641, 8192, 8192, True),
        (1641, 8192, 8160, False),
        (1635, 8192, 8160, True),
        # The page of the locks is the 16,385th of 64 KiB; with 13,652 bytes used of each, it
        # would be one of the map.
        (16385, 65536, 13652 * 5, False),
    ],
)
def test_where_the_map_is(number: int, page_bytes: int, usable_bytes: int, is_one: bool) -> None:
    assert may_be_pointer_map(number, page_bytes, usable_bytes) == is_one


def test_the_map_goes_around_the_page_of_the_locks() -> None:
    """Were that page one of the map, the next is; found by a size of page for which it would be."""
    pending = (1 << 30) // 4096 + 1
    (usable,) = [n for n in range(480, 4097) if (pending - 2) % (n // 5 + 1) == 0][-1:]

    assert not may_be_pointer_map(pending, 4096, usable)
    assert may_be_pointer_map(pending + 1, 4096, usable)
    assert not may_be_pointer_map(pending + 2, 4096, usable)
