"""Policies that caches use, against traces whose outcome is known, and driving a memory."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.memory.tiers import Tier
from amv.testing import FakeClock
from bench.lifecycle.arms import ARMS, BY_NAME, opened, scaled
from bench.lifecycle.driven import Noted
from bench.lifecycle.ops import DAY_S, START_S
from bench.lifecycle.policies import POLICIES
from bench.lifecycle.policies.clairvoyant import Clairvoyant
from bench.lifecycle.policies.protocol import Entry, Policy

#: Bélády's string, with which FIFO faults more often the more it may hold.
BELADY = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]

OFTEN, SCAN = range(1, 9), range(100, 160)
HERE = ("user",)


def entry(key: int, size: int = 1) -> Entry:
    return Entry(key, f"i{key}", size)


def faults(policy: Policy, keys: Sequence[int]) -> int:
    """Return how many uses were of what was not near."""
    count = 0
    for key in keys:
        count += key not in set(policy.near(0.0))
        policy.use(entry(key))
    return count


@pytest.mark.parametrize(
    ("name", "capacity", "expected"),
    [("lru", 3, 10), ("lru", 4, 8), ("fifo", 3, 9), ("fifo", 4, 10)],
)
def test_faults_on_beladys_string_are_those_of_the_textbook(
    name: str, capacity: int, expected: int
) -> None:
    assert faults(POLICIES[name](capacity), BELADY) == expected


def after_a_scan(name: str) -> set[int]:
    """Return which of a few items used often are near after many were used once."""
    policy = POLICIES[name](10)
    for _ in range(10):
        for key in OFTEN:
            policy.use(entry(key))
    for key in SCAN:
        policy.use(entry(key))
    return set(policy.near(0.0)) & set(OFTEN)


@pytest.mark.parametrize("name", ["lfu", "w-tinylfu", "s3-fifo"])
def test_a_scan_does_not_push_out_what_is_used_often(name: str) -> None:
    assert after_a_scan(name) == set(OFTEN)


@pytest.mark.parametrize("name", ["lru", "fifo"])
def test_of_those_that_know_no_frequency_a_scan_leaves_nothing(name: str) -> None:
    """The control: else the scan would be none."""
    assert not after_a_scan(name)


def test_lfu_drops_of_those_used_least_the_one_used_first() -> None:
    policy = POLICIES["lfu"](3)
    for key in (1, 1, 2, 3, 4):
        policy.use(entry(key))

    assert set(policy.near(0.0)) == {1, 3, 4}


def test_gdsf_keeps_small_items_and_lets_old_ones_age() -> None:
    policy = POLICIES["gdsf"](2)
    for key, size in ((1, 100), (2, 10), (3, 10)):
        policy.use(entry(key, size))

    assert set(policy.near(0.0)) == {2, 3}
    for key in range(10, 60):
        # Each is used twice when it comes, and so ranks above what was used once long ago.
        policy.use(entry(key, 10))
        policy.use(entry(key, 10))
    assert 2 not in policy.near(0.0)


def test_s3_fifo_lets_a_ghost_into_the_main_queue() -> None:
    policy = POLICIES["s3-fifo"](10)
    for key in range(12):
        policy.use(entry(key))
    assert 0 not in policy.near(0.0)

    policy.use(entry(0))
    for key in range(100, 109):
        policy.use(entry(key))
    assert 0 in policy.near(0.0)


def test_w_tinylfu_forgets_how_often_things_were_used_long_ago() -> None:
    policy = POLICIES["w-tinylfu"](10)
    for _ in range(15):
        policy.use(entry(1))
    for key in range(2, 12):
        policy.use(entry(key))
    for _ in range(30):
        for key in range(20, 30):
            policy.use(entry(key))

    assert len(set(policy.near(0.0)) & set(range(20, 30))) >= 8


def test_a_clairvoyant_keeps_what_is_needed_soonest_and_nothing_that_never_is() -> None:
    policy = Clairvoyant(2, {"i1": [10.0, 50.0], "i2": [20.0], "i3": [30.0]})
    for key in (1, 2, 3, 4):
        policy.add(entry(key))
        policy.use(entry(key))

    assert policy.near(0.0) == {1, 2}
    assert policy.near(10.0) == {2, 3}
    assert policy.near(30.0) == {1}
    assert policy.near(50.0) == set()


@given(
    name=st.sampled_from(sorted(POLICIES)),
    capacity=st.integers(1, 12),
    uses=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=200),
)
def test_no_policy_keeps_more_than_it_may(
    name: str, capacity: int, uses: list[tuple[int, bool]]
) -> None:
    policy = POLICIES[name](capacity)
    for key, is_new in uses:
        (policy.add if is_new else policy.use)(entry(key, 1 + key))

        near = list(policy.near(0.0))
        assert len(near) == len(set(near)) <= max(capacity, 2)


# In a memory


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_S)


@pytest.fixture
def open_as(clock: FakeClock) -> Callable[[str], Noted]:
    def open_(name: str) -> Noted:
        return opened(
            BY_NAME[name],
            ":memory:",
            share=0.01,
            embedder="hashing:32",
            clock=clock,
            needs={"i3": [DAY_S], "i5": [2 * DAY_S]},
            upkeep_interval_s=None,
        )

    return open_


def written(memory: Noted, clock: FakeClock, count: int) -> None:
    for n in range(count):
        clock.advance(60.0)
        memory.add(f"note number {n} about matter{n}", namespace=HERE, id=f"i{n}")


def hot(memory: Noted) -> set[str]:
    page = memory.list(namespace=HERE, limit=100)
    return {item.id for item in page.items if item.tier is Tier.HOT}


def test_what_a_policy_keeps_near_is_hot_after_the_sweep(
    open_as: Callable[[str], Noted], clock: FakeClock
) -> None:
    """Ten fit: the six written last but for what those used since pushed out."""
    with open_as("lru") as memory:
        written(memory, clock, 30)
        clock.advance(60.0)
        memory.reinforce(["i0", "i1"], namespace=HERE)
        memory.sweep()

        assert hot(memory) == {"i0", "i1", *(f"i{n}" for n in range(22, 30))}
        clock.advance(60.0)
        memory.reinforce(["i2"], contributed=False, namespace=HERE)
        memory.sweep()
        assert hot(memory) == {"i0", "i1", "i2", *(f"i{n}" for n in range(23, 30))}
        assert memory.stats(HERE).tiers[Tier.HOT] == scaled(0.01).hot_max == 10


def test_a_pinned_item_is_hot_whatever_a_policy_chooses(
    open_as: Callable[[str], Noted], clock: FakeClock
) -> None:
    with open_as("fifo") as memory:
        memory.add("an allergy to nuts", namespace=HERE, id="pinned", pinned=True)
        written(memory, clock, 30)
        memory.sweep()

        assert "pinned" in hot(memory)
        assert len(hot(memory)) == 10


def test_a_clairvoyant_memory_has_hot_what_comes_next(
    open_as: Callable[[str], Noted], clock: FakeClock
) -> None:
    with open_as("clairvoyant") as memory:
        written(memory, clock, 8)
        memory.sweep()
        assert hot(memory) == {"i3", "i5"}

        clock.advance(1.5 * DAY_S)
        memory.sweep()
        assert hot(memory) == {"i5"}


def test_an_index_over_everything_finds_what_an_exact_scan_finds(
    open_as: Callable[[str], Noted], clock: FakeClock
) -> None:
    vector = np.ones(32)
    with open_as("exact") as exact, open_as("hnsw") as graph:
        for memory in (exact, graph):
            assert not memory.search("matter", namespace=HERE).hits
            written(memory, clock, 40)
            memory.forget("i7", namespace=HERE)
        both = [
            memory.search("matter9 note", namespace=HERE, vector=vector)
            for memory in (exact, graph)
        ]

        assert [hit.item.id for hit in both[0].hits] == [hit.item.id for hit in both[1].hits]
        found = graph.search("matter7", namespace=HERE, k=40)
        assert len(found.hits) == 39
        figures = graph.figures()
        assert isinstance(figures["graph_bytes"], int)
        assert figures["graph_bytes"] > 0


def test_how_long_events_waited_is_noted(open_as: Callable[[str], Noted], clock: FakeClock) -> None:
    with open_as("amv-default") as memory:
        assert memory.figures() == {"lags_s": []}
        written(memory, clock, 3)
        memory.reinforce(["i0"], namespace=HERE)
        clock.advance(7.0)
        memory.flush()

        assert memory.figures() == {"lags_s": [7.0, 7.0, 7.0]}


def test_policies_differ_in_what_orders_the_tiers_and_in_nothing_else() -> None:
    """The same probes, budgets and caps: what is compared is the order alone."""
    usual = scaled(0.1)
    for arm in ARMS:
        if arm.scans_all:
            continue
        own = arm.settings(0.1)
        assert (own.budget, own.cells, own.hot_max) == (usual.budget, usual.cells, usual.hot_max)
        assert (own.cold_below, own.rerank) == (usual.cold_below, usual.rerank)
        assert (own.weights.vector, own.weights.lexical) == (
            usual.weights.vector,
            usual.weights.lexical,
        )
