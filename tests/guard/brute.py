"""Planning by going through every history in fractions: slow, and plainly right."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from amv.guard.loss import Prices
from amv.guard.plan import Problem, check_of

Weights = tuple[Fraction, ...]


@dataclass(frozen=True, kw_only=True)
class Sort:
    """A check, in fractions."""

    premises: tuple[int, ...]
    cost: Fraction
    sensitivity: Fraction
    specificity: Fraction
    inconclusive: Fraction
    group: str

    def rows(self, n: int) -> list[tuple[Weights, bool, frozenset[int]]]:
        """Return of each outcome its likelihoods, whether it is conclusive, what it refutes."""
        found = []
        for refuted in product([False, True], repeat=len(self.premises)):
            row = []
            for state in range(1 << n):
                likelihood = 1 - self.inconclusive
                for premise, says in zip(self.premises, refuted, strict=True):
                    is_bad = bool(state >> premise & 1)
                    right = self.sensitivity if is_bad else self.specificity
                    likelihood *= right if says == is_bad else 1 - right
                row.append(likelihood)
            bad = {p for p, says in zip(self.premises, refuted, strict=True) if says}
            found.append((tuple(row), True, frozenset(bad)))
        if self.inconclusive:
            found.append(((self.inconclusive,) * (1 << n), False, frozenset()))
        return found


@dataclass(frozen=True, kw_only=True)
class Small:
    """A small problem, in fractions."""

    belief: Weights
    thetas: tuple[Fraction, ...]
    abstain: Fraction
    repair: Fraction | None
    risk_max: Fraction
    harm_max: Fraction
    weight: Fraction
    checks: tuple[Sort, ...]
    mended: frozenset[int] = frozenset()

    def problem(self) -> Problem:
        """Return the same problem in floats."""
        return Problem(
            belief=np.asarray([float(w) for w in self.belief]),
            thetas=tuple(float(theta) for theta in self.thetas),
            prices=Prices(
                abstain=float(self.abstain),
                repair=None if self.repair is None else float(self.repair),
                risk_max=float(self.risk_max),
                harm_max=float(self.harm_max),
                check_weight=float(self.weight),
            ),
            checks=tuple(
                check_of(
                    str(number),
                    check.premises,
                    len(self.thetas),
                    cost=float(check.cost),
                    sensitivity=float(check.sensitivity),
                    specificity=float(check.specificity),
                    inconclusive=float(check.inconclusive),
                    group=check.group,
                )
                for number, check in enumerate(self.checks)
            ),
            mended=sum(1 << i for i in self.mended),
        )

    def best(self) -> Fraction:
        """Return what the best plan is expected to lose."""
        self_rows = [check.rows(len(self.thetas)) for check in self.checks]
        return self._best(self.belief, frozenset(range(len(self.checks))), frozenset(), self_rows)

    def _stopped(self, weights: Weights, refuted: frozenset[int]) -> Fraction:
        value = self._ended(weights, frozenset())
        if refuted and self.repair is not None:
            # What was refuted holds in the repaired action, of which is decided afresh; but what
            # the call says by now is what was read, and right where the refuted was wrong.
            value = min(value, self.repair * sum(weights) + self._ended(weights, refuted))
        return value

    def _ended(self, weights: Weights, repaired: frozenset[int]) -> Fraction:
        mass, risk, harm = sum(weights), Fraction(0), Fraction(0)
        for state, weight in enumerate(weights):
            was = {i for i in range(len(self.thetas)) if state >> i & 1}
            bad = (was - repaired) | ((repaired & self.mended) - was)
            risk += weight * max((self.thetas[i] for i in bad), default=Fraction(0))
            harm += weight if bad else 0
        may = risk <= min(self.risk_max, self.abstain) * mass and harm <= self.harm_max * mass
        return risk if may else self.abstain * mass

    def _best(
        self,
        weights: Weights,
        left: frozenset[int],
        refuted: frozenset[int],
        rows: Sequence[list[tuple[Weights, bool, frozenset[int]]]],
    ) -> Fraction:
        value, mass = self._stopped(weights, refuted), sum(weights)
        for number in left:
            group = self.checks[number].group
            same = frozenset(j for j in left if self.checks[j].group == group)
            checked = self.weight * self.checks[number].cost * mass
            for row, is_over, refutes in rows[number]:
                after = tuple(w * one for w, one in zip(weights, row, strict=True))
                rest = left - (same if is_over else {number})
                checked += self._best(after, rest, refuted | refutes, rows)
            value = min(value, checked)
        return value


def small(rng: np.random.Generator) -> Small:
    """Draw a problem of up to three premises and three checks."""
    n, m = int(rng.integers(1, 4)), int(rng.integers(0, 4))

    def fraction(low: int, high: int, of: int) -> Fraction:
        return Fraction(int(rng.integers(low, high)), of)

    weights = [fraction(1, 60, 1) for _ in range(1 << n)]
    weights[0] *= int(rng.integers(1, 20))
    kappa = fraction(50, 300, 101)
    is_screened = rng.random() < 0.5
    return Small(
        belief=tuple(weight / sum(weights) for weight in weights),
        thetas=tuple(kappa * fraction(5, 300, 10) for _ in range(n)),
        abstain=kappa,
        repair=kappa * fraction(1, 12, 10) if rng.random() < 0.4 else None,
        risk_max=kappa * fraction(5, 15, 10),
        harm_max=fraction(20, 300, 997) if is_screened else Fraction(1),
        weight=fraction(1, 4, 2),
        checks=tuple(
            Sort(
                premises=tuple(
                    rng.choice(n, int(rng.integers(1, min(n, 2) + 1)), replace=False).tolist()
                ),
                cost=kappa * fraction(0, 30, 100),
                sensitivity=fraction(60, 101, 100),
                specificity=fraction(60, 101, 100),
                inconclusive=fraction(1, 5, 11) if rng.random() < 0.4 else Fraction(0),
                group=str(rng.integers(3)),
            )
            for _ in range(m)
        ),
        # Drawn last, so that all else is as it was without it.
        mended=frozenset(i for i in range(n) if rng.random() < 0.5),
    )
