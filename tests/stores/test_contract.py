"""Every store passes the same contract; the in-process one is the model of the others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amv.memory.ports import Reader, Store, Writer
from amv.stores.memory import MemoryStore
from amv.stores.sqlite import SqliteStore
from amv.testing.actions import ACTIONS
from amv.testing.contract import DurableStoreContract, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = MemoryStore()
        yield store
        store.close()


class TestSqliteStore(DurableStoreContract):
    """On a real file: what a database in memory does is no evidence of what a file does."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return str(tmp_path / "amv.db")

    @pytest.fixture
    def opened(self, path: str) -> Iterator[list[Store]]:
        stores: list[Store] = [SqliteStore.open(path)]
        yield stores
        stores[-1].close()

    @pytest.fixture
    def store(self, opened: list[Store]) -> Store:
        return opened[0]

    @pytest.fixture
    def reopen(self, opened: list[Store], path: str) -> Callable[[], Store]:
        def close_and_open() -> Store:
            opened[-1].close()
            opened.append(SqliteStore.open(path))
            return opened[-1]

        return close_and_open


def test_the_contract_undoes_every_method_of_a_writer() -> None:
    """A method that is added to the port needs an action here, or its rollback is not tested."""
    methods = {name for name in vars(Writer) if not name.startswith("_")}

    # The guard's contract has the one that drops what stands beside a memory.
    assert {*ACTIONS, "drop_beside"} == methods - set(vars(Reader))
