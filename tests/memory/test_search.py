"""Search: right against looking at everything, within its budget, and honest about gaps."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from amv.embedders.hashing import Hashing
from amv.memory import lexical, search
from amv.memory.card import Card, card_of
from amv.memory.cells import rotate, unit
from amv.memory.hot import View
from amv.memory.item import Claim, Item
from amv.memory.ports import Floats, Reader, Store
from amv.memory.ranking import RankWeights
from amv.memory.resident import run_resident
from amv.memory.results import SearchResult
from amv.memory.service import MemoryService
from amv.memory.settings import Budget, CellSettings, MemorySettings
from amv.stores.memory import MemoryStore
from tests.memory.worlds import ALICE, DAY_S, DIMENSION, MONTH_S, SMALL, WordByWord, World

NO_CELLS = replace(SMALL, cells=CellSettings(from_vectors=2000))
TIGHT = Budget(hot=256, warm=256, cold=256, postings=256)
CLOSE = Budget(hot=256, warm=320, cold=320, postings=256)
HALF_TIGHT = Budget(hot=256, warm=512, cold=512, postings=256)

WORDS = ["rome", "oslo", "trip", "dog", "cat", "flight", "hotel", "jazz", "opera", "train", "visa"]


# ---------------------------------------------------------------- against looking at everything


@dataclass(frozen=True)
class Scored:
    """An item as looking at everything ranks it."""

    item: Item
    rank: float


def score_everything(world: World, query: str, items: Sequence[Item]) -> list[Scored]:
    """Return all of *items* with their fused rank, best first: BM25 and cosine by the book."""
    vector = world.embedder.embed([query])[0].astype(np.float64)
    terms = lexical.query_terms(query)
    counts = [lexical.term_counts(item.content) for item in items]
    holders = {term: sum(term in own for own, _ in counts) for term in terms}
    idf = {term: math.log1p((len(items) - n + 0.5) / (n + 0.5)) for term, n in holders.items() if n}
    mean = sum(length for _, length in counts) / max(1, len(items))
    weights, scored = world.settings.weights, []
    for item, (own, length) in zip(items, counts, strict=True):
        spans = world.embedder.passages(item.content)
        passages = world.embedder.embed([item.content[a:b] for a, b in spans])
        similarity = float((passages.astype(np.float64) @ vector).max())
        bm25 = 0.0
        for term, weight in idf.items():
            tf = own.get(term, 0)
            bm25 += weight * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / (mean or 1.0)))
        bm25 /= sum(idf.values()) * 2.2 or 1.0
        rank = weights.vector * similarity + weights.lexical * bm25 + weights.value * item.value
        scored.append(Scored(item, rank))
    return sorted(scored, key=lambda one: -one.rank)


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


@given(
    contents=st.lists(texts, min_size=1, max_size=16),
    query=texts,
    k=st.integers(1, 20),
    used=st.sets(st.integers(0, 15)),
    decayed_s=st.sampled_from([0.0, DAY_S, MONTH_S]),
    is_worded=st.booleans(),
)
def test_without_cells_a_search_is_as_good_as_looking_at_everything(
    contents: list[str], query: str, k: int, used: set[int], decayed_s: float, is_worded: bool
) -> None:
    """The same items with the same ranks in the same order, whatever tiers they are in."""
    embedder = (WordByWord if is_worded else Hashing)(dimension=DIMENSION)
    world = World(MemoryStore(), NO_CELLS, embedder=embedder)
    items = world.memory.add_many([{"content": c, "namespace": ALICE} for c in contents])
    world.use(*(items[i].id for i in used if i < len(items)), times=2)
    world.clock.advance(decayed_s)
    world.memory.sweep()
    expected = score_everything(world, query, world.memory.list(namespace=ALICE).items)[:k]

    result = world.memory.search(query, namespace=ALICE, k=k, cold=True)

    assert [hit.rank for hit in result.hits] == pytest.approx(
        [one.rank for one in expected], abs=2e-5
    )
    by_id = {one.item.id: one.rank for one in score_everything(world, query, _fresh(world))}
    for hit in result.hits:
        assert hit.rank == pytest.approx(by_id[hit.item.id], abs=2e-5)
    assert len({hit.item.id for hit in result.hits}) == len(result.hits) == len(expected)
    assert result.complete
    assert result.scanned.total <= world.settings.budget.total


def _fresh(world: World) -> Sequence[Item]:
    return world.memory.list(namespace=ALICE).items


@settings(max_examples=30)
@given(contents=st.lists(texts, min_size=30, max_size=50), query=texts, seed=st.integers(0, 99))
def test_value_may_not_lift_an_item_from_far_behind(
    contents: list[str], query: str, seed: int
) -> None:
    """Only a few more than k are looked at in full; what that can miss is what value can add."""
    world = World(MemoryStore(), NO_CELLS)
    items = world.memory.add_many([{"content": c, "namespace": ALICE} for c in contents])
    world.use(*(item.id for item in Random(seed).sample(items, 10)), times=2)
    expected = score_everything(world, query, _fresh(world))

    hits = world.memory.search(query, namespace=ALICE, k=5).hits

    most = world.settings.weights.value * world.settings.value_model.value_max
    for hit, best in zip(hits, expected, strict=False):
        assert hit.rank >= best.rank - most - 2e-5


def clustered(seed: int, n: int, centres: int) -> Floats:
    """Return unit vectors around a few centres, the same for the same *seed*."""
    rng = np.random.default_rng(seed)
    middles = rng.standard_normal((centres, DIMENSION))
    noise = rng.standard_normal((n, DIMENSION)) * 0.5
    return unit((middles[rng.integers(0, centres, n)] + noise).astype(np.float32))


def add_vectors(world: World, matrix: Floats, **fields: Any) -> list[Item]:
    """Remember vectors as items whose words say nothing."""
    return world.memory.add_many(
        [
            {"content": f"n{i}", "namespace": ALICE, "vector": v, **fields}
            for i, v in enumerate(matrix)
        ]
    )


def test_with_cells_a_search_finds_nearly_all_of_the_best(store: Store) -> None:
    """Counted on clusters: 98 of 100 of the ten best, at a fraction of the distances."""
    cells = CellSettings(
        from_vectors=200, drain_at=64, target=8, split_above=20, probes_warm=16, probes_cold=32
    )
    world = World(store, replace(SMALL, cells=cells))
    matrix = clustered(1, 1500, 40)
    for start in range(0, 1500, 300):
        add_vectors(world, matrix[start : start + 300])
    numbers = {
        item.id: i for i, item in enumerate(world.memory.list(namespace=ALICE, limit=2000).items)
    }
    queries = clustered(1, 1600, 40)[1500:]
    found = scanned = 0
    for query in queries:
        result = world.memory.search(vector=query, namespace=ALICE, k=10, cold=True)
        best = set(np.argsort(-(matrix @ query))[:10].tolist())
        found += len(best & {numbers[hit.item.id] for hit in result.hits})
        scanned += result.scanned.total
        for hit in result.hits:
            exact = float(matrix[numbers[hit.item.id]] @ query)
            assert hit.similarity == pytest.approx(exact, abs=1e-5)

    assert found >= 0.98 * 10 * len(queries)
    assert scanned <= 0.5 * 1500 * len(queries)
    assert world.row().cells > 100


def test_cells_that_were_all_looked_at_give_what_everything_gives(world: World) -> None:
    """Codes are rough, ranks are not: the best are scored again in full precision."""
    world.fill(60)
    assert world.row().cells > 0
    wide = world.another(
        replace(SMALL, cells=replace(SMALL.cells, probes_warm=50, probes_cold=100))
    )
    for query in ("thing7 kind2", "colour3", "thing59"):
        expected = score_everything(world, query, _fresh(world))[:10]

        hits = wide.search(query, namespace=ALICE, cold=True).hits

        assert [hit.rank for hit in hits] == pytest.approx([one.rank for one in expected], abs=2e-3)


# ---------------------------------------------------------------- by vector alone, all in RAM


def turned(angle: float) -> Floats:
    """Return a unit vector in a plane; equal for equal angles."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[:2] = math.cos(angle), math.sin(angle)
    return vector


class Several(Hashing):
    """An embedder by which each word of three letters, such as 042, is a passage: an angle."""

    def passages(self, text: str) -> list[tuple[int, int]]:
        return [(start, start + 3) for start in range(0, len(text), 4)]

    def embed(self, texts: Sequence[str]) -> Floats:
        rows = [turned(int(text) / 999.0 * math.pi) for text in texts]
        return np.stack(rows).reshape(-1, DIMENSION)


TIMES: tuple[dict[str, float], ...] = (
    {},
    {"expires_at": 5.0},
    {"valid_from": 15.0},
    {"valid_from": 5.0, "valid_until": 15.0},
    {"valid_until": 5.0},
    {"valid_until": 15.0},
)
"""What an item may say of its time, in seconds from when it was added; searches come at 10."""


def world_of(
    n: int, angles: Sequence[int], long_share: float, odd_share: float, seed: int
) -> World:
    """Return a world of *n* items, ten seconds on: so many long, so many odd, some used."""
    world, rng = World(MemoryStore(), NO_CELLS, embedder=Several(dimension=DIMENSION)), Random(seed)
    new, added_s = list[dict[str, Any]](), world.clock()
    for i in range(n):
        passages = rng.randint(2, 4) if rng.random() < long_share else 1
        times = rng.choice(TIMES) if rng.random() < odd_share else {}
        is_claim = rng.random() < odd_share
        new.append(
            {
                "content": " ".join(f"{rng.choice(angles):03}" for _ in range(passages)),
                "namespace": ALICE,
                "claim": Claim("a", str(rng.randrange(5)), i) if is_claim else None,
                **{name: added_s + seconds for name, seconds in times.items()},
            }
        )
    items = world.memory.add_many(new)
    for times_used in (1, 3):
        world.use(*(item.id for item in rng.sample(items, n // 4)), times=times_used)
    world.clock.advance(10.0)
    return world


def outcomes(
    world: World, monkeypatch: pytest.MonkeyPatch, **asked: Any
) -> tuple[SearchResult, SearchResult, bool]:
    """Return what a search finds with and without its short way, and if that was gone."""
    took, short_way = [], run_resident

    def noted(*given: Any) -> Any:
        took.append(short_way(*given))
        return took[-1]

    with monkeypatch.context() as patch:
        patch.setattr(search, "run_resident", noted)
        short = world.memory.search(namespace=ALICE, **asked)
        patch.setattr(search, "run_resident", lambda *given: None)
        general = world.memory.search(namespace=ALICE, **asked)
    return short, general, took[0] is not None


def assert_same(short: SearchResult, general: SearchResult) -> None:
    """See that both found the same, but for the order of what ranks within a millionth."""
    ranks = [[hit.rank for hit in result.hits] for result in (short, general)]
    assert ranks[0] == pytest.approx(ranks[1], abs=1e-6)
    assert (short.complete, short.reason) == (general.complete, general.reason)
    assert short.cold_probed == general.cold_probed
    by_id = [{hit.item.id: hit for hit in result.hits} for result in (short, general)]
    last = min(ranks[0], default=0.0)
    for mine, theirs in (by_id, by_id[::-1]):
        for item_id, hit in mine.items():
            # Only at the very end may one of several equal ones stand for another.
            assert item_id in theirs or hit.rank == pytest.approx(last, abs=1e-6)
            if item_id in theirs:
                other = theirs[item_id]
                assert (hit.item, hit.lexical) == (other.item, other.lexical)
                assert hit.similarity == pytest.approx(other.similarity, abs=1e-6)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    n=st.integers(1, 150),
    angles=st.sampled_from([range(1000), range(1000), range(0, 1000, 50), [0, 500]]),
    long_share=st.sampled_from([0.0, 0.0, 0.1]),
    odd_share=st.sampled_from([0.0, 0.05, 0.5]),
    seed=st.integers(0, 2**16),
    angle=st.integers(0, 999),
    k=st.one_of(st.integers(1, 20), st.integers(1, 256)),
    later_s=st.sampled_from([None, 0.0, 2.0, 10.0]),
    decayed_s=st.sampled_from([0.0, 0.0, 2 * MONTH_S]),
    cold=st.sampled_from([None, True, False]),
)
def test_the_short_way_finds_what_the_long_one_does(
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    angles: Sequence[int],
    long_share: float,
    odd_share: float,
    seed: int,
    angle: int,
    k: int,
    later_s: float | None,
    decayed_s: float,
    cold: bool | None,
) -> None:
    """Whatever is expired, to come, over, superseded, equal or long among the best."""
    world = world_of(n, angles, long_share, odd_share, seed)
    world.clock.advance(decayed_s)
    if decayed_s:
        world.memory.sweep()
    as_of = None if later_s is None else world.clock() + later_s
    vector = turned((angle + 0.37) / 999.0 * math.pi)

    short, general, went = outcomes(world, monkeypatch, vector=vector, k=k, as_of=as_of, cold=cold)

    assert_same(short, general)
    event(f"went the short way: {went}, more than are looked at: {n > max(k + 16, 64, 2 * k)}")


@pytest.mark.parametrize("k", [1, 10, 64, 256])
@pytest.mark.parametrize("n", [5, 64, 65, 300, 1500, 1999])
def test_the_short_way_is_the_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, n: int, k: int
) -> None:
    """By items of one passage that are in force, however many; values put them in new order."""
    world = World(MemoryStore(), replace(NO_CELLS, weights=RankWeights(value=0.5)))
    items = add_vectors(world, clustered(21, n, 9))
    world.use(*(item.id for item in items[::3]), times=2)
    world.clock.advance(DAY_S)
    world.memory.sweep()
    for query in clustered(22, 5, 9):
        short, general, went = outcomes(world, monkeypatch, vector=query, k=k)

        assert went
        assert_same(short, general)
        assert len(short.hits) == min(n, k)
        assert is_within(short, world.settings.budget)
        pool = min(n, max(k + 16, 64, 2 * k))
        hot = min(n, world.settings.budget.hot)
        again = short.scanned.warm - (n - hot)
        assert short.scanned.hot == hot
        assert min(n, k) <= again <= pool
        assert short.scanned.cold == short.scanned.postings == 0


@pytest.mark.parametrize(
    ("kind", "share"),
    [("gaussian", 0.999), ("clusters", 0.999), ("spiky", 0.999), ("peaked", 0.995)],
)
@pytest.mark.parametrize("value", [0.0, 0.02])
def test_what_the_short_way_looks_at_again_is_enough(kind: str, share: float, value: float) -> None:
    """Counted against float32 over everything, with values in the rank and without."""
    rng = np.random.default_rng(20)
    matrix = rng.standard_normal((1224, 384))
    if kind == "clusters":
        matrix = rng.standard_normal((32, 384))[rng.integers(0, 32, 1224)] + 0.7 * matrix
    elif kind == "spiky":
        matrix = rng.standard_cauchy((1224, 384))
    elif kind == "peaked":
        matrix[:, 3] += 50.0
    vectors, queries = np.split(unit(matrix.astype(np.float32)), [1024])
    settings = replace(NO_CELLS, weights=RankWeights(value=value))
    world = World(MemoryStore(), settings, embedder=Hashing(dimension=384))
    items = add_vectors(world, vectors)
    world.use(*(item.id for item in items[::3]), times=2)
    worth = np.asarray([world.memory.get(i.id, namespace=ALICE).value for i in items], np.float32)
    ids = np.asarray([item.id for item in items])
    found = again = 0
    for query in queries:
        result = world.memory.search(namespace=ALICE, vector=query, k=10)
        ranks = 0.4 * (vectors @ query) + value * worth
        found += len({hit.item.id for hit in result.hits} & set(ids[np.argsort(-ranks)[:10]]))
        again += result.scanned.warm

    assert found >= share * 10 * len(queries)
    assert again <= 64 * len(queries)


@pytest.mark.parametrize("why", ["expired", "equal", "long", "damaged", "budget"])
def test_where_the_short_way_ends_the_long_one_is_gone(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Any of these may hide an item from the short way that belongs among the best."""
    settings = NO_CELLS if why != "budget" else replace(NO_CELLS, budget=TIGHT)
    world = World(MemoryStore(), settings, embedder=WordByWord(dimension=DIMENSION))
    query = clustered(23, 1, 1)[0]
    match why:
        case "expired":
            add_vectors(world, query[None, :], expires_at=world.clock() + 1.0)
        case "equal":
            add_vectors(world, np.stack([query] * 65))
        case "long":
            world.add("one two three")
            query = unit(world.embedder.embed(["one", "two", "three"]).sum(axis=0)[None, :])[0]
        case "damaged":
            world.memory.search(vector=query, namespace=ALICE)
    add_vectors(world, clustered(24, 500, 9))
    world.clock.advance(1.0)
    if why == "damaged":
        monkeypatch.setattr(View, "cards", _without_the_first)

    short, general, went = outcomes(world, monkeypatch, vector=query, k=10)

    assert not went
    assert short == general
    assert len(short.hits) == 10
    assert is_within(short, settings.budget)


@pytest.mark.parametrize("others", [5, 100])
@pytest.mark.parametrize("begins", [False, True])
def test_what_is_over_or_has_begun_unswept_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, others: int, begins: bool
) -> None:
    """By the row: of few items the short way leaves out what is over, and goes on."""
    world = World(MemoryStore(), NO_CELLS)
    query = clustered(27, 1, 1)[0]
    moment = {"valid_from" if begins else "expires_at": world.clock() + 5.0}
    (late,) = world.memory.add_many(
        [{"content": "late", "namespace": ALICE, "vector": query, **moment}]
    )
    add_vectors(world, clustered(28, others, 9))
    world.clock.advance(10.0)

    short, general, went = outcomes(world, monkeypatch, vector=query, k=10)

    assert went is (others == 5 and not begins)
    assert_same(short, general)
    assert (late.id in [hit.item.id for hit in short.hits]) is begins


def _without_the_first(view: View, reader: Reader, keys: list[int]) -> dict[int, Card]:
    """Return cards, as of a store that lost the first row of all."""
    return {key: card_of(row) for key, row in reader.rows(keys).items() if key != keys[0]}


def test_no_share_of_the_budget_is_exceeded_on_the_short_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second look counts as warm, though all of what it looks at fits into the hot share."""
    budget = Budget(hot=1024, warm=256)
    world = World(MemoryStore(), replace(NO_CELLS, budget=budget))
    add_vectors(world, clustered(25, 600, 9))
    ways = []
    for k in (100, 128, 200, 250):
        short, general, went = outcomes(world, monkeypatch, vector=clustered(26, 1, 1)[0], k=k)

        assert is_within(short, budget)
        assert is_within(general, budget)
        assert len(short.hits) == k
        assert_same(short, general)
        ways.append(went)
    assert ways == [True, True, True, False]


# ---------------------------------------------------------------- in full precision


def as_stored(world: World, items: Sequence[Item]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the vector of each item as the store has it, within a hundred thousandth."""
    with world.store.read() as reader:
        found = reader.vectors(reader.vector_ids([world.key(item.id) for item in items]))
    exact = found.matrix.astype(np.float64)
    return {item.id: row for item, row in zip(items, exact, strict=True)}


@pytest.mark.parametrize("has_cells", [False, True])
@pytest.mark.parametrize("rerank", [0, 64])
@pytest.mark.parametrize("k", [1, 10, 40, 256])
def test_no_similarity_is_rough(store: Store, has_cells: bool, rerank: int, k: int) -> None:
    """By codes they are off by more; also with words, with hot items, and with cells."""
    wide = replace(SMALL, hot_max=64, rerank=rerank)
    if not has_cells:
        wide = replace(wide, cells=NO_CELLS.cells)
    world = World(store, wide)
    matrix = clustered(27, 600, 12)
    contents = [f"{WORDS[i % len(WORDS)]} n{i}" for i in range(len(matrix))]
    items = world.memory.add_many(
        [
            {"content": content, "namespace": ALICE, "vector": vector}
            for content, vector in zip(contents, matrix, strict=True)
        ]
    )
    world.use(*(item.id for item in items[:40]), times=3)
    world.memory.sweep()
    assert (world.row().cells > 0, world.row().hot >= 40) == (has_cells, True)
    rows = as_stored(world, items)
    seen = set[str]()
    for n, query in enumerate(clustered(28, 12, 12)):
        for text in (None, WORDS[n % len(WORDS)], "unheard of"):
            for cold in (None, True):
                hits = world.memory.search(text, vector=query, namespace=ALICE, k=k, cold=cold).hits

                assert len(hits) == k
                exact = np.stack([rows[hit.item.id] for hit in hits]) @ query.astype(np.float64)
                told = np.asarray([hit.similarity for hit in hits])
                np.testing.assert_allclose(told, exact, rtol=0.0, atol=1e-5)
                seen.update(hit.item.tier.name for hit in hits)
    assert "HOT" in seen


def test_what_can_not_be_looked_at_again_does_not_compete(store: Store) -> None:
    """A rough similarity, which may be too high, never puts an item before one seen exactly."""
    cells = replace(SMALL.cells, target=8, split_above=20, probes_warm=60, probes_cold=90)
    weights = RankWeights(value=0.5)
    world = World(store, replace(SMALL, cells=cells))
    tight = world.another(replace(SMALL, budget=TIGHT, cells=cells, rerank=0, weights=weights))
    items = add_vectors(world, clustered(29, 400, 3))
    world.use(*(item.id for item in items[::5]), times=3)
    rows = as_stored(world, items)
    for query in clustered(30, 20, 3):
        result = tight.search(vector=query, namespace=ALICE, k=100, cold=True)

        assert is_within(result, TIGHT)
        assert len(result.hits) == 100
        for hit in result.hits:
            assert hit.similarity == pytest.approx(float(rows[hit.item.id] @ query), abs=1e-5)


# ---------------------------------------------------------------- the budget


def is_within(result: SearchResult, budget: Budget) -> bool:
    """Return whether each part was counted and none took more than its share."""
    scanned = result.scanned
    return (
        0 <= scanned.hot <= budget.hot
        and 0 <= scanned.warm <= budget.warm
        and 0 <= scanned.cold <= budget.cold
        and 0 <= scanned.postings <= budget.postings
        and scanned.total == scanned.hot + scanned.warm + scanned.cold + scanned.postings
    )


def test_a_common_word_counts_in_old_items_as_in_new_ones(store: Store) -> None:
    """Only postings of the newest could be read; items found by rarer words are looked through."""
    world = World(store, replace(NO_CELLS, budget=TIGHT, weights=RankWeights(vector=0.0)))
    whole = world.another(replace(NO_CELLS, weights=RankWeights(vector=0.0)))
    texts = ["visa and dog", "visa and cat"]
    texts += [f"dog number{n}" for n in range(300)]
    world.memory.add_many([{"content": text, "namespace": ALICE} for text in texts])

    def ranked(memory: MemoryService) -> list[tuple[str, float]]:
        hits = memory.search("dog visa", namespace=ALICE, k=2).hits
        return [(hit.item.content, round(hit.lexical, 5)) for hit in hits]

    assert [content for content, _ in ranked(world.memory)] == texts[:2]
    assert ranked(world.memory) == ranked(whole)


def distinct_counts(
    world: World, by: MemorySettings, query: Floats, *, k: int, cold: bool | None
) -> tuple[int, int]:
    """Say what the warm and the cold part of a vector search should count, by sets of ids.

    Each vector counts once, whichever of its three cells leads to it; cells are taken whole,
    nearest first, while they fit.  The best match must be poor, and no item have several vectors.
    """
    turned, budget, cells = rotate(query), by.budget, by.cells
    view = View(DIMENSION, budget.hot)
    with world.store.read() as reader:
        view.follow(reader, world.row())
        held = reader.members(reader.cell_ids(world.row().ns_id))
    assert view.index is not None
    seen = set[int]()

    def take(cell_ids: list[int], room: int) -> tuple[list[int], int]:
        taken = 0
        for place, cell_id in enumerate(cell_ids):
            new = set(held[cell_id].ids.tolist()) - seen
            if taken + len(new) > room:
                return cell_ids[place:], taken
            seen.update(new)
            taken += len(new)
        return [], taken

    reserve = min(max(by.rerank, 2 * k), budget.warm // 2)
    room = budget.warm - reserve - len(view.pending) + (budget.cold if cold else 0)
    first = view.index.probe(turned, cells.probes_cold if cold else cells.probes_warm, room)
    asked = first.cell_ids.tolist()
    warm = len(view.pending) + first.distances
    in_cold = max(0, warm - (budget.warm - reserve))
    warm -= in_cold
    rest, taken = take(asked, budget.warm - reserve - warm)
    warm += taken
    if cold is not False:
        affordable = len(asked) * (budget.cold - in_cold) // first.distances
        if cold is None and affordable > len(asked):
            left = budget.cold - in_cold
            further = view.index.probe(turned, min(affordable, cells.probes_cold), left)
            in_cold += further.distances
            done = asked[: len(asked) - len(rest)]
            rest = [i for i in further.cell_ids.tolist() if i not in done]
        in_cold += take(rest, budget.cold - in_cold)[1]
    seen.update(view.pending.ids.tolist(), view.hot.ids.tolist())
    # As many of the best as there are distances for are scored again.
    again = min(len(seen), max(k + 16, reserve), budget.warm - warm)
    return warm + again, in_cold


def test_a_vector_that_stands_in_several_cells_is_scored_once(store: Store) -> None:
    """What is counted are the vectors, not their places; also where a search goes on into cold."""
    world = World(store, SMALL)
    add_vectors(world, clustered(13, 500, 25))
    world.clock.advance(MONTH_S)
    world.memory.sweep()
    for budget, probes, cold in product(
        (Budget(), HALF_TIGHT, CLOSE), ((10, 20), (40, 60)), (False, True, None)
    ):
        cells = replace(SMALL.cells, probes_warm=probes[0], probes_cold=probes[1])
        by = replace(SMALL, budget=budget, cells=cells, cold_below=1.0)
        memory = world.another(by)
        for query in clustered(14, 12, 12):
            result = memory.search(vector=query, namespace=ALICE, k=4, cold=cold)

            counted = (result.scanned.warm, result.scanned.cold)
            assert counted == distinct_counts(world, by, query, k=4, cold=cold)
            assert is_within(result, budget)
            assert result.cold_probed == (cold is not False)
            assert len({hit.item.id for hit in result.hits}) == len(result.hits)
            assert len(result.hits) == 4 or not result.complete


@pytest.fixture(scope="module")
def crowd() -> World:
    """Give a thousand items in cells, some expired, some with metadata, under a small budget."""
    cells = replace(SMALL.cells, probes_warm=60, probes_cold=120)
    world = World(MemoryStore(), replace(SMALL, budget=HALF_TIGHT, cells=cells, k_max=200))
    rng = Random(3)
    for start in range(0, 1000, 200):
        world.memory.add_many(
            [
                {
                    "content": " ".join(rng.choices(WORDS, k=4)) + f" {i}",
                    "namespace": ALICE,
                    "metadata": {"n": i, "even": i % 2 == 0},
                    "expires_at": world.clock() + 1.0 if i % 3 == 0 else None,
                    "claim": Claim("a", str(i % 40), i) if i % 5 == 0 else None,
                }
                for i in range(start, start + 200)
            ]
        )
    world.clock.advance(2.0)
    return world


@given(
    query=st.one_of(texts, st.sampled_from(["", "🙂", "the", "unheard of"])),
    k=st.sampled_from([1, 10, 100, 200]),
    cold=st.sampled_from([True, False, None]),
    filter=st.sampled_from([None, {}, {"even": True}, {"n": 7}, {"n": {"lt": 300}}, {"n": -1}]),
    as_of_s=st.sampled_from([None, 0.0, -1.0, -1.5, 1e6]),
)
def test_no_search_takes_more_than_its_budget(
    crowd: World, query: str, k: int, cold: bool | None, filter: Any, as_of_s: float | None
) -> None:
    """Counted part by part, at any k, with any filter, also for the past."""
    as_of = None if as_of_s is None else crowd.clock() + as_of_s

    result = crowd.memory.search(query, namespace=ALICE, k=k, cold=cold, filter=filter, as_of=as_of)

    assert is_within(result, HALF_TIGHT)
    assert len(result.hits) <= k
    assert len({hit.item.id for hit in result.hits}) == len(result.hits)
    assert result.complete == (not result.reason)
    if cold is not None:
        assert result.cold_probed <= cold


def test_a_large_k_does_not_eat_the_budget(store: Store) -> None:
    """What is kept back for the second look is at most half of a share."""
    world = World(store, replace(NO_CELLS, budget=TIGHT))
    world.fill(30)

    result = world.memory.search("thing1", namespace=ALICE, k=200)

    assert len(result.hits) == 30
    assert is_within(result, TIGHT)
    assert result.scanned.warm == 30
    filtered = world.memory.search("thing1", namespace=ALICE, k=200, filter={})
    assert len(filtered.hits) == 30


def test_items_that_wait_for_their_cell_are_scanned_as_far_as_the_budget_goes(
    store: Store,
) -> None:
    """Into the share of cold ones; beyond that the result says so."""
    settings = replace(SMALL, budget=TIGHT, cells=CellSettings(from_vectors=10**6))
    world = World(store, settings)
    # Kept back for a second look are 64.
    world.fill(3 * 256 - 64)
    vector = world.embedder.embed(["thing1"])[0]
    for query in ({"query": "thing1"}, {"vector": vector}):
        result = world.memory.search(**query, namespace=ALICE)

        assert (result.complete, result.reason) == (True, "")
        assert (result.scanned.hot, result.scanned.cold) == (256, 256)
        assert is_within(result, TIGHT)
    world.fill(1)
    for query in ({"query": "thing1"}, {"vector": vector}):
        result = world.memory.search(**query, namespace=ALICE)

        assert (result.complete, result.reason) == (False, "new items are still being indexed")
        assert is_within(result, TIGHT)
        assert len(result.hits) == 10


def test_long_items_selected_by_a_filter_are_scored_as_far_as_the_budget_goes() -> None:
    world = World(
        MemoryStore(), replace(NO_CELLS, budget=TIGHT), embedder=WordByWord(dimension=DIMENSION)
    )
    for start in "abc":
        world.add(" ".join(f"{start}{i}" for i in range(200)), metadata={"long": True})

    result = world.memory.search("c5", namespace=ALICE, filter={"long": True})

    assert is_within(result, TIGHT)
    assert "more passages than the budget allows" in result.reason
    assert result.hits[0].item.id == "i3"


# ---------------------------------------------------------------- k live items


def test_expired_items_do_not_crowd_out_live_ones(world: World) -> None:
    """They stay in their cells until a sweep; k live ones come back all the same."""
    world.memory.add_many(
        [
            {
                "content": f"pizza in Naples {i}",
                "namespace": ALICE,
                "expires_at": world.clock() + 1.0,
            }
            for i in range(300)
        ]
    )
    live = world.fill(12)
    world.clock.advance(1.0)

    result = world.memory.search("pizza in Naples", namespace=ALICE, k=10)

    assert len(result.hits) == 10
    assert {hit.item.id for hit in result.hits} <= {item.id for item in live}
    assert result.complete
    everything = world.memory.search("pizza in Naples", namespace=ALICE, k=20)
    assert (len(everything.hits), everything.complete) == (12, True)


def test_expired_items_among_the_best_are_passed_over(store: Store) -> None:
    """Also where more of them rank ahead than are looked at first."""
    world = World(store, NO_CELLS)
    world.memory.add_many(
        [
            {"content": "pizza", "namespace": ALICE, "expires_at": world.clock() + 1.0}
            for _ in range(700)
        ]
    )
    live = world.fill(20)
    world.clock.advance(1.0)

    result = world.memory.search("pizza", namespace=ALICE, k=15)

    assert len(result.hits) == 15
    assert {hit.item.id for hit in result.hits} <= {item.id for item in live}
    assert result.complete


def test_fewer_than_k_come_with_the_reason(store: Store) -> None:
    """More live items exist than the budget lets it look at, and the near ones have expired."""
    world = World(store, replace(SMALL, budget=TIGHT))
    rng = np.random.default_rng(5)
    near = unit((np.eye(DIMENSION)[0] + 0.02 * rng.standard_normal((200, DIMENSION))).astype("f4"))
    far = unit((-np.eye(DIMENSION)[0] + 0.3 * rng.standard_normal((400, DIMENSION))).astype("f4"))
    add_vectors(world, near, expires_at=world.clock() + 1.0)
    add_vectors(world, far)
    world.clock.advance(1.0)

    result = world.memory.search(vector=np.eye(DIMENSION)[0], namespace=ALICE, k=50, cold=False)

    assert len(result.hits) < 50
    assert not result.complete
    assert result.reason == "the candidate budget ended before k live items were found"
    assert is_within(result, TIGHT)


def test_fewer_than_k_items_are_all_there_is(world: World) -> None:
    """Complete, however few."""
    assert world.memory.search("x", namespace=ALICE) == SearchResult(
        hits=(), scanned=world.memory.search("", namespace=ALICE).scanned
    )
    world.fill(3)
    result = world.memory.search("thing1", namespace=ALICE)

    assert (len(result.hits), result.complete, result.reason) == (3, True, "")


def test_an_emptied_namespace_finds_nothing_and_says_so_completely(world: World) -> None:
    items = world.fill(60)
    for item in items:
        world.memory.forget(item.id)

    result = world.memory.search("thing1", namespace=ALICE, cold=True)

    assert (result.hits, result.complete) == ((), True)
    assert world.row().cells == 0


# ---------------------------------------------------------------- filters


def test_a_filter_that_few_items_match_is_exact(world: World) -> None:
    """Wherever they are kept: in cells that no probe would look at, cold, least similar."""
    items = [*world.fill(20), *world.fill(1, metadata={"rare": True}), *world.fill(60)]
    world.clock.advance(6 * MONTH_S)
    world.memory.sweep()

    result = world.memory.search("thing44 kind4", namespace=ALICE, filter={"rare": True})

    assert [hit.item.id for hit in result.hits] == [items[20].id]
    assert (result.complete, result.scanned.hot, result.scanned.cold) == (True, 0, 0)


def test_a_filter_that_many_items_match_is_applied_on_the_way(store: Store) -> None:
    """Then the ones most similar are looked at, filtered-out ones among them."""
    world = World(store, replace(SMALL, budget=TIGHT))
    for start in (0, 1):
        world.fill(300, metadata={"side": start})

    result = world.memory.search("thing7 kind2", namespace=ALICE, filter={"side": 1}, k=5)

    assert len(result.hits) == 5
    assert {hit.item.metadata["side"] for hit in result.hits} == {1}
    assert result.hits[0].item.content.startswith("thing7 ")
    assert is_within(result, TIGHT)


def test_a_filter_that_nothing_matches_finds_nothing(world: World) -> None:
    world.fill(5)

    result = world.memory.search("thing1", namespace=ALICE, filter={"absent": 1})

    assert (result.hits, result.complete) == ((), True)


def test_the_empty_filter_lets_everything_through(world: World) -> None:
    world.fill(5)

    assert set(world.found("thing1", filter={})) == set(world.found("thing1"))


def test_a_filter_sees_what_was_superseded_by_then(world: World) -> None:
    """A search of the past filters as well."""
    world.claim("Oslo", metadata={"in": "Norway"})
    world.clock.advance(10.0)
    world.claim("Rome", metadata={"in": "Italy"})
    then = world.clock() - 5.0

    assert world.found("lives", as_of=then, filter={"in": "Norway"}) == ["i1"]
    assert world.found("lives", as_of=then, filter={"in": "Italy"}) == []
    assert world.found("lives", filter={"in": "Norway"}) == []


# ---------------------------------------------------------------- times


def test_a_search_of_the_past_shows_what_held_then(world: World) -> None:
    """Live and superseded alike, not what came later."""
    note = world.add("Alice likes jazz")
    oslo = world.claim("Oslo")
    world.clock.advance(10.0)
    rome = world.claim("Rome")
    then = world.clock() - 5.0

    assert set(world.found("Alice lives jazz", as_of=then)) == {note.id, oslo.id}
    assert set(world.found("Alice lives jazz")) == {note.id, rome.id}
    assert world.found("Alice", as_of=0) == []


def test_an_item_is_found_as_of_the_times_it_shows(store: Store) -> None:
    """Though a clock is more precise than a datetime; and no earlier."""
    world = World(store)
    for _ in range(5):
        world.clock.advance(0.1234567)
        old = world.claim("Oslo")
        world.clock.advance(1.7654321)
        new = world.claim("Rome")
        world.clock.advance(5.0)

        assert world.found("lives", as_of=old.created_at) == [old.id]
        assert world.found("lives", as_of=new.valid_from) == [new.id]
        assert world.found("lives", as_of=world.clock() - 5.0) == [new.id]
        world.memory.forget_namespace(ALICE)


def test_a_search_of_the_future_shows_plans(world: World) -> None:
    """What holds then, as far as is known now."""
    now = world.claim("Oslo")
    plan = world.claim("Rome", valid_from=world.clock() + 10.0)

    assert world.found("lives", as_of=world.clock() + 9.0) == [now.id]
    assert world.found("lives", as_of=world.clock() + 10.0) == [plan.id]


def test_more_history_than_the_budget_is_reported(store: Store) -> None:
    """The newest of it is looked at."""
    world = World(store, replace(NO_CELLS, budget=TIGHT))
    world.memory.add_many(
        [
            {
                "content": f"fact {i}",
                "namespace": ALICE,
                "claim": Claim("a", str(i % 300), i),
                "valid_from": world.clock() - 1000.0 + (500.0 if i >= 300 else 0.0),
            }
            for i in range(600)
        ]
    )

    result = world.memory.search("fact", namespace=ALICE, as_of=world.clock() - 600.0)

    assert len(result.hits) == 10
    assert "more superseded items were valid then" in result.reason
    assert is_within(result, TIGHT)


# ---------------------------------------------------------------- tiers


def test_cold_is_looked_at_when_asked_for_or_when_the_best_is_poor(world: World) -> None:
    """Each answer says whether it was."""
    world.fill(90)
    good, poor = "thing7 kind2 colour0", "zebra crossing"

    def probed(query: str, cold: bool | None) -> bool:
        return world.memory.search(query, namespace=ALICE, cold=cold).cold_probed

    assert [probed(good, cold) for cold in (None, True, False)] == [False, True, False]
    assert [probed(poor, cold) for cold in (None, True, False)] == [True, True, False]


def test_going_on_into_cold_finds_more(store: Store) -> None:
    """With few probes the warm part alone misses some of the best."""
    world = World(store)
    matrix = clustered(7, 400, 10)
    add_vectors(world, matrix)
    found = dict.fromkeys((True, False), 0)
    for query in clustered(8, 30, 10):
        best = {f"i{i + 1}" for i in np.argsort(-(matrix @ query))[:10].tolist()}
        for cold in found:
            result = world.memory.search(vector=query, namespace=ALICE, cold=cold)
            found[cold] += len(best & {hit.item.id for hit in result.hits})

    assert found[True] > found[False]


def test_an_item_of_any_tier_is_found_by_a_rare_word(world: World) -> None:
    """Which no embedding tells apart: the lexical probe reaches every tier."""
    world.fill(80)
    old = world.add("invoice W2378156 was paid")
    world.clock.advance(12 * MONTH_S)
    world.fill(80)
    world.memory.sweep()

    hit = world.memory.search("W2378156", namespace=ALICE).hits[0]

    assert hit.item.id == old.id
    assert hit.lexical > 0.3
    exact = float(world.embedder.embed([old.content])[0] @ world.embedder.embed(["W2378156"])[0])
    assert hit.similarity == pytest.approx(exact, abs=1e-5)


def test_a_word_shared_by_more_items_than_the_budget_is_read_for_the_newest() -> None:
    world = World(MemoryStore(), replace(NO_CELLS, budget=TIGHT))
    world.fill(300)
    new = world.add("kind1 of thing")

    result = world.memory.search("kind1 thing1 colour1", namespace=ALICE, k=100)

    assert is_within(result, TIGHT)
    assert new.id in {hit.item.id for hit in result.hits if hit.lexical > 0.0}


# ---------------------------------------------------------------- passages


def test_a_long_item_is_found_by_any_of_its_passages(store: Store) -> None:
    """Once, with the similarity of the passage that fits best."""
    world = World(store, embedder=WordByWord(dimension=DIMENSION))
    item = world.add("alpha beta gamma delta")
    other = world.add("beta")

    for word in ("alpha", "gamma", "delta"):
        hits = world.memory.search(word, namespace=ALICE).hits
        assert [hit.item.id for hit in hits] == [item.id, other.id]
        assert hits[0].similarity == pytest.approx(1.0, abs=1e-5)


class ThreeWords(Hashing):
    """An embedder that reads three words at a time."""

    def passages(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"(\S+\s*){1,3}", text)]


def test_the_similarity_told_is_that_of_the_best_passage(store: Store) -> None:
    """Of passages about as similar, codes alone may put a lesser one first."""
    rng = Random(11)
    cells = replace(SMALL.cells, probes_cold=512)
    world = World(store, replace(SMALL, cells=cells), embedder=ThreeWords(dimension=DIMENSION))
    words = [f"w{i}" for i in range(14)]
    texts = sorted({" ".join(rng.choices(words, k=12)) for _ in range(120)})
    world.memory.add_many([{"content": text, "namespace": ALICE} for text in texts])
    vectors = {
        text: world.embedder.embed([text[a:b] for a, b in world.embedder.passages(text)])
        for text in texts
    }
    assert world.row().cells > 0

    for _ in range(40):
        query = unit(np.asarray([[rng.gauss(0, 1) for _ in range(DIMENSION)]], np.float32))[0]
        hits = world.memory.search(vector=query, namespace=ALICE, cold=True, k=20).hits
        best = [float((vectors[hit.item.content] @ query).max()) for hit in hits]
        assert [hit.similarity for hit in hits] == pytest.approx(best, abs=1e-5)


def test_the_best_by_words_are_scored_by_vector_before_the_oldest() -> None:
    """Long items have more passages than are scored for their words' sake."""
    settings = replace(SMALL, cells=replace(SMALL.cells, probes_warm=1))
    world = World(MemoryStore(), settings, embedder=WordByWord(dimension=DIMENSION))
    filler = [" ".join(f"w{i}x{j}" for j in range(8)) for i in range(20)]
    world.memory.add_many([{"content": f"needle {text}", "namespace": ALICE} for text in filler])
    best = world.add("needle needle needle")
    world.fill(3)
    elsewhere, needle = world.embedder.embed(["w0x1", "needle"])
    query = unit((elsewhere + 0.3 * needle)[None, :])[0]

    hits = world.memory.search("needle", vector=query, namespace=ALICE, cold=False, k=5).hits

    exact = float(needle @ query)
    assert exact > 0.2
    similarity = {hit.item.id: hit.similarity for hit in hits}[best.id]
    assert similarity == pytest.approx(exact, abs=1e-5)


# ---------------------------------------------------------------- queries


def test_a_vector_alone_is_a_query(world: World) -> None:
    """Of any length; without words there is no lexical score."""
    items = world.fill(5)
    vector = world.embedder.embed([items[2].content])[0]

    hits = world.memory.search(vector=vector * 7, namespace=ALICE).hits

    assert hits[0].item.id == items[2].id
    assert hits[0].similarity == pytest.approx(1.0, abs=1e-5)
    assert {hit.lexical for hit in hits} == {0.0}


def test_a_vector_stands_in_for_that_of_the_text(world: World) -> None:
    """The words of the text still count."""
    items = world.fill(5)
    vector = world.embedder.embed([items[2].content])[0]

    hits = {
        h.item.id: h for h in world.memory.search("thing4", vector=vector, namespace=ALICE).hits
    }

    assert hits[items[2].id].similarity == pytest.approx(1.0, abs=1e-5)
    assert [item_id for item_id, hit in hits.items() if hit.lexical > 0.0] == [items[4].id]


@pytest.mark.parametrize("query", ["", " \n\t", "\u3000"])
def test_a_blank_query_finds_nothing(world: World, query: str) -> None:
    """Defined, and no error: an agent that has nothing to ask gets nothing."""
    world.fill(3)
    result = world.memory.search(query, namespace=ALICE)

    assert (result.hits, result.scanned.total, result.complete) == ((), 0, True)
    vector = world.embedder.embed(["thing1"])[0]
    assert len(world.memory.search(query, vector=vector, namespace=ALICE).hits) == 3


def test_an_emoji_is_a_query_like_any_other(world: World) -> None:
    """Without words it has a vector still."""
    item = world.add("🍕🍕")
    world.fill(3)

    hits = world.memory.search("🍕", namespace=ALICE).hits

    assert (hits[0].item.id, len(hits)) == (item.id, 4)
    assert hits == world.memory.search("🍕", namespace=ALICE).hits


def test_a_search_creates_no_namespace(world: World) -> None:
    """Asking is not writing."""
    world.memory.search("x", namespace=("nobody",))

    assert world.memory.namespaces() == []


def test_equal_matches_come_newest_first(world: World) -> None:
    items = world.memory.add_many([{"content": "same", "namespace": ALICE}] * 4)

    assert world.found("same") == [item.id for item in reversed(items)]


def test_among_equal_matches_the_more_valuable_comes_first(world: World) -> None:
    items = world.memory.add_many([{"content": "same", "namespace": ALICE}] * 4)
    world.use(items[1].id)

    assert world.found("same")[0] == items[1].id


def test_many_candidates_come_in_the_order_of_their_rank(store: Store) -> None:
    """Only the head of a long list is sorted; none of it may be out of place."""
    world = World(store, replace(NO_CELLS, weights=RankWeights(value=0.0)))
    matrix = clustered(9, 900, 900)
    add_vectors(world, matrix)
    query = clustered(10, 1, 1)[0]

    result = world.memory.search(vector=query, namespace=ALICE, k=100)

    exact = matrix @ query
    found = np.asarray([exact[int(hit.item.id[1:]) - 1] for hit in result.hits])
    # A store keeps vectors to within a hundred thousandth: closer ones may change places.
    assert found == pytest.approx(np.sort(exact)[::-1][:100], abs=1e-5)


def test_words_weigh_the_same_however_many_candidates_there_are(store: Store) -> None:
    """An item found by a word keeps its similarity, also far behind the most similar ones."""
    world = World(store, NO_CELLS)
    matrix = clustered(11, 900, 900)
    add_vectors(world, matrix)
    query = clustered(12, 1, 1)[0]
    unlike = matrix[np.argsort(matrix @ query)[30]]
    named = world.add("zanzibar", vector=unlike)

    hits = world.memory.search("zanzibar", vector=query, namespace=ALICE, k=5).hits

    (hit,) = [hit for hit in hits if hit.item.id == named.id]
    assert hit.similarity == pytest.approx(float(unlike @ query), abs=1e-5)
    assert hit.similarity < -0.1


# ---------------------------------------------------------------- exposure


def test_what_a_search_shows_counts_as_exposed(world: World) -> None:
    """Once the log is folded; nothing is written on the way."""
    items = world.fill(4)
    version = world.row().version
    shown = world.found("thing1", k=2)
    assert world.row().version == version

    assert world.memory.flush() == 2

    counts = {item.id: world.memory.get(item.id).exposed_count for item in items}
    assert counts == {item_id: int(item_id in shown) for item_id in counts}
