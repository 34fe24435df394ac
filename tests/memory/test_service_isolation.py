"""No namespace sees, changes or even hints at another: a twin's presence changes no reply."""

from dataclasses import replace
from typing import Any

import pytest

from amv.memory.item import Claim, Namespace
from amv.memory.ports import Store
from amv.memory.results import SearchResult
from amv.memory.tiers import Tier
from amv.stores.memory import MemoryStore
from amv.stores.sqlite import SqliteStore
from tests.memory.worlds import MONTH_S, SMALL, World

LOOKALIKES: list[tuple[Namespace, Namespace]] = [
    (("a/b",), ("a", "b")),
    (("a", "b"), ("a",)),
    (("a", "b", "c"), ("a", "b/c")),
    (("john_doe",), ("john-doe",)),
    (("john_doe",), ("johnXdoe",)),
    (("foo",), ("foobar",)),
    (("100%",), ("1000",)),
    (("a*",), ("ab",)),
    (('a","b',), ("a", "b")),
    (("a'",), ("a''",)),
    (("Alice",), ("alice",)),
    (("\u00e9",), ("e\u0301",)),
    (("a",), ("a ",)),
    (("1",), ("01",)),
    (("' OR 1=1 --",), ("x",)),
]

SECOND = replace(SMALL, cells=replace(SMALL.cells, probes_warm=4, probes_cold=8))


@pytest.mark.parametrize(("name", "other"), LOOKALIKES)
def test_lookalike_namespaces_never_mix(world: World, name: Namespace, other: Namespace) -> None:
    """On any path, in either direction."""
    for mine, theirs in ((name, other), (other, name)):
        item = world.memory.add(
            "lives in Oslo", namespace=mine, id="a", claim=Claim("x", "city", "Oslo")
        )

        assert world.memory.search("lives in Oslo", namespace=theirs, k=50).hits == ()
        assert world.memory.list(namespace=theirs, status=None).items == ()
        assert world.memory.find_claim(theirs, "x", "city") is None
        assert world.memory.stats(theirs).live == 0
        assert list(world.memory.export_items(namespace=theirs)) == []
        assert world.memory.reinforce(["a"], namespace=theirs) == 0
        with pytest.raises(LookupError):
            world.memory.get("a", namespace=theirs)
        with pytest.raises(LookupError):
            world.memory.forget("a", namespace=theirs)
        with pytest.raises(LookupError):
            world.memory.forget_namespace(theirs)
        assert world.memory.get("a", namespace=mine) == item
        world.memory.forget_namespace(mine)


def do_things(world: World, name: Namespace, step: int) -> None:
    """Do one of a fixed series of things to a namespace; ids are the same in each."""
    memory = world.memory
    if step == 0:
        memory.add_many(
            [
                {
                    "content": f"thing{i} kind{i % 5} colour{i % 7}",
                    "namespace": name,
                    "id": f"n{i}",
                    "metadata": {"n": i % 3},
                }
                for i in range(90)
            ]
        )
    elif step == 1:
        memory.reinforce([f"n{i}" for i in range(0, 90, 3)], namespace=name)
        memory.reinforce([f"n{i}" for i in range(0, 90, 6)], namespace=name)
        memory.sweep(namespace=name)
    elif step == 2:
        for i in range(4):
            memory.add(f"lives in city{i}", namespace=name, id=f"c{i}", claim=Claim("x", "city", i))
    elif step == 3:
        memory.update("n5", namespace=name, content="zanzibar kind1")
        memory.forget("n6", namespace=name)
        memory.pin("n7", namespace=name)
        memory.refute("n8", namespace=name)
    else:
        memory.sweep(namespace=name)


def replies(world: World, name: Namespace) -> list[SearchResult]:
    """Return the whole replies to a series of searches."""
    asked: list[dict[str, Any]] = [
        {"query": "thing7 kind2"},
        {"query": "kind1 colour3", "k": 50},
        {"query": "zanzibar", "cold": True},
        {"query": "lives in city2", "as_of": world.clock() - 1.5},
        {"query": "thing1", "filter": {"n": 1}},
        {"query": "thing1", "filter": {"not": {"n": 1}}, "cold": False},
        {"vector": world.embedder.embed(["colour5 kind0"])[0]},
    ]
    return [world.memory.search(namespace=name, **arguments) for arguments in asked]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_twin_changes_nothing_in_the_replies_to_the_other(kind: str, tmp_path: Any) -> None:
    """Not a hit, a rank, a count of what was scanned, a page, a statistic, nor a sweep.

    The twin has the same ids, words, claims and vectors, and does the same just before.
    """
    mine, twin = ("john_doe",), ("john-doe",)

    def store_of(name: str) -> Store:
        return MemoryStore() if kind == "memory" else SqliteStore.open(tmp_path / name)

    alone, together = World(store_of("alone"), SECOND), World(store_of("together"), SECOND)
    for step in range(5):
        do_things(together, twin, step)
        for world in (alone, together):
            do_things(world, mine, step)
            world.clock.advance(1.0 if step != 3 else MONTH_S)
        do_things(together, twin, 4)

        assert replies(together, mine) == replies(alone, mine)
        for one in (alone, together):
            one.memory.flush()
        pages = [
            one.memory.list(namespace=mine, status=None, limit=40) for one in (alone, together)
        ]
        assert pages[0].items == pages[1].items
        stats = [one.memory.stats(mine) for one in (alone, together)]
        assert replace(stats[0], store_bytes=0) == replace(stats[1], store_bytes=0)
        sweeps = [one.memory.sweep(namespace=mine, dry_run=True) for one in (alone, together)]
        assert sweeps[0] == sweeps[1]
    for world in (alone, together):
        assert world.memory.stats(mine).tiers[Tier.HOT] > 0
        assert world.store.check() == []
        world.memory.close()
