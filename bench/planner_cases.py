"""Random decisions to plan: premises, prices and checks as they come, good and bad."""

import numpy as np

from amv.guard.belief import independent, with_common_cause
from amv.guard.loss import Prices
from amv.guard.plan import Problem, check_of

PREMISES_MAX = 6


def instance(rng: np.random.Generator, premises_max: int = PREMISES_MAX) -> Problem:
    """Draw a decision of 1 to *premises_max* premises n and n to 2n verifiers.

    Half are screened, half (of those of several premises) have a common cause,
    and three in ten can be repaired.
    """
    n = int(rng.integers(1, premises_max + 1))
    m = int(rng.integers(n, 2 * n + 1))
    p = rng.uniform(0.01, 0.4, n)
    belief = independent(p.tolist())
    if n > 1 and rng.random() < 0.5:
        members = rng.choice(n, int(rng.integers(2, n + 1)), replace=False).tolist()
        q = float(p[members].min() * rng.uniform(0.2, 0.9))
        belief = with_common_cause(p.tolist(), members, q)
    kappa = float(rng.uniform(0.5, 5.0))
    return Problem(
        belief=belief,
        thetas=tuple((kappa * rng.uniform(1.0, 30.0, n)).tolist()),
        prices=Prices(
            abstain=kappa,
            repair=float(kappa * rng.uniform(0.1, 1.0)) if rng.random() < 0.3 else None,
            harm_max=float(rng.choice([0.02, 0.05, 0.1])) if rng.random() < 0.5 else 1.0,
        ),
        checks=tuple(
            check_of(
                f"v{number}",
                [number if number < n else int(rng.integers(n))],
                n,
                cost=float(kappa * 10 ** rng.uniform(-3.0, -0.5)),
                sensitivity=float(rng.uniform(0.75, 1.0)),
                specificity=float(rng.uniform(0.75, 1.0)),
            )
            for number in range(m)
        ),
    )


def sized(rng: np.random.Generator, n: int, m: int) -> Problem:
    """Draw a decision of n premises and m verifiers that is worth thinking about."""
    return Problem(
        belief=independent(rng.uniform(0.02, 0.1, n).tolist()),
        thetas=tuple(rng.uniform(10.0, 50.0, n).tolist()),
        prices=Prices(abstain=2.0, harm_max=0.05),
        checks=tuple(
            check_of(
                f"v{number}",
                [number % n],
                n,
                cost=float(rng.uniform(0.005, 0.05)),
                sensitivity=float(rng.uniform(0.95, 1.0)),
                specificity=float(rng.uniform(0.95, 1.0)),
            )
            for number in range(m)
        ),
    )
