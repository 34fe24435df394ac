"""A trial: one policy decides about instances, and the world says what came of it.

Each instance has a namespace of its own, in which its claims stand as they were
read.  An action that goes ahead is really executed, on the world as it is by
then.  After REPAIR the agent puts the value that was read into its call, if the
premise is about an argument, and asks anew; where the call could not be mended
so, it gives up.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import exp
from typing import Any, NamedTuple

import msgspec

import amv
from amv.gate import Guard
from amv.guard.calibration import Calibration
from amv.guard.decision import Decision
from amv.guard.policy import ActionRule, Policy
from amv.guard.prior import Features
from amv.guard.reliability import Reliability
from amv.testing import FakeClock
from bench.guard import hidden
from bench.guard.arms import Arm, Setting, policy_of
from bench.guard.hidden import Source
from bench.guard.instances import SOURCES, Instance, Remembered, Truth
from bench.guard.world import World, argument_of

NOW_S = 1_780_000_000.0
ROUNDS_MAX = 3
"""How often an agent mends one call."""

NEVER = 1e-6


class Outcome(NamedTuple):
    """What came of one instance.

    *code* is E for an action executed rightly, H harmfully, F for a call that its
    tool refused, A for one the gate did not let through.  *said* and *was* are,
    of each critical premise, how likely it was said to be violated before any
    check, and whether it was.
    """

    code: str
    calls: int
    cost: float
    repairs: int
    first: str
    said: list[float]
    was: list[bool]


class TrueCalibration(Calibration, frozen=True, kw_only=True, dict=True):
    """What a policy would have learned that was told everything."""

    hazards: dict[str, float] = msgspec.field(default_factory=dict)
    event: tuple[str, ...] = ()
    event_chance: float = 0.0

    def said(self, prior: Callable[[Features], float], features: Features, kind: str) -> float:
        """Return how likely a claim of a kind is wrong by now."""
        kept = exp(-self.hazards[kind] * features.age_h)
        return 1.0 - kept * (1.0 - self.event_chance if kind in self.event else 1.0)


def told_truth(world: World, known: Mapping[str, Source]) -> TrueCalibration:
    """Return the calibration of a policy that was told everything."""
    return TrueCalibration(
        hazards={name: kind.hazard for name, kind in world.kinds.items()},
        event=tuple(sorted(world.event)),
        event_chance=world.event_chance,
        verifiers={
            name: Reliability(
                sensitivity=min(1.0 - NEVER, max(NEVER, one.sensitivity)),
                specificity=min(1.0 - NEVER, one.specificity),
            )
            for name, one in known.items()
        },
    )


def symmetric(learned: Calibration) -> Calibration:
    """Return a calibration in which verifiers are as good at refuting as at confirming."""
    both = {}
    for name, one in learned.verifiers.items():
        known = [x for x in (one.sensitivity, one.specificity) if x is not None]
        mean = sum(known) / len(known)
        both[name] = msgspec.structs.replace(one, sensitivity=mean, specificity=mean)
    return msgspec.structs.replace(learned, verifiers=both)


def _truly_declared(policy: Policy, known: Mapping[str, Source], world: World) -> Policy:
    """Return a policy that declares how often verifiers give no answer, and which are one."""
    verifiers = {
        name: msgspec.structs.replace(
            rule, inconclusive=known[name].unanswered, group=known[name].error
        )
        for name, rule in policy.verifiers.items()
    }
    actions = {
        name: msgspec.structs.replace(
            rule,
            causes=[
                msgspec.structs.replace(cause, probability=world.event_chance)
                for cause in rule.causes
            ],
        )
        for name, rule in policy.actions.items()
    }
    return msgspec.structs.replace(policy, verifiers=verifiers, actions=actions)


class Trial:
    """One policy over one world at some prices; use it as a context manager."""

    def __init__(
        self,
        world: World,
        arm: Arm,
        setting: Setting,
        *,
        learned: Calibration | None = None,
        audit: float = 0.0,
    ) -> None:
        """Decide as *arm* says; *learned* is what the calibration split taught."""
        self._world, self._arm, self._setting = world, arm, setting
        self._known = hidden.sources(world.name, world.policy)
        self._policy = policy_of(world, arm, setting, audit=audit)
        calibration = learned if arm.learned == "fitted" else None
        if arm.learned == "symmetric" and learned is not None:
            calibration = symmetric(learned)
        elif arm.learned == "true":
            calibration = told_truth(world, self._known)
            self._policy = _truly_declared(self._policy, self._known, world)
        self.guard = Guard.open(
            ":memory:",
            policy=self._policy,
            embedder="hashing:64",
            settings=amv.Settings(upkeep_interval_s=None),
            clock=FakeClock(NOW_S),
            calibration=calibration,
            chance=lambda: 0.0,
        )
        self._claims: dict[str, Remembered] = {}
        self._one: Instance | None = None
        self._count = 0
        for name in self._policy.verifiers:
            self.guard.verifier(name)(partial(self._ask, name))

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        self.guard.close()

    def _ask(self, verifier: str) -> Any:
        assert self._one is not None
        claim, source = self._claims[verifier], self._known[verifier]
        return hidden.answer(self._world, self._one, claim, verifier, source)

    def remember(self, instances: Sequence[Instance]) -> None:
        """Put what was read for instances into the memory, at the age at which it was read."""
        self.guard.memory.add_many(
            {
                "content": f"{claim.subject} {claim.attribute}",
                "namespace": (one.id,),
                "claim": amv.Claim(claim.subject, claim.attribute, claim.value),
                "source": claim.source,
                "source_trust": SOURCES[claim.source],
                "valid_from": NOW_S - 3600.0 * claim.age_h,
            }
            for one in instances
            for claim in one.remembered
        )

    def decide(self, one: Instance, arguments: Mapping[str, Any]) -> Decision:
        """Decide about the action of an instance, with the checks that pay."""
        rule = self._policy.actions[one.tool]
        by_premise = {claim.premise: claim for claim in one.remembered}
        self._one = one
        self._claims = {
            verifier: by_premise[name]
            for name, premise in rule.rests_on.items()
            for verifier in premise.verify_with
        }
        return self.guard.decide(amv.Action(one.tool, arguments, namespace=(one.id,)))

    def run(self, one: Instance) -> Outcome:
        """Decide about an instance whose claims are remembered, and execute what goes ahead."""
        self._go_on_learning()
        rule = self._policy.actions[one.tool]
        truth, arguments = Truth(self._world, rule, one), dict(one.arguments)
        calls, repairs = 0, 0
        first = decision = self.decide(one, arguments)
        while True:
            calls += len(decision.checks)
            verdict = self._verdict(decision)
            mended = _mended(rule, decision, arguments) if verdict == "REPAIR" else None
            if mended is None or repairs == ROUNDS_MAX:
                break
            arguments, repairs = mended, repairs + 1
            decision = self.decide(one, arguments)
        code = CODES[truth.of(arguments)] if verdict == "PROCEED" else "A"
        critical = [view for view in first.premises if view.is_critical]
        return Outcome(
            code,
            calls,
            calls * self._setting.cost,
            repairs,
            "VERIFY" if first.checks else first.verdict,
            [round(view.before, 4) for view in critical],
            [truth.violated[view.name] for view in critical],
        )

    def _go_on_learning(self) -> None:
        every = self._arm.learns_every
        if every and self._count and self._count % every == 0:
            self.guard.learn(claims=False)
        self._count += 1

    def _verdict(self, decision: Decision) -> str:
        if not self._arm.is_unanimous:
            return decision.verdict
        found = [outcome for check in decision.checks for outcome in check.found.values()]
        return "PROCEED" if found and set(found) == {"confirmed"} else "ABSTAIN"


CODES = {"right": "E", "harmful": "H", "refused": "F"}


def _mended(
    rule: ActionRule, decision: Decision, arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return arguments with what checks read in place of what they refuted; None if it can't be."""
    outcomes = [pair for check in decision.checks for pair in check.found.items()]
    refuted = {premise for premise, outcome in outcomes if outcome == "refuted"}
    new, excused = dict(arguments), set[str]()
    for name in refuted:
        argument, value = argument_of(rule.rests_on[name]), decision.values.get(name)
        if argument is not None and isinstance(value, str | int | float):
            new[argument] = value
            excused |= {name, *rule.rests_on[name].rests_on}
    return new if refuted <= excused and new != arguments else None
