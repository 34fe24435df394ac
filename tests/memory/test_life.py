"""An item's life: claims that supersede each other, checks, pins, changes, and its end."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import Conflict, InvalidInput, ItemNotFound
from amv.memory import intake
from amv.memory.item import Claim, Item, Status, utc
from amv.memory.tiers import Tier
from amv.stores.memory import MemoryStore
from tests.memory.worlds import ALICE, BOB, DAY_S, DIMENSION, MONTH_S, SMALL, World


def statuses(world: World, *items: Item) -> list[str]:
    """Return the status of each item by now."""
    return [world.memory.get(item.id).status.value for item in items]


# ---------------------------------------------------------------- superseding


@pytest.mark.parametrize("trust", [0.5, 0.9])
def test_a_newer_claim_supersedes_the_older_one(world: World, trust: float) -> None:
    """From a source trusted as much or more; the old one ends where the new one begins."""
    old = world.claim("Oslo", source_trust=0.5, pinned=True)
    world.clock.advance(10.0)
    new = world.claim("Rome", source_trust=trust)
    ended = world.memory.get(old.id)

    assert (ended.status, ended.superseded_by) == (Status.SUPERSEDED, new.id)
    assert ended.valid_until == new.valid_from == utc(world.clock())
    assert (ended.pinned, ended.tier) == (False, Tier.COLD)
    assert (new.status, new.supersedes, new.contradicted) == (Status.LIVE, old.id, False)
    assert world.city() == "Rome"
    assert world.found("lives in Oslo", cold=True) == [new.id]
    assert world.store.check() == []


def test_a_claim_of_a_less_trusted_source_only_contradicts(world: World) -> None:
    """Otherwise anyone could overwrite what a better source said."""
    trusted = world.claim("Oslo", source_trust=0.9)
    world.clock.advance(10.0)
    doubtful = world.claim("Rome", source_trust=0.8)

    assert statuses(world, trusted, doubtful) == ["live", "live"]
    assert doubtful.contradicted
    assert world.memory.get(trusted.id).contradicted
    assert world.city() == "Oslo"
    assert set(world.found("lives in")) == {trusted.id, doubtful.id}


def test_contradicting_twice_changes_nothing_more(world: World) -> None:
    """The flag is there already."""
    trusted = world.claim("Oslo", source_trust=0.9)
    for city in ("Rome", "Bonn"):
        world.clock.advance(1.0)
        world.claim(city, source_trust=0.1)

    assert world.memory.get(trusted.id).contradicted
    assert [item.content for item in world.memory.list(namespace=ALICE).items] == [
        "lives in Oslo",
        "lives in Bonn",
    ]


def test_a_claim_of_the_same_value_contradicts_nothing(world: World) -> None:
    """Two sources that agree are two items."""
    one = world.claim("Rome", source_trust=0.9)
    two = world.claim("Rome", source_trust=0.1)

    assert statuses(world, one, two) == ["live", "live"]
    assert not world.memory.get(one.id).contradicted
    assert not two.contradicted


@pytest.mark.parametrize(
    "other",
    [
        Claim("bob", "city", "Rome"),
        Claim("alice", "country", "Italy"),
        Claim("Alice", "city", "Rome"),
        None,
    ],
)
def test_what_claims_something_else_is_left_alone(world: World, other: Claim | None) -> None:
    """Free text in particular is never superseded by guess."""
    city = world.claim("Oslo")
    item = world.add("Alice lives in Rome", claim=other)

    assert statuses(world, city, item) == ["live", "live"]


def test_a_claim_in_another_namespace_supersedes_nothing(world: World) -> None:
    """Bob's agent knows another Alice."""
    mine = world.claim("Oslo")
    theirs = world.claim("Rome", namespace=BOB)

    assert statuses(world, mine, theirs) == ["live", "live"]


def test_a_claim_that_was_valid_earlier_is_history_from_the_start(world: World) -> None:
    """A backfill must not overwrite what is known of now; as of then it is found."""
    new = world.claim("Rome")
    old = world.claim("Oslo", valid_from=world.clock() - 100.0, pinned=True)

    assert (old.status, old.superseded_by, old.pinned) == (Status.SUPERSEDED, new.id, False)
    assert old.valid_until == new.valid_from
    assert world.city() == "Rome"
    assert world.found("lives in", as_of=world.clock() - 50.0) == [old.id]
    assert world.found("lives in") == [new.id]
    assert world.store.check() == []


def test_an_earlier_claim_of_a_better_source_is_no_history(world: World) -> None:
    """Added in their order, the newer one would not have superseded it either."""
    doubtful = world.claim("Rome", source_trust=0.3)
    trusted = world.claim("Oslo", source_trust=0.9, valid_from=world.clock() - 100.0)

    assert statuses(world, doubtful, trusted) == ["live", "live"]
    assert trusted.contradicted
    assert world.memory.get(doubtful.id).contradicted
    assert world.city() == "Oslo"


def test_an_expired_claim_is_no_rival(world: World) -> None:
    """Neither superseded nor a contradiction: no path shows it any more."""
    world.claim("Oslo", source_trust=0.9, expires_at=world.clock() + 5.0)
    world.clock.advance(5.0)
    new = world.claim("Rome", source_trust=0.1)

    assert (new.supersedes, new.contradicted) == (None, False)
    assert world.city() == "Rome"


def test_claims_that_are_never_valid_together_are_no_rivals(world: World) -> None:
    """One has ended before the other begins."""
    now_s = world.clock()
    ended = world.claim("Oslo", valid_from=now_s - 9.0, valid_until=now_s - 5.0)
    brief = world.claim("Bonn", valid_until=now_s + 5.0)
    later = world.claim("Rome", valid_from=now_s + 5.0)

    assert statuses(world, ended, brief, later) == ["live", "live", "live"]
    assert world.memory.get(brief.id).superseded_by is None
    assert world.city() == "Bonn"
    world.clock.advance(5.0)
    assert world.city() == "Rome"


def test_a_chain_of_three_is_told_as_one_history(world: World) -> None:
    """From whichever link one asks; each moment of the past has its own answer."""
    items = []
    for city in ("Oslo", "Rome", "Bonn"):
        items.append(world.claim(city))
        world.clock.advance(10.0)
    start_s = world.clock() - 30.0

    assert statuses(world, *items) == ["superseded", "superseded", "live"]
    for item in items:
        told = [(step.event, step.content) for step in world.memory.history(item.id)]
        assert told == [
            ("added", "lives in Oslo"),
            ("superseded", "lives in Oslo"),
            ("added", "lives in Rome"),
            ("superseded", "lives in Rome"),
            ("added", "lives in Bonn"),
        ]
    for offset_s, expected in ((-1.0, []), (0.0, [0]), (9.0, [0]), (10.0, [1]), (29.0, [2])):
        found = world.found("lives in", as_of=start_s + offset_s)
        assert found == [items[i].id for i in expected]


def test_claims_in_one_batch_supersede_each_other_in_order(world: World) -> None:
    """As if they had been added one by one; what is returned is what is kept."""
    items = world.memory.add_many(
        [
            {
                "content": f"lives in {city}",
                "namespace": ALICE,
                "claim": Claim("alice", "city", city),
                "valid_from": world.clock() - 10.0 + place,
            }
            for place, city in enumerate(["Oslo", "Rome", "Bonn"])
        ]
    )

    assert [item.status for item in items] == [
        Status.SUPERSEDED,
        Status.SUPERSEDED,
        Status.LIVE,
    ]
    assert items == [world.memory.get(item.id) for item in items]
    assert [item.supersedes for item in items] == [None, items[0].id, items[1].id]
    assert world.store.check() == []


def test_a_batch_with_history_in_it_is_sorted_out(world: World) -> None:
    """Backfilled claims come in any order, between items of all kinds."""
    now_s = world.clock()
    items = world.memory.add_many(
        [
            {"content": "a note", "namespace": ALICE},
            {
                "content": "now",
                "namespace": ALICE,
                "claim": Claim("a", "b", 2),
            },
            {
                "content": "then",
                "namespace": ALICE,
                "claim": Claim("a", "b", 1),
                "valid_from": now_s - 5.0,
            },
            {"content": "another note", "namespace": ALICE},
        ]
    )

    assert [item.content for item in items] == ["a note", "now", "then", "another note"]
    assert [item.status.value for item in items] == ["live", "live", "superseded", "live"]


@given(
    st.permutations(range(5)).flatmap(
        lambda order: st.tuples(
            st.just(order), st.lists(st.sampled_from([0.3, 0.5, 0.9]), min_size=5, max_size=5)
        )
    )
)
def test_what_is_believed_does_not_depend_on_the_order_of_adding(
    case: tuple[Sequence[int], Sequence[float]],
) -> None:
    """Live is what no later claim of an equally trusted source contradicts."""
    order, trusts = case
    world = World(MemoryStore())
    start_s = world.clock() - 100.0
    for place in order:
        world.claim(str(place), valid_from=start_s + place, source_trust=trusts[place])

    front = [i for i in range(5) if not any(t >= trusts[i] for t in trusts[i + 1 :])]
    live = {item.content: item for item in world.memory.list(namespace=ALICE).items}
    assert sorted(live) == [f"lives in {i}" for i in front]
    assert {item.contradicted for item in live.values()} == {len(front) > 1}
    assert world.city() == str(front[0])
    assert world.store.check() == []


# ---------------------------------------------------------------- claims to come


def test_a_claim_not_valid_yet_ends_what_is_known_when_it_begins(world: World) -> None:
    """Not before; and on time, whether or not a sweep comes by."""
    old = world.claim("Oslo")
    world.clock.advance(10.0)
    new = world.claim("Rome", valid_from=world.clock() + 100.0)

    assert (new.status, new.supersedes, new.tier) == (Status.LIVE, old.id, Tier.COLD)
    ended = world.memory.get(old.id)
    assert (ended.status, ended.superseded_by) == (Status.LIVE, new.id)
    assert ended.valid_until == new.valid_from
    world.clock.advance(99.0)
    assert (world.city(), world.found("lives in")) == ("Oslo", [old.id])
    world.clock.advance(1.0)
    assert (world.city(), world.found("lives in")) == ("Rome", [new.id])
    world.memory.sweep()
    assert (world.city(), statuses(world, old, new)) == ("Rome", ["superseded", "live"])
    told = [(s.event, s.at) for s in world.memory.history(new.id) if s.event == "superseded"]
    assert told == [("superseded", new.valid_from)]


def test_a_claim_of_now_holds_until_one_to_come(world: World) -> None:
    """A plan for next month must not make today's news history."""
    world.claim("Oslo")
    planned = world.claim("Rome", valid_from=world.clock() + 100.0)
    world.clock.advance(10.0)
    now = world.claim("Bonn")

    assert (now.status, now.superseded_by) == (Status.LIVE, planned.id)
    assert world.memory.get(planned.id).supersedes == now.id
    assert world.city() == "Bonn"
    world.clock.advance(90.0)
    world.memory.sweep()
    assert (world.city(), statuses(world, now)) == ("Rome", ["superseded"])


def test_a_plan_that_is_forgotten_ends_nothing(world: World) -> None:
    """What it was going to end goes on, until what would have ended the plan."""
    oslo = world.claim("Oslo")
    rome = world.claim("Rome", valid_from=world.clock() + 100.0)
    bonn = world.claim("Bonn", valid_from=world.clock() + 200.0)

    world.memory.forget(rome.id)
    assert world.memory.get(oslo.id).superseded_by == bonn.id
    world.clock.advance(150.0)
    assert world.city() == "Oslo"
    world.memory.forget(bonn.id)
    world.clock.advance(100.0)
    assert (world.city(), statuses(world, oslo)) == ("Oslo", ["live"])
    assert world.memory.get(oslo.id).valid_until is None


@pytest.mark.parametrize("is_swept", [False, True])
def test_a_plan_refuted_before_it_begins_ends_nothing(world: World, is_swept: bool) -> None:
    """And one refuted afterwards has ended what it ended, swept or not."""
    for city in ("Oslo", "Rome"):
        old = world.add("before", namespace=(city,), claim=Claim("a", "b", 1))
        new = world.add(
            "after",
            namespace=(city,),
            claim=Claim("a", "b", 2),
            valid_from=world.clock() + 100.0,
        )
        if city == "Rome":
            world.clock.advance(100.0)
        if is_swept:
            world.memory.sweep()
        world.memory.refute(new.id)
        world.clock.advance(100.0)

        found = world.memory.find_claim((city,), "a", "b")
        assert (found and found.id) == (old.id if city == "Oslo" else None)
        assert statuses(world, old) == ["live" if city == "Oslo" else "superseded"]
    assert world.store.check() == []


def test_a_plan_that_expires_before_it_begins_ends_nothing(world: World) -> None:
    """The sweep that deletes it settles that."""
    oslo = world.claim("Oslo")
    world.claim("Rome", valid_from=world.clock() + 100.0, expires_at=world.clock() + 50.0)
    world.clock.advance(50.0)

    world.memory.sweep()
    world.clock.advance(100.0)

    assert (world.city(), statuses(world, oslo)) == ("Oslo", ["live"])


def test_a_plan_that_began_and_expired_between_two_sweeps_has_ended_what_it_ended(
    world: World,
) -> None:
    """Also where both are deleted by the same one."""
    now_s = world.clock()
    oslo = world.claim("Oslo")
    bonn = world.add("b", claim=Claim("x", "y", 1), namespace=("b",), expires_at=now_s + 120.0)
    for namespace, claim in ((ALICE, Claim("alice", "city", "Rome")), (("b",), Claim("x", "y", 2))):
        world.memory.add(
            "later",
            namespace=namespace,
            claim=claim,
            valid_from=now_s + 100.0,
            expires_at=now_s + 110.0,
        )
    world.clock.advance(150.0)

    world.memory.sweep()

    assert (world.city(), statuses(world, oslo)) == (None, ["superseded"])
    with pytest.raises(ItemNotFound):
        world.memory.get(bonn.id)
    assert world.store.check() == []


def test_a_claim_of_now_replaces_one_that_began_unswept(world: World) -> None:
    """With what that one had ended: nothing of the chain stays behind as live."""
    chain = [world.claim("Oslo")]
    chain += [world.claim(str(i), valid_from=world.clock() + i) for i in (1, 2, 3)]
    world.clock.advance(10.0)
    new = world.claim("Bonn")

    assert statuses(world, *chain, new) == ["superseded"] * 4 + ["live"]
    assert world.city() == "Bonn"
    assert world.store.check() == []
    world.memory.sweep()
    assert world.city() == "Bonn"


def test_a_less_trusted_plan_ends_nothing(world: World) -> None:
    """When it begins it contradicts, as it would have done if added then."""
    oslo = world.claim("Oslo", source_trust=0.9)
    rome = world.claim("Rome", source_trust=0.1, valid_from=world.clock() + 10.0)
    world.clock.advance(10.0)
    world.memory.sweep()

    assert statuses(world, oslo, rome) == ["live", "live"]
    assert world.memory.get(oslo.id).contradicted
    assert world.city() == "Oslo"


@given(
    order=st.permutations(range(5)),
    n_past=st.integers(1, 3),
    forgotten=st.integers(0, 4),
    sweeps=st.sets(st.integers(0, 5)),
)
def test_at_each_moment_the_latest_claim_begun_is_believed(
    order: Sequence[int], n_past: int, forgotten: int, sweeps: set[int]
) -> None:
    """However they came in, whenever swept, and with one of the plans dropped again."""
    world = World(MemoryStore())
    start_s = world.clock()
    items = {}
    for place in order:
        begins_s = start_s + 10.0 * (place - n_past + 1)
        items[place] = world.claim(str(place), valid_from=begins_s)
    left = set(range(5))
    if forgotten >= n_past:
        world.memory.forget(items[forgotten].id)
        left.discard(forgotten)

    for step in range(6):
        if step in sweeps:
            world.memory.sweep()
        believed = str(max(place for place in left if place < n_past + step))
        assert world.city() == believed
        assert [item.content for item in _valid_now(world)] == [f"lives in {believed}"]
        assert world.found("lives in") == [items[int(believed)].id]
        assert world.store.check() == []
        world.clock.advance(10.0)
    world.memory.sweep()
    (last,) = world.memory.list(namespace=ALICE).items
    assert last.content == f"lives in {max(left)}"


def _valid_now(world: World) -> list[Item]:
    now = utc(world.clock())
    return [
        item
        for item in world.memory.list(namespace=ALICE).items
        if item.valid_from <= now and (item.valid_until is None or now < item.valid_until)
    ]


# ---------------------------------------------------------------- a clock set back


def _told(world: World, item: Item) -> list[tuple[str, str]]:
    return [(step.event, step.content) for step in world.memory.history(item.id)]


@pytest.mark.parametrize("step_s", [0.002, 10.0, 300.0, DAY_S])
@pytest.mark.parametrize("is_batch", [False, True])
def test_with_a_clock_that_was_set_back_the_claim_added_later_is_the_newer_one(
    world: World, step_s: float, is_batch: bool
) -> None:
    """Two machines never agree to the millisecond, and one is corrected by minutes at times."""
    begun_s = world.clock()
    known = world.claim("Oslo")
    world.clock.advance(-step_s)
    if is_batch:
        fields = {"content": "lives in Rome", "namespace": ALICE}
        late, _ = world.memory.add_many(
            [{**fields, "claim": Claim("alice", "city", "Rome")}, {**fields, "content": "a note"}]
        )
    else:
        late = world.claim("Rome")
    ended = world.memory.get(known.id)

    assert (late.status, late.supersedes, late.contradicted) == (Status.LIVE, known.id, False)
    assert (ended.status, ended.superseded_by) == (Status.SUPERSEDED, late.id)
    assert late.valid_from == ended.valid_until == ended.valid_from == utc(begun_s)
    assert late.created_at == utc(begun_s - step_s)
    told = [
        ("added", "lives in Oslo"),
        ("superseded", "lives in Oslo"),
        ("added", "lives in Rome"),
    ]
    # Nothing waits for the clock to catch up, nor for a sweep.
    for wait_s in (0.0, step_s / 2, step_s / 2, 5.0):
        world.clock.advance(wait_s)
        assert world.city() == "Rome"
        assert world.found("lives in Rome", k=1) == [late.id]
        assert known.id not in world.found("lives in Oslo", cold=True)
        assert _told(world, known) == _told(world, late) == told
        assert world.store.check() == []
    assert world.found("lives in", as_of=begun_s)[0] == late.id
    assert known.id not in world.found("lives in", as_of=begun_s)
    assert known.id not in world.found("lives in", as_of=begun_s - 1.0)


def test_the_clock_may_go_back_again_and_again(world: World) -> None:
    """Each claim still takes the place of the one before it."""
    items = []
    for city in ("Oslo", "Rome", "Bonn", "Bern"):
        items.append(world.claim(city))
        world.clock.advance(-60.0)

    assert statuses(world, *items) == ["superseded"] * 3 + ["live"]
    assert world.city() == "Bern"
    added = [content for event, content in _told(world, items[0]) if event == "added"]
    assert added == [item.content for item in items]
    world.clock.advance(1000.0)
    world.memory.sweep()
    assert world.city() == "Bern"
    assert world.store.check() == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from([0.0, 0.001, 5.0, 60.0, -0.001, -5.0, -60.0, -DAY_S]),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_last_claim_is_believed_however_the_clock_goes(
    steps: list[tuple[str, float, bool]],
) -> None:
    """Of equally trusted ones that were not told when they begin; swept in between or not."""
    world = World(MemoryStore())
    for city, seconds, is_swept in steps:
        item = world.claim(city)
        assert item.status is Status.LIVE
        world.clock.advance(seconds)
        if is_swept:
            world.make_due()
            world.memory.sweep()
        assert world.city() == city
        assert {x.content for x in world.memory.list(namespace=ALICE).items} == {item.content}
        assert world.store.check() == []


def test_a_claim_of_a_doubtful_source_contradicts_also_by_a_clock_set_back(world: World) -> None:
    """It is the newer one, and less trusted; as history it would not be told of at all."""
    known = world.claim("Oslo", source_trust=0.9)
    world.clock.advance(-60.0)
    late = world.claim("Rome", source_trust=0.1)

    assert statuses(world, known, late) == ["live", "live"]
    assert late.contradicted
    assert world.city() == "Oslo"


def test_a_moment_that_was_told_counts_whatever_the_clock_says(world: World) -> None:
    """Only what came without one goes by the order of arrival; a plan stays a plan."""
    known = world.claim("Oslo")
    plan = world.claim("Bonn", valid_from=world.clock() + 100.0)
    world.clock.advance(-60.0)
    told = world.claim("Rome", valid_from=world.clock())
    late = world.claim("Bern")

    assert (told.status, told.superseded_by) == (Status.SUPERSEDED, known.id)
    assert statuses(world, known, late, plan) == ["superseded", "live", "live"]
    assert world.city() == "Bern"
    world.clock.advance(200.0)
    assert world.city() == "Bonn"
    assert world.store.check() == []


def test_a_claim_that_ends_before_what_is_known_began_keeps_its_time(world: World) -> None:
    """Made to begin later, it would never be valid."""
    world.claim("Oslo")
    world.clock.advance(-60.0)
    brief = world.claim("Rome", valid_until=world.clock() + 10.0)

    assert brief.valid_from == utc(world.clock())
    assert brief.status is Status.LIVE
    assert world.store.check() == []


def test_what_is_done_to_an_item_is_told_in_its_order_by_a_clock_set_back(world: World) -> None:
    """The moments are those the clock told; their order is that of what happened."""
    item = world.claim("Oslo")
    world.clock.advance(-60.0)
    world.memory.update(item.id, content="lives in Bergen")
    world.clock.advance(-60.0)
    world.memory.refute(item.id, "Rome")

    assert _told(world, item) == [
        ("added", "lives in Oslo"),
        ("updated", "lives in Oslo"),
        ("refuted", "lives in Bergen"),
        ("added", "alice city: Rome"),
    ]


def test_what_was_added_is_found_though_the_clock_was_set_back(world: World) -> None:
    """Free text, too: it has begun, and does not wait until the clock is there again."""
    item = world.add("a note")
    world.clock.advance(-300.0)

    assert world.found("a note") == [item.id]
    assert world.found("a note", as_of=world.clock() - 1.0) == []


# ---------------------------------------------------------------- ids


def test_adding_the_same_again_changes_nothing(world: World) -> None:
    """A caller that saw no answer may safely repeat the call."""
    first = world.add("hello", id="a", claim=Claim("a", "b", 1), metadata={"x": [1]})
    world.clock.advance(10.0)
    version = world.row().version
    again = world.add("hello", id="a", claim=Claim("a", "b", 1), metadata={"x": [1]})

    assert again.created_at == first.created_at
    assert (world.row().live, version + 1) == (1, world.row().version)


def test_the_same_id_twice_in_a_batch_is_one_item(world: World) -> None:
    one, two = world.memory.add_many([{"content": "x", "namespace": ALICE, "id": "a"}] * 2)

    assert one == two
    assert world.row().live == 1


def one_hot(place: int) -> list[float]:
    """Return a vector that points along one axis."""
    return [float(i == place) for i in range(DIMENSION)]


SAID: dict[str, Any] = {
    "content": "hello",
    "metadata": {"x": 1},
    "context": "said on Monday",
    "claim": Claim("a", "b", 1),
    "source": "user",
    "source_trust": 0.0,
    "valid_from": 1_600_000_000.0,
    "valid_until": "2100-01-01T00:00:00Z",
    "expires_at": "2200-01-01T00:00:00Z",
    "pinned": True,
    "vector": one_hot(1),
}
"""Every field that an item can be added with, besides its namespace and id."""

SAID_OTHERWISE: dict[str, Any] = {
    "content": "other",
    "metadata": {"x": 2},
    "context": "",
    "claim": Claim("a", "b", True),
    "source": "web",
    "source_trust": 0.1,
    "valid_from": 1_600_000_001.0,
    "valid_until": "2100-01-01T00:00:01Z",
    "expires_at": "2200-01-01T00:00:01Z",
    "pinned": True,
    "vector": one_hot(2),
}


def test_each_field_of_an_item_is_said_in_two_ways() -> None:
    """So that a field that comes later is compared as well."""
    assert SAID.keys() == SAID_OTHERWISE.keys() == intake._ADD_KEYS - {"namespace", "id"}


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("field", SAID)
def test_an_id_taken_by_something_else_is_a_conflict(
    world: World, field: str, has_it: bool
) -> None:
    """It says what differs, and changes nothing, also not of the rest of the batch.

    Whether the item has another of it or none: what was given would be lost unsaid.
    """
    fields = {name: value for name, value in SAID.items() if name != field}
    if has_it and field != "pinned":
        fields[field] = SAID[field]
    elif field == "content":
        fields[field] = "yet another"
    first = world.memory.add(namespace=ALICE, id="a", **fields)
    other = {**fields, field: SAID_OTHERWISE[field]}
    if field == "context" and not has_it:
        other[field] = "said on Sunday"

    with pytest.raises(Conflict, match=rf"'a' is there already with another {field}; .*update\(\)"):
        world.memory.add_many(
            [{"content": "new", "namespace": ALICE}, {"namespace": ALICE, "id": "a", **other}]
        )
    assert world.memory.list(namespace=ALICE).items == (first,)


def test_all_that_differs_is_named(world: World) -> None:
    world.add("hello", id="a", source="user")

    with pytest.raises(Conflict, match="with another content, context, source;"):
        world.add("other", id="a", source="web", context="said", metadata=None)


def test_what_is_not_given_again_is_not_asked_for(world: World) -> None:
    """The item has all that the second call says, so nothing is lost."""
    first = world.memory.add(namespace=ALICE, id="a", **SAID)

    assert world.add("hello", id="a") == first
    assert world.add("hello", id="a", pinned=False, claim=None, source=None) == first


@pytest.mark.parametrize("ending", ["superseded", "refuted", "planned"])
def test_the_same_is_the_same_after_its_end(world: World, ending: str) -> None:
    """A call that is repeated late meets an item whose validity and pin others have ended."""
    first = world.memory.add(namespace=ALICE, id="a", **SAID)
    if ending == "refuted":
        world.memory.refute("a")
    else:
        begins = world.clock() + DAY_S if ending == "planned" else None
        world.add("later", claim=Claim("a", "b", 2), valid_from=begins)
    assert world.memory.get("a").valid_until != first.valid_until

    again = world.memory.add(namespace=ALICE, id="a", **SAID)

    assert again == world.memory.get("a")
    with pytest.raises(Conflict, match="another source;"):
        world.memory.add(namespace=ALICE, id="a", **{**SAID, "source": "web"})


def test_the_id_of_an_expired_item_is_free(world: World) -> None:
    """No path shows that item, so this one must not fail on it before a sweep ran."""
    old = world.add("hello", id="a", expires_at=world.clock() + 1.0, claim=Claim("a", "b", 1))
    world.clock.advance(1.0)
    new = world.add("hello", id="a")

    assert new.created_at > old.created_at
    assert world.memory.get("a") == new
    assert world.store.check() == []


def test_the_same_id_in_two_namespaces_is_two_items(world: World) -> None:
    world.add("mine", id="a")
    world.add("theirs", id="a", namespace=BOB)

    with pytest.raises(InvalidInput, match="2 namespaces have an item with the id 'a'"):
        world.memory.get("a")
    assert world.memory.get("a", namespace=BOB).content == "theirs"


# ---------------------------------------------------------------- pins


def test_a_pinned_item_stays_hot_whatever_its_value(world: World) -> None:
    item = world.add("x", pinned=True)
    world.fill(20)
    world.clock.advance(12 * MONTH_S)
    world.memory.sweep()

    assert world.tier(item.id) is Tier.HOT
    assert world.row().pinned == 1


def test_at_most_half_of_hot_can_be_pinned(world: World) -> None:
    """However they come to be pinned; more is an error that changes nothing."""
    half = SMALL.hot_max // 2
    world.memory.add_many([{"content": "x", "namespace": ALICE, "pinned": True}] * (half - 1))
    other = world.add("other")

    with pytest.raises(InvalidInput, match=f"at most {half} items .* got {half + 1}; unpin"):
        world.memory.add_many([{"content": "y", "namespace": ALICE, "pinned": True}] * 2)
    world.memory.pin(other.id)
    assert world.row().pinned == half
    with pytest.raises(InvalidInput, match="unpin some first"):
        world.add("z", pinned=True, valid_from=world.clock() + 10.0)
    another = world.add("another")
    with pytest.raises(InvalidInput, match="unpin some first"):
        world.memory.pin(another.id)
    assert not world.memory.get(another.id).pinned
    world.add("theirs", pinned=True, namespace=BOB)


def test_unpinning_gives_an_item_the_tier_of_its_value(world: World) -> None:
    """Not that of its age: it is no longer new."""
    items = [world.add("x", pinned=True) for _ in range(3)]
    world.use(items[0].id, times=2)
    world.use(items[1].id)
    world.clock.advance(MONTH_S)
    used = world.add("y", pinned=True)
    world.use(used.id, times=2)
    items.append(used)
    tiers = [world.memory.pin(item.id, False).tier for item in items]

    assert tiers == [Tier.WARM, Tier.WARM, Tier.COLD, Tier.HOT]
    assert [world.tier(item.id) for item in items] == tiers
    assert world.row().pinned == 0


def test_pinning_into_a_full_hot_tier_displaces_the_lowest(world: World) -> None:
    """In the same transaction: the cap is hard."""
    worthy = world.fill(10)
    world.use(*(item.id for item in worthy), times=2)
    world.memory.sweep()
    assert world.tiers()[Tier.HOT] == SMALL.hot_max
    (cold,) = [item.id for item in worthy[:8] if world.tier(item.id) is not Tier.HOT][:1]

    assert world.memory.pin(cold).tier is Tier.HOT
    assert world.tiers()[Tier.HOT] == SMALL.hot_max
    assert world.store.check() == []


def test_pinning_twice_is_once(world: World) -> None:
    item = world.add("x")
    world.memory.pin(item.id)
    world.memory.pin(item.id)
    assert world.row().pinned == 1
    world.memory.pin(item.id, False)
    world.memory.pin(item.id, False)

    assert world.row().pinned == 0


@pytest.mark.parametrize("status", ["superseded", "refuted"])
def test_only_what_is_believed_can_be_pinned_confirmed_or_refuted(
    world: World, status: str
) -> None:
    item = world.claim("Oslo")
    if status == "superseded":
        world.claim("Rome")
    else:
        world.memory.refute(item.id)

    for call in (world.memory.pin, world.memory.confirm, world.memory.refute):
        with pytest.raises(Conflict, match=f"only a live item .* is {status}"):
            call(item.id)
    assert not world.memory.pin(item.id, False).pinned


def test_a_pin_takes_effect_when_the_item_begins(world: World) -> None:
    """Until then it is kept out of hot, though it counts as pinned."""
    item = world.add("x", pinned=True, valid_from=world.clock() + 10.0)
    plain = world.add("y", valid_from=world.clock() + 10.0)
    assert (item.tier, item.pinned, world.row().pinned) == (Tier.COLD, True, 1)
    assert world.memory.pin(plain.id).tier is Tier.COLD
    assert world.memory.pin(item.id, False).tier is Tier.COLD

    world.clock.advance(10.0)
    world.memory.sweep()

    assert [world.tier(one.id) for one in (item, plain)] == [Tier.WARM, Tier.HOT]
    world.clock.advance(12 * MONTH_S)
    world.memory.sweep()
    assert [world.tier(one.id) for one in (item, plain)] == [Tier.COLD, Tier.HOT]


# ---------------------------------------------------------------- checks


def test_a_confirmed_item_is_verified_and_worth_more(world: World) -> None:
    item = world.claim("Oslo", source_trust=0.9)
    world.claim("Rome", source_trust=0.1)
    world.clock.advance(10.0)
    confirmed = world.memory.confirm(item.id)

    assert confirmed == world.memory.get(item.id)
    assert confirmed.last_verified_at == utc(world.clock())
    assert not confirmed.contradicted
    assert confirmed.value > item.value
    assert confirmed.contributed_count == 1
    assert [step.event for step in world.memory.history(item.id)] == ["added", "confirmed"]


def test_confirming_often_makes_an_item_hot(world: World) -> None:
    """At the next sweep, which it makes due."""
    item = world.add("x")
    world.fill(5)
    assert world.tier(item.id) is Tier.WARM
    for _ in range(2):
        world.memory.confirm(item.id)
    world.memory.sweep()

    assert world.tier(item.id) is Tier.HOT


def test_a_refuted_item_is_found_by_no_search(world: World) -> None:
    """Not as of the past either: it never was true."""
    item = world.claim("Oslo")
    world.clock.advance(10.0)
    refuted = world.memory.refute(item.id)

    assert (refuted.status, refuted.superseded_by) == (Status.REFUTED, None)
    assert refuted.last_verified_at == refuted.valid_until == utc(world.clock())
    assert world.city() is None
    assert world.found("lives in Oslo", cold=True) == []
    assert world.found("lives in Oslo", as_of=world.clock() - 5.0) == []
    assert world.memory.get(item.id) == refuted
    assert [step.event for step in world.memory.history(item.id)] == ["added", "refuted"]
    assert world.store.check() == []


def test_a_refuted_claim_is_replaced_by_what_was_found_instead(world: World) -> None:
    """By a new item, verified now, from the same source and with the same metadata."""
    item = world.claim("Oslo", source="chat", source_trust=0.7, metadata={"x": 1})
    world.clock.advance(10.0)
    new = world.memory.refute(item.id, "Rome")

    assert new == world.memory.get(new.id)
    assert new.claim == Claim("alice", "city", "Rome")
    assert new.content == "alice city: Rome"
    assert (new.source, new.source_trust, new.metadata) == ("chat", 0.7, {"x": 1})
    assert (new.supersedes, new.last_verified_at) == (item.id, utc(world.clock()))
    assert world.memory.get(item.id).superseded_by == new.id
    assert [step.event for step in world.memory.history(new.id)] == ["added", "refuted", "added"]
    assert world.found("Rome", cold=True) == [new.id]


def test_a_correction_is_newer_than_what_began_by_a_clock_set_back_since(world: World) -> None:
    """Arrival decides for it, too: a check was made now, whatever now is."""
    doubtful = world.claim("Oslo", source_trust=0.2)
    known = world.claim("Bonn", source_trust=0.1, valid_from=world.clock() + 1.0)
    world.clock.advance(1.0)
    world.memory.sweep()
    world.memory.update(doubtful.id, source_trust=0.1)
    world.clock.advance(-0.5)
    new = world.memory.refute(doubtful.id, "Rome")

    assert (new.status, new.supersedes) == (Status.LIVE, doubtful.id)
    assert world.city() == "alice city: Rome"
    world.clock.advance(0.5)
    assert world.city() == "alice city: Rome"
    assert statuses(world, doubtful, known) == ["refuted", "superseded"]


def test_only_a_claim_has_a_value_to_correct(world: World) -> None:
    item = world.add("free text")

    with pytest.raises(Conflict, match="no claim whose value could be 'Rome'"):
        world.memory.refute(item.id, "Rome")
    assert statuses(world, item) == ["live"]


def test_a_correction_that_is_no_claim_changes_nothing(world: World) -> None:
    item = world.claim("Oslo")

    with pytest.raises(InvalidInput, match="finite number"):
        world.memory.refute(item.id, float("nan"))
    assert (world.city(), statuses(world, item)) == ("Oslo", ["live"])


def test_refuting_a_plan_leaves_its_value_as_that_of_an_item(world: World) -> None:
    """Until then its key holds a moment, which is no value."""
    item = world.claim("Oslo", valid_from=world.clock() + 10.0)

    assert world.memory.refute(item.id).value == pytest.approx(0.5, abs=1e-3)


# ---------------------------------------------------------------- changes


def test_a_changed_item_keeps_its_owner_and_birth(world: World) -> None:
    """What it said before is in its history, and found by no search any more."""
    item = world.add("likes jazz", metadata={"x": 1}, context="on Monday", source="chat")
    world.clock.advance(10.0)
    changed = world.memory.update(item.id, content="likes opera", metadata={"y": 2})

    assert changed == world.memory.get(item.id)
    assert (changed.content, changed.context, changed.metadata) == (
        "likes opera",
        "on Monday",
        {"y": 2},
    )
    assert (changed.namespace, changed.created_at) == (ALICE, item.created_at)
    assert (changed.source, changed.tier) == ("chat", item.tier)
    with world.store.read() as reader:
        ns_id = world.row().ns_id
        assert reader.frequencies(ns_id, ["jazz", "opera", "monday"]) == {"opera": 1, "monday": 1}
    steps = world.memory.history(item.id)
    assert [(s.event, s.content) for s in steps] == [
        ("added", "likes jazz"),
        ("updated", "likes jazz"),
    ]
    assert world.found("opera") == [item.id]
    assert world.found("monday") == [item.id]
    assert world.memory.search("jazz", namespace=ALICE).hits[0].lexical == 0.0
    assert world.store.check() == []


def test_a_new_context_is_indexed_and_the_old_one_is_not(world: World) -> None:
    """Its words lead to the item; the vectors, made from the content, stay."""
    item = world.add("likes jazz", context="said on Monday")
    similarity = world.memory.search("likes jazz", namespace=ALICE).hits[0].similarity
    changed = world.memory.update(item.id, context="said on Friday")

    assert changed.content == item.content
    with world.store.read() as reader:
        assert reader.frequencies(world.row().ns_id, ["monday", "friday"]) == {"friday": 1}
    hit = world.memory.search("likes jazz", namespace=ALICE).hits[0]
    assert hit.similarity == pytest.approx(similarity, abs=1e-6)
    assert [step.event for step in world.memory.history(item.id)] == ["added"]
    assert world.memory.update(item.id, context=None).context == ""
    assert world.store.check() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"a": 1}},
        {"source_trust": 0.9},
        {"valid_until": 2e9},
        {"expires_at": 2e9},
    ],
)
def test_a_field_changes_alone(world: World, fields: dict[str, Any]) -> None:
    """A filter sees the new metadata; nothing is embedded or indexed anew."""
    item = world.add("likes jazz")
    changed = world.memory.update(item.id, **fields)

    assert changed == world.memory.get(item.id)
    (name,) = fields
    assert getattr(changed, name) != getattr(item, name)
    assert replace(changed, **{name: getattr(item, name)}) == item
    assert world.found("jazz") == [item.id]


def test_an_expiry_that_is_set_later_is_kept(world: World) -> None:
    """It is noted for the sweep, and can be taken back."""
    item = world.add("x")
    other = world.add("y")
    for one in (item, other):
        world.memory.update(one.id, expires_at=world.clock() + 10.0)
    world.memory.update(other.id, expires_at=None)
    world.clock.advance(10.0)

    assert [move.item_id for move in world.memory.sweep().moves if move.to is None] == [item.id]
    assert world.found("y") == [other.id]


def test_an_end_before_the_beginning_is_refused(world: World) -> None:
    """The item would silently never be found again."""
    item = world.add("x")

    with pytest.raises(InvalidInput, match="valid_until must be later"):
        world.memory.update(item.id, valid_until=world.clock() - 1.0)
    world.clock.advance(10.0)
    world.memory.update(item.id, valid_until=world.clock())
    assert world.found("x") == []
    assert world.found("x", as_of=world.clock() - 5.0) == [item.id]


@pytest.mark.parametrize("status", ["superseded", "refuted"])
@pytest.mark.parametrize("fields", [{"content": "lives in Bergen"}, {"context": "once"}])
def test_history_can_be_edited_and_stays_history(
    world: World, status: str, fields: dict[str, Any]
) -> None:
    """It enters no index of now; as of then it is found by what it says by now."""
    item = world.claim("Oslo")
    world.clock.advance(10.0)
    if status == "superseded":
        world.claim("Rome")
    else:
        world.memory.refute(item.id)
    changed = world.memory.update(item.id, **fields)

    assert changed == world.memory.get(item.id)
    assert changed.status.value == status
    assert item.id not in world.found("Oslo Bergen once", cold=True)
    then = world.found("lives in Bergen", as_of=world.clock() - 5.0)
    assert then == ([item.id] if status == "superseded" else [])
    assert world.store.check() == []


def test_a_plan_can_be_edited(world: World) -> None:
    """It keeps its moment, at which it begins with what it says by then."""
    item = world.add("in Oslo", valid_from=world.clock() + 10.0)
    changed = world.memory.update(item.id, content="in Rome")

    assert (changed.tier, changed.valid_from) == (Tier.COLD, item.valid_from)
    world.clock.advance(10.0)
    world.memory.sweep()
    assert world.found("Rome") == [item.id]
    assert world.tier(item.id) is Tier.WARM


# ---------------------------------------------------------------- the end


def test_forgetting_takes_an_item_out_of_the_links_of_others(world: World) -> None:
    """An id is itself something to forget."""
    items = []
    for city in ("Oslo", "Rome", "Bonn"):
        items.append(world.claim(city))
        world.clock.advance(10.0)
    receipt = world.memory.forget(items[1].id)

    assert (receipt.item_ids, receipt.count, receipt.namespace) == ((items[1].id,), 1, ALICE)
    assert receipt.erased
    assert world.memory.get(items[0].id).superseded_by is None
    assert world.memory.get(items[2].id).supersedes is None
    assert [step.item_id for step in world.memory.history(items[2].id)] == [items[2].id]
    assert world.store.check() == []


def test_plans_that_go_together_end_nothing(world: World) -> None:
    """Each of them would have ended the one before it; none of that may stay behind."""
    now_s = world.clock()
    oslo = world.claim("Oslo")
    rome = world.claim("Rome", valid_from=now_s + 200.0, expires_at=now_s + 50.0)
    bonn = world.claim("Bonn", valid_from=now_s + 100.0, expires_at=now_s + 50.0)
    assert world.memory.get(bonn.id).superseded_by == rome.id
    world.clock.advance(50.0)

    world.memory.sweep()

    left = world.memory.get(oslo.id)
    assert (left.status, left.valid_until, left.superseded_by) == (Status.LIVE, None, None)
    assert world.store.check() == []


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2**16)), max_size=30))
def test_totals_stay_right_through_any_life(steps: list[tuple[int, int]]) -> None:
    """They are running totals; one slip and the budget of every later search is wrong."""
    world = World(MemoryStore())
    ids: list[str] = []
    for act, number in steps:
        chance = Random(number)
        with suppress(Conflict, InvalidInput, ItemNotFound):
            _live_on(world, act, ids, chance)
        assert world.store.check() == []
        assert not ids or world.row().hot <= SMALL.hot_max


def _live_on(world: World, act: int, ids: list[str], chance: Random) -> None:
    if act < 3 or not ids:
        item = world.add(
            f"note {chance.randrange(50)}",
            pinned=chance.random() < 0.2,
            claim=Claim("a", "b", chance.randrange(4)) if chance.random() < 0.5 else None,
            source_trust=chance.choice([0.2, 0.8]),
            valid_from=chance.choice([None, None, world.clock() + chance.uniform(-9, 9)]),
            expires_at=chance.choice([None, None, world.clock() + 2 * DAY_S]),
        )
        ids.append(item.id)
        return
    item_id = chance.choice(ids)
    if act == 3:
        world.memory.update(item_id, content=f"note {chance.randrange(50)}")
    elif act == 4:
        world.memory.pin(item_id, chance.random() < 0.5)
    elif act == 5:
        chance.choice([world.memory.confirm, world.memory.refute])(item_id)
    elif act == 6:
        world.memory.forget(item_id)
    else:
        world.clock.advance(chance.choice([1.0, DAY_S, MONTH_S]))
        world.memory.sweep()
