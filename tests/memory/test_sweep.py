"""The sweep: what moves, what it reads for that, and that a second one has nothing to do."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from amv.errors import StoreError, StoreUnavailable
from amv.memory import sweep, upkeep
from amv.memory.item import Protection, State
from amv.memory.ports import Store, Writer
from amv.memory.service import MemoryService
from amv.memory.settings import CellSettings, MemorySettings
from amv.memory.tiers import Tier, next_tier
from amv.memory.value import PRESETS, value_key
from amv.stores.memory import MemoryStore
from tests.memory.worlds import ALICE, BOB, DAY_S, MONTH_S, SMALL, YEAR_S, World

MODEL = SMALL.value_model
NO_PROBATION = replace(SMALL, probation_max=0)


class Placed(NamedTuple):
    """An item put by hand into a tier, with a value that may not belong there."""

    tier: Tier
    value: float


def put(world: World, placed: Sequence[Placed]) -> list[str]:
    """Add items in these tiers, of these values; return their ids."""
    memory = world.another(NO_PROBATION)
    items = memory.add_many([{"content": "x", "namespace": ALICE}] * len(placed))
    ids = [item.id for item in items]
    keys = [world.key(item_id) for item_id in ids]
    now_s = world.clock()

    def work(tx: Writer) -> None:
        row = tx.namespace(ALICE)
        assert row is not None
        states = [
            State(
                tier=one.tier,
                protection=Protection.NONE,
                value_key=value_key(one.value, now_s, MODEL),
            )
            for one in placed
        ]
        tx.put_states(list(zip(keys, states, strict=True)))
        hot = len(tx.hot_keys(row.ns_id))
        tx.put_namespace(replace(row, hot=hot, next_due_s=now_s))

    world.store.write(work)
    assert world.store.check() == []
    return ids


def expected_tiers(placed: Sequence[Placed], settings: MemorySettings) -> list[Tier]:
    """Return where a sweep leaves items, found by trying them one by one, best first."""
    model = settings.value_model
    order = {i: (one.value, i) for i, one in enumerate(placed)}
    tiers = [next_tier(one.tier, one.value, warm=model.warm, hot=model.hot) for one in placed]
    hot = [i for i, one in enumerate(placed) if one.tier is tiers[i] is Tier.HOT]
    rising = [i for i, tier in enumerate(tiers) if tier is Tier.HOT and i not in hot]
    for i in rising:
        tiers[i] = Tier.WARM
    for i in sorted(rising, key=order.__getitem__, reverse=True):
        if len(hot) == settings.hot_max:
            lowest = min(hot, key=order.__getitem__)
            if order[lowest] > order[i]:
                break
            hot.remove(lowest)
            tiers[lowest] = Tier.WARM
        hot.append(i)
        tiers[i] = Tier.HOT
    return tiers


tiers_and_values = st.lists(
    st.builds(
        Placed,
        tier=st.sampled_from(Tier),
        value=st.one_of(
            st.floats(0.001, 1.0),
            st.sampled_from([0.25, 0.45, 0.62, 0.72, 0.8, 0.9, 1.0]),
            st.floats(0.72, 1.0),
        ),
    ),
    min_size=1,
    max_size=30,
).filter(lambda some: sum(one.tier is Tier.HOT for one in some) <= SMALL.hot_max)


# ---------------------------------------------------------------- moves


@given(placed=tiers_and_values)
def test_items_end_where_trying_them_one_by_one_puts_them(placed: list[Placed]) -> None:
    """Read a few at a time or all at once, the answer is the same; also with more than fit."""
    world = World(MemoryStore(), NO_PROBATION)
    # Exactly at a threshold, rounding in the key decides.
    thresholds = [MODEL.warm.demote, MODEL.warm.promote, MODEL.hot.demote, MODEL.hot.promote]
    assume(not any(abs(one.value - t) < 1e-9 for one in placed for t in thresholds))
    ids = put(world, placed)

    world.memory.sweep()

    assert [world.tier(item_id) for item_id in ids] == expected_tiers(placed, NO_PROBATION)
    assert world.store.check() == []


@given(placed=tiers_and_values, evict=st.booleans(), later_s=st.floats(0.0, YEAR_S))
def test_a_second_sweep_moves_nothing(placed: list[Placed], evict: bool, later_s: float) -> None:
    """At the same moment; whatever the values, exactly at a threshold too, and with eviction."""
    world = World(MemoryStore(), replace(NO_PROBATION, evict=evict))
    put(world, placed)
    world.clock.advance(later_s)
    world.make_due()
    first = world.memory.sweep()
    world.make_due()

    assert world.memory.sweep().moves == ()
    assert world.row().hot <= SMALL.hot_max
    assert len({move.item_id for move in first.moves}) == len(first.moves)
    assert world.store.check() == []


@given(placed=tiers_and_values, evict=st.booleans())
def test_a_dry_run_lists_exactly_what_the_real_run_does(placed: list[Placed], evict: bool) -> None:
    """And changes nothing itself."""
    world = World(MemoryStore(), replace(NO_PROBATION, evict=evict))
    ids = put(world, placed)
    before = world.memory.list(namespace=ALICE)
    dry = world.memory.sweep(dry_run=True)
    assert world.memory.list(namespace=ALICE) == before

    real = world.memory.sweep()

    assert replace(dry, dry_run=False) == real
    left = {item.id: item.tier for item in world.memory.list(namespace=ALICE).items}
    for move in real.moves:
        assert left.get(move.item_id) == move.to
        assert move.was is placed[ids.index(move.item_id)].tier


@given(placed=tiers_and_values)
def test_the_next_sweep_is_due_when_the_next_item_moves(placed: list[Placed]) -> None:
    """Not after it, and not for nothing: a sweep of nobody costs a transaction."""
    world = World(MemoryStore(), NO_PROBATION)
    put(world, placed)
    world.memory.sweep()
    for _ in range(4):
        due_s = world.row().next_due_s
        if due_s is None:
            assert set(world.tiers()) == set(Tier)
            assert world.tiers()[Tier.HOT] == world.tiers()[Tier.WARM] == 0
            return
        if (wait_s := due_s - world.clock()) > 1.0:
            world.clock.advance(wait_s * 0.999)
            assert world.memory.sweep().namespaces == 0
            world.make_due()
            assert world.memory.sweep().moves == ()
        # To the next microsecond, which is how precise a memory reads its clock.
        world.clock.advance(due_s - world.clock() + 1e-6)
        assert world.memory.sweep().moves != ()


# ---------------------------------------------------------------- what is read


def test_a_sweep_reads_what_moves_and_little_else(world: World) -> None:
    """Not the five thousand that stay: that is what the value keys are for."""
    big = World(world.store, replace(NO_PROBATION, hot_max=1000, cells=CellSettings()))
    placed = [Placed(Tier.HOT, 0.65 + i * 1e-5) for i in range(1000)]
    placed += [Placed(Tier.WARM, 0.3 + i * 1e-5) for i in range(2000)]
    placed += [Placed(Tier.COLD, 0.01 + i * 1e-5) for i in range(2000)]
    placed[5] = placed[6] = Placed(Tier.HOT, 0.3)
    placed[1500] = Placed(Tier.WARM, 0.1)
    placed[4000] = placed[4001] = placed[4002] = Placed(Tier.COLD, 0.5)
    placed[1600] = Placed(Tier.WARM, 0.99)
    put(big, placed)

    report = big.memory.sweep()

    assert len(report.moves) == 7
    assert 7 <= report.visited <= 20
    big.make_due()
    again = big.memory.sweep()
    assert (again.moves, again.visited <= 4) == ((), True)


def test_a_full_hot_tier_is_not_read_for_a_candidate_that_does_not_get_in(world: World) -> None:
    """Two thousand warm items that are worth hot wait; the best of them is not good enough."""
    big = World(world.store, replace(NO_PROBATION, hot_max=100, cells=CellSettings()))
    put(
        big,
        [Placed(Tier.HOT, 0.95)] * 100 + [Placed(Tier.WARM, 0.75 + i * 1e-4) for i in range(1500)],
    )

    report = big.memory.sweep()

    assert (report.moves, report.visited) == ((), 4)


def test_many_that_get_in_are_read_about_once(world: World) -> None:
    """Reading on in growing steps costs a fraction more."""
    big = World(world.store, replace(NO_PROBATION, hot_max=300, cells=CellSettings()))
    put(big, [Placed(Tier.HOT, 0.73)] * 300 + [Placed(Tier.WARM, 0.9)] * 250)

    report = big.memory.sweep()

    assert len(report.moves) == 500
    assert report.visited <= 1000
    assert big.tiers()[Tier.HOT] == 300


def test_only_namespaces_that_are_due_are_visited(world: World) -> None:
    """Ten thousand agents asleep cost one look-up in an index."""
    world.add("x", pinned=True)
    theirs = world.memory.add_many([{"content": "x", "namespace": BOB}] * 3)
    assert (world.row().next_due_s, world.memory.sweep().namespaces) == (None, 0)
    world.clock.advance(2 * MONTH_S)

    report = world.memory.sweep()

    assert [(move.item_id, move.namespace) for move in report.moves] == [(theirs[0].id, BOB)]
    assert report.namespaces == 1


def test_one_namespace_can_be_swept_alone(world: World) -> None:
    for namespace in (ALICE, BOB):
        world.memory.add_many([{"content": "x", "namespace": namespace}] * 3)
    world.clock.advance(2 * MONTH_S)

    assert [move.namespace for move in world.memory.sweep(namespace=BOB).moves] == [BOB]
    assert world.memory.sweep(namespace=("nobody",)).namespaces == 0
    assert [move.namespace for move in world.memory.sweep().moves] == [ALICE]


# ---------------------------------------------------------------- hot and its cap


def test_probation_keeps_the_newest_hot_whatever_their_value(world: World) -> None:
    """So that a fresh memory is found at once; the next one ends that of the oldest."""
    items = [world.add(f"note {i}") for i in range(4)]

    assert [world.tier(item.id) for item in items] == [Tier.WARM, Tier.WARM, Tier.HOT, Tier.HOT]
    batch = world.fill(5)
    assert [item.tier for item in batch] == [Tier.WARM] * 3 + [Tier.HOT] * 2
    world.clock.advance(YEAR_S)
    world.memory.sweep()
    assert [world.tier(item.id) for item in batch] == [Tier.COLD] * 3 + [Tier.HOT] * 2
    (new,) = world.fill(1)
    assert [world.tier(item.id) for item in (*batch[-2:], new)] == [
        Tier.COLD,
        Tier.HOT,
        Tier.HOT,
    ]


def test_without_probation_nothing_starts_hot() -> None:
    world = World(MemoryStore(), NO_PROBATION)

    assert world.add("x").tier is Tier.WARM
    assert [item.tier for item in world.fill(3)] == [Tier.WARM] * 3


def test_the_cap_of_hot_holds_through_every_way_in(world: World) -> None:
    """Probation, pins, worth: never more than the cap, at any moment."""
    items = world.fill(20)
    world.use(*(item.id for item in items), times=3)
    assert world.tiers()[Tier.HOT] == 2
    world.memory.sweep()
    assert world.tiers()[Tier.HOT] == SMALL.hot_max
    for _ in range(3):
        world.add("new")
        assert world.tiers()[Tier.HOT] == SMALL.hot_max
    for item in items[:3]:
        world.memory.pin(item.id)
        assert world.tiers()[Tier.HOT] == SMALL.hot_max
    assert world.store.check() == []


def test_items_whose_first_value_is_worth_hot_share_the_cap() -> None:
    """With such a model a batch alone could overfill it; the newest of equals stay."""
    model = replace(MODEL, initial=0.9)
    world = World(MemoryStore(), replace(SMALL, value_model=model))
    items = world.fill(20)

    assert [item.tier is Tier.HOT for item in items] == [False] * 12 + [True] * 8
    assert items == [world.memory.get(item.id) for item in items]
    assert world.store.check() == []


def test_a_hot_item_is_displaced_by_a_better_one_in_the_same_sweep(world: World) -> None:
    ids = put(
        world,
        [Placed(Tier.HOT, 0.8 + i / 100) for i in range(8)] + [Placed(Tier.WARM, 0.9)],
    )

    report = world.memory.sweep()

    assert [(move.item_id, move.to, move.why) for move in report.moves] == [
        (ids[0], Tier.WARM, "displaced"),
        (ids[8], Tier.HOT, "promote"),
    ]


def test_a_cold_item_worth_hot_waits_for_warm_ones_worth_more() -> None:
    """The sweep has read only two of the warm ones when the cold one fails to get in."""
    world = World(MemoryStore(), replace(NO_PROBATION, hot_max=4))
    hot, warm, cold = [0.93, 0.94, 0.95], [0.97, 0.98, 0.99], [0.8]
    ids = put(
        world,
        [Placed(Tier.HOT, value) for value in hot]
        + [Placed(Tier.WARM, value) for value in warm]
        + [Placed(Tier.COLD, value) for value in cold],
    )

    world.memory.sweep()

    tiers = [world.tier(item_id) for item_id in ids]
    assert tiers[:3] == [Tier.WARM, Tier.WARM, Tier.HOT]
    assert tiers[3:] == [Tier.HOT, Tier.HOT, Tier.HOT, Tier.WARM]
    world.make_due()
    assert world.memory.sweep().moves == ()


def test_a_cold_item_that_contributes_is_promoted(world: World) -> None:
    """A few uses make up for months of neglect."""
    items = world.fill(4)
    world.clock.advance(4 * MONTH_S)
    world.memory.sweep()
    assert world.tier(items[0].id) is Tier.COLD
    world.use(items[0].id, times=3)
    assert [move.to for move in world.memory.sweep().moves] == [Tier.WARM]
    world.use(items[0].id)

    assert [move.to for move in world.memory.sweep().moves] == [Tier.HOT]


# ---------------------------------------------------------------- beginning and ending


def test_an_item_comes_into_force_at_its_moment(world: World) -> None:
    """Until then it is kept cold and out of every search; its value begins then, not before."""
    begins_s = world.clock() + 2 * MONTH_S
    item = world.add("x", valid_from=begins_s)
    assert (item.tier, item.value) == (Tier.COLD, MODEL.initial)
    assert world.row().next_due_s == begins_s
    world.clock.advance(2 * MONTH_S - 1.0)
    assert (world.found("x"), world.memory.sweep().moves) == ([], ())
    assert world.memory.get(item.id).value == MODEL.initial
    world.clock.advance(1.0)
    assert world.found("x") == [item.id]

    (move,) = world.memory.sweep().moves

    assert (move.item_id, move.was, move.to, move.why) == (item.id, Tier.COLD, Tier.WARM, "wake")
    assert world.memory.get(item.id).value == pytest.approx(MODEL.initial)


def test_an_item_woken_late_has_decayed_since_its_moment(world: World) -> None:
    """Whether a sweep came by in between must make no difference, to its value as shown either."""
    item = world.add("x", valid_from=world.clock() + 10.0)
    world.clock.advance(10.0 + 2 * MONTH_S)
    assert world.memory.get(item.id).value == pytest.approx(MODEL.initial / 4)

    (move,) = world.memory.sweep().moves

    assert move.to is Tier.COLD
    assert world.memory.get(item.id).value == pytest.approx(MODEL.initial / 4)


def test_an_item_that_begins_worth_hot_competes_for_it() -> None:
    """On equal terms with what is hot."""
    model = replace(MODEL, initial=0.9)
    settings = replace(SMALL, value_model=model, probation_max=0, hot_max=2)
    world = World(MemoryStore(), settings)
    first = world.add("x", valid_from=world.clock() + 10.0)
    second = world.add("x", valid_from=world.clock() + 20.0)
    pinned = world.add("x", pinned=True)
    world.clock.advance(20.0)

    moves = world.memory.sweep().moves

    assert [(move.item_id, move.to) for move in moves] == [
        (second.id, Tier.HOT),
        (first.id, Tier.WARM),
    ]
    assert world.tier(pinned.id) is Tier.HOT


def test_a_pinned_item_gets_into_a_full_hot_tier_when_it_begins(world: World) -> None:
    """In place of the lowest; nothing else would keep it from being demoted later."""
    plan = world.add("x", pinned=True, valid_from=world.clock() + 10.0)
    ids = put(world, [Placed(Tier.HOT, 0.8 + i / 100) for i in range(8)])
    world.clock.advance(10.0)

    dry = world.memory.sweep(dry_run=True)
    real = world.memory.sweep()

    assert replace(dry, dry_run=False) == real
    assert [(move.item_id, move.to) for move in real.moves] == [
        (ids[0], Tier.WARM),
        (plan.id, Tier.HOT),
    ]
    assert world.row().hot == SMALL.hot_max
    world.make_due()
    assert world.memory.sweep().moves == ()


def test_what_a_plan_supersedes_makes_room_in_hot_at_once(world: World) -> None:
    """Listed as a move; and the sweep that ends it fills its place, so the next has nothing."""
    old = world.claim("Oslo")
    world.claim("Rome", valid_from=world.clock() + 10.0)
    ids = put(
        world,
        [Placed(Tier.HOT, 0.9)] * 7 + [Placed(Tier.WARM, 0.8)],
    )
    world.store.write(lambda tx: _make_hot(tx, world.key(old.id), world))
    world.clock.advance(10.0)

    dry = world.memory.sweep(dry_run=True)
    real = world.memory.sweep()

    assert replace(dry, dry_run=False) == real
    moved = {(move.item_id, move.was, move.to, move.why) for move in real.moves}
    assert (old.id, Tier.HOT, Tier.COLD, "superseded") in moved
    assert (ids[7], Tier.WARM, Tier.HOT, "promote") in moved
    world.make_due()
    assert world.memory.sweep().moves == ()
    assert world.store.check() == []


def _make_hot(tx: Writer, key: int, world: World) -> None:
    row = tx.rows([key])[key]
    tx.put_states([(key, replace(row.state, tier=Tier.HOT, protection=Protection.NONE))])
    ns = tx.namespace(ALICE)
    assert ns is not None
    hot = len(tx.hot_keys(ns.ns_id))
    tx.put_namespace(replace(ns, hot=hot, next_due_s=world.clock()))


def test_what_has_expired_is_deleted(world: World) -> None:
    """From whichever tier and of whatever status; the rest stays."""
    expires_s = world.clock() + 10.0
    gone = [
        world.claim("Oslo", expires_at=expires_s),
        world.claim("Rome", expires_at=expires_s),
        world.add("x", expires_at=expires_s, pinned=True),
        world.add("y", expires_at=expires_s, valid_from=world.clock() + 99.0),
        *world.fill(3, expires_at=expires_s),
    ]
    kept = world.add("z", expires_at=expires_s + 1.0)
    assert world.row().next_due_s == expires_s
    was = {item.id: world.tier(item.id) for item in gone}
    world.clock.advance(10.0)

    report = world.memory.sweep()

    assert {move.item_id: move.was for move in report.moves if move.to is None} == was
    assert {move.why for move in report.moves if move.to is None} == {"expired"}
    assert [item.id for item in world.memory.list(namespace=ALICE, status=None).items] == [kept.id]
    with world.store.read() as reader:
        assert len(reader.vector_ids(list(range(1, 20)))) == 1
    assert world.store.check() == []


def test_by_default_nothing_is_evicted(world: World) -> None:
    """What decays to nothing is cold for ever, not gone."""
    world.fill(5)
    world.clock.advance(100 * YEAR_S)
    world.memory.sweep()

    assert sum(world.tiers().values()) == 5
    assert world.row().next_due_s is None


def test_with_eviction_on_what_is_worth_too_little_goes(store: Store) -> None:
    """From any tier at once; not what is new or pinned, and a plan that began worthless too."""
    world = World(store, replace(SMALL, evict=True))
    pinned = world.add("pinned", pinned=True)
    plan = world.add("plan", valid_from=world.clock() + 1.0)
    fresh = world.add("fresh plan", valid_from=world.clock() + 6 * MONTH_S)
    items = world.fill(5)
    world.use(items[0].id, times=3)
    world.clock.advance(6 * MONTH_S)

    report = world.memory.sweep()

    evicted = {move.item_id for move in report.moves if move.to is None}
    assert evicted == {plan.id, *(item.id for item in items[:3])}
    left = world.memory.list(namespace=ALICE).items
    assert {item.id for item in left} == {pinned.id, fresh.id, *(item.id for item in items[3:])}
    assert world.store.check() == []


def test_an_expired_item_is_not_evicted_as_well(store: Store) -> None:
    """One move an item."""
    world = World(store, replace(SMALL, evict=True))
    items = world.fill(3, expires_at=world.clock() + DAY_S)
    world.clock.advance(YEAR_S)

    assert sorted(move.item_id for move in world.memory.sweep().moves) == [i.id for i in items]


def test_one_sweep_deletes_only_so_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction has a bound; the namespace stays due until the rest has gone, too."""
    monkeypatch.setattr(sweep, "DELETE_MAX", 4)
    world.fill(10, expires_at=world.clock() + 1.0)
    world.clock.advance(1.0)

    left = []
    for _ in range(4):
        world.memory.sweep()
        left.append(world.row().live)

    assert left == [6, 2, 0, 0]


@given(placed=tiers_and_values)
def test_expired_items_leave_their_places_to_others(placed: list[Placed]) -> None:
    """The sweep that deletes hot items promotes into their room."""
    world = World(MemoryStore(), NO_PROBATION)
    ids = put(world, placed)
    for item_id in ids[::2]:
        world.memory.update(item_id, expires_at=world.clock() + 1e-3)
    world.clock.advance(1e-3)
    world.make_due()

    world.memory.sweep()

    live = world.memory.list(namespace=ALICE).items
    assert [item.id for item in live] == ids[1::2]
    world.make_due()
    assert world.memory.sweep().moves == ()


def test_a_namespace_dropped_before_its_turn_is_passed_over(world: World) -> None:
    """Each is swept in a transaction of its own; one may go while others are swept."""
    world.fill(3)
    world.clock.advance(YEAR_S)
    row = world.row()
    world.memory.forget_namespace(ALICE)
    for dry_run in (True, False):
        report = upkeep.sweep_namespaces(
            world.store,
            [row],
            SMALL,
            world.clock(),
            dry_run=dry_run,
            warn=lambda what, error: None,
        )

        assert (report.moves, report.visited) == ((), 0)


# ---------------------------------------------------------------- half-life


def values(memory: MemoryService) -> list[float]:
    """Return the value of each of Alice's items."""
    return [item.value for item in memory.list(namespace=ALICE).items]


def values_found(memory: MemoryService) -> dict[str, float]:
    """Return the values of Alice's items as a search shows them."""
    hits = memory.search("thing1", namespace=ALICE).hits
    return {hit.item.id: hit.item.value for hit in hits}


def test_another_half_life_keeps_every_value_as_of_now(world: World) -> None:
    """From the next change on; values then decay at the new speed."""
    items = world.fill(6)
    world.use(items[0].id, times=2)
    world.add("plan", valid_from=world.clock() + YEAR_S)
    world.clock.advance(MONTH_S)
    before = values(world.memory)
    half = replace(MODEL, half_life_s=MODEL.half_life_s / 2)
    other = world.another(replace(SMALL, value_model=half))
    assert values(other) == before

    other.add("new", namespace=ALICE)

    assert values(other)[:-1] == pytest.approx(before, rel=1e-6)
    assert values(world.memory) == values(other)
    assert world.row().half_life_s == half.half_life_s
    world.clock.advance(half.half_life_s)
    assert values(other)[:6] == pytest.approx([value / 2 for value in before[:6]], rel=1e-6)
    assert other.sweep().moves != ()


def test_a_dry_run_under_another_half_life_foresees_the_real_one(world: World) -> None:
    """The dry run compares under the old one, the real run re-keys first."""
    world.fill(6)
    world.clock.advance(2 * MONTH_S)
    other = world.another(
        replace(SMALL, value_model=replace(MODEL, half_life_s=MODEL.half_life_s / 3))
    )
    dry = other.sweep(dry_run=True)

    assert replace(dry, dry_run=False) == other.sweep()
    assert len(dry.moves) == 4


DEFAULT = PRESETS["default"]


def test_other_constants_keep_what_items_are_worth_beside_new_ones(world: World) -> None:
    """From the next change on: used once before is as good as used once now, a month on."""
    items = world.fill(3)
    world.use(items[0].id)
    world.add("plan", id="plan", valid_from=world.clock() + YEAR_S)
    world.clock.advance(MONTH_S)
    before = values(world.memory)
    other = world.another(replace(SMALL, value_model=DEFAULT))

    new, used = (other.add(content, namespace=ALICE) for content in ("new", "used"))
    other.reinforce([used.id])
    other.flush()

    after = [other.get(item.id).value for item in (*items, new, used)]
    assert after == pytest.approx([0.0125, 0.0025, 0.0025, 0.005, 0.025], rel=1e-6)
    assert other.get("plan").value == DEFAULT.initial
    assert world.row().scale == DEFAULT.scale
    # Whoever has the constants of before, and writes, has the values of before.
    world.add("newer")
    assert values(world.memory)[: len(before)] == pytest.approx(before, rel=1e-6)
    assert world.row().scale == MODEL.scale


def test_a_dry_run_under_other_constants_foresees_the_real_one(world: World) -> None:
    """Nothing of it stays: whoever has the constants of before still finds those values."""
    items = world.fill(6)
    world.use(items[0].id)
    world.clock.advance(4 * MONTH_S)
    world.memory.sweep()
    row, before = world.row(), values(world.memory)
    other = world.another(replace(SMALL, value_model=DEFAULT))
    world.make_due()
    due = world.row()

    dry = other.sweep(dry_run=True)

    assert values(world.memory) == before
    assert world.row() == due == replace(row, next_due_s=world.clock())
    assert replace(dry, dry_run=False) == other.sweep()
    assert [(move.item_id, move.why) for move in dry.moves] == [(items[0].id, "promote")]


def test_ranks_follow_constants_that_another_process_changed(world: World) -> None:
    """Rows that were read before hold keys of the old ones, which now mean other values."""
    world.fill(6)
    values_found(world.memory)
    other = world.another(replace(SMALL, value_model=DEFAULT))
    other.add("new", namespace=ALICE)

    found = list(values_found(world.memory).values())
    assert found == pytest.approx([0.005] * len(found), rel=1e-6)


def test_ranks_follow_a_half_life_that_another_process_changed(world: World) -> None:
    """Rows that were read before hold keys of the old one, which now mean other values."""
    world.fill(6)
    world.clock.advance(MONTH_S)
    shown = values_found(world.memory)
    half = replace(MODEL, half_life_s=MODEL.half_life_s / 2)
    other = world.another(replace(SMALL, value_model=half))
    other.add("new", namespace=ALICE)

    again = values_found(world.memory)
    assert {item_id: again[item_id] for item_id in shown} == pytest.approx(shown, rel=1e-6)


# ---------------------------------------------------------------- erasing


class Erasing(MemoryStore):
    """Counts how often it was asked to erase, and may fail to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.error: StoreError | None = None
        self.is_busy = False

    def erase(self) -> bool:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return not self.is_busy


def with_expired(store: Store) -> World:
    world = World(store)
    for name in (ALICE, BOB):
        for number in range(3):
            expires_at = world.clock() + DAY_S if number else None
            world.add(f"x{number}", namespace=name, expires_at=expires_at)
    world.clock.advance(2 * DAY_S)
    return world


def test_a_sweep_erases_what_it_deletes_once_for_all_namespaces() -> None:
    """It waits for readers and for the disk, so once is enough."""
    store = Erasing()
    world = with_expired(store)
    assert len([m for m in world.memory.sweep(dry_run=True).moves if m.to is None]) == 4
    assert store.asked == 0

    report = world.memory.sweep()

    assert len([move for move in report.moves if move.to is None]) == 4
    assert (store.asked, report.erased) == (1, True)


def test_a_sweep_that_deletes_nothing_erases_nothing() -> None:
    """It comes every few seconds, and must not cut the log each time."""
    store = Erasing()
    world = World(store)
    world.fill(20)
    world.clock.advance(YEAR_S)

    report = world.memory.sweep()

    assert report.moves
    assert (store.asked, report.erased) == (0, True)


def test_a_sweep_is_one_though_its_bytes_cannot_be_erased() -> None:
    """What is deleted is gone for every reader; who asks is told of what is left."""
    store, told = Erasing(), list[str]()
    world = with_expired(store)
    world.memory = MemoryService(
        store,
        world.embedder,
        SMALL,
        clock=world.clock,
        new_id=lambda: "",
        warn=lambda what, error: told.append(f"{what}: {error}"),
    )
    store.error = StoreUnavailable("the disk is full")

    report = world.memory.sweep()

    assert (len(report.moves), report.erased) == (4, False)
    assert told == ["a sweep could not erase yet: the disk is full"]
    assert world.memory.stats().live == 2


def test_a_sweep_says_that_a_reader_keeps_bytes() -> None:
    store = Erasing()
    world = with_expired(store)
    store.is_busy = True

    assert not world.memory.sweep().erased
