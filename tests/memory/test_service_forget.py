"""Forgetting: once it returns, no path leads to the item, in this memory or any other."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amv.errors import ItemNotFound, StoreClosed, StoreError, StoreUnavailable
from amv.memory.item import Claim
from amv.memory.ports import Store
from amv.memory.results import ForgetReceipt
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from amv.stores.sqlite import SqliteStore
from tests.memory.worlds import ALICE, BOB, SMALL, WordByWord, World

SECRET = "the vault code is xyzzy4711"


def traces(memory: MemoryService, item_id: str, vector: Any) -> list[str]:
    """Return every path on which a memory still shows something of an item of Alice's."""
    return [
        *traces_in_searches(memory, item_id, vector),
        *traces_in_lists(memory, item_id),
        *traces_by_id(memory, item_id),
    ]


def traces_in_searches(memory: MemoryService, item_id: str, vector: Any) -> Iterator[str]:
    """Yield the searches that show something of it."""
    asked: list[dict[str, Any]] = [
        {"query": "xyzzy4711"},
        {"query": "vault code", "k": 100, "cold": True},
        {"vector": vector, "k": 100, "cold": True},
        {"query": "xyzzy4711", "as_of": 1_700_000_002.0, "k": 100},
        {"query": "xyzzy4711", "as_of": 2_000_000_000.0, "k": 100},
        {"query": "xyzzy4711", "filter": {"secret": True}},
        {"query": "Monday", "k": 100},
    ]
    for arguments in asked:
        result = memory.search(namespace=ALICE, **arguments)
        if any(hit.item.id == item_id or "xyzzy" in repr(hit.item) for hit in result.hits):
            yield f"search {arguments}"
    if "xyzzy" in memory.context("xyzzy4711", namespace=ALICE).text:
        yield "context"


def traces_in_lists(memory: MemoryService, item_id: str) -> Iterator[str]:
    """Yield the pages, links, histories, claims and exports that show something of it."""
    for item in memory.list(namespace=ALICE, status=None, limit=1000).items:
        if item_id in (item.id, item.supersedes, item.superseded_by) or "xyzzy" in repr(item):
            yield f"list {item.id}"
        for step in memory.history(item.id):
            if step.item_id == item_id or "xyzzy" in step.content:
                yield f"history of {item.id}"
    if "xyzzy" in repr(list(memory.export_items(vectors=True))):
        yield "export"
    if "xyzzy" in repr(memory.find_claim(ALICE, "vault", "code")):
        yield "claim"


def traces_by_id(memory: MemoryService, item_id: str) -> Iterator[str]:
    """Yield the calls that still know it by its id."""
    for call in (memory.get, memory.history, memory.pin, memory.confirm, memory.forget):
        try:
            call(item_id)
        except ItemNotFound:
            continue
        yield f"{call.__name__} by id"


def remembered(world: World, kind: str) -> str:
    """Remember the secret in one of many ways; return its id."""
    claim = Claim("vault", "code", "xyzzy4711")
    fields: dict[str, Any] = {
        "claim": claim,
        "context": "told on Monday",
        "metadata": {"secret": True},
    }
    if kind == "plan":
        fields["valid_from"] = world.clock() + 10.0
    if kind == "pinned":
        fields["pinned"] = True
    item = world.add(SECRET, id="secret", **fields)
    world.clock.advance(5.0)
    if kind == "superseded":
        world.add("the vault code is another", claim=replace(claim, value="another"))
    elif kind == "refuted":
        world.memory.refute(item.id)
    elif kind == "corrected":
        world.memory.refute(item.id, "another")
    elif kind == "updated":
        world.memory.update(item.id, content="the vault code is secret")
    elif kind == "in a cell":
        world.fill(60)
    elif kind == "expired":
        world.memory.update(item.id, expires_at=world.clock() + 1.0)
        world.clock.advance(1.0)
    return item.id


KINDS = [
    "plain",
    "plan",
    "pinned",
    "superseded",
    "refuted",
    "corrected",
    "updated",
    "in a cell",
    "expired",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_worded", [False, True])
def test_nothing_of_a_forgotten_item_is_left(store: Store, kind: str, is_worded: bool) -> None:
    """By word, vector, id, list, link, history, claim, filter or export; also for followers."""
    world = World(store, embedder=WordByWord(dimension=64) if is_worded else None)
    world.fill(4)
    vector = world.embedder.embed([SECRET])[0]
    item_id = remembered(world, kind)
    other = world.another()
    for memory in (world.memory, other):
        memory.search("xyzzy4711", namespace=ALICE, k=100)
    if kind == "plain":
        assert len(traces(world.another(), "none", vector)) >= 6  # the search for traces works

    receipt = world.memory.forget(item_id)

    assert (receipt.item_ids, receipt.count, receipt.erased) == ((item_id,), 1, True)
    for memory in (world.memory, other, world.another()):
        assert traces(memory, item_id, vector) == []
    with store.read() as reader:
        ns_id = world.row().ns_id
        assert reader.frequencies(ns_id, ["xyzzy4711", "vault", "monday"]).keys() <= {"vault"}
        assert reader.rows_with_id(item_id) == []
    assert store.check() == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_forgotten_namespace_is_left(world: World, kind: str) -> None:
    """Not its name either; the same name then begins anew, with nothing in it."""
    world.fill(3)
    vector = world.embedder.embed([SECRET])[0]
    remembered(world, kind)
    world.add(SECRET, id="theirs", namespace=BOB)
    other = world.another()
    for memory in (world.memory, other):
        memory.search("xyzzy4711", namespace=ALICE, k=100)
    listed = [item.id for item in world.memory.list(namespace=ALICE, status=None).items]

    receipt = world.memory.forget_namespace(ALICE)

    assert (set(receipt.item_ids) >= set(listed), receipt.namespace) == (True, ALICE)
    assert receipt.erased
    assert world.memory.namespaces() == [BOB]
    for memory in (world.memory, other):
        assert memory.search("xyzzy4711", namespace=ALICE, k=100).hits == ()
    with pytest.raises(ItemNotFound, match=r"no namespace \('alice',\)"):
        world.memory.forget_namespace(ALICE)
    world.memory.forget("theirs")
    world.add("something new")
    for memory in (world.memory, other, world.another()):
        assert traces(memory, "secret", vector) == []
    assert world.store.check() == []


def test_forgetting_a_namespace_that_is_not_there_writes_nothing(tmp_path: Path) -> None:
    """A mistyped name is an error, and no reason to touch the file."""

    def stored() -> dict[str, bytes]:
        # What is in shared memory tells who reads, too.
        files = [file for file in tmp_path.iterdir() if not file.name.endswith("-shm")]
        return {file.name: file.read_bytes() for file in files}

    with closing(SqliteStore.open(tmp_path / "amv.db")) as store:
        world = World(store)
        world.add("x")
        before = stored()
        assert len(before["amv.db-wal"]) > 0

        with pytest.raises(ItemNotFound, match=r"no namespace \('bob',\)"):
            world.memory.forget_namespace(BOB)

        assert stored() == before
        assert world.memory.namespaces() == [ALICE]


def test_a_large_namespace_is_forgotten_with_every_id_in_the_receipt(world: World) -> None:
    """Also those beyond one page."""
    world.memory.add_many(
        [{"content": "x", "namespace": ALICE, "id": f"n{i}"} for i in range(1100)]
    )

    receipt = world.memory.forget_namespace(ALICE)

    assert set(receipt.item_ids) == {f"n{i}" for i in range(1100)}
    assert receipt.count == 1100


def test_an_id_that_was_forgotten_is_free(world: World) -> None:
    """What comes under it later inherits nothing: no uses, no history, no links."""
    world.add("old", id="a")
    world.use("a", times=3)
    world.memory.update("a", content="older")
    world.memory.reinforce(["a"])
    world.memory.forget("a")
    new = world.add("new", id="a")

    world.memory.flush()

    kept = world.memory.get("a")
    assert (kept.content, kept.contributed_count, kept.created_at) == ("new", 0, new.created_at)
    assert [step.event for step in world.memory.history("a")] == ["added"]


def test_forgetting_what_is_not_there_is_an_error(world: World) -> None:
    """A caller must not believe that something was forgotten that is still there elsewhere."""
    world.add("x", id="a", namespace=BOB)

    with pytest.raises(ItemNotFound):
        world.memory.forget("absent")
    with pytest.raises(ItemNotFound):
        world.memory.forget("a", namespace=ALICE)
    assert world.memory.get("a").content == "x"


def test_several_items_are_forgotten_together_or_not_at_all(world: World) -> None:
    """One transaction; an id that is not there is an error that changes nothing."""
    items = world.fill(5)
    with pytest.raises(ItemNotFound, match="'absent'"):
        world.memory.forget_many([items[0].id, "absent"], namespace=ALICE)
    assert world.row().live == 5

    receipt = world.memory.forget_many([items[0].id, items[3].id, items[0].id], namespace=ALICE)

    assert receipt.item_ids == (items[0].id, items[3].id)
    assert [item.id for item in world.memory.list(namespace=ALICE).items] == ["i2", "i3", "i5"]
    assert world.memory.forget_many([], namespace=ALICE).count == 0
    assert world.store.check() == []


def test_the_last_cell_goes_with_its_last_item(world: World) -> None:
    """One after the other, out of cells, waiting ones and hot."""
    items = world.fill(60)
    for item in items:
        world.memory.forget(item.id)
        assert world.store.check() == []
    row = world.row()

    assert (row.live, row.length, row.hot, row.vectors, row.pending, row.cells) == (0,) * 6


def test_a_receipt_asks_until_the_bytes_are_gone() -> None:
    """Someone's open read can put that off for a moment; it is not forgotten about."""
    answers = [False, False, True]
    receipt = ForgetReceipt(item_ids=("a",), namespace=ALICE, erase=lambda: answers.pop(0))

    assert [receipt.erased for _ in range(5)] == [False, False, True, True, True]
    assert answers == []
    assert "erase" not in repr(receipt)


def test_a_receipt_tells_of_bytes_that_are_not_gone_yet() -> None:
    class Busy(MemoryStore):
        is_busy = True

        def erase(self) -> bool:
            return not self.is_busy

    store = Busy()
    world = World(store, SMALL)
    world.add("x")
    receipt = world.memory.forget("i1")

    assert not receipt.erased
    assert "another one has begun" in receipt.reason
    store.is_busy = False
    assert (receipt.erased, receipt.reason) == (True, "")


@pytest.mark.parametrize("error", [StoreUnavailable, StoreError])
def test_a_forget_is_one_though_its_bytes_cannot_be_erased(error: type[StoreError]) -> None:
    """On a full disk, say: an error would tell that nothing was forgotten."""

    class Full(MemoryStore):
        is_full = True

        def erase(self) -> bool:
            if self.is_full:
                raise error("bytes stay, free some space")
            return True

    store = Full()
    world = World(store, SMALL)
    world.add("x")
    receipt = world.memory.forget("i1")

    assert (receipt.count, receipt.erased) == (1, False)
    assert receipt.reason == "bytes stay, free some space"
    with pytest.raises(ItemNotFound):
        world.memory.get("i1")
    store.is_full = False
    assert (receipt.erased, receipt.reason) == (True, "")


def test_a_receipt_of_a_closed_memory_can_tell_nothing_new(store: Store) -> None:
    world = World(store, SMALL)
    world.add("x")
    erased = world.memory.forget("i1")
    other = replace(erased, _erased=False)
    world.memory.close()

    assert erased.erased
    with pytest.raises(StoreClosed):
        _ = other.erased
