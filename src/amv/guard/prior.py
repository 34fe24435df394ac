"""How likely a remembered claim is wrong by now, before anything was checked.

The features of a claim are how sure it was said to be, how old it is, how far
its source is trusted, and whether another claim contradicts it.  A logistic
model turns them into a probability; its coefficients are a starting point, to
be fitted to settled decisions.

    z = -0.85 - 1.42 logit(confidence) + 2.15 min(1, age / 720 h) - 1.80 trust
        + 2.5 contradicted
    p = clip(sigma(z), 0.001, 0.999)

Source of the form and of the coefficients: arXiv 2610.31446 (DESIGN section 4.4).
"""

import math
from dataclasses import dataclass

from amv.errors import InvalidInput
from amv.guard.loss import check_probability

P_MIN, P_MAX = 0.001, 0.999

TRUSTED_FROM = 0.5
"""The source trust from which a claim counts as known at all."""

UNKNOWN = 0.5
"""The probability that a premise is violated of which nothing is remembered."""

_HOURS_FULL = 720.0
_LOGIT_MIN = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What is known of a remembered claim; *age_h* counts hours since it was last true for sure."""

    confidence: float = 0.9
    age_h: float
    trust: float
    is_contradicted: bool = False

    def __post_init__(self) -> None:
        check_probability(self.confidence, "confidence")
        check_probability(self.trust, "trust")
        if not 0.0 <= self.age_h < math.inf:
            raise InvalidInput(f"age_h must be at least 0 and finite, got {self.age_h!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticPrior:
    """The model; the defaults are the published coefficients."""

    bias: float = -0.85
    confidence: float = -1.42
    age: float = 2.15
    trust: float = -1.80
    contradicted: float = 2.5

    def __call__(self, features: Features) -> float:
        """Return the probability that the claim is wrong.

        >>> round(LogisticPrior()(Features(confidence=0.9, age_h=720, trust=0.8)), 6)
        0.036967
        """
        z = (
            self.bias
            + self.confidence * logit(features.confidence)
            + self.age * min(1.0, features.age_h / _HOURS_FULL)
            + self.trust * features.trust
            + self.contradicted * features.is_contradicted
        )
        return clipped(sigmoid(z))


def logit(x: float) -> float:
    """Return ln(x / (1 - x)), with both parts at least 0.00001."""
    return math.log(max(_LOGIT_MIN, x) / max(_LOGIT_MIN, 1.0 - x))


def sigmoid(z: float) -> float:
    """Return 1 / (1 + exp(-z)), of any finite z."""
    if z >= 0.0:
        return 1.0 / (1.0 + math.exp(-z))
    e = math.exp(z)
    return e / (1.0 + e)


def clipped(p: float) -> float:
    """Return *p* within what a claim's probability may be: nothing is certain.

    What is no number counts as the worst that there is.
    """
    if p <= P_MAX:
        return max(P_MIN, p)
    return P_MAX
