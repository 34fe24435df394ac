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
(sum w)^2 / sum w^2 (Kish).
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from amv.errors import InvalidInput
from amv.guard.libraries import library

LEARNED_FROM = 30.0
"""Decisions of known truth from which what was seen counts, and no longer what was declared."""

CONFIDENCE = 0.9


class Answer(NamedTuple):
    """What a check said of a premise of which the truth was told."""

    verifier: str
    is_refuted: bool
    is_violated: bool
    weight: float = 1.0


class Reliability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned of a check; None where too little was seen.

    *violated* and *held* are the premises it was seen on, by what they are worth.
    """

    sensitivity: float | None = None
    specificity: float | None = None
    violated: float = 0.0
    held: float = 0.0

    def __post_init__(self) -> None:
        for what in ("sensitivity", "specificity"):
            value = getattr(self, what)
            if value is not None and not 0.0 < value < 1.0:
                raise InvalidInput(f"a learned {what} lies between 0 and 1, got {value!r}")


def learned(answers: Sequence[Answer]) -> dict[str, Reliability]:
    """Return how reliable each check was; raises ConfigError if scikit-learn is not installed."""
    found = {}
    for name in sorted({answer.verifier for answer in answers}):
        own = [answer for answer in answers if answer.verifier == name]
        sensitivity, violated = _bound(
            [(a.is_refuted, a.weight) for a in own if a.is_violated],
        )
        specificity, held = _bound(
            [(not a.is_refuted, a.weight) for a in own if not a.is_violated],
        )
        found[name] = Reliability(
            sensitivity=sensitivity, specificity=specificity, violated=violated, held=held
        )
    return found


def _bound(seen: Sequence[tuple[bool, float]]) -> tuple[float | None, float]:
    """Return the lower bound of how often something is so, and how much was seen."""
    if not seen:
        return None, 0.0
    total = sum(weight for _, weight in seen)
    worth = total * total / sum(weight * weight for _, weight in seen)
    if worth < LEARNED_FROM:
        return None, worth
    right = worth * sum(weight for is_right, weight in seen if is_right) / total
    quantile = library("scipy.stats", "beta").ppf
    return float(quantile(1.0 - CONFIDENCE, 1.0 + right, 1.0 + worth - right)), worth
