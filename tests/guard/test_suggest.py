"""Suggestions: hints at where an argument came from, which never weigh anything."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import amv
from amv.claims import SEEN_MAX, SESSIONS_MAX, RecentReads
from amv.guard.policy import parse
from amv.guard.suggest import SUGGESTED_MAX, Seen, suggested
from tests.guard.gates import CANCEL, LOSS, OWNER, opened, policy_of, remember

RULE = parse({"version": 1, "actions": {"mail": {"loss": LOSS, "free": ["body"]}}}).actions["mail"]
ANN = Seen("item1", "customer/ann", "email", "ann@example.com")


def hints(seen: Seen, **arguments: Any) -> list[tuple[str, str, bool, str]]:
    found = suggested(amv.Action("mail", arguments), RULE, [seen])
    return [(one.argument, one.claim, one.is_required, one.match) for one in found]


def test_an_argument_that_is_the_value_of_a_claim_may_rest_on_it() -> None:
    assert hints(ANN, to="ann@example.com") == [("to", "customer/ann/email", True, "exact")]
    assert hints(ANN, to=" Ann@Example.com ") == [("to", "customer/ann/email", True, "normalised")]


def test_an_argument_that_names_the_subject_of_a_claim_fills_its_template() -> None:
    order = Seen("item1", "shop/order/5", "status", "pending")

    assert hints(order, order_id="5") == [
        ("order_id", "shop/order/{order_id}/status", False, "exact")
    ]
    assert hints(order, order_id=5) == [
        ("order_id", "shop/order/{order_id}/status", False, "normalised")
    ]
    assert hints(order, **{"no-name": "5"}) == []


@pytest.mark.parametrize(
    ("argument", "value", "match"),
    [
        (5, 5, "exact"),
        (5, 5.0, "normalised"),
        (5.5, "5.5", "normalised"),
        ("", "", ""),
        ("  ", " ", ""),
        (True, True, ""),
        (1, True, ""),
        (None, None, ""),
        ([5], "[5]", ""),
        ("ann", "anna", ""),
    ],
)
def test_values_match_exactly_or_but_for_how_they_are_written(
    argument: object, value: object, match: str
) -> None:
    found = hints(Seen("item1", "s", "a", value), to=argument)

    assert [one[3] for one in found] == ([match] if match else [])


def test_braces_in_what_was_read_are_no_template() -> None:
    (found,) = hints(Seen("item1", "a{b}", "c{d}", "x"), to="x")

    assert found[1] == "a{{b}}/c{{d}}"


def test_what_a_rule_speaks_of_needs_no_suggestion() -> None:
    assert hints(ANN, body="ann@example.com") == []


def test_the_newest_of_several_items_is_named_and_so_many_at_most() -> None:
    newest_first = [ANN._replace(item_id=f"item{n}") for n in range(3)]
    (one,) = suggested(amv.Action("mail", {"to": "ann@example.com"}), RULE, newest_first)
    assert one.item_id == "item0"

    many = [Seen(f"item{n}", f"subject{n}", "a", "x") for n in range(100)]
    assert len(suggested(amv.Action("mail", {"to": "x"}), None, many)) == SUGGESTED_MAX


# ---------------------------------------------------------------- what a session has read


RULES = {"cancel_order": {**CANCEL, "free": []}}


@pytest.fixture
def guard() -> Iterator[amv.Guard]:
    with opened(policy=policy_of(actions=RULES)) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard)
        yield guard


def decide(guard: amv.Guard, session: str = "s1", namespace: Any = OWNER, **more: Any) -> Any:
    arguments = {"order_id": "W1", "user": "ann", **more}
    return guard.decide(amv.Action("cancel_order", arguments, namespace=namespace, session=session))


def remember_user(guard: amv.Guard, **how: Any) -> str:
    """Have the memory hold whose order it is; return the item's id."""
    claim = amv.Claim("order/W1", "user", "ann")
    return guard.memory.add("order W1 is of ann", namespace=OWNER, claim=claim, **how).id


def test_what_a_session_has_read_is_suggested_and_explained(guard: amv.Guard) -> None:
    item_id = remember_user(guard)
    assert decide(guard).suggestions == ()
    with guard.acting(namespace=OWNER, session="s1"):
        guard.memory.search("whose order is W1", namespace=OWNER)

    decision = decide(guard)

    (hint,) = decision.suggestions
    assert (hint.argument, hint.claim, hint.item_id) == ("user", "order/W1/user", item_id)
    assert guard.get(decision.id).suggestions == (hint,)
    told = guard.explain(decision.id)
    assert "suggestion (exact match): user may rest on {claim: 'order/W1/user', require: " in told
    assert "it weighs nothing" in told
    assert decide(guard, session="s2").suggestions == ()
    assert decide(guard, namespace=("bob",)).suggestions == ()


def test_a_context_is_read_too_and_outside_of_a_session_by_each(guard: amv.Guard) -> None:
    remember_user(guard)
    guard.memory.context("whose order is W1", namespace=OWNER)

    for session in ("", "s1", "s2"):
        assert [one.argument for one in decide(guard, session=session).suggestions] == ["user"]


def test_what_is_no_longer_so_or_not_trusted_is_not_suggested(guard: amv.Guard) -> None:
    for how in ("forgotten", "refuted", "not trusted"):
        item_id = remember_user(guard, source_trust=0.4 if how == "not trusted" else 0.9)
        guard.memory.search("whose order is W1", namespace=OWNER)
        if how == "forgotten":
            guard.memory.forget(item_id, namespace=OWNER)
        elif how == "refuted":
            guard.memory.refute(item_id, namespace=OWNER)
        assert decide(guard).suggestions == (), how


def test_a_suggestion_is_forgotten_with_its_item(guard: amv.Guard) -> None:
    item_id = remember_user(guard)
    guard.memory.search("whose order is W1", namespace=OWNER)
    decision = decide(guard)
    assert decision.suggestions

    guard.memory.forget(item_id, namespace=OWNER)

    assert guard.get(decision.id).suggestions == ()
    assert guard.replay() == []


def test_what_is_known_of_sessions_is_bounded() -> None:
    reads = RecentReads()
    reads.note(OWNER, "first", ["a"])
    for number in range(SESSIONS_MAX):
        reads.note(OWNER, f"s{number}", [f"i{n}" for n in range(2 * SEEN_MAX)])

    assert reads.of(OWNER, "first") == []
    # The best hits of a search are the ones that stay.
    assert reads.of(OWNER, "s1") == [f"i{n}" for n in range(SEEN_MAX)]
    reads.note(OWNER, "s1", ["i3", "new"])
    assert reads.of(OWNER, "s1")[:3] == ["i3", "new", "i0"]


def test_a_memory_keeps_no_gate_alive_that_nobody_uses() -> None:
    """It tells the gate what is read, for as long as there is one."""
    with amv.Memory.open(":memory:", embedder="hashing:64") as memory:
        guard = amv.Guard(parse({"version": 1}), memory)
        alive = weakref.ref(guard)

        del guard

        gc.collect()
        assert alive() is None
        memory.search("x", namespace=OWNER)


@given(
    argument=st.one_of(st.sampled_from(["ann", "ANN", "pending", "W1", 5, None]), st.text()),
    is_read=st.booleans(),
    answer=st.sampled_from(["pending", "shipped", None]),
)
def test_a_suggestion_weighs_nothing(argument: Any, is_read: bool, answer: Any) -> None:
    """Equal values are no proof of where an argument came from."""
    decisions = []
    for reads in (False, is_read):
        with opened(policy=policy_of(actions=RULES)) as guard:
            guard.verifier("order_status")(lambda order_id: answer)
            remember(guard)
            remember_user(guard)
            if reads:
                guard.memory.search("order W1", namespace=OWNER)
            decisions.append(decide(guard, user=argument))

    without, found = decisions
    for name in ("verdict", "code", "risk", "harm", "expected_loss", "voi", "values", "reason"):
        assert getattr(found, name) == getattr(without, name), name
    assert [(p.name, p.before, p.after) for p in found.premises] == [
        (p.name, p.before, p.after) for p in without.premises
    ]
