"""What no policy is told: how far each verifier can be relied on, and how it fails.

About half of the verifiers read the world exactly.  The others err: where an
attribute has changed they still show what was remembered, with the probability
1 - s, and where it has not they show something else, with 1 - t.  One in twenty
is stuck and shows for ever what it showed first.  Some of those that check the
same attribute err together, some time out, and some break.  A slow one says that
it timed out rather than keep everybody waiting, so that a run is the same on any
machine.

Which is which is drawn from the world's name; what one answers about an instance
is the same whoever asks, and however often.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

import amv
from amv.guard.actions import equal
from amv.guard.policy import Policy
from bench.guard.families.precondition_flipped import FLIPPED
from bench.guard.instances import Instance, Remembered
from bench.guard.world import World

SEED = 5
EXACT, STUCK, TWINS, SLOW, BROKEN = 0.5, 0.05, 0.3, 0.1, 0.1
"""Shares of verifiers; twins are among those that err and share an attribute."""

LOW, HIGH = 0.85, 0.99
"""Between which sensitivity and specificity of a verifier that errs lie."""

UNANSWERED = 0.15
"""How often a slow or broken one gives no answer."""

_OPPOSITES = {**FLIPPED, "granted": "revoked", "revoked": "granted", "open": "over", "over": "open"}


class Source(NamedTuple):
    """A verifier as it is; *error* names the coin that it errs by, which twins share."""

    sensitivity: float = 1.0
    specificity: float = 1.0
    error: str = ""
    fault: str = ""

    @property
    def unanswered(self) -> float:
        """How often it gives no answer."""
        return UNANSWERED if self.fault else 0.0


def sources(name: str, policy: Policy) -> dict[str, Source]:
    """Return the verifiers of the world called *name* as they are."""
    rng, names = Random(f"{SEED}:{name}"), sorted(policy.verifiers)
    rng.shuffle(names)
    exact = round(EXACT * len(names))
    stuck = max(1, round(STUCK * len(names)))
    found = {one: Source(error=one) for one in names}
    for one in names[exact:]:
        s, t = (round(rng.uniform(LOW, HIGH), 3) for _ in range(2))
        found[one] = Source(s, t, one)
    for one in names[exact : exact + stuck]:
        found[one] = Source(0.0, 1.0, one)
    slow, broken = round(SLOW * len(names)), round(BROKEN * len(names))
    troubled = rng.sample(names, slow + broken)
    for place, one in enumerate(troubled):
        found[one] = found[one]._replace(fault="timed_out" if place < slow else "failed")
    return _twinned(found, policy, rng)


def _twinned(found: Mapping[str, Source], policy: Policy, rng: Random) -> dict[str, Source]:
    """Have some verifiers of the same attribute err by the same coin."""
    twinned = dict(found)
    for rule in policy.actions.values():
        for premise in rule.rests_on.values():
            both = [one for one in premise.verify_with if 0.0 < found[one].sensitivity < 1.0]
            if len(both) == 2 and rng.random() < TWINS:
                twinned[both[1]] = twinned[both[1]]._replace(error=both[0])
    return twinned


class NoAnswer(Exception):
    """A verifier broke."""


def answer(
    world: World, one: Instance, claim: Remembered, verifier: str, source: Source, *, seed: int = 0
) -> Any:
    """Return what a verifier shows of a claim; raises TimeoutError or NoAnswer."""
    own = Random(f"{SEED}:{seed}:{one.id}:{verifier}:{claim.premise}")
    if own.random() < source.unanswered:
        raise TimeoutError if source.fault == "timed_out" else NoAnswer
    coin = Random(f"{SEED}:{seed}:{one.id}:{source.error}:{claim.premise}").random()
    shown = world.read(one.now, claim.subject, claim.attribute)
    if shown is amv.NOT_FOUND or not equal(shown, claim.value):
        return shown if coin < source.sensitivity else claim.value
    return shown if coin < source.specificity else _misread(world, claim, own)


def _misread(world: World, claim: Remembered, rng: Random) -> Any:
    table, _, _ = claim.subject.partition("/")
    if (table, claim.attribute) in world.pools:
        return world.other(table, claim.attribute, claim.value, rng)
    return _OPPOSITES[claim.value]
