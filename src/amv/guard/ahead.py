"""Look-ahead: planning where the histories of answers are too many to go through.

It goes two checks ahead, and values what comes after by a chain that checks
until refuted, in the order in which a refutation is cheapest to find.  Where the
refuted can be repaired, the chain goes on once with what else may be wrong.

Source: DESIGN section 4.3.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from amv.guard.belief import Matrix, Vector
from amv.guard.plan import (
    Bits,
    Plan,
    Problem,
    chosen,
    exact,
    prices_of,
    repaired_state,
    stop,
    stopped,
    summed,
    work_of,
)

EXACT_MAX = 2_000_000
"""Histories times states that exact planning takes on."""

AHEAD_MAX = 4_000_000
"""Pairs of answers times states of which look-ahead goes into the second answer, too."""


def default(problem: Problem) -> Plan:
    """Plan exactly where that takes at most `EXACT_MAX`, and beyond by look-ahead."""
    if work_of(problem) <= EXACT_MAX:
        return exact(problem)
    return lookahead(problem)


def lookahead(problem: Problem) -> Plan:
    """Plan two checks ahead; what comes after is valued by a chain of checks until refuted."""
    if not problem.checks:
        return stop(problem, "lookahead")
    return chosen(problem, _Ahead(problem).checked(), "lookahead")


CURES = 1
"""Through how many refuted premises a chain goes on checking what else may be wrong."""


class _Ahead:
    """Look-ahead over one problem; rows are histories, in weights of shape (rows, 2^n)."""

    def __init__(self, problem: Problem, cures: int = CURES) -> None:
        self._problem = problem
        self._cures = cures
        self._cured: _Ahead | None = None
        self._sums = problem.sums()
        self._prices = np.asarray(prices_of(problem))
        checks = problem.checks
        self._outcomes = [(j, o) for j, c in enumerate(checks) for o in range(len(c.conclusive))]
        self._check_of = np.asarray([j for j, _ in self._outcomes])
        self._rows = np.stack([checks[j].likelihood[o] for j, o in self._outcomes])
        self._repairs = np.asarray([checks[j].repairs[o] for j, o in self._outcomes])
        self._rests: dict[int, Matrix] = {}
        self._confirm = np.asarray(
            [self._outcomes.index((j, c.confirms.index(True))) for j, c in enumerate(checks)]
        )
        # What is not asked any more after an outcome: the check, and its group if conclusive.
        self._closes = np.asarray(
            [
                [
                    i == j or (checks[j].conclusive[o] and other.group == checks[j].group)
                    for i, other in enumerate(checks)
                ]
                for j, o in self._outcomes
            ]
        )
        # One product with w then gives mass, risk and harm after every outcome.
        self._table = (self._rows[:, :, None] * self._sums.T[None, :, :]).transpose(1, 0, 2)

    def checked(self) -> list[float]:
        """Return what a plan that begins with each check loses."""
        problem, m = self._problem, len(self._problem.checks)
        weights = problem.belief[None, :] * self._rows
        open_, can = ~self._closes, problem.can_repair | self._repairs
        values = self._second(weights, open_, can)
        return [float(self._prices[j] + values[self._check_of == j].sum()) for j in range(m)]

    def _second(self, weights: Matrix, open_: npt.NDArray[np.bool_], can: Bits) -> Vector:
        """Return the value of each row, looking one check ahead and then along chains."""
        rows, outs = len(weights), len(self._outcomes)
        best = np.minimum(self._stop(weights, can), self._chain(weights, open_, can))
        if rows * outs * weights.shape[1] > AHEAD_MAX:
            return best
        next_weights = (weights[:, None, :] * self._rows[None, :, :]).reshape(rows * outs, -1)
        next_open = (open_[:, None, :] & ~self._closes[None, :, :]).reshape(rows * outs, -1)
        next_can = (can[:, None] | self._repairs[None, :]).reshape(-1)
        after = np.minimum(
            self._stop(next_weights, next_can), self._chain(next_weights, next_open, next_can)
        ).reshape(rows, outs)
        mass = weights.sum(axis=1)
        for j in range(len(self._prices)):
            value = self._prices[j] * mass + after[:, self._check_of == j].sum(axis=1)
            best = np.where(open_[:, j], np.minimum(best, value), best)
        return best

    def _stop(self, weights: Matrix, can: Bits) -> Vector:
        mass, risk, harm = summed(weights, self._sums)
        repair = self._problem.repaired(weights, can)
        return stopped(mass, risk, harm, self._problem.prices, repair)

    def _repaired(self, weights: Matrix, can: Bits, mass: Matrix) -> Matrix:
        """Return what repairing loses after each outcome, of shape (rows, outcomes)."""
        price = self._problem.prices.repair
        if price is None:
            return np.full(mass.shape, np.inf)
        risk, harm = np.empty(mass.shape), np.empty(mass.shape)
        for known in np.unique(can).tolist():
            own = can == known
            sums = np.tensordot(weights[own], self._rest(known), axes=(1, 0))
            risk[own], harm[own] = sums[:, :, 0], sums[:, :, 1]
        afresh = stopped(mass, risk, harm, self._problem.prices, np.full(mass.shape, np.inf))
        return np.where(can[:, None] | self._repairs[None, :], price * mass + afresh, np.inf)

    def _rest(self, known: int) -> Matrix:
        """Return what, by outcome, gives R and H of what is left once all refuted is repaired."""
        if known not in self._rests:
            states = np.arange(self._rows.shape[1])
            own = (known | self._repairs)[:, None]
            rest = repaired_state(states[None, :], own, self._problem.mended)
            sums = np.stack([self._problem.losses[rest], rest > 0], axis=2)
            self._rests[known] = (self._rows[:, :, None] * sums).transpose(1, 0, 2)
        return self._rests[known]

    def _going_on(
        self, weights: Matrix, free: npt.NDArray[np.bool_], can: Bits, outcome: int
    ) -> Vector:
        """Return what it loses to check on after an outcome, and to repair what it refuted then.

        That is a chain over the belief about the repaired action, with the price of
        repairing as good as paid: only who abstains in the end gets it back.
        """
        known = can | self._repairs[outcome]
        after = weights * self._rows[outcome]
        value = np.full(len(weights), np.inf)
        rows = np.flatnonzero((known > 0) & free.any(axis=1))
        prices = self._problem.prices
        if not len(rows) or not self._cures or not prices.repair or prices.repair > prices.abstain:
            return value
        if self._cured is None:
            paid = replace(prices, abstain=prices.abstain - prices.repair, repair=0.0)
            self._cured = _Ahead(replace(self._problem, prices=paid), self._cures - 1)
        own = _cured(after[rows], known[rows], self._problem.mended)
        open_ = free[rows] & ~self._closes[outcome]
        chain = self._cured._chain(own, open_, np.zeros(len(rows), dtype=np.int64))
        value[rows] = prices.repair * own.sum(axis=1) + chain
        return value

    def _chain(self, weights: Matrix, open_: npt.NDArray[np.bool_], can: Bits) -> Vector:
        """Return the value of checking until refuted, those first that refute cheaply.

        Only refuting an action that is wrong is worth something.  To refute one that
        is right loses what abstaining does, so that this is part of a check's price:
        one that often errs so comes last, where what is confirmed by then may do.
        """
        ends, costs = [], []
        w, free = weights, open_.copy()
        while free.any():
            found = np.tensordot(w, self._table, axes=(1, 0))
            mass, risk, harm = found[:, :, 0], found[:, :, 1], found[:, :, 2]
            repair = self._repaired(w, can, mass)
            halts = stopped(mass, risk, harm, self._problem.prices, repair)
            confirmed = mass[:, self._confirm]
            total = w.sum(axis=1)
            wrong = (w @ self._sums[2])[:, None] - harm[:, self._confirm]
            erring = np.maximum(total[:, None] - confirmed - wrong, 0.0)
            price = self._prices * total[:, None] + self._problem.prices.abstain * erring
            ratio = np.where(free, price / np.maximum(wrong, 1e-300), np.inf)
            pick = ratio.argmin(axis=1)
            usable = free[np.arange(len(w)), pick]
            other = np.zeros(len(w))
            for j in range(len(self._prices)):
                mine = pick == j
                if mine.any():
                    rest = (self._check_of == j) & (
                        np.arange(len(self._check_of)) != self._confirm[j]
                    )
                    for o in np.flatnonzero(rest).tolist():
                        going_on = self._going_on(w[mine], free[mine], can[mine], o)
                        other[mine] += np.minimum(halts[mine, o], going_on)
            costs.append(np.where(usable, self._prices[pick] * total + other, np.inf))
            ends.append(self._stop(w, can))
            out = self._confirm[pick]
            w = w * self._rows[out]
            free = free & ~self._closes[out]
        value = self._stop(w, can)
        for end, cost in zip(reversed(ends), reversed(costs), strict=True):
            value = np.minimum(end, cost + value)
        return value


def _cured(weights: Matrix, known: Bits, mended: int) -> Matrix:
    """Return weights of the same rows with the premises *known*, as bits, repaired."""
    rows, states = weights.shape
    after = repaired_state(np.arange(states)[None, :], known[:, None], mended)
    places = after + states * np.arange(rows)[:, None]
    cured: Matrix = np.bincount(places.ravel(), weights.ravel(), rows * states).astype(np.float64)
    return cured.reshape(rows, states)
