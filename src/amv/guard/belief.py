"""Beliefs: how likely each set of premises is violated, as exact vectors.

With n critical premises there are 2^n states; bit i of a state's number is set
if premise i is violated, and state 0 is the one in which all hold.  A belief is
a vector of 2^n probabilities.  With n <= 12 every inference is a short, exact
expression: nothing is sampled and nothing assumed independent that is not.

Source: DESIGN section 4.1.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from amv.errors import InvalidInput
from amv.guard.loss import check_probability

PREMISES_MAX = 12
"""Critical premises of one action at most; there are 2^n states of n."""

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]


def check_count(n: int) -> None:
    """Raise InvalidInput if an action has too many critical premises."""
    if n > PREMISES_MAX:
        raise InvalidInput(
            f"an action may have at most {PREMISES_MAX} critical premises, got {n}; "
            "split the action, or leave out those whose loss is small"
        )


@lru_cache(maxsize=PREMISES_MAX + 1)
def violated(n: int) -> npt.NDArray[np.bool_]:
    """Return which premises are violated in which state, of shape (2^n, n); read-only.

    >>> violated(2).astype(int).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    bits: npt.NDArray[np.bool_] = (np.arange(1 << n)[:, None] >> np.arange(n)[None, :]) & 1 == 1
    bits.setflags(write=False)
    return bits


def size(belief: Vector) -> int:
    """Return how many premises a belief is about."""
    return len(belief).bit_length() - 1


def independent(probabilities: Sequence[float]) -> Vector:
    """Return the belief of premises that fail each for itself.

    >>> independent([0.5, 0.2]).round(3).tolist()
    [0.4, 0.4, 0.1, 0.1]
    """
    check_count(len(probabilities))
    belief = np.ones(1)
    for i, p in enumerate(probabilities):
        check_probability(p, f"the probability of premise {i}")
        belief = np.concatenate([belief * (1.0 - p), belief * p])
    return belief


def with_common_cause(probabilities: Sequence[float], members: Sequence[int], q: float) -> Vector:
    """Return the belief of premises of which *members* also fail together, with probability *q*.

    Each keeps its own probability: p_i = q + (1 - q) r_i for members.  Raises
    InvalidInput if *q* is more than that of a member.
    """
    check_probability(q, "the probability of a common cause")
    rest = list(probabilities)
    for i in members:
        if probabilities[i] < q:
            raise InvalidInput(
                f"premise {i} fails with probability {probabilities[i]}, which is less than the "
                f"{q} of the cause it shares"
            )
        rest[i] = (probabilities[i] - q) / (1.0 - q) if q < 1.0 else 1.0
    apart = independent(rest)
    together = independent([1.0 if i in members else p for i, p in enumerate(rest)])
    mixed: Vector = (1.0 - q) * apart + q * together
    return mixed


def with_foundations(own: Sequence[float], rests_on: Mapping[int, Sequence[int]]) -> Vector:
    """Return the belief of premises that are also violated if one that they rest on is.

    *own* holds the probability that each fails by itself; premise i is violated
    if it fails, or if any premise in ``rests_on[i]`` is violated (noisy-or).
    Raises InvalidInput if premises rest on each other in a circle.
    """
    n = len(own)
    belief, states = independent(own), np.arange(1 << n)
    for i in ordered(n, rests_on):
        below = sum(1 << j for j in set(rests_on.get(i, ())))
        states = np.where(states & below, states | (1 << i), states)
    return np.bincount(states, weights=belief, minlength=1 << n).astype(np.float64)


def ordered(n: int, rests_on: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the premises 0..n-1 with those first on which others rest."""
    done: list[int] = []
    left = set(range(n))
    while left:
        free = sorted(i for i in left if not left & set(rests_on.get(i, ())))
        if not free:
            raise InvalidInput(f"premises {sorted(left)} rest on each other in a circle")
        done += free
        left -= set(free)
    return done


def marginals(belief: Vector) -> Vector:
    """Return the probability of each premise to be violated, of shape (n,)."""
    found: Vector = belief @ violated(size(belief))
    return found


def harm(belief: Vector) -> float:
    """Return H: the probability that some premise is violated."""
    # What is left of 1 would carry the rounding of the whole sum.
    return float(min(1.0, belief[1:].sum()))


def losses(thetas: Sequence[float]) -> Vector:
    """Return the loss of executing in each state: the largest theta violated, 0 if none."""
    table = np.where(violated(len(thetas)), np.asarray(thetas, dtype=np.float64), 0.0)
    found: Vector = table.max(axis=1, initial=0.0)
    return found


def updated(belief: Vector, likelihood: Vector) -> Vector:
    """Return the belief after evidence that each state makes as likely as *likelihood* says.

    Raises InvalidInput if no state that is possible explains it.
    """
    weights = belief * likelihood
    total = weights.sum()
    if not total > 0.0:
        raise InvalidInput("evidence that is impossible in every state that is possible")
    posterior: Vector = weights / total
    return posterior
