"""Learning from the calibration split, by the product's own code, and the certificate.

The first part of the split is decided about with an audit of everything; then
the truth is told, as `amv guard label` would, and `learn` makes of the log what
`amv guard calibrate` writes.  The second part is decided about with that
calibration, and what it would have led to under each threshold makes the
certificate.  Neither part has an instance of the test split, but both have its
verifiers.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from amv.guard.calibration import Calibration
from amv.guard.certificate import Certificate, certify
from amv.guard.labels import Log
from amv.guard.learning import learn
from amv.guard.prior import LogisticPrior
from bench.guard.arms import ALL, DEFAULT, HEADLINE
from bench.guard.instances import Instance, Truth
from bench.guard.trial import Trial
from bench.guard.world import World

DELTA = 0.1
"""The chance that a certificate is wrong."""

CERTIFYING = 1 / 3
"""The share of the calibration split that is left for the certificate."""


class Taught(NamedTuple):
    """What the calibration split taught, and of how many decisions and labels."""

    calibration: Calibration
    certificate: Certificate
    decisions: int
    labels: int


def audited(
    world: World,
    instances: Sequence[Instance],
    learned: Calibration | None,
    done: Callable[[], None],
) -> Log:
    """Decide about instances with all checks made, tell the truth, and return the log."""
    arm = ALL["no_calibration" if learned is None else DEFAULT]
    with Trial(world, arm, HEADLINE, learned=learned, audit=1.0) as trial:
        trial.remember(instances)
        for one in instances:
            decision = trial.decide(one, one.arguments)
            truth = Truth(world, world.policy.actions[one.tool], one)
            trial.guard.label(decision.id, truth.violated, by="the world")
            done()
        return trial.guard.log()


def taught(
    world: World, instances: Sequence[Instance], done: Callable[[], None] = lambda: None
) -> Taught:
    """Return what the calibration split teaches; *done* is called after each decision."""
    cut = round(len(instances) * (1.0 - CERTIFYING))
    log = audited(world, instances[:cut], None, done)
    calibration = learn(log.labels, log.answers, LogisticPrior()).calibration
    drawn = audited(world, instances[cut:], calibration, done).drawn
    certificate = certify([one.instance for one in drawn], epsilon=HEADLINE.epsilon, delta=DELTA)
    return Taught(calibration, certificate, len(instances), len(log.labels))
