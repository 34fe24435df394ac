"""Contradiction: which texts are flagged, and that a guess never retires one."""

from dataclasses import replace

import pytest

from amv.memory.contradiction import may_contradict
from amv.memory.item import Claim, Status
from amv.memory.ports import Store
from amv.memory.statement import CHARS_MAX, WORDS_MAX, statement
from tests.memory.worlds import ALICE, BOB, SMALL, World

PORTS = ("The server listens on port 8080", "The server listens on port 8081")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        PORTS,
        ("Ann eats meat", "Ann doesn't eat meat"),
        ("Ann eats meat", "Ann doesn\u2019t eat meat"),
        ("Ann eats meat on Sunday", "Ann never eats meat on Sunday"),
        ("Data Team allocated to Project Phoenix", "Data Team reallocated to Project Alpha"),
        ("Alpha Team works on Project Alpha", "Alpha Team works on Project Beta"),
        ("I live in Oslo", "I live in Rome"),
        ("my favourite colour is blue", "my favourite colour is green"),
        ("Launch planned for March 1st", "Launch planned for April 15"),
        ("ticket-7 was closed by mistake", "ticket-7 was opened by mistake"),
        ("approved the renewal for Acme", "do not approve any renewal for Acme"),
        ("Ann's boss is Bob", "Ann's boss is Cid"),
        ("The colour of the door is red", "The colour of the door is blue"),
        ("The door of Villa Rosa is open", "The door of Villa Rosa is closed"),
        ("approved 2 years renewal for Acme", "do not renew Acme; budget constraints"),
        ("The meeting is on Monday", "The meeting moved to Thursday"),
        ("PTO Policy updated: policy v2", "PTO Policy updated: policy v3"),
        ("City: Oslo", "City: Rome"),
        ("Ida_Holm: Works at Novo", "Ida_Holm: Works at Lego"),
        ("Ann Holm works at Novo", "Ann works at Lego"),
        ("Ann is allergic to nuts", "Ann is not allergic to nuts"),
        ("Ann likes tea", "Ann hates tea"),
        ("Ann studies in Oslo", "Ann studies in Rome"),
        ("The meeting is on Monday", "The meeting is on Friday"),
        ("The boat is owned by Ann Holm", "The boat is owned by Ann Lind"),
    ],
)
def test_two_texts_that_cannot_both_hold(one: str, other: str) -> None:
    """One subject, enough in common, and another value or a denial; in either order."""
    ours, theirs = statement(one), statement(other)
    assert ours is not None
    assert theirs is not None

    assert may_contradict(ours, theirs)
    assert may_contradict(theirs, ours)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ann lives in Oslo", "Bob lives in Rome"),
        ("order 17 was shipped", "order 18 was shipped"),
        ("Order 17 was shipped to Oslo", "Order 18 was shipped to Rome"),
        ("the boss lives near Oslo", "a clerk lives near Rome"),
        ("Ann lives in Oslo", "Ann lives in Oslo"),
        ("Ann lives in Oslo", "Ann lives in Oslo near the harbour"),
        ("Ann lives in Oslo", "Ann plays chess every evening after work"),
        ("20% discount approved for Ann", "20% discount approved for Bob"),
        ("the discount for Ann was revoked", "the discount for Bob was revoked"),
        ("I met Ann in Oslo", "I met Bob in Oslo yesterday"),
        ("we trust Ann, says Bob", "we trust Cid, says Bob"),
        ("the sky is blue", "a grey sea is deep"),
        ("Committed to close the Initech deal by May", "Committed to close the Acme deal by May"),
        ("My sister lives in Rome", "My brother lives in Rome"),
        ("I have a sister in Oslo", "I have a brother in Oslo"),
        ("Ann's sister is a nurse", "Ann's brother is a nurse"),
        ("the user\u2019s dog is called Rex", "the user\u2019s cat is called Tom"),
        ("Ann is allergic to nuts", "Ann is allergic to cats"),
        ("Ann likes tea", "Ann likes coffee"),
        ("Ann loves her garden", "Ann loves her sister"),
        ("Ida_Holm: Speaks Danish", "Ida_Holm: Speaks English"),
        ("Ida_Holm: Owns Heron", "Ida_Holm looks after Heron"),
        ("Ann met Bob", "Ann married Bob"),
        ("Ann", "Ann is not at home"),
        ("Ann's sister eats meat", "Ann's mother doesn't eat meat"),
        ("Order 17 is not heavy to ship", "a heavy order is easy to ship"),
        ("I eat meat on Sunday", "You don't eat meat on Sunday"),
        ("I eat meat on Sunday", "You eat meat on Monday"),
        ("User: I live in Oslo", "Assistant: I live in Rome"),
        ("Ann is in Rome", "Ann was in Oslo in 2019 with three old school friends"),
        ("Ann is vegetarian", "Ann is Danish"),
        ("The server is slow", "The server is old"),
        ("The server: a heron", "The server: an otter"),
        ("Order 17 is linked to order 20", "Order 17 is linked to invoice 30"),
        ("Ann likes jazz", "Ann plays jazz every week"),
        ("Ann reads fantasy novels", "Ann writes fantasy novels"),
    ],
)
def test_two_texts_that_can_both_hold(one: str, other: str) -> None:
    """Other subjects, a text that only says more, little in common, or no subject at all."""
    ours, theirs = statement(one), statement(other)
    assert ours is not None
    assert theirs is not None

    assert not may_contradict(ours, theirs)
    assert not may_contradict(theirs, ours)


@pytest.mark.parametrize(
    "text",
    [
        "Does the server listen on port 8080?",
        "What a server!",
        "who is it",
        "8080 on Monday",
        "x" * (CHARS_MAX + 1),
        " ".join(f"w{n}" for n in range(WORDS_MAX + 1)),
    ],
)
def test_talk_is_no_statement(text: str) -> None:
    """Nor is what says nothing, or too much: such texts contradict nothing by their words."""
    assert statement(text) is None


def test_both_texts_are_flagged_and_both_stay(world: World) -> None:
    """Nothing is retired by a guess; who reads either is warned."""
    old, new = (world.add(text) for text in PORTS)
    both = [world.memory.get(item.id) for item in (old, new)]

    assert new.contradicted
    assert [item.contradicted for item in both] == [True, True]
    assert [item.status for item in both] == [Status.LIVE] * 2
    assert set(world.found("server port")) == {old.id, new.id}
    assert world.store.check() == []


def test_who_contradicts_a_text_is_told_until_it_is_confirmed_or_gone(world: World) -> None:
    """A flag alone says that something is wrong, and not what to look at."""
    old, new = (world.add(text) for text in PORTS)
    world.memory.add(PORTS[0], namespace=BOB)
    world.add("the weather is fine")

    def against(item_id: str) -> list[str]:
        return [item.id for item in world.memory.contradicting(item_id, namespace=ALICE)]

    assert (against(old.id), against(new.id)) == ([new.id], [old.id])

    world.memory.confirm(old.id)
    assert (against(old.id), against(new.id)) == ([], [old.id])

    world.memory.refute(old.id)
    assert (against(old.id), against(new.id)) == ([], [])


def test_who_contradicts_a_claim_is_told(world: World) -> None:
    """Those that say otherwise, and texts that seem to; not those that it has superseded."""
    world.claim("Bonn", source_trust=0.8)
    rome = world.claim("Rome", source_trust=0.8)
    world.claim("Rome", source_trust=0.8)
    oslo = world.claim("Oslo", source_trust=0.2)
    ended = world.clock() + 10.0
    world.claim("Kiel", source_trust=0.1, valid_until=ended)
    world.clock.advance(20.0)
    text = world.add("lives in Turin")

    found = {item.id for item in world.memory.contradicting(rome.id)}

    assert found == {oslo.id, text.id}


def test_no_text_is_told_to_contradict_where_nothing_is_guessed(store: Store) -> None:
    """What the memory was told not to compare, it doesn't compare when it is asked either."""
    world = World(store, replace(SMALL, flag_contradictions=False))
    rome = world.claim("Rome", source_trust=0.8)
    oslo = world.claim("Oslo", source_trust=0.2)
    world.add("lives in Turin")

    assert [item.id for item in world.memory.contradicting(rome.id)] == [oslo.id]


def test_a_question_contradicts_nothing(world: World) -> None:
    """However much it resembles a statement that is there."""
    stated = world.add(PORTS[0])

    assert not world.add(f"{PORTS[1]}?").contradicted
    assert not world.memory.get(stated.id).contradicted


def test_texts_of_one_batch_are_compared(world: World) -> None:
    """They were not there when the batch began."""
    items = world.memory.add_many(
        [{"content": text, "namespace": ALICE} for text in (*PORTS, "the weather is fine")]
    )

    assert [item.contradicted for item in items] == [True, True, False]


def test_a_text_contradicts_a_claim_and_two_claims_are_settled_as_claims(world: World) -> None:
    """Of claims subject and attribute are known, so that nothing is guessed."""
    rome = world.claim("Rome")
    other = world.add("lives in Oslo", claim=Claim("bob", "city", "Oslo"))
    assert not other.contradicted
    assert not world.memory.get(rome.id).contradicted

    text = world.add("lives in Bonn")

    assert text.contradicted
    assert world.memory.get(rome.id).contradicted


def test_a_text_that_was_changed_is_compared_again(world: World) -> None:
    """An update tells something as an add does; a change of anything else tells nothing."""
    one, other = world.add(PORTS[0]), world.add("the weather is fine")
    assert not world.memory.update(other.id, metadata={"a": 1}).contradicted
    assert not world.memory.update(other.id, context="port 8081").contradicted

    changed = world.memory.update(other.id, content=PORTS[1])

    assert changed.contradicted
    assert world.memory.get(one.id).contradicted
    assert not world.memory.confirm(one.id).contradicted


def test_what_is_over_expired_or_of_others_contradicts_nothing(world: World) -> None:
    """Both must be able to hold at one moment, in one namespace."""
    now_s = world.clock()
    world.add(PORTS[0], valid_from=now_s - 20.0, valid_until=now_s - 10.0)
    world.add(PORTS[0], expires_at=now_s + 5.0)
    world.memory.add(PORTS[0], namespace=BOB)
    world.clock.advance(10.0)

    assert not world.add(PORTS[1]).contradicted


def test_texts_that_are_nothing_like_each_other_contradict_nothing(world: World) -> None:
    """By vectors of the caller's own, that is: by their words they would."""
    axis = [[float(n == k) for n in range(world.embedder.dimension)] for k in (0, 1)]
    world.add(PORTS[0], vector=axis[0])

    assert not world.add(PORTS[1], vector=axis[1]).contradicted


def test_a_large_batch_is_not_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare costs ten times what adding does, and nobody asked about an import."""
    monkeypatch.setattr("amv.memory.contradiction.BATCH_MAX", 2)
    more = (*PORTS, "the weather is fine")
    items = world.memory.add_many([{"content": text, "namespace": ALICE} for text in more])

    assert not any(item.contradicted for item in items)
    assert world.add("The server listens on port 8082").contradicted


def test_it_can_be_switched_off(store: Store) -> None:
    """Whoever keeps talk, or texts in which everything resembles everything."""
    world = World(store, replace(SMALL, flag_contradictions=False))
    for text in PORTS:
        item = world.add(text)

    assert not item.contradicted


def test_a_hundred_texts_about_other_things_are_left_alone(world: World) -> None:
    """Each is compared with those before it, and none is flagged or retired."""
    items = [world.add(f"Person{n} keeps {n + 3} animals of kind{n}") for n in range(100)]

    assert not any(world.memory.get(item.id).contradicted for item in items)
    assert world.row().live == 100
