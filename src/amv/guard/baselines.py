"""Baselines: simpler rules that the planners are compared with, behind the same interface.

They respect the screen only where they say so; none is meant for use.
"""

from collections.abc import Mapping

import numpy as np

from amv.guard.belief import marginals
from amv.guard.plan import Plan, Planner, Problem, Verdict, stop

THRESHOLD = 0.5
"""The probability above which `static_threshold` does not proceed."""

TTL_H = 24.0
"""The age in hours up to which `ttl` trusts a claim."""

PROBES = 2
"""How many checks `env_probe` makes."""


def _ended(problem: Problem, verdict: Verdict, planner: str) -> Plan:
    loss = problem.risk if verdict is Verdict.PROCEED else problem.prices.abstain
    return Plan(verdict, None, loss, loss, (), planner)


def _checking(problem: Problem, check: int, planner: str) -> Plan:
    stopping = problem.prices.stopping_value(problem.risk, problem.harm)
    return Plan(Verdict.VERIFY, check, stopping, stopping, (), planner)


def always_proceed(problem: Problem) -> Plan:
    """Execute, whatever is believed."""
    return _ended(problem, Verdict.PROCEED, "always_proceed")


def always_verify(problem: Problem) -> Plan:
    """Make every check there is, then stop as the screen says."""
    if problem.checks:
        return _checking(problem, 0, "always_verify")
    return stop(problem, "always_verify")


def static_threshold(problem: Problem) -> Plan:
    """Execute if no premise is violated more likely than not; check the worst one first."""
    p = marginals(problem.belief)
    if p.max(initial=0.0) <= THRESHOLD:
        return _ended(problem, Verdict.PROCEED, "static_threshold")
    if problem.checks:
        return _checking(problem, _about(problem, p), "static_threshold")
    return _ended(problem, Verdict.ABSTAIN, "static_threshold")


def naive_voi(problem: Problem) -> Plan:
    """Check if that is expected to lower the risk of executing, which it never is.

    The expected risk after a check is the risk before it (the posterior is a
    martingale), so that a check is worth minus its price.  Source: remark 1 of
    arXiv 2610.31446.
    """
    pays = [
        problem.risk
        - float((problem.belief * check.likelihood @ problem.losses).sum())
        - problem.prices.check_weight * check.cost
        > 1e-9 * problem.risk
        for check in problem.checks
    ]
    name = "naive_voi"
    return _checking(problem, pays.index(True), name) if any(pays) else stop(problem, name)


def env_probe(problem: Problem) -> Plan:
    """Check the premises that are least certain, a fixed number of times."""
    if problem.checks and problem.made < PROBES:
        p = marginals(problem.belief)
        return _checking(problem, _about(problem, 0.5 - np.abs(p - 0.5)), "env_probe")
    return stop(problem, "env_probe")


def ttl(problem: Problem) -> Plan:
    """Trust a claim that is young enough; check all there is while one is not, then believe it."""
    old = np.asarray([age_h > TTL_H for age_h in problem.ages_h])
    if not old.any():
        return _ended(problem, Verdict.PROCEED, "ttl")
    if problem.checks:
        return _checking(problem, _about(problem, old.astype(np.float64)), "ttl")
    is_fine = problem.made > 0 and marginals(problem.belief).max() <= THRESHOLD
    return _ended(problem, Verdict.PROCEED if is_fine else Verdict.ABSTAIN, "ttl")


def _about(problem: Problem, weight: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    """Return the check that says most of the premise of the highest weight."""
    for premise in np.argsort(-weight, kind="stable").tolist():
        bad = (np.arange(len(problem.belief)) >> premise) & 1 == 1
        tells = [
            float(np.abs(c.likelihood[:, bad].mean(1) - c.likelihood[:, ~bad].mean(1)).sum())
            for c in problem.checks
        ]
        best = int(np.argmax(tells))
        if tells[best] > 1e-9:
            return best
    return 0


PLANNERS: Mapping[str, Planner] = {
    "always_proceed": always_proceed,
    "always_verify": always_verify,
    "static_threshold": static_threshold,
    "ttl": ttl,
    "naive_voi": naive_voi,
    "env_probe": env_probe,
}
