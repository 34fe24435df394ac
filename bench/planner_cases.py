"""Random decisions to plan: premises, prices and checks as they come, good and bad."""

import numpy as np

from amv.guard.belief import independent, with_common_cause
from amv.guard.loss import Prices
from amv.guard.plan import Problem, check_of

PREMISES_MAX = 6


def instance(
    rng: np.random.Generator,
    premises_max: int = PREMISES_MAX,
    *,
    p_max: float = 0.4,
    reliable_from: float = 0.75,
) -> Problem:
    """Draw a decision of 1 to *premises_max* premises n and n to 2n verifiers.

    Half are screened, half (of those of several premises) have a common cause,
    and three in ten can be repaired.  Premises are violated with probabilities of
    up to *p_max*, sensitivity and specificity are *reliable_from* or more.
    """
    n = int(rng.integers(1, premises_max + 1))
    m = int(rng.integers(n, 2 * n + 1))
    p = rng.uniform(0.01, p_max, n)
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
                sensitivity=float(rng.uniform(reliable_from, 1.0)),
                specificity=float(rng.uniform(reliable_from, 1.0)),
            )
            for number in range(m)
        ),
    )


def wide(rng: np.random.Generator, premises_max: int = PREMISES_MAX) -> Problem:
    """Draw a decision of doubtful premises and of checks that may err as often as not."""
    return instance(rng, premises_max, p_max=0.6, reliable_from=0.6)


def mixed(rng: np.random.Generator) -> Problem:
    """Draw a screened decision of premises and checks of very different worth, one each.

    Checks may never err, or one way only; that is where the order matters most.
    """
    n = int(rng.integers(3, 5))
    kappa = float(rng.choice([1.0, 5.0, 20.0]))
    repairs = [None, 0.1 * kappa, 0.5 * kappa]
    return Problem(
        belief=independent(
            (rng.choice([0.02, 0.05, 0.1, 0.2], n) * rng.uniform(0.9, 1.1, n)).tolist()
        ),
        thetas=tuple((kappa * rng.uniform(1.0, 20.0, n)).tolist()),
        prices=Prices(
            abstain=kappa, repair=repairs[int(rng.integers(len(repairs)))], harm_max=0.05
        ),
        checks=tuple(
            check_of(
                f"v{number}",
                [number],
                n,
                cost=kappa * float(rng.choice([0.01, 0.05, 0.1])),
                sensitivity=float(rng.choice([0.9, 0.95, 0.99, 1.0])),
                specificity=float(rng.choice([0.7, 0.8, 0.9, 0.95, 0.99, 1.0])),
            )
            for number in range(n)
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
