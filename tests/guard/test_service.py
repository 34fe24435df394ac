"""The gate from claim to settlement, and what it can tell of that afterwards."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amv
from amv.guard.decision import plain
from amv.guard.ledger import STEPPED_S
from amv.guard.ports import State
from amv.testing import FakeClock
from tests.guard.gates import CANCEL, OWNER, VERIFIER, cancel, opened, policy_of, remember

DAY_S = 86_400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def guard(clock: FakeClock) -> Iterator[amv.Guard]:
    with opened(clock=clock) as guard:
        yield guard


def claims(guard: amv.Guard) -> list[Any]:
    """Return the values that the memory holds to be true."""
    items = guard.memory.list(namespace=OWNER).items
    return [item.claim.value for item in items if item.claim is not None]


def test_a_confirmed_claim_is_known_for_sure_from_then_on(
    guard: amv.Guard, clock: FakeClock
) -> None:
    guard.verifier("order_status")(lambda order_id: "pending")
    item_id = remember(guard)
    clock.advance(DAY_S)

    decision = guard.decide(cancel())

    assert decision.verdict == "PROCEED"
    assert decision.values == {"status": "pending"}
    verified = guard.memory.get(item_id, namespace=OWNER).last_verified_at
    assert verified is not None
    assert verified.timestamp() == clock()
    (view,) = decision.premises
    assert view.after < view.before


def test_a_refuted_claim_is_superseded_by_what_was_read(guard: amv.Guard) -> None:
    guard.verifier("order_status")(lambda order_id: "shipped")
    item_id = remember(guard)

    decision = guard.decide(cancel())

    # No other call could require another status.
    assert decision.verdict == "ABSTAIN"
    assert decision.values == {"status": "shipped"}
    assert claims(guard) == ["shipped"]
    assert guard.memory.get(item_id, namespace=OWNER).status == amv.Status.REFUTED
    # What is known now needs no check to abstain from.
    assert guard.decide(cancel()).verdict != "PROCEED"


@pytest.mark.parametrize("reading", [amv.NOT_FOUND, ["shipped"]])
def test_a_claim_that_nothing_takes_the_place_of_is_refuted(
    guard: amv.Guard, reading: object
) -> None:
    guard.verifier("order_status")(lambda order_id: reading)
    remember(guard)

    assert guard.decide(cancel()).verdict in ("ABSTAIN", "REPAIR")
    assert claims(guard) == []


def test_a_claim_that_is_not_as_required_is_corrected_by_a_check() -> None:
    """The memory says shipped, the world pending: that is what the action needs."""
    # By the memory alone it is not worth a look.
    with opened(policy=policy_of(defaults={"audit": 1.0})) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard, "shipped")

        decision = guard.decide(cancel())

        assert claims(guard) == ["pending"]
        assert decision.verdict in ("PROCEED", "ABSTAIN")


def test_what_is_not_remembered_is_a_premise_that_nobody_verified(guard: amv.Guard) -> None:
    decision = guard.decide(cancel("never heard of"))

    (view,) = decision.premises
    assert (view.remembered, view.before) == (None, 0.5)
    assert decision.verdict == "ABSTAIN"
    assert "is not remembered" in guard.explain(decision.id)


def test_checks_are_asked_with_what_the_rule_names() -> None:
    verifier = {"cost": 0.02, "args": {"id": "$order_id", "shop": "main", "note": "$note"}}
    seen: list[dict[str, Any]] = []
    with opened(policy=policy_of(verifiers={"order_status": verifier})) as guard:

        @guard.verifier("order_status")
        def order_status(**arguments: Any) -> str:
            seen.append(arguments)
            return "pending"

        remember(guard)
        decision = guard.decide(cancel(), run_checks=False)
        guard.decide(cancel())

    assert seen == [{"id": "W1", "shop": "main", "note": None}]
    assert decision.check is not None
    assert decision.check.arguments == seen[0]
    assert (decision.check.cost, decision.check.premises) == (0.02, ("status",))


def test_an_unbound_argument_is_a_premise_that_nobody_verified(guard: amv.Guard) -> None:
    guard.verifier("order_status")(lambda order_id: "pending")
    remember(guard)

    decision = guard.decide(cancel(amount=5))

    assert decision.verdict == "ABSTAIN"
    assert "argument.amount" in [view.name for view in decision.premises]


def test_a_premise_that_is_not_critical_is_told_and_not_weighed() -> None:
    rule = {**CANCEL, "rests_on": {**CANCEL["rests_on"]}}
    rule["rests_on"]["mood"] = {"claim": "order/{order_id}/mood", "wrong": 0.0}
    with opened(policy=policy_of(actions={"cancel_order": rule})) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard)
        decision = guard.decide(cancel())

        assert decision.verdict == "PROCEED"
        assert [view.is_critical for view in decision.premises] == [True, False]
        assert "mood: order/W1/mood is not remembered, not critical" in guard.explain(decision.id)


def test_a_screen_that_executing_would_break_is_told() -> None:
    rule = {**CANCEL, "harm_max": 1e-6, "loss": {"wrong": 20.0, "abstain": 5.0}}
    with opened(policy=policy_of(actions={"cancel_order": rule})) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard)
        decision = guard.decide(cancel())

    assert decision.verdict == "ABSTAIN"
    assert "which is more than the 1e-06 allowed" in decision.reason


def test_a_decision_is_told_from_its_first_record_to_its_last(guard: amv.Guard) -> None:
    guard.verifier("order_status")(lambda order_id: "pending")
    remember(guard)
    decision = guard.decide(cancel())
    assert decision.permit is not None
    key = guard.redeem(decision.permit.token, cancel())
    guard.dispatched(key)
    guard.settle(key, State.SUCCEEDED)

    told = guard.explain(decision.id).splitlines()

    assert told[0] == "PROCEED: cancel_order(order_id='W1')"
    assert "  check order_status: confirmed" in told
    assert told[-4:] == [
        "  then APPROVED",
        "  then RESERVED",
        "  then DISPATCHED",
        "  then SUCCEEDED",
    ]


def test_decisions_are_listed_and_read_without_their_permits(guard: amv.Guard) -> None:
    guard.verifier("order_status")(lambda order_id: "pending")
    remember(guard)
    made = [
        guard.decide(cancel()),
        guard.decide(amv.Action(tool="look")),
        guard.decide(cancel("W9")),
    ]

    listed = guard.decisions()

    assert [decision.id for _, decision in listed] == [decision.id for decision in made]
    assert all(decision.permit is None for _, decision in listed)
    assert guard.decided() == 3
    assert guard.decisions(after=listed[0][0], limit=1) == listed[1:2]
    assert guard.get(made[0].id) == listed[0][1]
    assert guard.get(made[0].id).verdict == "PROCEED"
    assert guard.get(made[1].id).code == "read_only"
    with pytest.raises(amv.ItemNotFound, match="no decision"):
        guard.get("absent")
    assert plain(made[0])["permit"]["digest"] == made[0].digest


def test_evidence_on_what_was_forgotten_is_refused(guard: amv.Guard) -> None:
    """Nobody can tell any more what the decision was about."""
    item_id = remember(guard)
    decision = guard.decide(cancel(), run_checks=False)
    guard.memory.forget(item_id)

    with pytest.raises(amv.Conflict, match="rests on what was forgotten"):
        guard.evidence(decision.id, "order_status", "pending")


def test_evidence_under_a_clock_that_was_put_back_is_refused(guard: amv.Guard) -> None:
    """As the decision is as old as nobody knows."""
    remember(guard)
    decision = guard.decide(cancel(), run_checks=False)
    guard._clock.advance(-STEPPED_S - 1.0)  # type: ignore[attr-defined]

    with pytest.raises(amv.Conflict, match="at a time that is yet to come"):
        guard.evidence(decision.id, "order_status", "pending")


@pytest.mark.parametrize("value", [math.nan, object(), None, "", "\ud800"])
def test_evidence_that_says_nothing_is_none(guard: amv.Guard, value: object) -> None:
    remember(guard)
    decision = guard.decide(cancel(), run_checks=False)

    told = guard.evidence(decision.id, "order_status", value)

    assert (told.verdict, told.code) == ("ABSTAIN", "unresolved")
    assert guard.replay() == []


def test_shadow_mode_decides_and_grants_nothing() -> None:
    with opened(policy=policy_of(mode="shadow")) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard)

        decision = guard.decide(cancel())

        assert (decision.mode, decision.verdict, decision.permit) == ("shadow", "PROCEED", None)
        assert guard.decided() == 1


def test_a_namespace_sees_no_claim_of_another(guard: amv.Guard) -> None:
    guard.verifier("order_status")(lambda order_id: None)
    remember(guard)

    decision = guard.decide(
        amv.Action(tool="cancel_order", arguments={"order_id": "W1"}, namespace=("bob",))
    )

    assert decision.premises[0].remembered is None


def test_no_check_is_made_twice_however_often_it_tells_nothing(guard: amv.Guard) -> None:
    asked: list[str] = []
    guard.verifier("order_status")(lambda order_id: asked.append(order_id))
    remember(guard)
    guard.decide(cancel())

    assert asked == ["W1"]


def test_alternatives_are_ranked_by_what_they_are_expected_to_lose(guard: amv.Guard) -> None:
    """Without a check, a grant or a record; what nobody knows the loss of comes last."""
    asked: list[str] = []
    guard.verifier("order_status")(lambda order_id: asked.append(order_id))
    remember(guard)
    remember(guard, "shipped", "W2")
    actions = [amv.Action(tool="unheard_of"), cancel("W2"), cancel(), amv.Action(tool="look")]

    ranked = guard.rank(actions)

    assert [decision.digest for decision in ranked] == [
        action.digest() for action in (actions[3], actions[2], actions[1], actions[0])
    ]
    assert [decision.verdict for decision in ranked[:2]] == ["PROCEED", "VERIFY"]
    assert ranked[1].check is not None
    assert all(decision.permit is None and not decision.id for decision in ranked)
    assert (asked, guard.decided()) == ([], 0)
    with pytest.raises(amv.InvalidInput, match=r"need an amv\.Action"):
        guard.rank(["look"])  # type: ignore[list-item]


@settings(deadline=None, max_examples=100)
@given(
    value=st.sampled_from(["pending", "delivered"]),
    trust=st.sampled_from([0.5, 0.9]),
    poison=st.lists(
        st.tuples(st.sampled_from(["pending", "delivered", "lost"]), st.floats(0.0, 0.49)),
        min_size=1,
        max_size=3,
    ),
    comes_first=st.booleans(),
)
def test_items_that_nobody_trusts_do_not_help_an_action(
    value: str, trust: float, poison: list[tuple[str, float]], comes_first: bool
) -> None:
    """Through the memory itself, which flags what they contradict."""
    found = []
    for says in ([], poison):
        with opened() as guard:
            if comes_first:
                each_remembered(guard, says)
            remember(guard, value, source_trust=trust)
            if not comes_first:
                each_remembered(guard, says)
            (judged,) = guard.rank([cancel()])
            found.append(judged)
    clean, dirty = found

    assert dirty.premises[0].before >= clean.premises[0].before
    assert dirty.harm >= clean.harm
    assert dirty.risk >= clean.risk
    assert dirty.verdict != "PROCEED" or clean.verdict == "PROCEED"


def before(guard: amv.Guard) -> float:
    """Return how likely the one premise of an action is violated, before any check."""
    (judged,) = guard.rank([cancel()])
    return judged.premises[0].before


def test_what_seems_to_contradict_a_claim_is_a_reason_to_doubt_it_and_no_other_text(
    guard: amv.Guard,
) -> None:
    """A text is a reason as long as it is there; one that says something else is none."""
    remember(guard)
    at_first = before(guard)

    guard.memory.add("order W1 is heavy", namespace=OWNER)
    assert before(guard) == at_first
    text = guard.memory.add("order W1 is cancelled", namespace=OWNER)
    assert before(guard) > at_first
    guard.memory.forget(text.id, namespace=OWNER)
    assert before(guard) == at_first

    rival_id = remember(guard, "shipped", source_trust=0.2)
    assert before(guard) > at_first
    guard.memory.forget(rival_id, namespace=OWNER)
    assert before(guard) == at_first


def each_remembered(guard: amv.Guard, claims: list[tuple[str, float]]) -> None:
    """Have the memory hold what several sources say of one order."""
    for value, trust in claims:
        remember(guard, value, source_trust=trust)


@pytest.mark.parametrize("rests_on", [{}, {"mood": {"claim": "order/{order_id}/mood"}}])
def test_an_action_of_which_nothing_was_weighed_says_so(rests_on: dict[str, Any]) -> None:
    """Not that its premises hold: nobody has looked at them."""
    rule = {"loss": {"wrong": 5.0, "abstain": 5.0}, "rests_on": rests_on, "free": ["order_id"]}
    with opened(policy=policy_of(actions={"cancel_order": rule})) as guard:
        decision = guard.decide(cancel())

        assert decision.verdict == "PROCEED"
        assert decision.reason == (
            "no premise would lose more than 5 if it were violated: none was weighed"
        )
        assert decision.reason in guard.explain(decision.id)


def test_an_argument_that_no_rule_speaks_of_is_named_where_it_stops_an_action(
    guard: amv.Guard,
) -> None:
    """Otherwise all that is said is that something is violated with probability 0.5."""
    guard.verifier("order_status")(lambda order_id: "pending")
    remember(guard)

    decision = guard.decide(cancel(speed="fast"))

    assert (decision.verdict, decision.call) == (
        "ABSTAIN",
        "cancel_order(order_id='W1', speed='fast')",
    )
    assert "the rule does not speak of speed, which counts as a premise" in decision.reason
    assert "does not speak of" not in guard.decide(cancel()).reason


def test_decisions_are_found_by_session_and_verdict(guard: amv.Guard) -> None:
    remember(guard)
    for session in ("s1", "s2"):
        look = amv.Action("look", {"n": session}, namespace=OWNER, session=session)
        guard.decide(look)
    stopped = guard.decide(amv.Action("unheard_of", namespace=OWNER, session="s1"))

    def found(**how: Any) -> list[str]:
        return [decision.tool for _, decision in guard.decisions(**how)]

    assert found(session="s1") == ["look", "unheard_of"]
    assert found(session="s1", verdict="ABSTAIN") == [stopped.tool]
    assert found(verdict="PROCEED") == ["look", "look"]
    assert found(session="s1", namespace=("bob",)) == found(session="") == []
    assert found(verdict="PROCEED", limit=1) == ["look"]
    with pytest.raises(amv.InvalidInput, match="verdict must be one of"):
        guard.decisions(verdict="proceed")


def test_what_became_of_a_call_is_not_known_until_it_is_settled(
    guard: amv.Guard, clock: FakeClock
) -> None:
    guard.verifier("order_status")(lambda order_id: "pending")

    def begun(order_id: str) -> str:
        remember(guard, order_id=order_id)
        decision = guard.decide(cancel(order_id))
        assert decision.permit is not None
        clock.advance(1)
        return guard.redeem(decision.permit.token, cancel(order_id))

    assert guard.unsettled() == []
    reserved, dispatched, unknown, done = [begun(name) for name in ("a", "b", "c", "d")]
    for key in (dispatched, unknown, done):
        guard.dispatched(key)
    clock.advance(1)
    guard.settle(unknown, State.UNKNOWN)
    guard.settle(done, State.SUCCEEDED)

    assert [row.decision_id for row in guard.unsettled()] == [reserved, dispatched, unknown]


def test_alternatives_are_several_actions_and_not_too_many(guard: amv.Guard) -> None:
    assert guard.rank([]) == guard.rank(()) == []
    with pytest.raises(amv.InvalidInput, match="at most 256"):
        guard.rank([cancel()] * 257)
    for wrong in (cancel(), "cancel_order", 5):
        with pytest.raises(amv.InvalidInput, match="several actions"):
            guard.rank(wrong)  # type: ignore[arg-type]


def paying(guard: amv.Guard, iban: str) -> amv.Decision:
    """Decide about a payment to an account."""
    arguments = {"vendor": "a", "iban": iban}
    return guard.decide(amv.Action("pay", arguments, namespace=OWNER))


@pytest.mark.parametrize("trust", [None, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("repair", [0.0, 1.0])
@pytest.mark.parametrize("wrong", [120.0, 2000.0])
def test_no_repair_is_asked_for_that_is_then_abstained_from(
    wrong: float, repair: float, trust: float | None
) -> None:
    """What is left to doubt of the value read is part of what a repair loses."""
    verdicts = set()
    for s, t, is_kept in itertools.product((0.6, 0.99, 0.9999), (0.9, 0.9999), (True, False)):
        premise = {"claim": "vendor/{vendor}/iban", "require": {"argument": "iban"}}
        rule = {
            "loss": {"wrong": wrong, "abstain": 5.0, "repair": repair},
            "rests_on": {"iban": {**premise, "verify_with": ["bank"]}},
        }
        bank = {"cost": 0.02, "sensitivity": s, "specificity": t, "args": {"vendor": "$vendor"}}
        read = "NEW" if is_kept else ["NEW"]
        with opened(policy=policy_of(verifiers={"bank": bank}, actions={"pay": rule})) as guard:
            guard.verifier("bank")(lambda vendor, read=read: read)
            if trust is not None:
                claim = amv.Claim("vendor/a", "iban", "OLD")
                guard.memory.add("x", namespace=OWNER, claim=claim, source_trust=trust)
            first = paying(guard, "OLD")
            verdicts.add(first.verdict)
            if first.verdict == "REPAIR":
                (foreseen,) = guard.rank(
                    [amv.Action("pay", {"vendor": "a", "iban": read}, namespace=OWNER)]
                )
                assert foreseen.verdict in ("PROCEED", "VERIFY")
                assert repair + foreseen.expected_loss <= first.expected_loss + 1e-9
                assert first.expected_loss < 5.0
            assert guard.replay() == []

    # Where an error costs less, a check that hardly errs is enough whatever was remembered.
    assert "REPAIR" in verdicts or wrong == 2000.0


def test_what_a_check_read_is_trusted_as_its_own_and_no_more_than_it_must() -> None:
    """The verifier says it, not who was wrong; and whoever is trusted can tell what is newer."""
    sharp = {**VERIFIER, "sensitivity": 0.999, "specificity": 0.999}
    with opened(policy=policy_of(verifiers={"order_status": sharp})) as guard:
        guard.verifier("order_status")(lambda order_id: "shipped")
        for trust, is_now in ((0.2, 0.5), (0.5, 0.5), (0.9, 0.9)):
            remember(guard, order_id=str(trust), source_trust=trust, source="mail")
            guard.decide(cancel(str(trust)))
            found = guard.memory.find_claim(OWNER, f"order/{trust}", "status")
            assert found is not None
            assert (found.source, found.source_trust) == ("order_status", is_now)
        remember(guard, "lost", order_id="0.2")
        newest = guard.memory.find_claim(OWNER, "order/0.2", "status")
        assert newest is not None
        assert newest.claim == amv.Claim("order/0.2", "status", "lost")
