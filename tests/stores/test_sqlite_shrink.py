"""A file gets smaller by what was deleted once it is closed; what hinders that costs space only."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from amv.stores.sqlite import SqliteStore, committer
from amv.testing.samples import plain

ITEMS = 400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file of some hundred items, closed."""
    path = tmp_path / "amv.db"
    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        ns_id = store.write(lambda tx: tx.create_namespace(("a",), 1.0)).ns_id
        for n in range(ITEMS):
            row = replace(plain(ns_id, f"i{n}"), content=f"{n} " + "word " * 400)
            store.write(lambda tx, row=row: tx.insert([row]))  # type: ignore[misc]
    return path


def delete_all(store: SqliteStore) -> None:
    """Delete every item, in one write."""
    with store.read() as reader:
        ns = reader.namespace(("a",))
        assert ns is not None
        rows = [reader.rows_with_id(f"i{n}", ns.ns_id)[0] for n in range(ITEMS)]
    store.write(lambda tx: tx.delete([row.key for row in rows]))


def test_what_was_deleted_is_cut_off_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "_GIVE_BACK_S", 60.0)
    before = path.stat().st_size

    with closing(SqliteStore.open(path)) as store:
        delete_all(store)
        assert store.size_bytes() >= before

    assert path.stat().st_size < before / 2
    with closing(SqliteStore.open(path)) as store:
        assert store.check() == []


def test_closing_takes_a_moment_and_the_next_one_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty moment gives nothing back; a later close does, if it has written."""
    monkeypatch.setattr(committer, "_GIVE_BACK_S", 0.0)
    before = path.stat().st_size
    with closing(SqliteStore.open(path)) as store:
        delete_all(store)
    assert path.stat().st_size >= before

    monkeypatch.setattr(committer, "_GIVE_BACK_S", 60.0)
    with closing(SqliteStore.open(path)) as store:
        store.write(lambda tx: tx.set_meta("seen", "1"))

    assert path.stat().st_size < before / 2


def test_a_file_made_before_files_could_shrink_keeps_its_size(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE; VACUUM")
    before = path.stat().st_size

    with closing(SqliteStore.open(path)) as store:
        delete_all(store)

    assert path.stat().st_size >= before
    with closing(SqliteStore.open(path)) as store:
        assert store.check() == []


def test_closing_does_not_wait_for_another_that_writes(path: Path) -> None:
    before = path.stat().st_size
    with (
        closing(apsw.Connection(str(path))) as other,
        closing(SqliteStore.open(path)) as store,
    ):
        delete_all(store)
        other.execute("BEGIN IMMEDIATE")
        store.close()
        other.execute("ROLLBACK")

    assert path.stat().st_size >= before
