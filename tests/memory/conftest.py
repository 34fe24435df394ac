"""What the tests of the memory share: both stores, and a small world over each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from amv.memory.ports import Store
from amv.stores.memory import MemoryStore
from amv.stores.sqlite import SqliteStore
from tests.memory.worlds import World

# How long an example takes says more about the machine than about the code.
settings.register_profile("amv", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "default":
    settings.load_profile("amv")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Give each store in turn; NORMAL, since no power is lost in here."""
    opened: Store
    if request.param == "memory":
        opened = MemoryStore()
    else:
        opened = SqliteStore.open(tmp_path / "amv.db", synchronous="NORMAL")
    yield opened
    opened.close()


@pytest.fixture
def world(store: Store) -> World:
    """Give a small world over that store."""
    return World(store)
