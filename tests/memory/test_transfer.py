"""Export and restore: nothing is lost on the way, and nothing hostile gets in."""

import base64
import copy
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.embedders.hashing import Hashing
from amv.errors import Conflict, DimensionMismatch, InvalidInput
from amv.memory.item import Claim, Status
from amv.memory.ports import PASSAGES_MAX, Floats, Store
from amv.memory.tiers import Tier
from amv.memory.transfer import CLOCK_SKEW_S, RestoreReport
from amv.memory.value import PRESETS
from amv.stores.memory import MemoryStore
from amv.testing import FakeClock
from tests.memory.worlds import ALICE, BOB, DAY_S, DIMENSION, MONTH_S, SMALL, WordByWord, World

Exported = dict[str, Any]


class Counting(Hashing):
    """An embedder that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(dimension=DIMENSION)
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Floats:
        self.texts += texts
        return super().embed(texts)


def eventful(world: World) -> None:
    """Fill a memory with items to which everything has happened that can."""
    world.fill(12)
    for city in ("rome", "oslo", "lima"):
        world.claim(city, id=city, source="user", source_trust=2 / 3)
        world.clock.advance(DAY_S + 0.000_001)
    world.add("likes tea", id="tea")
    world.memory.refute("tea")
    world.add("three cats", id="cats", claim=Claim("alice", "cats", 3))
    world.memory.refute("cats", 4.5)
    world.claim("nowhere", id="doubted", source_trust=0.1)
    world.claim("york", id="york", valid_from=world.clock() + MONTH_S, source_trust=0.9)
    world.add("to come", id="to come", valid_from=world.clock() + DAY_S, pinned=True)
    world.add("pinned 📌", id="pin", pinned=True, context="by the door")
    world.memory.confirm("pin")
    world.add("old text", id="changed", metadata={"a": [1, None, {"é": 0.1}], "": True})
    world.memory.update("changed", content="new text", expires_at=world.clock() + 1.5)
    world.add("of Bob", namespace=BOB, id="pin", valid_until=world.clock() + DAY_S)
    world.use("pin", times=2)
    world.memory.reinforce(["changed"], negative=True)


def wired(exported: Iterator[dict[str, object]]) -> list[Exported]:
    """Send exported objects through JSON, as a file does."""
    return [json.loads(json.dumps(data, allow_nan=False)) for data in exported]


def one(world: World, **fields: Any) -> Exported:
    """Return one exported item, of another memory than *world*'s."""
    other = World(MemoryStore(), clock=world.clock)
    other.add("lives in rome", **{"id": "x", **fields})
    (data,) = wired(other.memory.export_items(vectors=True))
    return data


def with_change(data: Exported, path: str, value: object) -> Exported:
    """Return *data* with the field at *path* (a.b) set to *value*."""
    changed = copy.deepcopy(data)
    place: Any = changed
    *parents, name = path.split(".")
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    place[name] = value
    return changed


# ---------------------------------------------------------------- lossless


@pytest.mark.parametrize("vectors", [True, False])
def test_an_export_of_what_was_restored_is_the_same(world: World, vectors: bool) -> None:
    """So every field survives: links, times, tier, value, counts and history."""
    eventful(world)
    exported = wired(world.memory.export_items(vectors=vectors))
    other = World(MemoryStore(), clock=world.clock)

    report = other.memory.restore(exported)

    assert report == RestoreReport(added=len(exported), present=0)
    assert wired(other.memory.export_items(vectors=vectors)) == exported
    assert other.store.check() == []


def test_what_was_restored_is_the_same_to_every_caller(world: World) -> None:
    """The export could leave out a field; so what callers see is compared, too."""
    eventful(world)
    other = World(MemoryStore(), clock=world.clock)
    other.memory.restore(wired(world.memory.export_items(vectors=True)))

    for namespace in (ALICE, BOB):
        pages = [w.memory.list(namespace=namespace, status=None) for w in (world, other)]
        assert pages[0].items == pages[1].items
        for item in pages[0].items:
            steps = [w.memory.history(item.id, namespace=namespace) for w in (world, other)]
            assert steps[0] == steps[1]
        assert len(pages[0].items) > 0
    assert other.city() == world.city()
    assert other.found("tea cats rome", k=50) == world.found("tea cats rome", k=50)
    assert other.found("lives", k=50, as_of=world.clock() - 2 * DAY_S) == world.found(
        "lives", k=50, as_of=world.clock() - 2 * DAY_S
    )


def test_all_that_can_happen_is_in_the_eventful_memory(world: World) -> None:
    """Guard of the tests above: without a refuted item, say, they would show little."""
    eventful(world)
    data = wired(world.memory.export_items())

    assert {item["status"] for item in data} == set(Status)
    assert {item["state"]["tier"] for item in data} == set(Tier.__members__)
    assert {item["state"]["protection"] for item in data} == {
        *("NONE", "PROBATION", "PINNED", "NOT_YET_VALID")
    }
    assert {step["event"] for item in data for step in item["history"]} == {
        *("superseded", "refuted", "confirmed", "updated")
    }
    assert any(item["contradicted"] for item in data)
    assert any(item["state"]["exposed_count"] == 0 for item in data)
    assert any(item["state"]["contributed_count"] == 3 for item in data)


def test_export_of_one_namespace_leaves_out_the_others(world: World) -> None:
    eventful(world)

    exported = wired(world.memory.export_items(namespace=BOB))

    assert [(item["namespace"], item["id"]) for item in exported] == [(["bob"], "pin")]
    assert wired(world.memory.export_items(namespace=("nobody",))) == []


def test_export_leaves_out_what_has_expired(world: World) -> None:
    """It may be kept until the next sweep, and no path shows it."""
    world.add("here", id="here")
    world.add("gone", id="gone", expires_at=world.clock() + 1)
    world.clock.advance(1)

    assert [item["id"] for item in wired(world.memory.export_items())] == ["here"]


def test_export_goes_on_where_a_namespace_is_forgotten_meanwhile(world: World) -> None:
    """It reads a page at a time, so that it holds no snapshot open for long."""
    world.add("of Alice")
    world.add("of Bob", namespace=BOB)
    exporting = world.memory.export_items()
    next(exporting)

    world.memory.forget_namespace(BOB)

    assert list(exporting) == []


def test_export_reads_on_after_a_full_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amv.memory.service.EXPORT_PAGE", 3)
    items = world.fill(8)

    exported = wired(world.memory.export_items())

    assert [item["id"] for item in exported] == [item.id for item in items]


def test_vectors_survive_where_they_do_not_come_from_the_content(world: World) -> None:
    """Without them the content would be embedded, and the item be found elsewhere."""
    own = [0.0] * DIMENSION
    own[5] = 1.0
    data = one(world, vector=own)

    world.memory.restore([data])

    hit = world.memory.search(namespace=ALICE, vector=own).hits[0]
    assert hit.similarity == pytest.approx(1.0)


def test_all_vectors_of_a_long_item_survive(world: World) -> None:
    """Each passage has its own."""
    other = World(MemoryStore(), clock=world.clock, embedder=WordByWord(dimension=DIMENSION))
    other.add("one two three", id="x")

    world.memory.restore(wired(other.memory.export_items(vectors=True)))

    with world.store.read() as reader:
        assert len(reader.vector_ids([world.key("x")])) == 3


def test_a_refuted_item_needs_no_embedding(world: World) -> None:
    """Nothing searches for it by vector, so none is made for it."""
    data = one(world)
    data["status"], data["state"]["tier"], data["state"]["protection"] = "refuted", "COLD", "NONE"
    data["vectors"] = []
    embedder = Counting()
    memory = World(world.store, clock=world.clock, embedder=embedder).memory

    assert memory.restore([data]).added == 1
    assert embedder.texts == []
    assert memory.get("x").status is Status.REFUTED
    assert world.store.check() == []


# ---------------------------------------------------------------- another model of value


@pytest.mark.parametrize("half_life_s", [DAY_S, 365 * DAY_S])
def test_another_half_life_keeps_the_value_as_of_now(world: World, half_life_s: float) -> None:
    """The key means something only with the half-life it was made for."""
    other = World(MemoryStore(), clock=world.clock)
    item = other.add("x", id="x")
    world.clock.advance(10 * DAY_S)
    model = replace(SMALL.value_model, half_life_s=half_life_s)
    target = World(world.store, replace(SMALL, value_model=model), clock=world.clock)

    target.memory.restore(wired(other.memory.export_items()))

    now = other.memory.get("x").value
    assert now < item.value
    assert target.memory.get("x").value == pytest.approx(now)
    world.clock.advance(half_life_s)
    assert target.memory.get("x").value == pytest.approx(now / 2)


@pytest.mark.parametrize("says_scale", [True, False])
def test_other_constants_keep_what_items_are_worth_beside_new_ones(
    world: World, says_scale: bool
) -> None:
    """Exports of before did not say which they had, since there was only one set."""
    world.add("new", id="new")
    world.use(world.add("used", id="used").id)
    world.add("plan", id="plan", valid_from=world.clock() + DAY_S)
    lines = wired(world.memory.export_items())
    for line in lines if not says_scale else ():
        del line["state"]["scale"]
    model = PRESETS["default"]
    other = World(MemoryStore(), replace(SMALL, value_model=model), clock=world.clock)

    other.memory.restore(lines)

    assert other.memory.get("new").value == pytest.approx(0.005, rel=1e-6)
    assert other.memory.get("used").value == pytest.approx(0.025, rel=1e-6)
    assert other.memory.get("plan").value == model.initial
    again = World(MemoryStore(), SMALL, clock=world.clock)
    again.memory.restore(wired(other.memory.export_items()))
    values = [again.memory.get(name).value for name in ("new", "used")]
    assert values == pytest.approx([0.5, 0.7], rel=1e-6)


def test_an_item_to_come_begins_with_the_first_value_under_any_half_life(world: World) -> None:
    """Its key is the moment at which it begins, which no half-life changes."""
    data = one(world, valid_from=world.clock() + DAY_S)
    data["state"]["half_life_s"] = DAY_S

    world.memory.restore([data])
    world.clock.advance(DAY_S)
    world.memory.sweep()

    assert world.memory.get("x").value == pytest.approx(SMALL.value_model.initial)
    assert world.tier("x") is Tier.WARM


def test_hot_stays_within_its_cap_however_many_hot_items_come(world: World) -> None:
    data = one(world)
    items = [with_change(data, "id", f"x{i}") for i in range(30)]

    world.memory.restore(items)

    assert world.tiers()[Tier.HOT] <= SMALL.hot_max
    assert world.store.check() == []


def test_more_pinned_items_than_allowed_are_refused(world: World) -> None:
    """At most half of hot can be pinned, wherever the items come from."""
    data = one(world, pinned=True)
    items = [with_change(data, "id", f"x{i}") for i in range(SMALL.hot_max // 2 + 1)]

    with pytest.raises(InvalidInput, match="can be pinned"):
        world.memory.restore(items)

    assert world.memory.namespaces() == []


# ---------------------------------------------------------------- what is there already


def test_restoring_twice_adds_nothing_and_embeds_nothing(store: Store) -> None:
    """An interrupted import is run again from its start, so that must be cheap."""
    embedder = Counting()
    source = World(MemoryStore())
    eventful(source)
    exported = wired(source.memory.export_items())
    world = World(store, clock=source.clock, embedder=embedder)
    world.memory.restore(exported)
    assert embedder.texts
    embedder.texts.clear()
    version = world.row().version

    report = world.memory.restore(exported)

    assert report == RestoreReport(added=0, present=len(exported))
    assert embedder.texts == []
    assert world.row().version == version


def test_going_on_after_an_interruption_embeds_only_what_is_missing(store: Store) -> None:
    embedder = Counting()
    world = World(store, embedder=embedder)
    other = World(MemoryStore(), clock=world.clock)
    other.fill(10)
    exported = wired(other.memory.export_items())
    world.memory.restore(exported[:6])
    embedder.texts.clear()

    report = world.memory.restore(exported)

    assert report == RestoreReport(added=4, present=6)
    assert embedder.texts == [item["content"] for item in exported[6:]]


def test_the_same_item_twice_in_one_import_is_there_once(world: World) -> None:
    data = one(world)

    assert world.memory.restore([data, data]) == RestoreReport(added=1, present=1)
    assert world.row().live == 1


def test_the_same_id_with_other_content_is_a_conflict(world: World) -> None:
    """Which of the two is right is not for an import to guess; nothing is written."""
    data = one(world)
    world.add("something else", id="x")

    with pytest.raises(Conflict, match="'x'"):
        world.memory.restore([with_change(data, "id", "y"), data])

    assert [item.content for item in world.memory.list(namespace=ALICE).items] == ["something else"]


def test_an_id_whose_item_has_expired_is_free_again(world: World) -> None:
    """As absent as if a sweep had been there."""
    data = one(world)
    world.add("short-lived", id="x", expires_at=world.clock() + 1)
    world.clock.advance(1)

    assert world.memory.restore([data]) == RestoreReport(added=1, present=0)
    assert world.memory.get("x").content == data["content"]
    assert world.store.check() == []


def test_the_same_id_in_another_namespace_is_another_item(world: World) -> None:
    data = one(world)
    world.add("lives in rome", namespace=BOB, id="x")

    assert world.memory.restore([data]).added == 1


def test_restore_of_nothing_is_nothing(world: World) -> None:
    assert world.memory.restore([]) == RestoreReport(added=0, present=0)


def test_chunks_before_a_faulty_item_are_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk is whole; so that a long import need not begin anew."""
    monkeypatch.setattr("amv.memory.service.ADD_CHUNK", 2)
    data = one(world)
    items = [with_change(data, "id", f"x{i}") for i in range(4)]

    assert world.memory.restore(items[:3]).added == 3
    with pytest.raises(InvalidInput, match="pinned"):
        world.memory.restore([*items, with_change(data, "pinned", "yes")])

    assert world.row().live == 4


# ---------------------------------------------------------------- hostile input

NOTES = base64.b64encode(np.eye(1, DIMENSION, dtype="<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("id", 7, "id"),
        ("id", " ", "id"),
        ("namespace", "alice", "namespace"),
        ("namespace", [], "namespace"),
        ("namespace", ["a", 1], "namespace"),
        ("content", "", "content"),
        ("content", None, "content"),
        ("content", "nul \x00", "content"),
        ("content", "\ud800", "content"),
        ("content", "x" * ((1 << 20) + 1), "content"),
        ("context", None, "context"),
        ("created_at", None, "created_at"),
        ("created_at", "yesterday", "created_at"),
        ("valid_from", None, "valid_from"),
        ("valid_from", 10**400, "valid_from"),
        ("valid_until", [], "valid_until"),
        ("expires_at", True, "expires_at"),
        ("last_verified_at", math.nan, "last_verified_at"),
        ("source", 3, "source"),
        ("source", "s" * 257, "source"),
        ("source_trust", 1.5, "source_trust"),
        ("source_trust", math.nan, "source_trust"),
        ("claim", "abc", "claim"),
        ("claim", {"a": 1, "b": 2, "c": 3}, "claim"),
        ("claim", ["alice", "city"], "claim"),
        ("claim", [1, "city", "rome"], "claim"),
        ("claim", ["alice", "city", ["rome"]], "claim"),
        ("status", "dead", "status"),
        ("status", ["live"], "status"),
        ("status", "superseded", "status"),
        ("contradicted", 0, "contradicted"),
        ("pinned", "false", "pinned"),
        ("pinned", True, "pinned"),
        ("metadata", [], "metadata"),
        ("metadata", {"n": math.inf}, "finite"),
        ("supersedes", {}, "supersedes"),
        ("superseded_by", "x" * 300, "superseded_by"),
        ("state", "HOT", "state"),
        ("state", None, "state"),
        ("state.tier", "LUKEWARM", "tier"),
        ("state.tier", "COLD", "tier"),
        ("state.tier", 2, "tier"),
        ("state.protection", "ALWAYS", "protection"),
        ("state.protection", "NOT_YET_VALID", "protection"),
        ("state.protection", "PINNED", "protection"),
        ("state.value_key", math.nan, "value_key"),
        ("state.value_key", math.inf, "value_key"),
        ("state.value_key", -math.inf, "value_key"),
        ("state.value_key", 1e300, "value_key"),
        ("state.value_key", 10**400, "value_key"),
        ("state.value_key", "455.1", "value_key"),
        ("state.value_key", None, "value_key"),
        ("state.value_key", True, "value_key"),
        ("state.half_life_s", 0, "half_life_s"),
        ("state.half_life_s", -DAY_S, "half_life_s"),
        ("state.half_life_s", math.nan, "half_life_s"),
        ("state.scale", None, "scale"),
        ("state.scale", [1.0, 0.5], "scale"),
        ("state.scale", [1.0, 0.5, 0.2, 0.1], "scale"),
        ("state.scale", [1.0, 0.5, math.nan], "scale"),
        ("state.scale", [1.0, 0.0, 0.2], "scale"),
        ("state.scale", [1.0, 1.5, 0.2], "scale must be value_max, initial up to that"),
        ("state.scale", [1.0, "0.5", 0.2], "scale"),
        ("state.exposed_count", -1, "exposed_count"),
        ("state.exposed_count", 1 << 63, "exposed_count"),
        ("state.contributed_count", 1.0, "contributed_count"),
        ("state.contributed_count", True, "contributed_count"),
        ("history", None, "history"),
        ("history", "abc", "history"),
        ("history", [1], "history"),
        ("history", [{}], "at"),
        ("history.0.at", None, "at"),
        ("history.0.event", "", "event"),
        ("history.0.content", 5, "content"),
        ("history.0.claim", "abc", "claim"),
        ("vectors", NOTES, "vectors"),
        ("vectors", [NOTES] * (PASSAGES_MAX + 1), "vectors"),
        ("vectors", [5], "vectors"),
        ("vectors", ["?"], "vectors"),
        ("vectors", [NOTES, NOTES[:-8]], "vectors"),
        ("amv", 2, "amv"),
        ("amv", None, "amv"),
    ],
)
def test_a_field_that_can_not_be_kept_is_named_and_nothing_is_written(
    world: World, path: str, value: object, named: str
) -> None:
    """An export may have been written, or changed, by anyone."""
    other = World(MemoryStore(), clock=world.clock)
    other.claim("rome", id="x")
    other.memory.update("x", content="lives in old rome")
    (data,) = wired(other.memory.export_items(vectors=True))
    data = with_change(data, path, value)

    with pytest.raises(InvalidInput) as caught:
        world.memory.restore([one(world, id="before"), data])

    assert named in str(caught.value)
    assert len(str(caught.value)) < 300
    assert world.memory.namespaces() == []


FIELDS = [
    *("id", "namespace", "content", "context", "created_at", "valid_from", "valid_until"),
    *("expires_at", "source", "source_trust", "claim", "status", "contradicted", "pinned"),
    *("metadata", "supersedes", "superseded_by", "last_verified_at", "state", "history"),
    *("state.tier", "state.protection", "state.value_key", "state.half_life_s"),
    *("state.exposed_count", "state.contributed_count", "embedder", "amv"),
]


@pytest.mark.parametrize("path", [*FIELDS, "vectors", "state.scale"])
def test_a_number_too_long_to_be_written_is_no_field(world: World, path: str) -> None:
    """Python refuses to write it down, so a careless message about it is a ValueError."""
    other = World(MemoryStore(), clock=world.clock)
    other.claim("rome", id="x")
    (data,) = wired(other.memory.export_items(vectors=True))

    for wrong in (10**5000, [10**5000], np.zeros(2)):
        with pytest.raises(InvalidInput) as caught:
            world.memory.restore([with_change(data, path, wrong)])
        assert len(str(caught.value)) < 500
    assert world.memory.namespaces() == []


@pytest.mark.parametrize("path", FIELDS)
def test_a_missing_field_is_named(world: World, path: str) -> None:
    """A default in its place would be a silent change."""
    data = one(world)
    *parents, name = path.split(".")
    del (data[parents[0]] if parents else data)[name]

    with pytest.raises(InvalidInput, match=name):
        world.memory.restore([data])

    assert world.memory.namespaces() == []


@pytest.mark.parametrize("line", [None, 3, "x", ["amv", 1]])
def test_what_is_no_object_is_refused(world: World, line: Any) -> None:
    with pytest.raises(InvalidInput, match="is an object, got"):
        world.memory.restore([line])


def test_a_value_above_the_largest_is_refused(world: World) -> None:
    """Such an item would stay hot for ever; a clock that is a little ahead is no reason to."""
    data = one(world)
    model = SMALL.value_model
    now = math.log(model.value_max) + model.decay_rate * (world.clock() + CLOCK_SKEW_S)

    with pytest.raises(InvalidInput, match=r"value_key must mean a value of at most 1\.0"):
        world.memory.restore([with_change(data, "state.value_key", now + 1e-9)])

    assert world.memory.restore([with_change(data, "state.value_key", now - 1e-9)]).added == 1
    assert world.memory.get("x").value == model.value_max


def test_the_largest_value_is_that_of_the_half_life_it_came_with(world: World) -> None:
    """The same key means much more under a longer half-life."""
    data = one(world)
    data["state"]["half_life_s"] *= 2

    with pytest.raises(InvalidInput, match="value_key"):
        world.memory.restore([data])


def test_vectors_of_another_dimension_are_refused(world: World) -> None:
    other = World(MemoryStore(), clock=world.clock, embedder=Hashing(dimension=32))
    other.add("x")

    with pytest.raises(DimensionMismatch, match=r"hashing-64 .*got 'hashing-32 .*without vectors"):
        world.memory.restore(wired(other.memory.export_items(vectors=True)))

    assert world.memory.namespaces() == []


def test_vectors_of_another_embedder_of_equal_dimension_are_refused(world: World) -> None:
    """They would be compared with queries they have nothing to do with."""
    data = with_change(one(world), "embedder", f"other ({DIMENSION} dimensions)")

    with pytest.raises(DimensionMismatch, match="'other"):
        world.memory.restore([data])

    del data["vectors"]
    assert world.memory.restore([data]).added == 1


@pytest.mark.parametrize("component", [math.nan, math.inf, 0.0, 3e38, 1.01])
def test_vectors_that_are_not_unit_vectors_are_refused(world: World, component: float) -> None:
    """A longer one would be the best match of every query, which is how to poison a memory."""
    matrix = np.zeros((1, DIMENSION), dtype="<f4")
    matrix[0, 0] = component
    data = with_change(one(world), "vectors", [base64.b64encode(matrix.tobytes()).decode()])

    with pytest.raises(InvalidInput, match="vectors must be finite and of length 1"):
        world.memory.restore([data])

    assert world.memory.namespaces() == []


def test_vectors_of_a_signalling_nan_are_refused(world: World) -> None:
    """NumPy warns of those where it does not of a quiet one."""
    bits = np.full((1, DIMENSION), 0x7F80_0001, dtype="<u4")
    data = with_change(one(world), "vectors", [base64.b64encode(bits.tobytes()).decode()])

    with pytest.raises(InvalidInput, match="vectors"):
        world.memory.restore([data])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["HOT", "COLD", "NONE", "PINNED", "live", "refuted", "superseded"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)

EVENTFUL = World(MemoryStore())
eventful(EVENTFUL)
LINES = wired(EVENTFUL.memory.export_items(vectors=True))


@given(
    place=st.integers(0, len(LINES) - 1),
    changes=st.dictionaries(
        st.sampled_from([*LINES[0], *(f"state.{name}" for name in LINES[0]["state"])]),
        json_values,
        min_size=1,
        max_size=3,
    ),
)
def test_any_change_is_either_taken_back_out_unchanged_or_refused(
    place: int, changes: dict[str, Any]
) -> None:
    """No input is read as another, none raises anything but an error of ours, none does harm."""
    data = LINES[place]
    for path, value in sorted(changes.items(), reverse=True):
        data = with_change(data, path, value)
    world = World(MemoryStore(), clock=FakeClock(EVENTFUL.clock()))
    try:
        world.memory.restore([data])
    except (InvalidInput, Conflict):
        assert world.memory.namespaces() == []
        return

    world.memory.sweep()
    world.memory.maintain()
    assert world.store.check() == []
    for exported in world.memory.export_items():
        assert exported["content"] == data["content"]
        assert exported["claim"] == data["claim"]


def test_what_has_expired_since_its_export_is_restored_and_swept() -> None:
    """A line of a backup is no mistake, however old it is."""
    world, other = World(MemoryStore()), World(MemoryStore())
    world.add("x", id="x", expires_at=world.clock() + 5.0)
    lines = list(world.memory.export_items())
    other.clock.advance(10.0)

    assert other.memory.restore(lines).added == 1

    assert [(move.item_id, move.why) for move in other.memory.sweep().moves] == [("x", "expired")]
