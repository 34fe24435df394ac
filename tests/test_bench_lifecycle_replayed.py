"""Traces without a store: what they return, and that hot is what the product would make it."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from amv.memory.tiers import Tier
from amv.memory.value import PRESETS
from amv.stores.memory import MemoryStore
from amv.testing import FakeClock
from bench.lifecycle.arms import BY_NAME
from bench.lifecycle.ops import DAY_S, START_S, Op, Workload
from bench.lifecycle.replayed import PACKED, Cached, Step, Values, maker, replayed, steps_of
from bench.lifecycle.run import vectors_of
from bench.lifecycle.workloads import WORKLOADS
from tests.memory.worlds import ALICE, SMALL, World

DEFAULT = PRESETS["default"]


@pytest.fixture(scope="module")
def paper() -> list[Step]:
    workload = WORKLOADS["paper"](1, 0.01)
    return steps_of(workload, vectors_of(workload))


def test_a_read_returns_what_its_user_wrote_before_and_what_it_needs(paper: list[Step]) -> None:
    """At most as many items as the request asks for, each once."""
    written: dict[str, int] = {}
    kinds = Counter[str]()
    for step in paper:
        written.update(dict.fromkeys(step.op.ids, step.op.user))
        kinds[step.op.kind] += bool(step.found)
        assert len(set(step.found)) == len(step.found) <= PACKED
        assert {written[item_id] for item_id in step.found} <= {step.op.user}
        assert set(step.op.needs) <= set(step.found)
    assert kinds["ask"] > 50 < kinds["recall"]
    assert kinds["write"] == 0


def test_the_best_match_comes_first() -> None:
    ops = [
        Op(at_s=0.0, kind="write", ids=["a", "b"], texts=["a", "b"]),
        Op(at_s=1.0, kind="question", texts=["?"], needs=["a"]),
        Op(at_s=2.0, kind="question", texts=["?"], user=7),
    ]
    vectors = np.asarray([[0.0, 1.0], [1.0, 0.0], [0.8, 0.6], [1.0, 0.0]], dtype=np.float32)

    steps = steps_of(Workload("two", 1, ops[:2]), vectors)

    assert [step.found for step in steps] == [(), ["b", "a"]]


@pytest.mark.parametrize("seed", range(3))
def test_hot_is_what_the_product_would_make_it(seed: int) -> None:
    """Written, found, packed, used and swept in any order, a memory has the same items hot."""
    rng = np.random.default_rng(seed)
    settings = replace(SMALL, value_model=DEFAULT, hot_max=8, probation_max=2)
    world = World(MemoryStore(), settings, clock=FakeClock(START_S))
    values, ids = Values(DEFAULT, 8, 2), list[str]()
    for step in range(200):
        world.clock.advance(float(rng.exponential(DAY_S)))
        kind = int(rng.integers(4)) if ids else 0
        some = [ids[i] for i in rng.permutation(len(ids))[:3].tolist()]
        if kind == 0:
            # Names in the order in which the store numbers items, which decides between equals.
            name = f"i{step:04}"
            pinned = len(ids) in (3, 9)
            world.add(f"thing {step}", id=name, pinned=pinned)
            values.add(name, world.clock(), pinned=pinned)
            ids.append(name)
        elif kind == 1:
            world.memory.reinforce(some, contributed=False, namespace=ALICE)
            values.read(some, (), world.clock(), packed=False)
        elif kind == 2:
            world.memory.reinforce(some, namespace=ALICE)
            values.read((), some, world.clock(), packed=False)
        else:
            world.make_due()
            world.memory.sweep()
            values.sweep(world.clock())
            items = world.memory.list(namespace=ALICE, limit=200).items
            hot = {item.id for item in items if item.tier is Tier.HOT}
            assert values.hot == hot


def test_a_file_of_before_is_made_anew_when_it_is_opened() -> None:
    """0.5 was new, and 0.7 used once; 0.005 and 0.025 are that by now."""
    values = Values(DEFAULT, 8, 0, before_until_s=START_S + DAY_S)
    for name in ("new", "used"):
        values.add(name, START_S, pinned=False)
    values.read((), ["used"], START_S, packed=False)
    values.sweep(START_S)
    before = dict(values.keys)

    values.sweep(START_S + DAY_S)

    fell = {name: float(np.exp(values.keys[name] - before[name])) for name in before}
    assert fell == pytest.approx({"new": 0.01, "used": 0.025 / 0.7}, rel=1e-6)


def test_poison_leaves_hot_under_the_default_and_stays_under_lfu() -> None:
    workload = WORKLOADS["poisoned"](1, 0.02)
    steps = steps_of(workload, vectors_of(workload))

    ours, lfu = (replayed(steps, maker(BY_NAME[name], 0.02)) for name in ("amv-default", "lfu"))

    assert ours.watched_hot() == 0.0
    assert lfu.watched_hot() == 1.0
    assert ours.hot() > lfu.hot()


def test_the_rank_in_a_prompt_helps_on_the_papers_mix(paper: list[Step]) -> None:
    """Of 48 that are packed, one was needed: what it was is what hot should hold."""
    ranked, alike = (
        replayed(paper, maker(BY_NAME[name], 0.02)).hot() for name in ("amv-default", "tried-alike")
    )

    assert ranked > alike


def test_pinned_items_are_hot_beside_what_a_cache_policy_keeps() -> None:
    cached = Cached(BY_NAME["lru"], 3)
    cached.add("p", 0.0, pinned=True)
    for name in "abcd":
        cached.add(name, 0.0, pinned=False)
    cached.read(["a", "p"], ["a"], 1.0, packed=False)
    assert cached.hot == {"p"}

    cached.sweep(2.0)

    assert cached.hot == {"p", "d", "a"}


def test_only_what_is_needed_later_counts_where_a_moment_is_given(paper: list[Step]) -> None:
    make = maker(BY_NAME["lru"], 0.02)
    whole, late = replayed(paper, make), replayed(paper, make, 30 * DAY_S)

    assert 0 < len(late.needed) < len(whole.needed)
    assert np.isnan(late.watched_hot())
