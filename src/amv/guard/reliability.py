"""How far a check can be relied on, by decisions whose truth was told.

A check has a sensitivity s = P(refute | violated) and a specificity t =
P(confirm | holds).  Of each, what was seen gives a Beta posterior that starts
from Beta(1, 1), where every value is as likely.  A check that is thought better
than it is makes the gate too sure, so what is used is the bound above which
the true value lies with a confidence of 90 %, and it takes the place of the
declared value only once there are 30 decisions to tell it by.

What else than a check says whether it was right must be a person, or the world
itself: another check may err alike.  Labels that were drawn with unequal
probability count by their weights, and then for as many as they are worth,
(sum w)^2 / sum w^2 (Kish).  What is seen later is added to that, as the
posterior of before is the prior of what follows.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from amv.errors import InvalidInput

LEARNED_FROM = 30.0
"""Decisions of known truth from which what was seen counts, and no longer what was declared."""

CONFIDENCE = 0.9

_CELLS, _REACH = 4_000, 12.0
"""Into how many cells, and how many standard deviations around its mean, a posterior is cut."""


class Answer(NamedTuple):
    """What a check said of a premise of which the truth was told."""

    verifier: str
    is_refuted: bool
    is_violated: bool
    weight: float = 1.0


class Reliability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned of a check; None where too little was seen.

    *violated* and *held* are the premises it was seen on, by what they are worth,
    *caught* and *passed* those of them that it refuted, and confirmed; None where
    that was not kept.
    """

    sensitivity: float | None = None
    specificity: float | None = None
    violated: float = 0.0
    held: float = 0.0
    caught: float | None = None
    passed: float | None = None

    def __post_init__(self) -> None:
        for what in ("sensitivity", "specificity"):
            value = getattr(self, what)
            if value is not None and not 0.0 < value < 1.0:
                raise InvalidInput(f"a learned {what} lies between 0 and 1, got {value!r}")
        for right, seen in ((self.caught, self.violated), (self.passed, self.held)):
            if not 0.0 <= seen < math.inf or not (right is None or 0.0 <= right <= seen):
                raise InvalidInput(f"of {seen!r} premises a check was right of {right!r}")


def learned(
    answers: Sequence[Answer], given: Mapping[str, Reliability] = MappingProxyType({})
) -> dict[str, Reliability]:
    """Return how reliable each check was, by answers and by what was *given* of before."""
    found = dict(given)
    for name in sorted({answer.verifier for answer in answers}):
        own, old = [one for one in answers if one.verifier == name], given.get(name, Reliability())
        violated = _seen([(one.is_refuted, one.weight) for one in own if one.is_violated])
        held = _seen([(not one.is_refuted, one.weight) for one in own if not one.is_violated])
        violated, held = violated.after(old.caught, old.violated), held.after(old.passed, old.held)
        found[name] = Reliability(
            sensitivity=violated.bound(old.sensitivity),
            specificity=held.bound(old.specificity),
            violated=violated.worth,
            held=held.worth,
            caught=violated.right,
            passed=held.right,
        )
    return found


class _Seen(NamedTuple):
    """How much was seen, and of how much of it a check was right."""

    right: float
    worth: float

    def after(self, right: float | None, worth: float) -> "_Seen":
        """Return it added to what was seen before, where it is known how that was."""
        return self if right is None else _Seen(self.right + right, self.worth + worth)

    def bound(self, otherwise: float | None) -> float | None:
        """Return above which share the true one lies; what was known, if too little was seen."""
        if self.worth < LEARNED_FROM:
            return otherwise
        return beta_quantile(1.0 - CONFIDENCE, 1.0 + self.right, 1.0 + self.worth - self.right)


def _seen(own: Sequence[tuple[bool, float]]) -> _Seen:
    if not own:
        return _Seen(0.0, 0.0)
    total = sum(weight for _, weight in own)
    worth = total * total / sum(weight * weight for _, weight in own)
    # Rounding must not make more of them right than there are.
    share = min(1.0, sum(weight for is_right, weight in own if is_right) / total)
    return _Seen(worth * share, worth)


def beta_quantile(share: float, a: float, b: float) -> float:
    """Return below which value a share of Beta(a, b) lies, where a and b are at least 1.

    By adding up its density, which has one peak, around its mean.

    >>> round(beta_quantile(0.1, 61, 1), 4)
    0.963
    """
    mean = a / (a + b)
    reach = _REACH * math.sqrt(mean * (1.0 - mean) / (a + b + 1.0))
    edges = np.linspace(max(0.0, mean - reach), min(1.0, mean + reach), _CELLS + 1)
    middles = (edges[1:] + edges[:-1]) / 2.0
    logs = (a - 1.0) * np.log(middles) + (b - 1.0) * np.log1p(-middles)
    sums = np.concatenate([[0.0], np.cumsum(np.exp(logs - logs.max()))])
    return float(np.interp(share * sums[-1], sums, edges))
