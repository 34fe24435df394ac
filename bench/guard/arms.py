"""The policies that are compared: each is a world's own policy with some settings changed.

All decide through `Guard.decide`, over the same memory and the same verifiers.
`Arm.edit` changes the policy's data before it is parsed; `learned` says what an
arm knows of hazards and verifiers.
"""

import copy
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from amv.guard.policy import Policy, parse
from bench.guard.world import World

Learned = Literal["nothing", "fitted", "symmetric", "true"]
Data = dict[str, Any]


class Setting(NamedTuple):
    """Prices: theta of a wrong action, kappa of abstaining, c of a check; the screen's epsilon."""

    theta: float
    kappa: float
    cost: float
    epsilon: float = 0.05

    @property
    def rho(self) -> float:
        """What a repair costs."""
        return 0.5 * self.kappa

    @property
    def name(self) -> str:
        """How it is called in tables and files."""
        return f"{self.theta:g}/{self.kappa:g}/{self.cost:g}/{self.epsilon:g}"


HEADLINE = Setting(10.0, 1.0, 0.1)
SETTINGS = (
    Setting(3.0, 1.0, 0.1),
    HEADLINE,
    Setting(30.0, 1.0, 0.1),
    Setting(120.0, 5.0, 0.1),
    Setting(120.0, 5.0, 1.0),
)


def _unedited(data: Data) -> None:
    """Change nothing."""


class Arm(NamedTuple):
    """One policy; see the module.

    *is_unanimous*: it goes ahead if and only if each check confirmed.  *screened*
    says whether it respects epsilon, *plans* whether it plans at all.  After every
    *learns_every* instances it takes up what its checks have answered, and no truth;
    0 is never.
    """

    name: str
    says: str
    planner: str = "default"
    learned: Learned = "fitted"
    edit: Callable[[Data], None] = _unedited
    is_unanimous: bool = False
    is_certified: bool = False
    screened: bool = True
    plans: bool = False
    learns_every: int = 0


def _first_only(data: Data) -> None:
    for rule in data["actions"].values():
        for premise in rule["rests_on"].values():
            premise["verify_with"] = premise.get("verify_with", [])[:1]


def _no_screen(data: Data) -> None:
    data["defaults"]["harm_max"] = 1.0


def _no_joint(data: Data) -> None:
    for rule in data["actions"].values():
        rule.pop("causes", None)
        for premise in rule["rests_on"].values():
            premise.pop("rests_on", None)


def _no_repair(data: Data) -> None:
    for rule in data["actions"].values():
        rule["loss"].pop("repair", None)


def _all_critical(data: Data) -> None:
    for rule in data["actions"].values():
        for premise in rule["rests_on"].values():
            premise.pop("wrong", None)


DEFAULT, LEARNING, TRUE, REFERENCE = "default", "learning", "true", "reference"

LEARNS_EVERY = 50
"""Decisions after which the policy that goes on learning does so."""

ARMS = (
    Arm("always_proceed", "always proceed", "always_proceed", screened=False),
    Arm("verify_once", "always verify, each premise once", "always_verify", edit=_first_only),
    Arm("verify_all", "always verify, all verifiers", "always_verify"),
    Arm(
        "unanimous",
        "always verify, unanimous",
        "always_verify",
        edit=_no_screen,
        is_unanimous=True,
        screened=False,
    ),
    Arm("static_threshold", "static threshold", "static_threshold", screened=False),
    Arm("ttl", "TTL on age", "ttl", screened=False),
    Arm("naive_voi", "naive VOI", "naive_voi"),
    Arm("env_probe", "EnvProbe-like", "env_probe"),
    Arm(REFERENCE, "one step, reference coefficients", "myopic", "nothing"),
    Arm("myopic", "one step, fitted", "myopic"),
    Arm(DEFAULT, "AMV default", plans=True),
    Arm(
        LEARNING,
        "the default, learning of checks as it goes",
        plans=True,
        learns_every=LEARNS_EVERY,
    ),
    Arm("certified", "AMV with certificate", is_certified=True, plans=True),
    Arm(TRUE, "told the true probabilities", learned="true", plans=True),
)

ABLATIONS = (
    Arm("no_calibration", "no calibration", learned="nothing", plans=True),
    Arm("no_joint", "no joint beliefs", edit=_no_joint, plans=True),
    Arm("no_repair", "no repair", edit=_no_repair, plans=True),
    Arm("no_critical", "no critical/relevant", edit=_all_critical, plans=True),
    Arm("symmetric", "symmetric reliability", learned="symmetric", plans=True),
    Arm("no_screen", "no screen", edit=_no_screen, screened=False, plans=True),
)

ALL = {arm.name: arm for arm in (*ARMS, *ABLATIONS)}


def policy_of(world: World, arm: Arm, setting: Setting, *, audit: float = 0.0) -> Policy:
    """Return a world's policy at some prices, as an arm has it.

    The policy is written at the headline's prices: a premise's own loss is in
    units of abstaining there.
    """
    data = copy.deepcopy(world.policy_data())
    data["defaults"] = {
        "harm_max": setting.epsilon,
        "planner": arm.planner,
        "audit": audit,
    }
    for verifier in data["verifiers"].values():
        verifier["cost"] = setting.cost
    for rule in data["actions"].values():
        loss = rule["loss"]
        loss["wrong"], loss["abstain"] = setting.theta, setting.kappa
        if "repair" in loss:
            loss["repair"] = setting.rho
        for premise in rule["rests_on"].values():
            if "wrong" in premise:
                premise["wrong"] *= setting.kappa
    arm.edit(data)
    return parse(data)
