"""Judging: from numbers and evidence to a plan, the same one each time."""

from itertools import permutations
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.guard.judge import (
    PLANNERS,
    Case,
    CaseCause,
    CaseCheck,
    CasePremise,
    Evidence,
    Judgement,
    Outcome,
    judge,
    prior_of,
)

CONFIRMED: tuple[Outcome, ...] = ("confirmed",)
REFUTED: tuple[Outcome, ...] = ("refuted",)
NOTHING: tuple[Outcome, ...] = ("inconclusive",)


def check(name: str, *premises: int, group: str = "", **more: Any) -> CaseCheck:
    fields = {"cost": 0.05, "sensitivity": 0.95, "specificity": 0.95, **more}
    return CaseCheck(name=name, premises=premises, group=group or name, **fields)


def case(*p: float, checks: tuple[CaseCheck, ...] = (), **more: Any) -> Case:
    """Return a case of premises that lose 50 each where abstaining costs 2."""
    return Case(
        premises=tuple(CasePremise(name=f"p{i}", p=one, theta=50.0) for i, one in enumerate(p)),
        checks=checks,
        **{"abstain": 2.0, "harm_max": 0.05, **more},
    )


def found(name: str, *outcomes: Outcome, has_value: bool = False) -> Evidence:
    return Evidence(check=name, outcomes=outcomes, has_value=has_value)


ONE = case(0.2, checks=(check("v", 0), check("w", 0)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case of up to three premises and four checks, some of several premises."""
    n = draw(st.integers(1, 3))
    share = st.floats(min_value=0.001, max_value=0.999)
    right = st.sampled_from([0.7, 0.95, 1.0])
    checks = tuple(
        check(
            f"v{number}",
            *draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True)),
            group=draw(st.sampled_from(["", "a", "b"])),
            cost=draw(st.sampled_from([0.0, 0.05, 0.5])),
            sensitivity=draw(right),
            specificity=draw(right),
            inconclusive=draw(st.sampled_from([0.0, 0.1])),
        )
        for number in range(draw(st.integers(1, 4)))
    )
    return case(
        *(draw(share) for _ in range(n)),
        checks=checks,
        repair=draw(st.sampled_from([None, 0.5])),
        harm_max=draw(st.sampled_from([0.05, 0.5, 1.0])),
        planner=draw(st.sampled_from(sorted(PLANNERS))),
    )


def answered(data: st.DataObject, given_case: Case) -> list[Evidence]:
    """Draw what checks of different groups found, in some order."""
    evidence: list[Evidence] = []
    closed: set[str] = set()
    for one in data.draw(st.permutations(given_case.checks)):
        if one.group in closed or data.draw(st.booleans()):
            continue
        outcomes: list[Outcome] = [
            data.draw(st.sampled_from(["confirmed", "refuted", "inconclusive"]))
            for _ in one.premises
        ]
        evidence.append(Evidence(check=one.name, outcomes=tuple(outcomes), has_value=True))
        if set(outcomes) != {"inconclusive"}:
            closed.add(one.group)
    return evidence


@settings(deadline=None)
@given(st.data(), cases())
def test_the_same_case_is_judged_the_same_after_a_round_trip(
    data: st.DataObject, drawn: Case
) -> None:
    """A replay reads case and evidence from the log, and must come to the same numbers."""
    evidence = answered(data, drawn)
    once = judge(drawn, evidence)
    read = msgspec.json.decode(msgspec.json.encode(drawn), type=Case)
    told = msgspec.json.decode(msgspec.json.encode(evidence), type=list[Evidence])

    assert judge(read, told) == once
    assert msgspec.json.decode(msgspec.json.encode(once), type=Judgement) == once


@settings(deadline=None, max_examples=300)
@given(st.data(), cases())
def test_nothing_goes_ahead_on_a_premise_that_a_check_told_nothing_of(
    data: st.DataObject, drawn: Case
) -> None:
    """A check that broke must not read as one that was not needed."""
    evidence = answered(data, drawn)
    by_name = {one.name: one for one in drawn.checks}
    asked: set[int] = set()
    told: set[int] = set()
    for one in evidence:
        for premise, outcome in zip(by_name[one.check].premises, one.outcomes, strict=True):
            (asked if outcome == "inconclusive" else told).add(premise)
    judged = judge(drawn, evidence)

    assert {f"p{premise}" for premise in asked - told} <= set(judged.unresolved)
    if judged.unresolved:
        assert judged.verdict != "PROCEED"


def test_evidence_moves_what_is_believed() -> None:
    confirmed = judge(ONE, [found("v", *CONFIRMED)])
    refuted = judge(ONE, [found("v", *REFUTED)])

    assert judge(ONE, []).verdict == "VERIFY"
    assert confirmed.before == pytest.approx((0.2,))
    assert confirmed.after == pytest.approx((0.2 * 0.05 / (0.2 * 0.05 + 0.8 * 0.95),))
    assert confirmed.harm == pytest.approx(confirmed.after[0])
    assert confirmed.proceed == pytest.approx(50.0 * confirmed.after[0])
    assert refuted.verdict == "ABSTAIN"
    assert confirmed.unresolved == refuted.unresolved == ()


def test_the_order_of_evidence_does_not_matter() -> None:
    three = case(0.2, 0.3, checks=(check("u", 0), check("v", 1), check("w", 0, 1)))
    evidence = [
        found("u", "confirmed"),
        found("v", "refuted", has_value=True),
        found("w", "confirmed", "inconclusive"),
    ]
    judged = [judge(three, order) for order in permutations(evidence)]

    for one in judged[1:]:
        assert one.verdict == judged[0].verdict
        np.testing.assert_allclose(one.after, judged[0].after)


def test_evidence_of_no_check_of_the_case_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'x', which is no check of this decision"):
        judge(ONE, [found("x", *CONFIRMED)])


def test_evidence_that_came_before_is_refused() -> None:
    """Told twice, one answer would count as two."""
    for outcomes in (CONFIRMED, NOTHING):
        with pytest.raises(InvalidInput, match="'v', whose source has answered already"):
            judge(ONE, [found("v", *outcomes), found("v", *CONFIRMED)])


def test_a_second_answer_of_one_group_is_refused() -> None:
    grouped = case(0.2, checks=(check("v", 0, group="api"), check("w", 0, group="api")))

    assert judge(grouped, [found("v", *CONFIRMED)]).voi == ()
    assert judge(grouped, [found("v", *NOTHING)]).check == "w"
    with pytest.raises(InvalidInput, match="'w', whose source has answered already"):
        judge(grouped, [found("v", *CONFIRMED), found("w", *CONFIRMED)])


@pytest.mark.parametrize("outcomes", [(), ("inconclusive", "inconclusive")])
def test_evidence_of_another_number_of_premises_is_refused(outcomes: tuple[Outcome, ...]) -> None:
    with pytest.raises(InvalidInput, match=f"observes 1 premises, got {len(outcomes)} outcomes"):
        judge(ONE, [found("v", *outcomes)])


def test_another_check_may_settle_what_the_first_told_nothing_of() -> None:
    asked = judge(ONE, [found("v", *NOTHING)])
    settled = judge(ONE, [found("v", *NOTHING), found("w", *CONFIRMED)])

    assert (asked.verdict, asked.check, asked.unresolved) == ("VERIFY", "w", ("p0",))
    assert (settled.verdict, settled.unresolved) == ("PROCEED", ())


def test_a_cheap_risk_does_not_go_ahead_once_its_check_told_nothing() -> None:
    """Unasked it would: but the check was worth asking, and nobody knows why it is silent."""
    cheap = case(0.01, checks=(check("v", 0),))
    judged = judge(cheap, [found("v", *NOTHING)])

    assert judge(case(0.01), []).verdict == "PROCEED"
    assert (judged.verdict, judged.expected_loss) == ("ABSTAIN", 2.0)
    assert judged.unresolved == ("p0",)


def test_an_unresolved_action_is_repaired_where_a_value_was_read() -> None:
    checks = (check("v", 0, sensitivity=0.6, specificity=0.6), check("w", 1))
    weak = case(0.001, 0.001, checks=checks, repair=1.0, harm_max=1.0)
    read = found("v", "refuted", has_value=True)
    judged = judge(weak, [read, found("w", *NOTHING)])

    assert judge(weak, [read]).verdict != "ABSTAIN"
    # Of what no check told anything the repaired action knows no more: that is 50 times 0.001.
    assert judged.verdict == "REPAIR"
    assert judged.expected_loss == pytest.approx(1.05)


def test_only_a_value_that_was_read_repairs() -> None:
    """That the thing is not there refutes, and gives nothing to put in its place."""
    repairable = case(0.2, checks=(check("v", 0),), repair=0.5)

    assert judge(repairable, [found("v", *REFUTED, has_value=True)]).verdict == "REPAIR"
    assert judge(repairable, [found("v", *REFUTED)]).verdict == "ABSTAIN"


def test_checks_that_never_err_and_contradict_each_other_end_in_abstaining() -> None:
    """One of them errs; an action must not go ahead on whichever came first."""
    sure: dict[str, Any] = {"sensitivity": 1.0, "specificity": 1.0}
    perfect = case(0.2, checks=(check("v", 0, **sure), check("w", 0, **sure)))
    judged = judge(perfect, [found("v", *CONFIRMED), found("w", *REFUTED)])

    assert judge(perfect, [found("v", *CONFIRMED)]).verdict == "PROCEED"
    assert (judged.verdict, judged.unresolved) == ("ABSTAIN", ("p0",))


def test_a_common_cause_leaves_each_premise_as_likely() -> None:
    together = case(0.2, 0.3, causes=(CaseCause(premises=(0, 1), probability=0.1),))
    likelier = case(0.2, 0.3, causes=(CaseCause(premises=(0, 1), probability=0.9),))

    assert judge(together, []).before == pytest.approx((0.2, 0.3))
    assert judge(together, []).harm < judge(case(0.2, 0.3), []).harm
    # No cause is likelier than the least of what it causes.
    assert judge(likelier, []).harm == pytest.approx(0.3)


def test_two_causes_or_one_with_foundations_are_refused() -> None:
    cause = CaseCause(premises=(0, 1), probability=0.1)
    rests = CasePremise(name="q", p=0.1, theta=1.0, rests_on=(0,))
    circle = msgspec.structs.replace(case(0.1), premises=(case(0.1).premises[0], rests))

    with pytest.raises(InvalidInput, match="one common cause"):
        judge(case(0.1, 0.1, causes=(cause, cause)), [])
    with pytest.raises(InvalidInput, match="one common cause"):
        judge(msgspec.structs.replace(circle, causes=(cause,)), [])


def test_a_premise_is_as_good_as_what_it_rests_on() -> None:
    rests = CasePremise(name="q", p=0.1, theta=1.0, rests_on=(0,))
    judged = judge(
        Case(premises=(*case(0.2).premises, rests), checks=(), abstain=1, harm_max=1), []
    )

    assert judged.before == pytest.approx((0.2, 1 - 0.8 * 0.9))


def test_more_premises_than_can_be_thought_through_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 12"):
        prior_of(case(*[0.1] * 13))


def test_a_bound_on_risk_is_kept() -> None:
    bounded = case(0.01, risk_max=0.4)

    assert judge(case(0.01), []).verdict == "PROCEED"
    assert judge(bounded, []).verdict == "ABSTAIN"


def test_a_check_says_what_it_is_worth() -> None:
    judged = judge(ONE, [])

    assert dict(judged.voi).keys() == {"v", "w"}
    assert judged.expected_loss == pytest.approx(2.0 - dict(judged.voi)[str(judged.check)])
