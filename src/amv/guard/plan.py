"""Planning: what to check next, and when to stop.

A problem is a belief, the losses, and the checks that can be made.  A plan says
what to do now: PROCEED, ABSTAIN, REPAIR, or VERIFY with one check; after its
answer, plan again.

One step ahead is not enough (`myopic`): where two premises must both hold, no
single check may pay while both together do.  So the default is exact: dynamic
programming over all histories of answers.  Where these are too many it looks
ahead instead (`amv.guard.ahead`).  How much is calculated is counted, never
timed, so that the same problem is decided in the same way again.

Histories are valued by their mass: with weights w = P(history, state) the value
of stopping, of a check and of the whole plan are all sums over w, and nothing
is ever divided.

Source: DESIGN sections 4.1 and 4.3; arXiv 2610.31446.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from amv.errors import InvalidInput
from amv.guard.belief import Matrix, Vector, check_count, harm, losses, violated
from amv.guard.loss import Prices, check_informative, check_probability

OBSERVED_MAX = 8
"""Premises that one check tells of at most; it has 2^k conclusive outcomes."""

_SUM = 1e-9

Bits = npt.NDArray[np.int64]
"""Premises as bits, of each of several rows or states."""


class Verdict(StrEnum):
    """What the gate answers."""

    PROCEED = "PROCEED"
    VERIFY = "VERIFY"
    REPAIR = "REPAIR"
    ABSTAIN = "ABSTAIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check as a planner sees it: its price, and how likely each outcome is in each state.

    *likelihood* has shape (outcomes, 2^n) with columns that sum to 1.  An
    outcome that is not *conclusive* is no evidence.  *repairs* holds, of each,
    the premises (bit i for premise i) of which it read a value with which the
    action could be repaired.  Of checks of one *group* only the first conclusive
    answer counts.
    """

    name: str
    cost: float
    likelihood: Matrix
    conclusive: tuple[bool, ...]
    repairs: tuple[int, ...]
    confirms: tuple[bool, ...]
    group: str

    def __post_init__(self) -> None:
        if not 0.0 <= self.cost < math.inf:
            raise InvalidInput(f"a check must cost at least 0 and not infinitely, got {self.cost}")
        table = self.likelihood
        if not (table.min(initial=0.0) >= 0.0 and (abs(table.sum(axis=0) - 1.0) <= _SUM).all()):
            raise InvalidInput(f"the outcomes of check {self.name!r} must have probabilities")


def check_observed(name: str, premises: int) -> None:
    """Raise InvalidInput if a check tells of too many premises."""
    if premises > OBSERVED_MAX:
        raise InvalidInput(
            f"a verifier may check at most {OBSERVED_MAX} premises of an action, "
            f"{name!r} checks {premises}"
        )


def check_of(
    name: str,
    premises: Sequence[int],
    count: int,
    *,
    cost: float,
    sensitivity: float,
    specificity: float,
    inconclusive: float = 0.0,
    repairs: bool = True,
    group: str | None = None,
) -> Check:
    """Return a check that gives one verdict a premise, or none at all.

    Of k *premises* among *count* it has 2^k conclusive outcomes: bit j of an
    outcome's number is set if premise j of them was refuted.  It is
    *inconclusive* with the given probability, whatever is so.
    """
    check_informative(sensitivity, specificity)
    check_probability(inconclusive, "the probability of an inconclusive check")
    check_observed(name, len(premises))
    bad = violated(count)[:, list(premises)]
    table = np.ones((1, 1 << count))
    for column in bad.T:
        refutes = np.where(column, sensitivity, 1.0 - specificity)
        table = np.concatenate([table * (1.0 - refutes), table * refutes])
    outcomes = len(table)
    conclusive = [True] * outcomes
    if inconclusive > 0.0:
        unanswered = np.full((1, 1 << count), inconclusive)
        table = np.concatenate([table * (1.0 - inconclusive), unanswered])
        conclusive.append(False)
    return Check(
        name=name,
        cost=cost,
        likelihood=table,
        conclusive=tuple(conclusive),
        repairs=tuple(
            sum(1 << p for j, p in enumerate(premises) if o >> j & 1)
            if repairs and o < outcomes
            else 0
            for o in range(len(table))
        ),
        confirms=tuple(o == 0 for o in range(len(table))),
        group=name if group is None else group,
    )


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One decision: a belief over 2^n states, the thetas of n premises, prices, checks left.

    *can_repair* holds the premises (bit i for premise i) of which a value to repair
    with was read already.  *mended* are the premises about what the call itself says,
    so that a repair puts what was read into it.  *made* is how many checks were made,
    *ages_h* how old each claim is.  The last two are for baselines.
    """

    belief: Vector
    thetas: tuple[float, ...]
    prices: Prices
    checks: tuple[Check, ...] = ()
    can_repair: int = 0
    mended: int = 0
    made: int = 0
    ages_h: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.thetas)
        check_count(n)
        for i, theta in enumerate(self.thetas):
            if not 0.0 <= theta < math.inf:
                raise InvalidInput(
                    f"the loss of premise {i} must be at least 0 and finite, got {theta}"
                )
        belief = self.belief
        if belief.shape != (1 << n,):
            raise InvalidInput(
                f"a belief over {n} premises has {1 << n} states, got shape {belief.shape}"
            )
        if not (belief.min() >= 0.0 and abs(belief.sum() - 1.0) <= _SUM):
            raise InvalidInput("a belief must be made of probabilities that sum to 1")
        for check in self.checks:
            if check.likelihood.shape[1:] != belief.shape:
                raise InvalidInput(f"check {check.name!r} is about another number of premises")

    @cached_property
    def losses(self) -> Vector:
        """The loss of executing in each state."""
        return losses(self.thetas)

    @property
    def risk(self) -> float:
        """R: the expected loss of executing now."""
        return float(self.belief @ self.losses)

    @property
    def harm(self) -> float:
        """H: the probability that some premise is violated."""
        return harm(self.belief)

    @property
    def repair(self) -> float:
        """What repairing now loses; infinite where it is not possible."""
        return float(self.repaired(self.belief[None, :], np.asarray([self.can_repair]))[0])

    def sums(self) -> Matrix:
        """Return the weights by which w gives mass, R and H times mass; of shape (3, 2^n)."""
        is_bad = np.ones(len(self.belief))
        is_bad[0] = 0.0
        return np.stack([np.ones(len(self.belief)), self.losses, is_bad])

    def repaired(self, weights: Matrix, repairs: npt.NDArray[np.int64]) -> Vector:
        """Return what repairing loses, times mass, of rows of weights that could be repaired so.

        A repaired action is decided afresh: what was refuted holds in it, and of
        all else is known what was known (`mended`).  So it costs its price, and then
        what ending such a decision loses.
        """
        if self.prices.repair is None:
            return np.full(len(weights), np.inf)
        rest = repaired_state(np.arange(len(self.belief))[None, :], repairs[:, None], self.mended)
        mass = weights.sum(axis=1)
        risk = (weights * self.losses[rest]).sum(axis=1)
        harm = (weights * (rest > 0)).sum(axis=1)
        afresh = stopped(mass, risk, harm, self.prices, np.full(len(weights), np.inf))
        return np.where(repairs > 0, self.prices.repair * mass + afresh, np.inf)

    def after(self, number: int, outcome: int, belief: Vector) -> "Problem":
        """Return the problem that is left after a check's outcome, with the belief it leaves."""
        check = self.checks[number]
        is_over = check.conclusive[outcome]
        left = tuple(
            other
            for place, other in enumerate(self.checks)
            if place != number and not (is_over and other.group == check.group)
        )
        return Problem(
            belief=belief,
            thetas=self.thetas,
            prices=self.prices,
            checks=left,
            can_repair=self.can_repair | check.repairs[outcome],
            mended=self.mended,
            made=self.made + 1,
            ages_h=self.ages_h,
        )


def repaired_state(states: Bits, repairs: Bits, mended: int) -> Bits:
    """Return in which states actions are once the premises *repairs*, as bits, are repaired.

    What was refuted holds in a repaired action, as that no longer rests on it.  But
    where the value that was read is put into the call, it is right where the refuted
    was wrong; where that still held, it was misread, and the call is wrong now.
    """
    read: Bits = (states & ~(repairs & ~mended)) ^ (repairs & mended)
    return read


class Plan(NamedTuple):
    """What to do now, and what that is expected to lose.

    *check* is the number of the check to make if the verdict is VERIFY.
    *checked* holds what a plan that begins with each check is expected to lose.
    """

    verdict: Verdict
    check: int | None
    expected_loss: float
    stopping: float
    checked: tuple[float, ...]
    planner: str


Planner = Callable[[Problem], Plan]


def stopped(mass: Vector, risk: Vector, harm: Vector, prices: Prices, repair: Vector) -> Vector:
    """Return the value of stopping, times mass; all arguments but prices are times mass, too."""
    may = (risk <= prices.critical_above * mass) & (harm <= prices.harm_max * mass)
    value: Vector = np.minimum(np.where(may, risk, prices.abstain * mass), repair)
    return value


def stop(problem: Problem, planner: str, checked: Sequence[float] = ()) -> Plan:
    """Return the best way to end the decision now."""
    prices, risk = problem.prices, problem.risk
    is_fine = prices.may_execute(risk, problem.harm)
    value = risk if is_fine else prices.abstain
    verdict = Verdict.PROCEED if is_fine else Verdict.ABSTAIN
    repair = problem.repair
    if repair < value:
        value, verdict = repair, Verdict.REPAIR
    return Plan(verdict, None, value, value, tuple(checked), planner)


def chosen(problem: Problem, checked: Sequence[float], planner: str) -> Plan:
    """Return the best of stopping now and of the plans that begin with each check."""
    ended = stop(problem, planner, checked)
    if not checked:
        return ended
    best = min(range(len(checked)), key=checked.__getitem__)
    # A check that gains no more than rounding is not made.
    if checked[best] >= ended.stopping - 1e-12 * max(1.0, ended.stopping):
        return ended
    return Plan(Verdict.VERIFY, best, checked[best], ended.stopping, tuple(checked), planner)


def prices_of(problem: Problem) -> list[float]:
    """Return what each check costs in the unit of losses."""
    return [problem.prices.check_weight * check.cost for check in problem.checks]


# ---------------------------------------------------------------- one step


def myopic(problem: Problem) -> Plan:
    """Plan one check ahead: make the check of the highest value of information, if positive.

    This is the rule of the paper with its screen.
    """
    sums = problem.sums()
    checked = []
    for check, price in zip(problem.checks, prices_of(problem), strict=True):
        weights = problem.belief * check.likelihood
        mass, risk, harm = summed(weights, sums)
        repair = problem.repaired(weights, problem.can_repair | np.asarray(check.repairs))
        checked.append(price + float(stopped(mass, risk, harm, problem.prices, repair).sum()))
    return chosen(problem, checked, "myopic")


def summed(weights: Matrix, sums: Matrix) -> Matrix:
    """Return mass, R and H times mass of each row of weights, of shape (3, rows)."""
    # Not by BLAS: it would spread so little work over threads, which then wait for each other.
    found: Matrix = np.einsum("rs,ks->kr", weights, sums)
    return found


# ---------------------------------------------------------------- exact


class _Shape(NamedTuple):
    """The histories of checks of some numbers of outcomes, and how one follows another.

    History h has the digit 0 for a check that was not made, and o + 1 for its
    outcome o, times the stride of the check.  *moves* go from the histories that
    are most answered to the least: a check, and those that may make it next.
    """

    strides: tuple[int, ...]
    moves: list[tuple[int, npt.NDArray[np.int64]]]


@lru_cache(maxsize=64)
def _shape(
    outcomes: tuple[int, ...], conclusive: tuple[tuple[bool, ...], ...], groups: tuple[int, ...]
) -> _Shape:
    radix = np.asarray([o + 1 for o in outcomes], dtype=np.int64)
    strides = np.concatenate([[1], np.cumprod(radix)])
    total = int(strides[-1])
    digits = np.arange(total)[:, None] // strides[None, :-1] % radix[None, :]
    made = (digits > 0).sum(axis=1)
    settled = np.zeros((total, len(outcomes)), dtype=bool)
    for j, flags in enumerate(conclusive):
        settled[:, j] = np.asarray((False, *flags))[digits[:, j]]
    # Closed by a conclusive answer of one of the same group.
    closed = np.stack(
        [
            settled[:, [i for i, g in enumerate(groups) if g == groups[j]]].any(axis=1)
            for j in range(len(outcomes))
        ],
        axis=1,
    )
    moves = []
    for level in range(len(outcomes) - 1, -1, -1):
        here = np.flatnonzero(made == level)
        for j in range(len(outcomes)):
            free = here[(digits[here, j] == 0) & ~closed[here, j]]
            if len(free):
                moves.append((j, free))
    return _Shape(tuple(strides[:-1].tolist()), moves)


def work_of(problem: Problem) -> int:
    """Return histories times states: what exact planning of a problem takes."""
    histories = 1
    for check in problem.checks:
        histories *= len(check.conclusive) + 1
    return histories * len(problem.belief)


def exact(problem: Problem) -> Plan:
    """Plan by dynamic programming over every history of answers; the best plan there is."""
    if not problem.checks:
        return stop(problem, "exact")
    values, prices = _values(problem), prices_of(problem)
    shape, mass = values.shape, values.mass
    strides = shape.strides
    checked = [
        prices[j] * mass[0]
        + sum(values.best[(o + 1) * strides[j]] for o in range(len(check.conclusive)))
        for j, check in enumerate(problem.checks)
    ]
    return chosen(problem, [float(value) for value in checked], "exact")


class _Values(NamedTuple):
    shape: _Shape
    mass: Vector
    best: Vector


def _values(problem: Problem) -> _Values:
    """Return each history's probability, and what the best plan from it loses, times that."""
    checks = problem.checks
    names = list(dict.fromkeys(check.group for check in checks))
    shape = _shape(
        tuple(len(check.conclusive) for check in checks),
        tuple(check.conclusive for check in checks),
        tuple(names.index(check.group) for check in checks),
    )
    weights = problem.belief[None, :]
    repairs = np.asarray([problem.can_repair])
    for check in checks:
        # The first digit counts fastest, so each later check is an outer block.
        weights = np.concatenate([weights, *(weights * row for row in check.likelihood)])
        repairs = np.concatenate([repairs, *(repairs | one for one in check.repairs)])
    mass, risk, harm = summed(weights, problem.sums())
    best = stopped(mass, risk, harm, problem.prices, problem.repaired(weights, repairs))
    prices = prices_of(problem)
    for j, free in shape.moves:
        stride = shape.strides[j]
        value = prices[j] * mass[free]
        for o in range(len(checks[j].conclusive)):
            value = value + best[free + (o + 1) * stride]
        best[free] = np.minimum(best[free], value)
    return _Values(shape, mass, best)


def policy_value(problem: Problem, planner: Planner) -> float:
    """Return what following a planner to the end is expected to lose; for tests and benchmarks."""
    plan = planner(problem)
    if plan.check is None:
        return plan.expected_loss
    check = problem.checks[plan.check]
    value = problem.prices.check_weight * check.cost
    for outcome, row in enumerate(check.likelihood):
        weights = problem.belief * row
        mass = float(weights.sum())
        if mass > 0.0:
            left = problem.after(plan.check, outcome, weights / mass)
            value += mass * policy_value(left, planner)
    return value
