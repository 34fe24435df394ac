"""Judging: from what is known of one action, in numbers, to a plan.

A case is everything that a decision rests on, as numbers and names: premises
with their probabilities and losses, checks with their prices, and how the
premises hang together.  Evidence is which check had which outcome.  The same
case with the same evidence gives the same plan, whenever it is judged again;
that is what replaying a decision does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from amv.errors import InvalidInput
from amv.guard import baselines
from amv.guard.ahead import default, lookahead
from amv.guard.belief import (
    Vector,
    check_count,
    marginals,
    updated,
    with_common_cause,
    with_foundations,
)
from amv.guard.loss import Prices
from amv.guard.plan import (
    Check,
    Plan,
    Planner,
    Problem,
    Verdict,
    check_of,
    exact,
    myopic,
)
from amv.guard.prior import UNKNOWN, Features

Outcome = Literal["confirmed", "refuted", "inconclusive"]

NOTHING = "inconclusive"

PLANNERS: Mapping[str, Planner] = {
    "default": default,
    "exact": exact,
    "lookahead": lookahead,
    "myopic": myopic,
    **baselines.PLANNERS,
}


class CasePremise(msgspec.Struct, frozen=True, kw_only=True):
    """A critical premise: how likely it is violated by itself, and what that would lose.

    *features* are those of the claim that *p* was said of, None where it came
    from no claim that supports the action.  *in_call* says that it is about what
    the call itself says.  *p_confirmed*, *p_repaired* and
    *is_repairable* are as in `amv.guard.bind.Premise`; None in records of old.
    """

    name: str
    p: float
    p_confirmed: float | None = None
    p_repaired: float | None = None
    is_repairable: bool = True
    theta: float
    age_h: float = 0.0
    kind: str = ""
    features: Features | None = None
    rests_on: tuple[int, ...] = ()
    in_call: bool = False


class CaseCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check that can be made: which premises it observes, its price and reliability."""

    name: str
    premises: tuple[int, ...]
    cost: float
    sensitivity: float
    specificity: float
    inconclusive: float = 0.0
    group: str


class CaseCause(msgspec.Struct, frozen=True, kw_only=True):
    """Premises that fail together, with this probability."""

    premises: tuple[int, ...]
    probability: float


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision rests on; see the module.

    *harm_own* is the screen that the action's own rule sets, if it does: no
    certificate makes it looser.
    """

    premises: tuple[CasePremise, ...]
    checks: tuple[CaseCheck, ...]
    causes: tuple[CaseCause, ...] = ()
    abstain: float
    repair: float | None = None
    risk_max: float | None = None
    harm_max: float
    harm_own: float | None = None
    check_weight: float = 1.0
    planner: str = "default"

    def prices(self) -> Prices:
        """Return what ends the decision costs."""
        return Prices(
            abstain=self.abstain,
            repair=self.repair,
            risk_max=np.inf if self.risk_max is None else self.risk_max,
            harm_max=self.harm_max,
            check_weight=self.check_weight,
        )


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found of each of its premises, in their order.

    *has_value*: it read one; *is_kept*: that can take the place of what was
    remembered.  *is_audit*: nothing but an audit had asked for it.
    """

    check: str
    outcomes: tuple[Outcome, ...]
    has_value: bool = False
    is_kept: bool = True
    is_audit: bool = False

    @property
    def is_vain(self) -> bool:
        """Whether it tells nothing of anything."""
        return set(self.outcomes) == {NOTHING}


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done now, and what it was weighed against.

    *before* and *after* are the probabilities of each premise to be violated,
    *voi* the value of information of each check that is left, *proceed* R,
    *harm* H.  *unresolved* names the premises that were worth a check which told
    nothing, *refuted* those that an audit refutes: no action goes ahead on either.
    """

    verdict: str
    check: str | None
    expected_loss: float
    proceed: float
    harm: float
    abstain: float
    before: tuple[float, ...]
    after: tuple[float, ...]
    voi: tuple[tuple[str, float], ...]
    planner: str
    unresolved: tuple[str, ...] = ()
    refuted: tuple[str, ...] = ()


@lru_cache(maxsize=128)
def _checks(checks: tuple[CaseCheck, ...], count: int, repairable: int) -> tuple[Check, ...]:
    """Return checks for a planner; of *repairable* premises (as bits) a value read repairs."""
    found = (
        check_of(
            check.name,
            check.premises,
            count,
            cost=check.cost,
            sensitivity=check.sensitivity,
            specificity=check.specificity,
            inconclusive=check.inconclusive,
            group=check.group,
        )
        for check in checks
    )
    return tuple(
        replace(check, repairs=tuple(one & repairable for one in check.repairs)) for check in found
    )


def _repairable(case: Case) -> int:
    """Return the premises that a value read can repair, as bits."""
    if case.repair is None:
        return 0
    return _bits(premise.is_repairable for premise in case.premises)


def _bits(flags: Iterable[bool]) -> int:
    """Return flags of premises as bits, bit i for premise i."""
    return sum(1 << i for i, flag in enumerate(flags) if flag)


def check_causes(causes: int, rests_on: Iterable[Sequence[object]]) -> None:
    """Raise InvalidInput for common causes that no belief is made for."""
    if causes > 1 or (causes and any(rests_on)):
        raise InvalidInput("an action may have one common cause, and then no premise of a premise")


def prior_of(case: Case) -> Vector:
    """Return the belief before any evidence."""
    probabilities = [premise.p for premise in case.premises]
    check_count(len(probabilities))
    rests_on = {i: premise.rests_on for i, premise in enumerate(case.premises)}
    if not case.causes:
        return with_foundations(probabilities, rests_on)
    check_causes(len(case.causes), rests_on.values())
    (cause,) = case.causes
    q = min([cause.probability, *(probabilities[i] for i in cause.premises)])
    return with_common_cause(probabilities, cause.premises, q)


def likelihood_of(check: CaseCheck, evidence: Evidence, count: int) -> Vector:
    """Return how likely each state makes what a check found; ones where it found nothing."""
    if len(evidence.outcomes) != len(check.premises):
        raise InvalidInput(
            f"check {check.name!r} observes {len(check.premises)} premises, "
            f"got {len(evidence.outcomes)} outcomes"
        )
    found = np.ones(1 << count)
    states = np.arange(1 << count)
    for premise, outcome in zip(check.premises, evidence.outcomes, strict=True):
        if outcome == NOTHING:
            continue
        refutes = np.where((states >> premise) & 1 == 1, check.sensitivity, 1.0 - check.specificity)
        found *= refutes if outcome == "refuted" else 1.0 - refutes
    return found


class _Heard(NamedTuple):
    """What evidence leaves: a belief, checks that are not asked again, premises nobody settled.

    *refuted* are premises that an audit refutes, *p* is by premise what the next
    decision starts from.
    """

    belief: Vector
    asked: set[str]
    closed: set[str]
    can_repair: int
    unresolved: tuple[int, ...]
    refuted: tuple[int, ...]
    p: tuple[float | None, ...]


def _heard(case: Case, evidence: Sequence[Evidence], belief: Vector) -> _Heard:
    by_name = {check.name: check for check in case.checks}
    asked: set[str] = set()
    closed: set[str] = set()
    can_repair = 0
    # By premise: asked of in vain, told of, and told of by sources that can't both be right.
    unsettled: set[int] = set()
    settled: set[int] = set()
    contradicted: set[int] = set()
    refuted: set[int] = set()
    next_p: list[float | None] = [premise.p for premise in case.premises]
    gone: set[int] = set()
    for found in evidence:
        check = by_name.get(found.check)
        if check is None:
            raise InvalidInput(f"evidence of {found.check!r}, which is no check of this decision")
        if found.check in asked or check.group in closed:
            raise InvalidInput(f"evidence of {found.check!r}, whose source has answered already")
        asked.add(found.check)
        likelihood = likelihood_of(check, found, len(case.premises))
        told = {p for p, o in zip(check.premises, found.outcomes, strict=True) if o != NOTHING}
        for premise, outcome in zip(check.premises, found.outcomes, strict=True):
            # The first that refutes a claim has it replaced; the next find nothing to refute.
            if premise in told - gone:
                next_p[premise] = _next_p(case.premises[premise], outcome, found)
                gone |= {premise} if outcome == "refuted" else set()
        if found.is_audit:
            outcomes = zip(check.premises, found.outcomes, strict=True)
            refuted |= {premise for premise, outcome in outcomes if outcome == "refuted"}
        else:
            unsettled |= set(check.premises) - told
        if not belief @ likelihood > 0.0:
            # Sources that never err contradict each other, so one of them does; neither counts.
            contradicted |= told
            continue
        settled |= told
        if told:
            closed.add(check.group)
            belief = updated(belief, likelihood)
            outcomes = zip(check.premises, found.outcomes, strict=True)
            read = sum(1 << premise for premise, outcome in outcomes if outcome == "refuted")
            can_repair |= read & _repairable(case) if found.has_value else 0
    unresolved = tuple(sorted((unsettled - settled) | contradicted))
    of_audit = tuple(sorted(refuted))
    return _Heard(belief, asked, closed, can_repair, unresolved, of_audit, tuple(next_p))


def _next_p(premise: CasePremise, outcome: Outcome, found: Evidence) -> float | None:
    """Return how likely a premise will be violated once the memory was told of it."""
    if outcome == "confirmed":
        return premise.p_confirmed
    if premise.p_repaired is None:
        return None
    if not (found.has_value and found.is_kept):
        return UNKNOWN
    # What stays required is violated, unless what was read is wrong.
    return premise.p_repaired if premise.is_repairable else 1.0 - premise.p_repaired


def judge(case: Case, evidence: Sequence[Evidence]) -> Judgement:
    """Return what to do after *evidence*, in the order in which it came.

    An action never goes ahead on a premise of which a check told nothing, unless
    another one settled it.  An audit asks for what was not worth a check: where
    that told nothing the plan stands, and what it refutes never goes ahead, however
    little that check weighs.  A repair loses what deciding about the repaired call
    will lose, so that none is asked for which is then abstained from.  Raises
    InvalidInput on evidence of a check that the case does not have, or of one whose
    group was closed by an earlier answer.
    """
    prior = prior_of(case)
    heard = _heard(case, evidence, prior)
    if evidence and evidence[-1].is_audit and evidence[-1].is_vain:
        return judge(case, evidence[:-1])
    left = tuple(
        c for c in case.checks if c.name not in heard.asked and c.group not in heard.closed
    )
    problem = Problem(
        belief=heard.belief,
        thetas=tuple(premise.theta for premise in case.premises),
        prices=case.prices(),
        checks=_checks(left, len(case.premises), _repairable(case)),
        can_repair=heard.can_repair,
        mended=_bits(premise.in_call for premise in case.premises),
        made=len(heard.asked),
        ages_h=tuple(premise.age_h for premise in case.premises),
    )
    plan = _planned(case, heard, problem)
    if plan.verdict is Verdict.REPAIR and (loss := _repair(case, heard)) > plan.expected_loss:
        other = _planned(case, heard, replace(problem, can_repair=0))
        plan = other if other.expected_loss <= loss else plan._replace(expected_loss=loss)
    return msgspec.structs.replace(
        _judgement(problem, prior, left, plan),
        unresolved=_names(case, heard.unresolved),
        refuted=_names(case, heard.refuted),
    )


def _planned(case: Case, heard: _Heard, problem: Problem) -> Plan:
    plan = PLANNERS[case.planner](problem)
    if (heard.unresolved or heard.refuted) and plan.verdict is Verdict.PROCEED:
        return _ended_without_executing(problem, plan)
    return plan


def _repair(case: Case, heard: _Heard) -> float:
    """Return what a repair loses: its price, and what the decision about the repaired call will.

    Not that it could be repaired once more, as that would let one repair excuse the
    next.  Records of old don't tell; there it is what the plan takes it for.
    """
    known = [p for p in heard.p if p is not None]
    if len(known) < len(heard.p):
        return 0.0
    assert case.repair is not None
    premises = tuple(
        msgspec.structs.replace(premise, p=p)
        for premise, p in zip(case.premises, known, strict=True)
    )
    repaired = msgspec.structs.replace(case, premises=premises, repair=None)
    return case.repair + judge(repaired, ()).expected_loss


def _names(case: Case, premises: Sequence[int]) -> tuple[str, ...]:
    return tuple(case.premises[premise].name for premise in premises)


def _ended_without_executing(problem: Problem, plan: Plan) -> Plan:
    abstain, repair = problem.prices.abstain, problem.repair
    if repair < abstain:
        return plan._replace(verdict=Verdict.REPAIR, expected_loss=repair)
    return plan._replace(verdict=Verdict.ABSTAIN, expected_loss=abstain)


def _judgement(problem: Problem, prior: Vector, left: Sequence[CaseCheck], plan: Plan) -> Judgement:
    return Judgement(
        verdict=plan.verdict.value,
        check=None if plan.check is None else left[plan.check].name,
        expected_loss=plan.expected_loss,
        proceed=problem.risk,
        harm=problem.harm,
        abstain=problem.prices.abstain,
        before=tuple(marginals(prior).tolist()),
        after=tuple(marginals(problem.belief).tolist()),
        voi=tuple(
            (check.name, plan.stopping - value)
            # A baseline values no check.
            for check, value in zip(left, plan.checked, strict=False)
        ),
        planner=plan.planner,
    )
