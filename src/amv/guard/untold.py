"""How far a check can be relied on, by its answers alone, where nobody told the truth.

How likely a premise is violated is known before it is checked.  So a check that
never refutes, of premises of which every fourth is likely to be wrong by now, is
stuck rather than lucky; two checks that agree vouch for each other, and one that
contradicts a better one errs.  None of that needs a label: the truth of each
premise is summed out,

    P(answers | s, t) = prod over premises of  p prod P(answer | violated)
                                        + (1 - p) prod P(answer | holds),

where the other checks of a premise count as what is thought of them by now, in
turn (mean field).  What checks are like in general is the prior (`population`), so
nothing is supposed before enough of them are known by the truth.  It takes the
place of what was declared from as many answers on as truths do; before that it
makes no check better than it was declared.

Source: Dawid & Skene 1979, with the class prior of each premise given.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from amv.guard.belief import Vector
from amv.guard.reliability import Reliability, Supposed, grid, likelihood_of, population

ROUNDS = 4
"""How often checks are looked at anew, by what is thought of the others."""


class Heard(NamedTuple):
    """A premise of unknown truth: how likely it was violated, and who then refuted it."""

    p: float
    refuted: tuple[tuple[str, bool], ...]


class _Answers(NamedTuple):
    """What one check answered: of each premise how likely it is, by all else, and the answer."""

    bad: Vector
    good: Vector
    is_refuted: Vector


def supposed(heard: Sequence[Heard], known: Mapping[str, Reliability]) -> dict[str, Reliability]:
    """Return what is known of checks, with what is to be supposed of those that answered."""
    prior = population(known.values())
    if prior is None:
        return dict(known)
    found = dict(known)
    own: dict[str, list[Heard]] = {}
    for one in heard:
        for name, _ in one.refuted:
            own.setdefault(name, []).append(one)
    before = {name: known.get(name, Reliability()) for name in own}
    for _ in range(ROUNDS):
        for name in sorted(own):
            said = _answers(name, own[name], found, prior)
            found[name] = msgspec.structs.replace(
                before[name], guess=_supposed(before[name], said, prior)
            )
    return found


def _supposed(before: Reliability, said: _Answers, prior: Vector) -> Supposed:
    """Return what is to be supposed of a check by what it said, and was supposed before."""
    s, t = grid()
    old = before.supposed or Supposed(sensitivity=0.5, specificity=0.5)
    logs = np.log(prior) + likelihood_of(before) + likelihood_of(old)
    for bad, good, is_refuted in zip(*said, strict=True):
        logs = logs + np.log(bad * s + good * (1 - t) if is_refuted else bad * (1 - s) + good * t)
    after = np.exp(logs - logs.max())
    after /= after.sum()
    mean_s, mean_t = float(after @ s), float(after @ t)
    bad = said.bad * np.where(said.is_refuted, mean_s, 1.0 - mean_s)
    good = said.good * np.where(said.is_refuted, 1.0 - mean_t, mean_t)
    violated, is_confirmed = bad / (bad + good), 1.0 - said.is_refuted
    caught, missed = float(violated @ said.is_refuted), float(violated @ is_confirmed)
    wrong, passed = (float((1.0 - violated) @ one) for one in (said.is_refuted, is_confirmed))
    return Supposed(
        sensitivity=mean_s,
        specificity=mean_t,
        violated=old.violated + (caught + missed),
        caught=old.caught + caught,
        held=old.held + (passed + wrong),
        passed=old.passed + passed,
    )


def _answers(
    name: str, own: Sequence[Heard], found: Mapping[str, Reliability], prior: Vector
) -> _Answers:
    rows = []
    for one in own:
        bad, good, mine = one.p, 1.0 - one.p, 0.0
        for other, is_refuted in one.refuted:
            if other == name:
                mine = float(is_refuted)
                continue
            s, t = _thought_of(found.get(other), prior)
            bad *= s if is_refuted else 1.0 - s
            good *= 1.0 - t if is_refuted else t
        rows.append((bad / (bad + good), good / (bad + good), mine))
    return _Answers(*np.asarray(rows).T)


def _thought_of(one: Reliability | None, prior: Vector) -> tuple[float, float]:
    """Return s and t of a check: as learned, as supposed, or as checks are."""
    s, t = grid()
    by_all = float(prior @ s), float(prior @ t)
    if one is None:
        return by_all
    guess = by_all if one.supposed is None else (one.supposed.sensitivity, one.supposed.specificity)
    return (
        guess[0] if one.sensitivity is None else one.sensitivity,
        guess[1] if one.specificity is None else one.specificity,
    )
