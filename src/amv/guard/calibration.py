"""Calibration: making "30 %" mean that it happens in three of ten cases.

A calibrator maps the probability that the prior gives to one that fits what
settled decisions have shown.  Which sort of map is chosen by log loss on data
that it was not fitted to; doing nothing is one of the sorts.  A fitted map is a
few numbers, so that a decision needs no more than those.

Labels of actions that were checked say nothing of those that were not.  So a
share of decisions is audited at random, and each label counts with one over
the probability with which it was looked at (Horvitz-Thompson).

Sources: Platt 1999; Kull, Silva Filho & Flach 2017 (beta); Zadrozny & Elkan
2002 (isotonic).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, NamedTuple
from warnings import catch_warnings

import msgspec
import numpy as np

from amv.errors import InvalidInput
from amv.guard.belief import Vector
from amv.guard.libraries import library
from amv.guard.prior import Features, clipped, logit, sigmoid
from amv.guard.reliability import Reliability, typical
from amv.guard.survival import Survival

Sort = Literal["identity", "platt", "beta", "isotonic"]

ISOTONIC_FROM = 200
"""Labels from which a staircase has enough to stand on."""

FOLDS = 5

CLASS_MIN = 10
"""Labels of either kind that are needed to learn anything from."""


class Label(NamedTuple):
    """One claim whose truth is known: what was said of it, and what was so."""

    p: float
    is_violated: bool
    weight: float = 1.0


class Calibrator(msgspec.Struct, frozen=True, kw_only=True):
    """A fitted map from one probability to another; calling it applies it.

    *numbers* are: of platt slope and offset, of beta a, b and c, of isotonic
    the steps' places and then their heights.
    """

    sort: Sort = "identity"
    numbers: tuple[float, ...] = ()

    def __call__(self, p: float) -> float:
        """Return the calibrated probability."""
        if self.sort == "platt":
            slope, offset = self.numbers
            return clipped(sigmoid(slope * logit(p) + offset))
        if self.sort == "beta":
            a, b, c = self.numbers
            return clipped(sigmoid(a * math.log(max(1e-5, p)) - b * math.log(max(1e-5, 1 - p)) + c))
        if self.sort == "isotonic":
            half = len(self.numbers) // 2
            return clipped(float(np.interp(p, self.numbers[:half], self.numbers[half:])))
        return p


PRIOR = "prior"
"""What stands in a record in place of a digest where nothing was calibrated."""

STEPS_MAX = 16

_NUMBERS = {"identity": 0, "platt": 2, "beta": 3}


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """All that was learned of decisions: one version of it, which `digest` names.

    *survival* says how fast claims change, *steps* are maps on top of what it
    says, *verifiers* tells how reliable checks have proved.  It was learned of
    the log up to the record *through*.
    """

    survival: Survival = Survival()
    steps: tuple[Calibrator, ...] = ()
    verifiers: dict[str, Reliability] = {}
    through: int = 0

    def __post_init__(self) -> None:
        if len(self.steps) > STEPS_MAX:
            raise InvalidInput(f"a calibration has {STEPS_MAX} steps at most; fit one anew")
        for step in self.steps:
            numbers, half = step.numbers, len(step.numbers) // 2
            if step.sort == "isotonic":
                rows = (numbers[:half], numbers[half:])
                is_sound = half > 0 and len(numbers) == 2 * half
                is_sound = is_sound and all(list(row) == sorted(row) for row in rows)
            else:
                is_sound = len(numbers) == _NUMBERS[step.sort]
            if not (is_sound and all(map(math.isfinite, numbers))):
                raise InvalidInput(f"these are no numbers of a {step.sort} calibrator: {numbers}")

    def __call__(self, p: float) -> float:
        """Return what the steps make of a probability."""
        for step in self.steps:
            p = step(p)
        return p

    def said(self, prior: Callable[[Features], float], features: Features, kind: str) -> float:
        """Return how likely a claim of a kind is wrong, where *prior* knows nothing of kinds."""
        return self(self.survival(prior, features, kind))

    def changes_s(self, kinds: Iterable[str]) -> float | None:
        """Return after how many seconds the fastest of *kinds* changes, on average.

        None if nothing was learned of that.
        """
        rates = [rate for kind in kinds if (rate := self.survival.of(kind)) is not None]
        return 3600.0 / max(rates) if rates else None

    @cached_property
    def typical(self) -> Reliability:
        """What is to be expected of a check that is not among those that are known."""
        return typical(self.verifiers.values())

    def digest(self) -> str:
        """Return what names it in a decision's record."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        if (self.survival, self.steps, self.verifiers) == (Survival(), (), {}):
            return PRIOR
        return sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class Fitted(NamedTuple):
    """The calibrator chosen, and the held-out log loss of each sort that was tried."""

    calibrator: Calibrator
    losses: dict[str, float]
    labels: int


def log_loss(labels: Sequence[Label], calibrator: Callable[[float], float]) -> float:
    """Return the mean log loss of a calibrator, by the weight of labels; in nats."""
    total = loss = 0.0
    for label in labels:
        p = calibrator(label.p)
        loss -= label.weight * math.log(p if label.is_violated else 1.0 - p)
        total += label.weight
    return loss / total


def fit(labels: Sequence[Label]) -> Fitted:
    """Return the calibrator with the lowest held-out log loss.

    Where too few labels of either kind are there, that is the one that changes
    nothing.  Raises InvalidInput for labels that are none, ConfigError if
    scikit-learn or betacal is not installed (`pip install amv[guard]`).
    """
    for label in labels:
        if not (0.0 <= label.p <= 1.0 and 0.0 < label.weight < math.inf):
            raise InvalidInput(f"a label needs a probability and a positive weight, got {label!r}")
    labels = [label._replace(p=clipped(label.p)) for label in labels]
    violated = sum(label.is_violated for label in labels)
    if min(violated, len(labels) - violated) < CLASS_MIN:
        return Fitted(Calibrator(), {}, len(labels))
    sorts: list[Sort] = ["identity", "platt", "beta"]
    if len(labels) >= ISOTONIC_FROM:
        sorts.append("isotonic")
    losses: dict[str, float] = {sort: _held_out(labels, sort) for sort in sorts}
    best = min(sorts, key=losses.__getitem__)
    return Fitted(fitted(labels, best), losses, len(labels))


def _held_out(labels: Sequence[Label], sort: Sort) -> float:
    """Return the log loss on folds that were each left out of the fit."""
    # Each fold has its share of both kinds; the order is that of the labels.
    order = sorted(range(len(labels)), key=lambda i: (labels[i].is_violated, i))
    total = weight = 0.0
    for fold in range(FOLDS):
        out = [labels[i] for i in order[fold::FOLDS]]
        rest = [labels[i] for n, i in enumerate(order) if n % FOLDS != fold]
        own = sum(label.weight for label in out)
        total += own * log_loss(out, fitted(rest, sort))
        weight += own
    return total / weight


def fitted(labels: Sequence[Label], sort: Sort) -> Calibrator:
    """Return a calibrator of one sort, fitted to labels of both kinds."""
    p = np.asarray([label.p for label in labels])
    y = np.asarray([label.is_violated for label in labels], dtype=np.int64)
    weights = np.asarray([label.weight for label in labels])
    if sort == "identity":
        return Calibrator()
    if sort == "platt":
        return Calibrator(sort=sort, numbers=_platt(p, y, weights))
    if sort == "beta":
        return Calibrator(sort=sort, numbers=_beta(p, y, weights))
    return Calibrator(sort=sort, numbers=_isotonic(p, y, weights))


def _platt(p: Vector, y: Any, weights: Vector) -> tuple[float, ...]:
    linear = library("sklearn.linear_model", "LogisticRegression")
    model = linear(C=1e6, max_iter=1000)
    z = np.asarray([[logit(one)] for one in p.tolist()])
    model.fit(z, y, sample_weight=weights)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _beta(p: Vector, y: Any, weights: Vector) -> tuple[float, ...]:
    model = library("betacal", "BetaCalibration")(parameters="abm")
    with catch_warnings():  # It switches all of them off, for the whole process.
        model.fit(p.reshape(-1, 1), y, sample_weight=weights)
    a, b, _ = (float(number) for number in model.calibrator_.map_)
    # What its midpoint m was found from, by a search that ends early.
    return a, b, float(model.calibrator_.lr_.intercept_[0])


def _isotonic(p: Vector, y: Any, weights: Vector) -> tuple[float, ...]:
    model = library("sklearn.isotonic", "IsotonicRegression")(out_of_bounds="clip")
    model.fit(p, y, sample_weight=weights)
    return (*map(float, model.X_thresholds_), *map(float, model.y_thresholds_))


class Bin(NamedTuple):
    """Claims of which about the same was said: what was said of them, and what was.

    *low* and *high* are what *was* may be by chance alone, with 95 % confidence
    (Wilson); *labels* is how many there are, *weight* what they stand for.
    """

    said: float
    was: float
    low: float
    high: float
    weight: float
    labels: int


def reliability(labels: Sequence[Label], bins: int = 8) -> list[Bin]:
    """Return, by what was said, how often it was so, in bins of about the same weight.

    Labels of which the same was said are in one bin.
    """
    rest = sorted(labels)
    share = sum(label.weight for label in rest) / bins
    found, own, total = list[Bin](), list[Label](), 0.0
    for label in rest:
        is_full = total >= share * (len(found) + 1) * (1.0 - 1e-9)
        if own and is_full and label.p > own[-1].p:
            found.append(_bin(own))
            own = []
        own.append(label)
        total += label.weight
    return [*found, _bin(own)] if own else found


def _bin(own: Sequence[Label]) -> Bin:
    weight = sum(label.weight for label in own)
    was = sum(label.weight for label in own if label.is_violated) / weight
    low, high = wilson(was, weight**2 / sum(label.weight**2 for label in own))
    said = sum(label.p * label.weight for label in own) / weight
    return Bin(said, was, low, high, weight, len(own))


def wilson(share: float, count: float, z: float = 1.96) -> tuple[float, float]:
    """Return between which bounds a probability lies of which *share* of *count* was seen.

    >>> [round(bound, 3) for bound in wilson(0.0, 10)]
    [0.0, 0.278]
    """
    middle = (share + z * z / (2.0 * count)) / (1.0 + z * z / count)
    reach = z * math.sqrt(share * (1.0 - share) / count + (z / (2.0 * count)) ** 2)
    reach /= 1.0 + z * z / count
    return max(0.0, middle - reach), min(1.0, middle + reach)
