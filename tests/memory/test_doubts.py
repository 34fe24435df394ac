"""A flag goes when what it was set for does; whatever happens to that."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.memory import doubts
from amv.memory.item import Claim, Item, Status
from amv.stores.memory import MemoryStore
from tests.memory.worlds import ALICE, World

PORTS = ("The server listens on port 8080", "The server listens on port 8081")


def flag_of(world: World, item: Item) -> bool:
    return world.memory.get(item.id).contradicted


def ends(world: World, item: Item) -> None:
    world.memory.update(item.id, valid_until=world.clock() + 5.0)
    world.clock.advance(10.0)
    world.memory.sweep()


def expires(world: World, item: Item) -> None:
    world.memory.update(item.id, expires_at=world.clock() + 5.0)
    world.clock.advance(10.0)
    world.memory.sweep()


GOES: list[Callable[[World, Item], object]] = [
    lambda world, item: world.memory.refute(item.id),
    lambda world, item: world.memory.forget(item.id),
    lambda world, item: world.memory.forget_many([item.id], namespace=ALICE),
    lambda world, item: world.memory.update(item.id, content="The weather is fine"),
    lambda world, item: world.memory.update(item.id, content=PORTS[1]),
    ends,
    expires,
]
NAMES = ("refute", "forget", "forget_many", "update", "agree", "end", "expire")


@pytest.mark.parametrize("goes", GOES, ids=NAMES)
def test_a_flag_goes_with_the_text_it_was_set_for(
    world: World, goes: Callable[[World, Item], object]
) -> None:
    """And is set anew by the next one."""
    old, new = (world.add(text) for text in PORTS)
    assert flag_of(world, new)

    goes(world, old)

    assert not flag_of(world, new)
    left = world.memory.list(namespace=ALICE, status=None).items
    assert not any(item.contradicted for item in left)
    assert world.store.check() == []
    assert world.add("The server listens on port 9000").contradicted
    assert flag_of(world, new)


@pytest.mark.parametrize("goes", GOES, ids=NAMES)
def test_a_flag_stays_while_anything_stands_against_the_item(
    world: World, goes: Callable[[World, Item], object]
) -> None:
    """Of three ports, two are left that can't both be right."""
    old, new = (world.add(text) for text in PORTS)
    third = world.add("The server listens on port 9000")

    goes(world, old)

    assert flag_of(world, new)
    assert flag_of(world, third)


def test_the_flag_of_a_claim_goes_with_its_rivals(world: World) -> None:
    """Also where one that comes supersedes what it was set for."""
    rome = world.claim("Rome", source_trust=0.8)
    oslo = world.claim("Oslo", source_trust=0.2)
    text = world.add("lives in Turin")
    assert flag_of(world, rome)

    world.memory.forget(text.id)
    assert flag_of(world, rome)
    kiel = world.claim("Kiel", source_trust=0.3)
    assert world.memory.get(oslo.id).status is Status.SUPERSEDED
    assert not flag_of(world, oslo)
    assert flag_of(world, rome)
    assert flag_of(world, kiel)

    world.claim("Rome", source_trust=0.5)
    assert world.memory.get(kiel.id).status is Status.SUPERSEDED
    assert not flag_of(world, rome)


def test_a_flag_goes_with_a_text_that_was_found_true(world: World) -> None:
    """That one has no flag of its own any more, and was what the other one had its for."""
    old, new = (world.add(text) for text in PORTS)
    world.memory.confirm(old.id)
    assert flag_of(world, new)

    world.memory.forget(old.id)

    assert not flag_of(world, new)


def test_a_sweep_comes_by_when_a_flagged_item_ends(world: World) -> None:
    """However it got its end and its flag, and though another sweep came before."""
    until_s = world.clock() + 50.0
    old = world.add(PORTS[0], valid_until=until_s)
    claims = [world.claim("Rome", source_trust=0.8)]
    claims.append(world.claim("Oslo", source_trust=0.2, valid_until=until_s))
    new = world.add(PORTS[1])
    world.make_due()
    world.memory.sweep()
    assert flag_of(world, old)
    assert world.row().next_due_s == until_s

    world.clock.advance(60.0)
    world.memory.sweep()

    assert not any(flag_of(world, item) for item in (old, new, *claims))


def test_what_a_claim_was_flagged_for_may_come_and_go_at_once(world: World) -> None:
    """Told late, it was superseded already when it was told."""
    world.claim("Kiel", source_trust=0.5)
    world.clock.advance(20.0)
    world.claim("Kiel", source_trust=0.8)

    late = world.claim("Oslo", source_trust=0.2, valid_from=world.clock() - 10.0)

    assert late.status is Status.SUPERSEDED
    assert not any(item.contradicted for item in world.memory.list(namespace=ALICE).items)


def test_an_update_of_anything_else_asks_nothing_again(world: World) -> None:
    """What an item says and until when is what it contradicts by."""
    old, _ = (world.add(text) for text in PORTS)

    assert world.memory.update(old.id, metadata={"a": 1}).contradicted
    assert world.memory.update(old.id, valid_until=world.clock() + 9.0).contradicted
    assert not world.memory.update(old.id, content="The weather is fine").contradicted


def test_how_much_is_looked_at_again_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many go at once: the flags of others then stay."""
    monkeypatch.setattr(doubts, "SETTLED_MAX", 1)
    for number in (1, 2):
        world.add(f"Door {number} is open")
        world.add(f"Door {number} is closed")
    items = {item.content: item for item in world.memory.list(namespace=ALICE).items}
    gone = [item.id for text, item in items.items() if text.endswith("open")]

    world.memory.forget_many(gone, namespace=ALICE)

    flags = [flag_of(world, items[f"Door {number} is closed"]) for number in (1, 2)]
    assert flags.count(True) >= 1


def test_questions_keep_no_statement_from_being_compared(world: World) -> None:
    """However many of them share more words with it."""
    world.add(PORTS[0])
    for number in range(20):
        world.add(f"Why does the server listen on port 8080 and 8081, asked {number}?")

    assert world.add(PORTS[1]).contradicted


TEXTS = (
    *PORTS,
    "The server listens on port 9000",
    "The door is open",
    "The door is closed",
    "The weather is fine",
)
CITIES = ("Rome", "Oslo", "Kiel")
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ("text", "claim", "later", "refute", "forget", "update", "end", "confirm", "wait")
        ),
        st.integers(0, 30),
        st.sampled_from((0.2, 0.5, 0.8)),
    ),
    max_size=14,
)


def act(world: World, what: str, number: int, trust: float) -> None:
    """Do one thing to a memory; to an item of it, if it has one that is live."""
    live = world.memory.list(namespace=ALICE).items if world.memory.namespaces() else ()
    item = live[number % len(live)] if live else None
    now_s = world.clock()
    if what == "text":
        world.add(TEXTS[number % len(TEXTS)])
    elif what in ("claim", "later"):
        claim = Claim("bo", "city", CITIES[number % len(CITIES)])
        begins_s = now_s + number - 10.0 if what == "later" else None
        world.add(f"lives in {claim.value}", claim=claim, source_trust=trust, valid_from=begins_s)
    elif what == "wait":
        world.clock.advance(number + 1.0)
    elif item is None:
        return
    elif what == "refute":
        world.memory.refute(item.id)
    elif what == "forget":
        world.memory.forget(item.id)
    elif what == "update":
        world.memory.update(item.id, content=TEXTS[number % len(TEXTS)])
    elif (item.last_verified_at or what == "confirm") and (item.valid_until or what == "end"):
        # What was found true and ends by itself leaves the flags of others.
        return
    elif what == "end":
        until_s = max(item.valid_from.timestamp(), now_s) + 3.0
        world.memory.update(item.id, valid_until=until_s)
    else:
        world.memory.confirm(item.id)


@settings(max_examples=120, deadline=None)
@given(ACTIONS)
def test_what_is_flagged_is_contradicted_by_something(
    actions: list[tuple[str, int, float]],
) -> None:
    """After each thing that happens to a memory, and a sweep."""
    world = World(MemoryStore())
    for one in actions:
        act(world, *one)
        world.memory.sweep()
        for name in world.memory.namespaces():
            for item in world.memory.list(namespace=name, status=None, limit=100).items:
                if item.contradicted:
                    assert world.memory.contradicting(item.id, namespace=name)
    assert world.store.check() == []
