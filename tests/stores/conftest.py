"""A SQLite store on a new file, for the tests that need no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amv.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amv.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore.open(path)
    yield store
    store.close()
