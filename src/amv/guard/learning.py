"""Learning: from what became known of claims and checks to one calibration.

First how fast claims change, if saying so by kind is better on data left out
than the published ramp; then a map on top of that, if one is; and how reliable
checks have proved.  All of it at once, of the whole log (`learn`), or one
settled decision after another (`Online`, `reliability`), which needs no library.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from amv.guard import reliability, untold
from amv.guard.calibration import CLASS_MIN, FOLDS, Calibration, Calibrator, Fitted, Label, fit
from amv.guard.labels import Labels, Told
from amv.guard.prior import Features, clipped, logit, sigmoid
from amv.guard.reliability import Answer
from amv.guard.survival import Aged, Survival, fit_bias, fit_survival

Prior = Callable[[Features], float]


class Learned(NamedTuple):
    """What was learned, and how much better it is on data left out.

    *ages* are the log losses of the published ramp and of hazards by kind,
    empty where there is too little to tell; *labels* is what the calibration
    made of it was fitted to.
    """

    calibration: Calibration
    ages: dict[str, float]
    fitted: Fitted
    labels: list[Label]


def learn(
    told: Sequence[Told],
    answers: Sequence[Answer],
    prior: Prior,
    *,
    retold: Sequence[Aged] = (),
    through: int = 0,
) -> Learned:
    """Return what a log up to the record *through* teaches; see `amv.retelling`.

    Raises ConfigError if scikit-learn or betacal is not installed.
    """
    seen = [Aged(one.features, one.kind, one.is_violated, one.weight) for one in told]
    ages = _ages(seen, retold, prior)
    survival = Survival()
    if ages and ages["hazards by kind"] < ages["published ramp"]:
        survival = fit_survival([*seen, *retold], prior)
    labels = [
        Label(survival(prior, one.features, one.kind), one.is_violated, one.weight) for one in told
    ]
    fitted = fit(labels)
    calibration = Calibration(
        survival=survival,
        steps=(fitted.calibrator,) if fitted.calibrator.numbers else (),
        verifiers=reliability.learned(answers),
        through=through,
    )
    return Learned(calibration, ages, fitted, labels)


def _ages(seen: Sequence[Aged], retold: Sequence[Aged], prior: Prior) -> dict[str, float]:
    """Return the log loss of ramp and hazards on folds that were left out of the fit.

    Both may move the prior's bias, so that only what they make of age is compared.
    """
    violated = sum(one.is_violated for one in seen)
    if min(violated, len(seen) - violated) < CLASS_MIN:
        return {}
    order = sorted(range(len(seen)), key=lambda i: (seen[i].is_violated, i))
    lost = {"published ramp": 0.0, "hazards by kind": 0.0}
    for fold in range(FOLDS):
        out = [seen[i] for i in order[fold::FOLDS]]
        rest = [seen[i] for n, i in enumerate(order) if n % FOLDS != fold]
        fits = (fit_bias(rest, prior), fit_survival([*rest, *retold], prior))
        for name, survival in zip(lost, fits, strict=True):
            lost[name] += sum(_loss(one, survival, prior) for one in out)
    total = sum(one.weight for one in seen)
    return {name: value / total for name, value in lost.items()}


def _loss(one: Aged, survival: Survival, prior: Prior) -> float:
    p = survival(prior, one.features, one.kind)
    return float(-one.weight * np.log(p if one.is_violated else 1.0 - p))


class Online:
    """A Platt map that every label moves, in one pass and without a library.

    Slope and offset have a normal prior around (1, 0), which changes nothing,
    as firm as *firmness*.  A label moves them to where the weight of the past
    and its own log loss are least together, so that none of great weight throws
    them far; then the past is as much firmer as that label told.
    """

    def __init__(self, firmness: float = 1.0) -> None:
        self._at = np.array([1.0, 0.0])
        self._precision = np.eye(2) * firmness

    def update(self, label: Label) -> None:
        """Take one label."""
        x = np.array([logit(clipped(label.p)), 1.0])
        ahead = np.linalg.solve(self._precision, x)
        y, spread = float(label.is_violated), label.weight * float(x @ ahead)
        # The root of z = at + spread (y - sigmoid(z)), which lies between these.
        at = float(x @ self._at)
        low, high = at - spread, at + spread
        for _ in range(60):
            z = (low + high) / 2.0
            if z < at + spread * (y - sigmoid(z)):
                low = z
            else:
                high = z
        q = sigmoid((low + high) / 2.0)
        self._at = self._at + ahead * label.weight * (y - q)
        self._precision = self._precision + label.weight * q * (1.0 - q) * np.outer(x, x)

    def calibrator(self) -> Calibrator:
        """Return the map as of now."""
        return Calibrator(sort="platt", numbers=(float(self._at[0]), float(self._at[1])))


class Learning(Labels):
    """The learning half of the gate, with what it has learned so far."""

    _prior: Prior
    _given: Calibration
    _calibration: Calibration

    @property
    def calibration(self) -> Calibration:
        """What decisions are made with from now on."""
        return self._calibration

    def learn(self, *, namespace: tuple[str, ...] = (), claims: bool = True) -> Calibration:
        """Take up what decisions told after the last one that the given calibration knew.

        Labels are taken one by one in the order of their decisions (`Online`),
        by their weights, and so are the answers of checks whose truth was told; of
        the others it is supposed what their answers alone let suppose
        (`amv.guard.untold`).  Without *claims* only checks are learned of: their
        word is then taken for no claim.  Decisions after this are made with the
        calibration that is returned, and name it; those before stay as they were.
        """
        given, online = self._given, Online()
        log = self.log(namespace=namespace, after=given.through)
        labels = log.labels if claims else []
        for one in labels:
            p = given.said(self._prior, one.features, one.kind)
            online.update(Label(p, one.is_violated, one.weight))
        if labels or log.answers or log.heard:
            told = reliability.learned(log.answers, given.verifiers)
            self._calibration = msgspec.structs.replace(
                given,
                steps=(*given.steps, online.calibrator()) if labels else given.steps,
                verifiers=untold.supposed(log.heard, told),
                through=log.through,
            )
        return self._calibration
