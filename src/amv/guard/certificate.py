"""The certificate: how often an action that went ahead rested on something wrong.

    P(harm | proceed) <= epsilon      with confidence 1 - delta,

for actions drawn like those it was made from.  The thresholds that are tried
are those of the screen, epsilon'; each is replayed on instances that carry
every verifier's answer and the truth.  They are tested from the strictest on,
each by the exact binomial probability of so few harms among so many
executions, and the first that fails ends the row (fixed-sequence testing,
which needs no correction for trying several).  The loosest that passed is the
certificate, but no looser than the largest H that went ahead under it: of what is
more doubtful nothing was seen.  There may be none.

Afterwards every execution feeds an alarm: a bet against the certificate that
begins anew whenever it is lost, and withdraws it once it has won enough.

Sources: Angelopoulos et al., "Learn then Test" (arXiv 2110.01052); Waudby-Smith
& Ramdas, "Estimating means of bounded random variables by betting"; Shin, Ramdas
& Rinaldo, "E-detectors".
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from amv.errors import InvalidInput
from amv.guard.judge import Case, Evidence, judge
from amv.guard.loss import check_probability
from amv.guard.plan import Verdict

THRESHOLDS = tuple(float(x) for x in np.round(np.geomspace(0.001, 0.5, 40), 6))
"""The thresholds tried, strictest first."""

ALPHA = 0.001
"""How often, per execution, the alarm is raised at most though the certificate holds."""


BORNE = 2
"""How many harms the first threshold that is tested could bear."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One action whose truth is known, with what each of its checks would have found.

    Of those with one *key* only the first that goes ahead is carried out; each
    without one is an action of its own.
    """

    case: Case
    answers: Mapping[str, Evidence]
    is_harmful: bool
    weight: float = 1.0
    key: str = ""


class Trial(NamedTuple):
    """What one threshold led to: executions, and how many of them harmed.

    *largest* is the largest H at which one of them went ahead.
    """

    threshold: float
    executed: int
    harmed: int
    largest: float = 1.0


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What was certified; *threshold* None means that nothing was, *why* says so."""

    epsilon: float
    delta: float
    threshold: float | None
    executed: int = 0
    harmed: int = 0
    instances: int = 0
    why: str = ""

    @property
    def coverage(self) -> float:
        """The share of instances that go ahead."""
        return self.executed / self.instances if self.instances else 0.0


def executions_needed(epsilon: float, delta: float, harmed: int = 0) -> int:
    """Return with how few executions, so many of them harmful, a bound can hold.

    >>> executions_needed(0.05, 0.1), executions_needed(0.05, 0.1, harmed=2)
    (45, 105)
    """
    needed = math.ceil(math.log(delta) / math.log1p(-epsilon))
    while harmed and binomial_tail(harmed, needed, epsilon) > delta:
        needed += 1
    return needed


def binomial_tail(harmed: int, executed: int, epsilon: float) -> float:
    """Return P(at most *harmed* of *executed*) if each harms with probability *epsilon*.

    >>> round(binomial_tail(0, 45, 0.05), 4)
    0.0994
    """
    log_p, log_q = math.log(epsilon), math.log1p(-epsilon)
    terms = [
        math.lgamma(executed + 1)
        - math.lgamma(k + 1)
        - math.lgamma(executed - k + 1)
        + k * log_p
        + (executed - k) * log_q
        for k in range(harmed + 1)
    ]
    top = max(terms)
    return min(1.0, math.exp(top) * math.fsum(math.exp(term - top) for term in terms))


def betting_tail(harms: Sequence[float], epsilon: float) -> float:
    """Return a p-value against a mean of at least *epsilon*, of values in [0, 1] in order.

    For labels of unequal weight, where no binomial holds.  The capital of a bet
    on fewer harms grows only by luck if the mean is epsilon or more; one over
    what it comes to is a p-value (Markov's inequality).  One over the most it
    came to would be one as well, but blind to harms that all come late.
    """
    capital = 1.0
    total, count = 0.5, 1.0
    for harm in harms:
        # The stake of Kelly by what was seen so far, and never all.
        mean = total / count
        stake = min(0.9, max(0.0, (epsilon - mean) / (epsilon * (1.0 - epsilon))))
        capital *= 1.0 + stake * (epsilon - harm)
        total, count = total + harm, count + 1.0
    return min(1.0, 1.0 / capital)


def harm_executed(instance: Instance, threshold: float) -> float | None:
    """Return the H at which an instance goes ahead under a threshold, with its checks' answers.

    None if it does not go ahead.
    """
    own = instance.case.harm_own
    least = threshold if own is None else min(own, threshold)
    case = msgspec.structs.replace(instance.case, harm_max=least)
    evidence: list[Evidence] = []
    while True:
        judged = judge(case, evidence)
        if judged.check is None:
            return judged.harm if judged.verdict == Verdict.PROCEED else None
        # The plan itself asks for it here.
        evidence.append(msgspec.structs.replace(instance.answers[judged.check], is_audit=False))


class _Gone(NamedTuple):
    """What goes ahead under a threshold, in its order."""

    instances: list[Instance]
    largest: float

    def trial(self, threshold: float) -> Trial:
        harmed = sum(one.is_harmful for one in self.instances)
        return Trial(threshold, len(self.instances), harmed, self.largest)


def _gone(instances: Sequence[Instance], threshold: float) -> _Gone:
    found, largest, keys = [], 0.0, set[str]()
    for one in instances:
        harm = None if one.key in keys else harm_executed(one, threshold)
        if harm is None:
            continue
        found.append(one)
        largest = max(largest, harm)
        keys |= {one.key} - {""}
    return _Gone(found, largest)


def trials(instances: Sequence[Instance], thresholds: Sequence[float] = THRESHOLDS) -> list[Trial]:
    """Replay all instances under each threshold."""
    return [_gone(instances, threshold).trial(threshold) for threshold in thresholds]


def certified(
    found: Sequence[Trial], *, epsilon: float, delta: float, instances: int
) -> Certificate:
    """Return the loosest threshold whose bound holds, of trials from the strictest on.

    The row begins where some harms by chance would not end it at once, if it gets so far.
    """
    check_bounds(epsilon, delta)
    needed = executions_needed(epsilon, delta)
    most = max((trial.executed for trial in found), default=0)
    ample = executions_needed(epsilon, delta, harmed=BORNE)
    best: Trial | None = None
    for trial in found:
        # Passed over by counts alone, which say nothing of harm.
        if trial.executed < (ample if most >= ample else needed):
            continue
        if binomial_tail(trial.harmed, trial.executed, epsilon) > delta:
            break
        best = trial
    why = (
        f"at most {most} actions go ahead, and a bound needs {needed} of them"
        if most < needed
        else "too many of those that go ahead under the strictest threshold harm"
    )
    return _certificate(best, epsilon, delta, instances, why)


def _certificate(
    best: Trial | None, epsilon: float, delta: float, instances: int, why: str
) -> Certificate:
    """Return the certificate of the loosest trial that passed; *why* tells if none did."""
    if best is None:
        return Certificate(
            epsilon=epsilon, delta=delta, threshold=None, instances=instances, why=why
        )
    return Certificate(
        epsilon=epsilon,
        delta=delta,
        threshold=min(best.threshold, best.largest),
        executed=best.executed,
        harmed=best.harmed,
        instances=instances,
    )


def certify(
    instances: Sequence[Instance],
    *,
    epsilon: float,
    delta: float,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Certificate:
    """Return what can be certified from instances of equal weight; see the module."""
    check_bounds(epsilon, delta)
    if any(one.weight != instances[0].weight for one in instances):
        raise InvalidInput("instances of unequal weight have no binomial; use certify_weighted")
    return certified(
        trials(instances, thresholds), epsilon=epsilon, delta=delta, instances=len(instances)
    )


def certify_weighted(
    instances: Sequence[Instance],
    *,
    epsilon: float,
    delta: float,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Certificate:
    """Return what can be certified from instances of unequal weight, in their order."""
    check_bounds(epsilon, delta)
    top = max((one.weight for one in instances), default=1.0)
    best: Trial | None = None
    needed = executions_needed(epsilon, delta)
    for threshold in sorted(thresholds):
        gone = _gone(instances, threshold)
        if len(gone.instances) < needed:
            continue
        # E[w (harm - epsilon)] <= 0 as a mean of values in [0, 1].
        shifted = [
            (one.weight / top) * (one.is_harmful - epsilon) + epsilon for one in gone.instances
        ]
        if betting_tail(shifted, epsilon) > delta:
            break
        best = gone.trial(threshold)
    why = "the weighted bound holds under no threshold"
    return _certificate(best, epsilon, delta, len(instances), why)


def certificate_of(instances: Sequence[Instance], *, epsilon: float, delta: float) -> Certificate:
    """Return what can be certified from instances of any weights."""
    is_weighted = any(one.weight != instances[0].weight for one in instances)
    certifying = certify_weighted if is_weighted else certify
    return certifying(instances, epsilon=epsilon, delta=delta)


def check_bounds(epsilon: float, delta: float) -> None:
    """Raise InvalidInput unless a bound and a confidence can be what they are."""
    for what, value in (("epsilon", epsilon), ("delta", delta)):
        check_probability(value, what)
        if not 0.0 < value < 1.0:
            raise InvalidInput(f"{what} must be above 0 and below 1, got {value}")


class DriftAlarm:
    """Watches executions for more harm than certified; a restarting e-detector.

    Under the certificate the alarm is raised once in 1 / *alpha* executions at
    most, on average.  *evidence* is what an alarm of before had come to.
    """

    def __init__(
        self, epsilon: float, alpha: float = ALPHA, stake: float = 0.5, *, evidence: float = 0.0
    ) -> None:
        check_bounds(epsilon, alpha)
        self._epsilon, self._limit = epsilon, 1.0 / alpha
        # Never so much that one execution without harm could lose all.
        self._stake = stake * min(1.0, 1.0 / epsilon)
        self.evidence = evidence

    def note(self, is_harmful: bool) -> bool:
        """Take one settled execution; return whether the certificate is withdrawn."""
        factor = 1.0 + self._stake * (float(is_harmful) - self._epsilon)
        # A new bet of one begins with every execution (Shiryaev-Roberts).
        self.evidence = (self.evidence + 1.0) * factor
        return self.evidence >= self._limit
