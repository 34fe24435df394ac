"""Postings in tails and chunks, against a dictionary."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.memory.ports import NewPostings
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.codec import ENTRY
from amv.stores.sqlite.postings import CHUNK_MAX, TAIL_MAX

NS = 1
Held = dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    store = SqliteStore.open(tmp_path_factory.mktemp("postings") / "amv.db", synchronous="NORMAL")
    yield store
    store.close()


def apply(store: SqliteStore, ns_id: int, held: Held, step: tuple[str, int, int]) -> None:
    """Run one step on the store and on the model."""
    kind, key, count = step
    if kind == "add":
        items = [
            NewPostings(one, {"term": one % 7 + 1}, one % 90) for one in range(key, key + count)
        ]
        store.write(lambda writer: writer.add_postings(ns_id, items))
        held |= {item.key: (item.counts["term"], item.length) for item in items}
        return
    for one in range(key, key + count):
        store.write(lambda writer, one=one: writer.remove_postings(ns_id, one, ["term"]))  # type: ignore[misc]
        held.pop(one, None)


namespaces = iter(range(1, 1_000_000))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "remove"]),
            st.integers(0, 1500) | st.integers(2**40, 2**40 + 50),
            st.integers(1, 200),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_order_of_adding_and_removing_gives_what_a_dictionary_gives(
    store: SqliteStore, steps: list[tuple[str, int, int]]
) -> None:
    """Old keys, keys indexed twice, tails that overflow, chunks that split, offsets of 2^40."""
    ns_id = next(namespaces)
    held: Held = {}
    for step in steps:
        apply(store, ns_id, held, step)

    newest = sorted(((key, *held[key]) for key in held), reverse=True)
    with store.read() as reader:
        assert reader.frequencies(ns_id, ["term"]) == ({"term": len(held)} if held else {})
        for limit in (1, 10, TAIL_MAX + 1, 10_000):
            assert reader.postings(ns_id, "term", limit).tolist() == newest[:limit]


def test_a_common_term_is_kept_in_chunks_of_bounded_size(tmp_path: Path) -> None:
    """And a term in no item leaves no row behind, in chunks neither."""
    store = SqliteStore.open(tmp_path / "amv.db")
    apply(store, NS, {}, ("add", 1000, 500))
    apply(store, NS, {}, ("add", 1, 900))

    with closing(apsw.Connection(store.path)) as other:
        sizes = [
            size // ENTRY.itemsize for (size,) in other.execute("SELECT length(data) FROM posting")
        ]
    assert sum(sizes) >= 1400 - TAIL_MAX
    assert max(sizes) <= CHUNK_MAX
    assert len(sizes) <= 1400 / (TAIL_MAX / 2)

    apply(store, NS, {}, ("remove", 1, 1500))
    with closing(apsw.Connection(store.path)) as other:
        counts = other.execute("SELECT (SELECT count(*) FROM term), (SELECT count(*) FROM posting)")
        assert counts.get == (0, 0)
    store.close()
