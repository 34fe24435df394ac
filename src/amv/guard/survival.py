"""How long claims stay true: a hazard per sort of attribute, learned from what was found.

A claim was right when it was learned, or was wrong from the start; from then on
it changes at a steady rate h, that of its kind.  So at age a it is still right
with a probability of

    1 - p = (1 - p0) exp(-h a),        p0 = sigma(logit(prior at age 0) + bias).

What is seen is never the moment of a change, only that by some age a claim
still held or did not (current-status data), which is all that this likelihood
needs:  y ln p + (1 - y) ln(1 - p), by the weight of each.

A kind that was seen seldom is pulled towards all kinds together: the logarithm
of its hazard has a normal prior around that of theirs, which counts as much as
POOLED changes seen.  (On that scale twice as fast and half as fast are as far;
a gamma prior would hold a kind back that changes a hundred times faster,
however often it was seen.)  One that was never seen has theirs.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from amv.errors import InvalidInput
from amv.guard.belief import Vector
from amv.guard.prior import Features, clipped, logit, sigmoid

POOLED = 1.0
"""For how many changes seen what all kinds have in common counts."""

START_H = 1.0 / 720.0
"""The hazard that all kinds together are pulled to, as if by a quarter of a change: monthly."""

_LOW, _HIGH = math.log(1e-7), math.log(10.0)
"""Hazards per hour: of what changes once in a thousand years, and ten times an hour."""

_ROUNDS, _NEAR = 40, 1e-4
_BIAS_SPREAD = 2.0


class Aged(NamedTuple):
    """A claim of some kind and age, and whether it was found wrong."""

    features: Features
    kind: str
    is_violated: bool
    weight: float = 1.0


class Survival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast claims change, a hazard per hour: of each kind seen, and of any other.

    Without a hazard nothing was learned, and the prior's own ramp holds.
    """

    hazard: float | None = None
    kinds: dict[str, float] = {}
    bias: float = 0.0

    def __post_init__(self) -> None:
        rates = [*self.kinds.values(), *([] if self.hazard is None else [self.hazard])]
        if self.hazard is None and self.kinds:
            raise InvalidInput("hazards of kinds need the hazard of any other kind beside them")
        if not all(0.0 < rate < math.inf for rate in rates):
            raise InvalidInput(f"a hazard is positive and finite, got {rates}")
        if not math.isfinite(self.bias):
            raise InvalidInput(f"the bias of a prior is finite, got {self.bias!r}")

    def of(self, kind: str) -> float | None:
        """Return the hazard of a kind, per hour; None if nothing was learned."""
        return self.kinds.get(kind, self.hazard)

    def __call__(self, prior: Callable[[Features], float], features: Features, kind: str) -> float:
        """Return the probability that a claim is wrong by now."""
        rate = self.of(kind)
        if rate is None:
            said = clipped(prior(features))
            return said if self.bias == 0.0 else clipped(sigmoid(logit(said) + self.bias))
        start = sigmoid(logit(clipped(prior(at_start(features)))) + self.bias)
        return clipped(1.0 - (1.0 - start) * math.exp(-rate * features.age_h))


def at_start(features: Features) -> Features:
    """Return what was known of a claim when it was learned."""
    return Features(
        confidence=features.confidence,
        age_h=0.0,
        trust=features.trust,
        is_contradicted=features.is_contradicted,
    )


class _Data(NamedTuple):
    """What was seen, as columns."""

    z: Vector
    age_h: Vector
    is_violated: Vector
    weight: Vector

    def loss(self, bias: float, hazard: float) -> float:
        """Return the log loss, summed by weight."""
        start = 1.0 / (1.0 + np.exp(-(self.z + bias)))
        p = np.clip(1.0 - (1.0 - start) * np.exp(-hazard * self.age_h), 1e-9, 1.0 - 1e-9)
        logs = np.where(self.is_violated > 0.5, np.log(p), np.log1p(-p))
        return float(-(self.weight * logs).sum())

    def of(self, mask: Vector) -> "_Data":
        return _Data(*(column[mask] for column in self))


def fit_survival(seen: Sequence[Aged], prior: Callable[[Features], float]) -> Survival:
    """Return the most likely hazards and bias; there must be something seen."""
    data = _Data(
        np.asarray([logit(clipped(prior(at_start(one.features)))) for one in seen]),
        np.asarray([one.features.age_h for one in seen]),
        np.asarray([float(one.is_violated) for one in seen]),
        np.asarray([one.weight for one in seen]),
    )
    names = np.asarray([one.kind for one in seen], dtype=object)
    parts = {str(name): data.of(names == name) for name in sorted(set(names.tolist()))}
    bias, hazard = 0.0, START_H
    rates = dict.fromkeys(parts, START_H)
    for _ in range(_ROUNDS):
        before = [bias, *map(math.log, rates.values())]
        hazard = _rate(data, bias, START_H, 0.25)
        rates = {name: _rate(part, bias, hazard, POOLED) for name, part in parts.items()}
        bias = _bias(parts, rates)
        after = [bias, *map(math.log, rates.values())]
        if max(abs(a - b) for a, b in zip(before, after, strict=True)) < _NEAR:
            break
    return Survival(hazard=hazard, kinds=rates, bias=bias)


def fit_bias(seen: Sequence[Aged], prior: Callable[[Features], float]) -> Survival:
    """Return the prior as it is, but for its bias: what survival has to be better than."""
    data = _Data(
        np.asarray([logit(clipped(prior(one.features))) for one in seen]),
        np.zeros(len(seen)),
        np.asarray([float(one.is_violated) for one in seen]),
        np.asarray([one.weight for one in seen]),
    )
    return Survival(bias=_bias({"": data}, {"": START_H}))


def _rate(data: _Data, bias: float, around: float, strength: float) -> float:
    """Return the hazard of data, pulled to *around* as if by so many changes."""

    def loss(u: float) -> float:
        pull = 0.5 * strength * (u - math.log(around)) ** 2
        return data.loss(bias, math.exp(u)) + pull

    return math.exp(_lowest(loss, _LOW, _HIGH))


def _bias(parts: dict[str, _Data], rates: dict[str, float]) -> float:
    """Return the bias that fits best, pulled to none."""

    def loss(bias: float) -> float:
        own = sum(part.loss(bias, rates[name]) for name, part in parts.items())
        return own + 0.5 * (bias / _BIAS_SPREAD) ** 2

    return _lowest(loss, -8.0, 8.0)


def _lowest(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is lowest: by a grid first, as there may be two valleys."""
    grid = np.linspace(low, high, 41).tolist()
    best = min(range(len(grid)), key=lambda i: loss(grid[i]))
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(25):
        wide = golden * (high - low)
        if loss(high - wide) < loss(low + wide):
            high = low + wide
        else:
            low = high - wide
    return (low + high) / 2.0
