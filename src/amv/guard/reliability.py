"""How far a check can be relied on, by decisions whose truth was told.

A check has a sensitivity s = P(refute | violated) and a specificity t =
P(confirm | holds).  What it will answer next is to be predicted, so what is used
is the mean of what is thought of s and t once its own answers are known.  Before
them it is thought to be like the other checks: some never err, some err now and
then, some show for ever the same, and how many there are of each is learned of
all (nonparametric empirical Bayes: Robbins 1956, by EM on a grid of s and t).
So fifty answers that were all right mean more where most checks never err.  The
grid is that of Jeffreys' prior, which counts as much as one check; one that is
alone starts from nothing else.

It takes the place of the declared value only once there are 30 decisions to tell
it by.  Of a check that is not known so well, what was declared is the most that
is believed: checks that are known are as good as they proved to be on average,
those that are stuck among them, and it hardly is better (`typical`).

Two checks that err together are no two opinions.  Where they were asked of the
same premises it is seen how often both erred, and if that is ten times as likely
of checks whose errors hang together as of those that err each for itself (the
Bayes factor of the two), they are one independence group from then on.

What else than a check says whether it was right must be a person, or the world
itself: another check may err alike.  Labels that were drawn with unequal
probability count by their weights, and then for as many as they are worth,
(sum w)^2 / sum w^2 (Kish).  What is seen later is added to that, as the
posterior of before is the prior of what follows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from amv.errors import InvalidInput
from amv.guard.belief import Matrix, Vector

LEARNED_FROM = 30.0
"""Decisions of known truth from which what was seen counts, and no longer what was declared."""

TYPICAL_FROM = 10
"""Checks that must be known well before they tell anything of others."""

TOGETHER_FROM = 10.0
"""The Bayes factor from which two checks are taken to err together."""

_CELLS, _ROUNDS = 40, 200
_PLACES = np.sin(np.pi * (np.arange(_CELLS) + 0.5) / (2 * _CELLS)) ** 2
"""Values that s and t may have: each as likely by Jeffreys' prior, and closest near 0 and 1."""
_S, _T = np.repeat(_PLACES, _CELLS), np.tile(_PLACES, _CELLS)


class Answer(NamedTuple):
    """What a check said of a premise of which the truth was told.

    Answers of the same premise of the same decision are *about* the same.
    """

    verifier: str
    is_refuted: bool
    is_violated: bool
    weight: float = 1.0
    about: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether the check erred."""
        return self.is_refuted != self.is_violated


class Supposed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a check's answers alone let suppose of it; see `amv.guard.untold`.

    *violated*, *held*, *caught* and *passed* are how many premises of unknown truth
    it was asked of, as they were expected to be.
    """

    sensitivity: float
    specificity: float
    violated: float = 0.0
    held: float = 0.0
    caught: float = 0.0
    passed: float = 0.0

    def __post_init__(self) -> None:
        _check_counts(self)


class Reliability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned of a check; None where too little was seen.

    *violated* and *held* are the premises it was seen on, by what they are worth,
    *caught* and *passed* those of them that it refuted, and confirmed; None where
    that was not kept.  Checks of one *group* err together.  *guess* is what its
    answers alone let suppose.
    """

    sensitivity: float | None = None
    specificity: float | None = None
    violated: float = 0.0
    held: float = 0.0
    caught: float | None = None
    passed: float | None = None
    group: str = ""
    # Not written where there is none, so that what is without one keeps its digest.
    guess: Supposed | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_counts(self)

    @property
    def supposed(self) -> Supposed | None:
        """What its answers alone let suppose of it, if anything."""
        return None if self.guess is msgspec.UNSET else self.guess


def _check_counts(one: "Reliability | Supposed") -> None:
    for what in ("sensitivity", "specificity"):
        value = getattr(one, what)
        if value is not None and not 0.0 < value < 1.0:
            raise InvalidInput(f"a learned {what} lies between 0 and 1, got {value!r}")
    for right, seen in ((one.caught, one.violated), (one.passed, one.held)):
        if not 0.0 <= seen < math.inf or not (right is None or 0.0 <= right <= seen):
            raise InvalidInput(f"of {seen!r} premises a check was right of {right!r}")


def learned(
    answers: Sequence[Answer], given: Mapping[str, Reliability] = MappingProxyType({})
) -> dict[str, Reliability]:
    """Return how reliable each check was, by answers and by what was *given* of before."""
    found = dict(given)
    own: dict[str, list[Answer]] = {}
    for answer in answers:
        own.setdefault(answer.verifier, []).append(answer)
    for name in sorted(own):
        old = given.get(name, Reliability())
        violated = _seen([(a.is_refuted, a.weight) for a in own[name] if a.is_violated])
        held = _seen([(not a.is_refuted, a.weight) for a in own[name] if not a.is_violated])
        violated, held = violated.after(old.caught, old.violated), held.after(old.passed, old.held)
        found[name] = msgspec.structs.replace(
            old,
            violated=violated.worth,
            held=held.worth,
            caught=violated.right,
            passed=held.right,
        )
    means = dict(zip(found, _means(list(found.values())), strict=True))
    for name in own:
        one, (s, t) = found[name], means[name]
        found[name] = msgspec.structs.replace(
            one,
            sensitivity=one.sensitivity if one.violated < LEARNED_FROM else s,
            specificity=one.specificity if one.held < LEARNED_FROM else t,
        )
    groups = _groups(answers, found)
    return {
        name: msgspec.structs.replace(one, group=groups.get(name, ""))
        for name, one in found.items()
    }


def typical(known: Iterable[Reliability]) -> Reliability:
    """Return what is to be expected of a check of which little is known, by those that are.

    Of fewer than `TYPICAL_FROM` that are known well nothing can be told.
    """
    prior = population(known)
    if prior is None:
        return Reliability()
    return Reliability(sensitivity=float(prior @ _S), specificity=float(prior @ _T))


def population(known: Iterable[Reliability]) -> Vector | None:
    """Return how likely each place of the `grid` is of any check; None where too few are known."""
    well = [one for one in known if min(one.violated, one.held) >= LEARNED_FROM]
    return None if len(well) < TYPICAL_FROM else _thought(well)[1]


def grid() -> tuple[Vector, Vector]:
    """Return the s and the t of each place that a check may have."""
    return _S, _T


class _Seen(NamedTuple):
    """How much was seen, and of how much of it a check was right."""

    right: float
    worth: float

    def after(self, right: float | None, worth: float) -> "_Seen":
        """Return it added to what was seen before, where it is known how that was."""
        return self if right is None else _Seen(self.right + right, self.worth + worth)


def _seen(own: Sequence[tuple[bool, float]]) -> _Seen:
    if not own:
        return _Seen(0.0, 0.0)
    total = sum(weight for _, weight in own)
    worth = total * total / sum(weight * weight for _, weight in own)
    # Rounding must not make more of them right than there are.
    share = min(1.0, sum(weight for is_right, weight in own if is_right) / total)
    return _Seen(worth * share, worth)


def _means(each: Sequence[Reliability]) -> list[tuple[float, float]]:
    """Return the mean s and t of each check, by its own answers and by what others are like."""
    if not each:
        return []
    thought, prior = _thought(each)
    found = []
    for own, likelihood in zip(thought, _likelihoods(each), strict=True):
        # What a check itself has added to the prior would count twice.
        after = likelihood * ((len(each) + 1) * prior - own)
        after /= after.sum()
        found.append((float(after @ _S), float(after @ _T)))
    return found


def _thought(each: Sequence[Reliability]) -> tuple[Matrix, Vector]:
    """Return how likely each place of the grid is: of each check by its row, and of any other."""
    likelihoods, flat = _likelihoods(each), np.full(len(_S), 1.0 / len(_S))
    prior = flat
    for _ in range(_ROUNDS):
        thought = likelihoods * prior
        thought /= thought.sum(axis=1, keepdims=True)
        prior = (thought.sum(axis=0) + flat) / (len(each) + 1)
    return thought, prior


def likelihood_of(one: "Reliability | Supposed") -> Vector:
    """Return the log likelihood of what was seen of a check, at each place of the `grid`."""
    right, wrong = np.log(_PLACES), np.log1p(-_PLACES)
    # Where it was not kept how many were right, nothing is known.
    of_s, of_t = (
        np.zeros(_CELLS) if good is None else good * right + (seen - good) * wrong
        for good, seen in ((one.caught, one.violated), (one.passed, one.held))
    )
    found: Vector = (of_s[:, None] + of_t[None, :]).ravel()
    return found


def _likelihoods(each: Sequence[Reliability]) -> Matrix:
    found = np.asarray([likelihood_of(one) for one in each])
    likelihoods: Matrix = np.exp(found - found.max(axis=1, keepdims=True))
    return likelihoods


def _groups(answers: Sequence[Answer], known: Mapping[str, Reliability]) -> dict[str, str]:
    """Return the group of each check that is in one, named by the first check of it."""
    by_premise: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer.about:
            by_premise.setdefault(answer.about, []).append(answer)
    # By pair of checks and truth: how often neither erred, the first, the second, both.
    seen: dict[tuple[str, str], Matrix] = {}
    for own in by_premise.values():
        for a, b in combinations(sorted(own), 2):
            table = seen.setdefault((a.verifier, b.verifier), np.zeros((2, 2, 2)))
            table[int(a.is_violated), int(a.is_wrong), int(b.is_wrong)] += 1.0
    group = {name: one.group or name for name, one in known.items()}
    for (first, second), table in sorted(seen.items()):
        if sum(_together(of_truth) for of_truth in table) >= math.log(TOGETHER_FROM):
            joined = sorted({group[first], group[second]})
            group = {name: joined[0] if own in joined else own for name, own in group.items()}
    sizes = list(group.values())
    return {name: own for name, own in group.items() if sizes.count(own) > 1}


def _together(table: Matrix) -> float:
    """Return the log Bayes factor of two checks whose errors hang together.

    That is, of the second's erring at another rate where the first errs than where
    it does not, over one rate for both; each rate has Jeffreys' prior.  Taken both
    ways, and their mean, as none of the two comes first.
    """
    if table[1, 1] * table.sum() <= table[1].sum() * table[:, 1].sum():
        # They err together less often than by chance, or never.
        return min(0.0, _factor(table))
    return (_factor(table) + _factor(table.T)) / 2.0


def _factor(table: Matrix) -> float:
    each = sum(_evidence(wrong, right) for right, wrong in table.tolist())
    right, wrong = table.sum(axis=0).tolist()
    return each - _evidence(wrong, right)


def _evidence(wrong: float, right: float) -> float:
    """Return the log probability of errors at a rate of Jeffreys' prior, in one order."""
    a, b = wrong + 0.5, right + 0.5
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b) - math.log(math.pi)
