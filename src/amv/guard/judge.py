"""Judging: from what is known of one action, in numbers, to a plan.

A case is everything that a decision rests on, as numbers and names: premises
with their probabilities and losses, checks with their prices, and how the
premises hang together.  Evidence is which check had which outcome.  The same
case with the same evidence gives the same plan, whenever it is judged again;
that is what replaying a decision does.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from amv.errors import InvalidInput
from amv.guard import baselines
from amv.guard.belief import (
    Vector,
    check_count,
    harm,
    losses,
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
    default,
    exact,
    lookahead,
    myopic,
)

Outcome = Literal["confirmed", "refuted", "inconclusive"]

PLANNERS: Mapping[str, Planner] = {
    "default": default,
    "exact": exact,
    "lookahead": lookahead,
    "myopic": myopic,
    **baselines.PLANNERS,
}


class CasePremise(msgspec.Struct, frozen=True, kw_only=True):
    """A critical premise: how likely it is violated by itself, and what that would lose."""

    name: str
    p: float
    theta: float
    age_h: float = 0.0
    rests_on: tuple[int, ...] = ()


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
    """All that a decision rests on; see the module."""

    premises: tuple[CasePremise, ...]
    checks: tuple[CaseCheck, ...]
    causes: tuple[CaseCause, ...] = ()
    abstain: float
    repair: float | None = None
    risk_max: float | None = None
    harm_max: float
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
    """What a check found of each of its premises, in their order."""

    check: str
    outcomes: tuple[Outcome, ...]
    has_value: bool = False


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done now, and what it was weighed against.

    *before* and *after* are the probabilities of each premise to be violated,
    *voi* the value of information of each check that is left, *proceed* R,
    *harm* H.  *unresolved* names the premises that were worth a check which told
    nothing: no action goes ahead on those.
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


@lru_cache(maxsize=1024)
def _checks(checks: tuple[CaseCheck, ...], count: int, can_repair: bool) -> tuple[Check, ...]:
    return tuple(
        check_of(
            check.name,
            check.premises,
            count,
            cost=check.cost,
            sensitivity=check.sensitivity,
            specificity=check.specificity,
            inconclusive=check.inconclusive,
            group=check.group,
            repairs=can_repair,
        )
        for check in checks
    )


def prior_of(case: Case) -> Vector:
    """Return the belief before any evidence."""
    probabilities = [premise.p for premise in case.premises]
    check_count(len(probabilities))
    rests_on = {i: premise.rests_on for i, premise in enumerate(case.premises)}
    if not case.causes:
        return with_foundations(probabilities, rests_on)
    if len(case.causes) > 1 or any(rests_on.values()):
        raise InvalidInput("an action may have one common cause, and then no premise of a premise")
    (cause,) = case.causes
    q = min(cause.probability, *(probabilities[i] for i in cause.premises))
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
        if outcome == "inconclusive":
            continue
        refutes = np.where((states >> premise) & 1 == 1, check.sensitivity, 1.0 - check.specificity)
        found *= refutes if outcome == "refuted" else 1.0 - refutes
    return found


def judge(case: Case, evidence: Sequence[Evidence]) -> Judgement:
    """Return what to do after *evidence*, in the order in which it came.

    Raises InvalidInput on evidence of a check that the case does not have, or of
    one that was closed by an earlier answer.
    """
    count = len(case.premises)
    belief = prior = prior_of(case)
    by_name = {check.name: check for check in case.checks}
    asked: set[str] = set()
    closed: set[str] = set()
    can_repair = False
    settled: dict[int, bool] = {}
    for found in evidence:
        check = by_name.get(found.check)
        if check is None:
            raise InvalidInput(f"evidence of {found.check!r}, which is no check of this decision")
        if found.check in asked:
            raise InvalidInput(f"evidence of {found.check!r}, which has answered already")
        asked.add(found.check)
        for premise, outcome in zip(check.premises, found.outcomes, strict=False):
            settled[premise] = settled.get(premise, False) or outcome != "inconclusive"
        if check.group in closed or all(o == "inconclusive" for o in found.outcomes):
            continue
        closed.add(check.group)
        belief = updated(belief, likelihood_of(check, found, count))
        can_repair = can_repair or (found.has_value and "refuted" in found.outcomes)
    left = tuple(c for c in case.checks if c.name not in asked and c.group not in closed)
    problem = Problem(
        belief=belief,
        thetas=tuple(premise.theta for premise in case.premises),
        prices=case.prices(),
        checks=_checks(left, count, case.repair is not None),
        can_repair=can_repair and case.repair is not None,
        made=len(asked),
        ages_h=tuple(premise.age_h for premise in case.premises),
    )
    judged = _judgement(problem, prior, left, PLANNERS[case.planner](problem))
    unresolved = tuple(case.premises[i].name for i, is_settled in settled.items() if not is_settled)
    if not unresolved:
        return judged
    if judged.verdict != Verdict.PROCEED:
        return msgspec.structs.replace(judged, unresolved=unresolved)
    # Fail closed: a check that was worth making and told nothing does not count as support.
    return msgspec.structs.replace(
        judged,
        verdict=Verdict.ABSTAIN.value,
        expected_loss=judged.abstain,
        unresolved=unresolved,
    )


def _judgement(problem: Problem, prior: Vector, left: Sequence[CaseCheck], plan: Plan) -> Judgement:
    return Judgement(
        verdict=plan.verdict.value,
        check=None if plan.check is None else left[plan.check].name,
        expected_loss=plan.expected_loss,
        proceed=float(problem.belief @ losses(problem.thetas)),
        harm=harm(problem.belief),
        abstain=problem.prices.abstain,
        before=tuple(marginals(prior).tolist()),
        after=tuple(marginals(problem.belief).tolist()),
        voi=tuple(
            (check.name, plan.stopping - value)
            for check, value in zip(left, plan.checked, strict=False)
        ),
        planner=plan.planner,
    )
