"""What is found goes over the wire as JSON that is kept; it must be what it would be anew."""

from datetime import UTC, datetime

import msgspec
import pytest

from amv.memory.item import Claim
from amv.server import wire
from amv.server.found import found_out
from amv.stores.memory import MemoryStore
from tests.memory.worlds import ALICE, World


@pytest.fixture
def world() -> World:
    world = World(MemoryStore())
    world.add("plain thing1")
    world.add(
        'says "thing1",\n"tier":"HOT"',
        metadata={"tier": "x", "value": {"tier": 1}, "a": [1.5, None, "ü"]},
        claim=Claim("alice", "city", "Rome"),
        source='a "source"',
        valid_until=datetime(2100, 1, 1, tzinfo=UTC),
    )
    return world


def shown(world: World) -> list[wire.HitOut]:
    """Return the hits of a search as who asked reads them."""
    found = world.memory.find("thing1", namespace=ALICE)
    return msgspec.json.decode(wire.encoded(found_out(found)), type=wire.SearchOut).hits


def test_an_item_found_is_the_item(world: World) -> None:
    """Field by field, whatever it holds; also from the JSON that was kept."""
    for _ in range(2):
        items = [wire.item_in(hit.item) for hit in shown(world)]

        assert len(items) == 2
        for item in items:
            assert item == world.memory.get(item.id)


def test_what_is_kept_is_not_what_changes(world: World) -> None:
    """Value, tier and counts are as of the search, and a changed item is written anew."""
    before = {hit.item.id: hit.item for hit in shown(world)}
    world.use("i1")
    world.memory.flush()
    world.memory.update("i2", content="thing1 again")
    world.clock.advance(1e6)

    after = {hit.item.id: hit.item for hit in shown(world)}

    assert after["i1"].contributed_count == before["i1"].contributed_count + 1
    assert after["i2"].content == "thing1 again"
    for item in after.values():
        assert wire.item_in(item) == world.memory.get(item.id)


def test_a_search_result_has_the_fields_of_its_schema(world: World) -> None:
    """The struct that is sent is another one than that of the document."""
    found = found_out(world.memory.find("thing1", namespace=ALICE))

    sent = msgspec.json.decode(wire.encoded(found))

    assert list(sent) == list(wire.SearchOut.__struct_fields__)
    assert [list(hit) for hit in sent["hits"]] == [list(wire.HitOut.__struct_fields__)] * 2
    assert [list(hit["item"]) for hit in sent["hits"]] == [list(wire.ItemOut.__struct_fields__)] * 2
    assert sent["scanned"] == msgspec.to_builtins(found.scanned)
