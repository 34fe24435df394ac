"""After a forget nothing of an item is left: no word, no vector, no byte in any file.

An item is made of words that stand nowhere else, so that its traces can be
looked for in the bytes of every file beside the database.  Each test first
shows that the search finds them while the item is there.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

import amv
from amv.embedders.hashing import Hashing
from amv.memory.cells import quantise, rotate
from amv.memory.ports import Floats
from amv.memory.reembed import reembed
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.codec import encode_vectors
from amv.testing import FakeClock
from tests.acceptance.remote import SMALL_CELLS, text_of

SETTINGS = amv.MemorySettings(cells=SMALL_CELLS, hot_max=64, probation_max=16)
EMBEDDER = Hashing()


@dataclass
class Place:
    """A memory in a folder of its own, which holds what is not looked for as well."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    settings: amv.MemorySettings = SETTINGS

    def __post_init__(self) -> None:
        self.memory = self.opened()
        self.memory.add_many(
            {"content": text_of(f"other{n}"), "namespace": ("zqnscanary",), "id": f"other{n}"}
            for n in range(30)
        )

    def opened(self) -> amv.Memory:
        settings = amv.Settings(upkeep_interval_s=None, memory=self.settings)
        path = str(self.folder / "amv.db")
        return amv.Memory.open(path, embedder=EMBEDDER, settings=settings, clock=self.clock)

    def traces(self, needles: dict[str, bytes]) -> set[str]:
        """Return which needles stand in any file, an export made now among them."""
        with suppress(amv.StoreClosed):
            lines = [json.dumps(item) for item in self.memory.export_items(vectors=True)]
            (self.folder / "export.jsonl").write_text("\n".join(lines), encoding="utf-8")
        files = [file.read_bytes() for file in self.folder.iterdir()]
        return {what for what, needle in needles.items() if any(needle in f for f in files)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.memory.close()


SECRET = {
    "content": "the zqcontentcanary sings in the zqsecondcanary tree",
    "namespace": ("zqnscanary",),
    "id": "zqidcanary",
    "context": "asked by zqcontextcanary",
    "metadata": {"zqmetakeycanary": "zqmetavaluecanary", "size": 3},
    "claim": amv.Claim("zqsubjectcanary", "zqattributecanary", "zqclaimvaluecanary"),
    "source": "zqsourcecanary",
}
QUERY = "where does the zqquerycanary sing zqcontentcanary"

WORDS = {
    word: word.encode()
    for word in (
        "zqcontentcanary",
        "zqsecondcanary",
        "zqidcanary",
        "zqcontextcanary",
        "zqmetakeycanary",
        "zqmetavaluecanary",
        "zqsubjectcanary",
        "zqattributecanary",
        "zqclaimvaluecanary",
        "zqsourcecanary",
    )
}


def vector_needles(matrix: Floats) -> dict[str, bytes]:
    """Return the bytes of vectors in every form in which any part of AMV keeps them."""
    needles: dict[str, bytes] = {}
    for number, vector in enumerate(matrix):
        row = vector[None, :]
        needles[f"float32 {number}"] = vector.astype("<f4").tobytes()
        needles[f"float16 {number}"] = vector.astype("<f2").tobytes()
        needles[f"centroid {number}"] = rotate(vector).astype("<f2").tobytes()
        needles[f"fixed point {number}"] = encode_vectors(row)[0]
        needles[f"code {number}"] = quantise(rotate(row))[0].tobytes()
    return needles


def vectors_of(text: str) -> dict[str, bytes]:
    pieces = [text[a:b] for a, b in EMBEDDER.passages(text)]
    return vector_needles(EMBEDDER.embed(pieces))


NEEDLES = {**WORDS, "query": b"zqquerycanary", **vectors_of(str(SECRET["content"]))}


def add_secret(place: Place, **changes: object) -> amv.Item:
    """Add the item that is looked for, find it, and use it, so that all traces there are exist."""
    item = place.memory.add(**{**SECRET, **changes})  # type: ignore[arg-type]
    found = place.memory.search(QUERY, namespace=item.namespace, filter={"size": 3})
    assert [hit.item.id for hit in found.hits] == [item.id]
    assert place.memory.context(QUERY, namespace=item.namespace).item_ids[0] == item.id
    return item


def assert_no_path_leads_to(place: Place, item: amv.Item) -> None:
    memory = place.memory
    with pytest.raises(amv.ItemNotFound):
        memory.get(item.id)
    with pytest.raises(amv.ItemNotFound):
        memory.history(item.id)
    found = memory.search(QUERY, namespace=item.namespace, k=100, cold=True).hits
    assert item.id not in [hit.item.id for hit in found]
    listed = memory.list(namespace=item.namespace, status=None, limit=1000).items
    assert item.id not in [other.id for other in listed]
    assert memory.find_claim(item.namespace, "zqsubjectcanary", "zqattributecanary") is None
    assert memory.check() == []


def test_a_forgotten_item_leaves_no_trace(place: Place) -> None:
    item = add_secret(place)
    before = place.traces(NEEDLES)

    receipt = place.memory.forget(item.id)

    assert receipt.erased
    assert place.traces(NEEDLES) == set()
    assert_no_path_leads_to(place, item)
    # The control: while it was there, all were found but what is never written: the query, and
    # vectors in forms in which only cells and RAM hold them.
    assert before >= {*WORDS, "fixed point 0"}
    assert "query" not in before


def test_its_traces_stay_away_after_reopening(place: Place) -> None:
    item = add_secret(place)
    assert place.memory.forget(item.id).erased
    place.memory.close()
    assert place.traces(NEEDLES) == set()

    place.memory = place.opened()
    place.memory.add(text_of("after"), namespace=("zqnscanary",))
    place.memory.close()

    assert place.traces(NEEDLES) == set()


def fill_cells(place: Place) -> None:
    place.memory.add_many(
        {"content": text_of(f"more{n}"), "namespace": ("zqnscanary",)} for n in range(60)
    )


def test_an_item_in_a_cell_leaves_no_code(place: Place) -> None:
    item = add_secret(place)
    fill_cells(place)
    assert place.memory.stats().pending == 0
    assert {*WORDS, "fixed point 0", "code 0"} <= place.traces(NEEDLES)

    assert place.memory.forget(item.id).erased

    assert place.traces(NEEDLES) == set()
    assert_no_path_leads_to(place, item)


def test_no_centroid_is_the_vector_of_an_item(place: Place) -> None:
    """Also not of one that has a cell to itself: it would stay when the item is forgotten."""
    texts = [" ".join(f"zq{word}{n}" for word in ("odd", "lone", "by", "self")) for n in range(40)]
    needles = {what: rotate(EMBEDDER.embed([what])[0]).astype("<f2").tobytes() for what in texts}
    items = [place.memory.add(text, namespace=("zqnscanary",)) for text in texts]
    fill_cells(place)

    assert place.traces(needles) == set()
    for item in items:
        assert place.memory.forget(item.id).erased
    assert place.traces(needles) == set()
    assert place.memory.check() == []


def test_a_long_item_leaves_none_of_its_passages(place: Place) -> None:
    text = " ".join(f"zqword{n}canary and so on" for n in range(400))
    needles = {f"word {n}": f"zqword{n}canary".encode() for n in range(400)} | vectors_of(text)
    item = place.memory.add(text, namespace=("zqnscanary",), id="zqidcanary")
    assert sum(what.startswith("fixed") for what in place.traces(needles)) > 3

    assert place.memory.forget(item.id).erased

    assert place.traces(needles) == set()


def test_what_an_update_replaced_stands_in_the_history_only_until_the_item_is_forgotten(
    place: Place,
) -> None:
    item = add_secret(place)
    place.memory.update(item.id, content="it flew away", context="", metadata={})
    assert place.memory.forget("other1").erased

    # Indexes and vector forget it at once.
    assert place.traces(NEEDLES) == {
        "zqcontentcanary",
        "zqsecondcanary",
        "zqidcanary",
        "zqsubjectcanary",
        "zqattributecanary",
        "zqclaimvaluecanary",
        "zqsourcecanary",
    }
    database = (place.folder / "amv.db").read_bytes()
    assert database.count(b"zqcontentcanary") == 1
    assert place.memory.history(item.id)[0].content == SECRET["content"]

    assert place.memory.forget(item.id).erased

    assert place.traces(NEEDLES) == set()


def supersede(memory: amv.Memory) -> None:
    claim = amv.Claim("zqsubjectcanary", "zqattributecanary", "elsewhere")
    memory.add("it sings elsewhere", namespace=("zqnscanary",), id="newer", claim=claim)


def refute(memory: amv.Memory) -> None:
    memory.refute("zqidcanary")


def confirm(memory: amv.Memory) -> None:
    memory.confirm("zqidcanary")


@pytest.mark.parametrize("change", [supersede, refute, confirm])
def test_an_item_forgotten_late_in_its_life_leaves_no_trace(
    place: Place, change: Callable[[amv.Memory], None]
) -> None:
    """What superseded it still names the subject, and is forgotten as well."""
    item = add_secret(place)
    change(place.memory)
    assert place.memory.forget(item.id).erased
    if change is supersede:
        assert place.memory.get("newer").supersedes is None
        assert place.memory.forget("newer").erased

    assert place.traces(NEEDLES) == set()
    assert_no_path_leads_to(place, item)


def test_what_took_the_place_of_another_leaves_no_link(place: Place) -> None:
    """An id may tell something too, and stands in the item that was superseded."""
    claim = amv.Claim("alice", "city", "Rome")
    place.memory.add("Alice lives in Rome", namespace=("a",), id="older", claim=claim)
    moved = amv.Claim("alice", "city", "Oslo")
    place.memory.add("Alice moved", namespace=("a",), id="zqidcanary", claim=moved)
    needles = {"id": b"zqidcanary"}
    assert place.traces(needles) == {"id"}

    assert place.memory.forget("zqidcanary").erased

    assert place.traces(needles) == set()


def test_a_forgotten_namespace_leaves_not_even_its_name(place: Place) -> None:
    needles = {**NEEDLES, "namespace": b"zqnscanary", "other": b"other17"}
    item = add_secret(place)
    fill_cells(place)
    place.memory.add("Bob stays", namespace=("bob",), id="bob")
    assert {"namespace", "other", "code 0"} <= place.traces(needles)

    receipt = place.memory.forget_namespace(item.namespace)

    assert receipt.erased
    assert receipt.count == 91
    assert place.traces(needles) == set()
    assert place.memory.search("Bob", namespace=("bob",)).hits[0].item.id == "bob"
    assert place.memory.check() == []


@pytest.mark.parametrize("is_copied", [False, True])
def test_an_expired_item_is_gone_once_it_was_swept(place: Place, is_copied: bool) -> None:
    """Whoever has the file open keeps it so for months: nobody waits for the end of that."""
    item = add_secret(place, expires_at=place.clock() + 60.0)
    if is_copied:
        place.memory.close()
        place.memory = place.opened()
    place.clock.advance(61.0)
    assert_no_path_leads_to(place, item)
    held = place.folder / ("amv.db" if is_copied else "amv.db-wal")
    assert WORDS["zqcontentcanary"] in held.read_bytes()

    report = place.memory.sweep()

    assert (item.id, "expired") in [(move.item_id, move.why) for move in report.moves]
    assert report.erased
    assert place.traces(NEEDLES) == set()


def test_an_evicted_item_is_gone_once_it_was_swept(place: Place) -> None:
    place.memory.close()
    place.settings = replace(SETTINGS, evict=True)
    place.memory = place.opened()
    item = add_secret(place)
    fill_cells(place)
    place.clock.advance(3 * 365 * 86_400.0)
    assert {*WORDS} <= place.traces(NEEDLES)

    report = place.memory.sweep()

    assert (item.id, "evict") in [(move.item_id, move.why) for move in report.moves]
    assert report.erased
    assert place.traces(NEEDLES) == set()


def again_added(place: Place, memory: amv.Memory) -> None:
    memory.add("something else", namespace=("zqnscanary",), id="zqidcanary")


def again_restored(place: Place, memory: amv.Memory) -> None:
    with amv.Memory.open(embedder=EMBEDDER, clock=place.clock) as other:
        again_added(place, other)
        memory.restore(other.export_items())


@pytest.mark.parametrize("again", [again_added, again_restored])
def test_an_expired_item_whose_id_was_taken_is_gone_with_the_next_upkeep(
    place: Place, again: Callable[[Place, amv.Memory], None]
) -> None:
    """No sweep deletes it then, as it is not there any more."""
    add_secret(place, expires_at=place.clock() + 60.0)
    place.clock.advance(61.0)
    again(place, place.memory)
    assert WORDS["zqcontentcanary"] in (place.folder / "amv.db-wal").read_bytes()

    place.memory.maintain()

    assert place.traces(NEEDLES) == {"zqidcanary"}


def test_a_forgotten_item_leaves_no_vector_of_another_embedder(place: Place) -> None:
    """Vectors wait aside while all items are embedded anew, which can be stopped half way."""
    item = add_secret(place)
    needles = vector_needles(Hashing(dimension=64).embed([str(SECRET["content"])]))

    class Stopped(Exception):
        pass

    def stop(_done: int, _total: int) -> None:
        raise Stopped

    store = SqliteStore.open(place.folder / "amv.db")
    with pytest.raises(Stopped):
        reembed(store, Hashing(dimension=64), SETTINGS, place.clock(), stop)
    store.close()
    assert "fixed point 0" in place.traces(needles)

    assert place.memory.forget(item.id).erased

    assert place.traces(needles) == set()
    assert place.traces(NEEDLES) == set()


def test_of_many_items_forgotten_among_others_none_leaves_a_trace(place: Place) -> None:
    """Trees are rebalanced as they grow and shrink, which copies cells from page to page.

    With these numbers, 21 of the items left a trace before pages were cleaned on their way to the
    file.
    """
    chance = np.random.default_rng(8)
    names = [f"zq{number:05}canary{chance.integers(10**9)}" for number in range(1200)]
    gone = [names[place] for place in chance.permutation(1200)[:800]]
    expiring = set(gone[60:])
    for start in range(0, 1200, 60):
        place.memory.add_many(
            {
                "content": f"{name} {'so on ' * int(chance.integers(1, 60))}",
                "namespace": ("zqnscanary",),
                "id": f"id{name}",
                "metadata": {"name": f"meta{name}"},
                "source": f"source{name}",
                "expires_at": place.clock() + 60.0 if name in expiring else None,
            }
            for name in names[start : start + 60]
        )
    needles = {name: name.encode() for name in gone}
    assert len(place.traces(needles)) == len(gone)

    for name in gone[:59]:
        place.memory.forget(f"id{name}")
    place.clock.advance(61.0)
    place.memory.sweep()
    assert place.memory.forget(f"id{gone[59]}").erased

    assert place.traces(needles) == set()
    assert place.memory.check() == []
