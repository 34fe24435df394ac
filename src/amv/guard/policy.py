"""The policy: which actions rest on which claims, what errors cost, how claims are checked.

    version: 1
    mode: enforce
    verifiers:
      order_status: {tool: get_order_details, args: {order_id: $order_id}, read: $.status,
                     cost: 0.02, sensitivity: 0.99, specificity: 0.995}
    actions:
      cancel_order:
        loss: {wrong: 120, abstain: 5, repair: 1}
        rests_on:
          status: {claim: "order/{order_id}/status", require: pending,
                   verify_with: [order_status]}
        idempotency: {key: [order_id]}

One model stands behind YAML and decorators.  Unknown keys are refused, and what
refers to something else must find it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from string import Formatter
from typing import Any, Literal

import msgspec

from amv.checks import shown
from amv.errors import InvalidInput, PolicyError
from amv.guard.actions import canonical
from amv.guard.belief import PREMISES_MAX, check_count, ordered
from amv.guard.judge import PLANNERS, check_causes
from amv.guard.loss import EPSILON, Prices, check_informative, check_price, check_probability
from amv.guard.plan import check_observed
from amv.guard.presets import PRESETS, with_preset

Mode = Literal["enforce", "shadow"]
Effect = Literal["commit", "read"]

PERMIT_S = 60.0
"""How long a permit lasts where the policy does not say."""

APPROVAL_S = 86_400.0
"""How long a person has to approve where the policy does not say."""

APPROVAL_S_MAX = 366 * 86_400.0
"""The longest that a person can have: a year."""

_NAME = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")
URL_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""What stands in a verifier's address for an argument."""

_PATH = re.compile(r"\$(\.[A-Za-z0-9_\-]+|\[[0-9]+\])*")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all parts of a policy have in common: unknown keys are refused."""


class Loss(Rule, frozen=True):
    """The prices of one action: a wrong execution, abstaining, repairing; in one unit."""

    wrong: float
    abstain: float
    repair: float | None = None


class PremiseRule(Rule, frozen=True):
    """A premise: the claim an action rests on, and what it must say.

    *claim* is a template of a subject and, after the last slash, an attribute.
    *require* is the value that must hold, or {argument: NAME} for what an
    argument of the action says, or {one_of: [...]}; without it the world must
    still show the remembered value.  *kind* names a sort of attribute that
    changes alike.  *rests_on* names other premises of the action.
    """

    claim: str
    require: Any = msgspec.UNSET
    kind: str = ""
    verify_with: list[str] = []
    wrong: float | None = None
    rests_on: list[str] = []
    confidence: float = 0.9


class Cause(Rule, frozen=True):
    """Premises that fail together, with this probability."""

    premises: list[str]
    probability: float


class Idempotency(Rule, frozen=True):
    """Which arguments tell one call from another; the same ones are granted once."""

    key: list[str]


class Budget(Rule, frozen=True):
    """How much several actions may come to together, however small each of them is.

    What was granted in the last *window_s* seconds adds up to *limit* at most,
    for each principal of a namespace, for each *session* of theirs, or for the
    *namespace* as a whole.
    """

    limit: float
    window_s: float = 86_400.0
    per: Literal["principal", "session", "namespace"] = "principal"


class Spending(Rule, frozen=True):
    """What one action takes of the budget *of*.

    *amount* is a number, or {argument: NAME} for what an argument of the action
    says; without it, it is what a wrong execution loses.
    """

    of: str
    amount: Any = msgspec.UNSET


class ActionRule(Rule, frozen=True):
    """How one tool is guarded.

    Each argument of a commit action is in a premise, in the idempotency key, or
    among the *free* ones; any other is a premise that nobody verified.  With
    *approval*, a person is asked where the gate abstains.  With the probability
    *audit*, everything is checked that can be, whether it pays or not.
    """

    loss: Loss | None = None
    effect: Effect = "commit"
    rests_on: dict[str, PremiseRule] = {}
    causes: list[Cause] = []
    free: list[str] = []
    idempotency: Idempotency | None = None
    harm_max: float | None = None
    risk_max: float | None = None
    audit: float | None = None
    permit_s: float = PERMIT_S
    approval: bool = False
    approval_s: float = APPROVAL_S
    budget: Spending | None = None


class VerifierRule(Rule, frozen=True):
    """A read-only check: a tool or a GET of *url*, and where its reply holds the value.

    *cost* is its price, *sensitivity* P(refute | violated), *specificity*
    P(confirm | holds).  Checks of one *group* are one source.  What it reads
    changes about every *fresh_s* seconds, or sooner if a calibration says so; the
    more a wrong action loses, the sooner an earlier reading is too old to be
    used again.  The gate alone asks a *url*, unless the check may be made
    *by_client* as well.
    """

    tool: str | None = None
    url: str | None = None
    args: dict[str, Any] = {}
    read: str = "$"
    cost: float = 0.0
    timeout_s: float = 5.0
    sensitivity: float = 0.95
    specificity: float = 0.95
    inconclusive: float = 0.0
    group: str | None = None
    fresh_s: float = 0.0
    by_client: bool = False
    read_only: bool = True


class Defaults(Rule, frozen=True):
    """What holds where an action says nothing."""

    unknown_tool: Effect = "commit"
    on_gate_error: Literal["abstain"] = "abstain"
    harm_max: float = EPSILON
    risk_max: float | None = None
    audit: float = 0.0
    check_weight: float = 1.0
    planner: str = "default"


class Policy(Rule, frozen=True, dict=True):
    """A whole policy; see the module."""

    version: Literal[1]
    mode: Mode = "enforce"
    defaults: Defaults = Defaults()
    verifiers: dict[str, VerifierRule] = {}
    budgets: dict[str, Budget] = {}
    actions: dict[str, ActionRule] = {}

    def digest(self) -> str:
        """Return the SHA-256 of the policy, by which a decision names it."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return sha256(canonical(msgspec.to_builtins(self), "a policy")).hexdigest()

    def rules(self) -> str:
        """Return the SHA-256 of what plans are made by.

        That is the policy but for its mode, its screen and its audits.
        """
        return self._rules

    @cached_property
    def _rules(self) -> str:
        data = msgspec.to_builtins(self)
        del data["mode"], data["defaults"]["harm_max"], data["defaults"]["audit"]
        for rule in data["actions"].values():
            del rule["audit"]
        return sha256(canonical(data, "a policy")).hexdigest()

    def prices(self, rule: ActionRule) -> Prices:
        """Return what ends a decision about an action costs; it must have a loss."""
        if rule.loss is None:
            raise PolicyError("an action without losses has no prices")
        risk_max = self.defaults.risk_max if rule.risk_max is None else rule.risk_max
        return Prices(
            abstain=rule.loss.abstain,
            repair=rule.loss.repair,
            risk_max=math.inf if risk_max is None else risk_max,
            harm_max=self.defaults.harm_max if rule.harm_max is None else rule.harm_max,
            check_weight=self.defaults.check_weight,
        )


def parse(data: object) -> Policy:
    """Return the policy that plain data (of YAML or JSON) says; raises PolicyError.

    An action may name a *preset*, from which comes what it does not say itself.
    """
    try:
        return _parsed(data)
    except PolicyError:
        raise
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        raise PolicyError(
            f"a policy is text, numbers, true, false, null, lists and mappings: {error}"
        ) from error


def _parsed(data: object) -> Policy:
    try:
        policy = msgspec.convert(_with_presets(data), Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"the policy is not valid: {error}") from error
    _check("defaults", "defaults", lambda: _check_defaults(policy))
    for name, verifier in policy.verifiers.items():
        _check(f"verifiers.{name}", name, lambda v=verifier: _check_verifier(v))
    for name, budget in policy.budgets.items():
        _check(f"budgets.{name}", name, lambda b=budget: _check_budget(b))
    for name, rule in policy.actions.items():
        _check(f"actions.{name}", name, lambda r=rule: _check_action(r, policy))
    try:
        policy.digest()
    except InvalidInput as error:
        raise PolicyError(f"the policy is not valid: {error}") from error
    return policy


def _with_presets(data: object) -> object:
    actions = data.get("actions") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(actions, Mapping):
        return data
    filled: dict[Any, Any] = {}
    for name, rule in actions.items():
        filled[name] = rule
        if isinstance(rule, Mapping) and "preset" in rule:
            if not isinstance(rule["preset"], str) or rule["preset"] not in PRESETS:
                known = ", ".join(PRESETS)
                raise PolicyError(
                    f"unknown preset {shown(rule['preset'])}; there is {known} - at actions.{name}"
                )
            filled[name] = with_preset(rule, PRESETS[rule["preset"]])
    return {**data, "actions": filled}


def _check(where: str, name: str, check: Any) -> None:
    try:
        check_name(name)
        check()
    except (InvalidInput, PolicyError) as error:
        raise PolicyError(f"the policy is not valid: {error} - at {where}") from error


def check_name(name: str) -> None:
    """Raise InvalidInput for a name that nothing in a policy can have."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"need a name of letters, digits and _ . : -, got {shown(name)}")


def _check_defaults(policy: Policy) -> None:
    policy.prices(ActionRule(loss=Loss(wrong=1.0, abstain=1.0)))
    check_probability(policy.defaults.audit, "audit")
    _known([policy.defaults.planner], PLANNERS, "planner")


def _check_verifier(rule: VerifierRule) -> None:
    check_informative(rule.sensitivity, rule.specificity)
    check_price(rule.cost, "cost")
    if rule.tool is not None and rule.url is not None:
        raise InvalidInput("a verifier is a tool or a url, not both")
    if rule.url is not None and not rule.url.startswith(("http://", "https://")):
        raise InvalidInput(f"url must begin with http:// or https://, got {rule.url!r}")
    if not 0.0 < rule.timeout_s <= 600.0:
        raise InvalidInput(f"timeout_s must be above 0 and at most 600, got {rule.timeout_s}")
    if not 0.0 <= rule.inconclusive < 1.0:
        raise InvalidInput(f"inconclusive must be from 0 to below 1, got {rule.inconclusive}")
    if not 0.0 <= rule.fresh_s < math.inf:
        raise InvalidInput(f"fresh_s must be at least 0 and finite, got {rule.fresh_s}")
    if not _PATH.fullmatch(rule.read):
        raise InvalidInput(f"read must be a path such as $.status or $.items[0], got {rule.read!r}")
    if not rule.read_only:
        raise InvalidInput("a verifier must be read-only: what it does must change nothing")


def _check_budget(budget: Budget) -> None:
    check_price(budget.limit, "limit")
    if not 0.0 < budget.window_s < math.inf:
        raise InvalidInput(f"window_s must be above 0 and finite, got {budget.window_s}")


def _check_action(rule: ActionRule, policy: Policy) -> None:
    if rule.effect == "commit" and rule.loss is None:
        raise InvalidInput("a commit action needs a loss: {wrong: ..., abstain: ...}")
    if len(rule.rests_on) > 4 * PREMISES_MAX:
        raise InvalidInput(f"an action may rest on {4 * PREMISES_MAX} premises at most")
    if rule.loss is not None:
        wrong = check_price(rule.loss.wrong, "the loss 'wrong'")
        thetas = [wrong if p.wrong is None else p.wrong for p in rule.rests_on.values()]
        above = policy.prices(rule).critical_above
        check_count(sum(theta > above for theta in thetas))
    if rule.audit is not None:
        check_probability(rule.audit, "audit")
    if not 0.0 < rule.permit_s <= 86_400.0:
        raise InvalidInput(f"permit_s must be above 0 and at most a day, got {rule.permit_s}")
    if not 0.0 < rule.approval_s <= APPROVAL_S_MAX:
        raise InvalidInput(
            f"approval_s must be above 0 and at most {APPROVAL_S_MAX:g}, a year; "
            f"got {rule.approval_s}"
        )
    _check_premises(rule, policy)
    _check_causes(rule)
    if rule.budget is not None:
        _check_spending(rule.budget, policy)


def _check_spending(spending: Spending, policy: Policy) -> None:
    _known([spending.of], policy.budgets, "budget")
    match spending.amount:
        case {"argument": str(), **rest} if not rest:
            return
        case msgspec.UNSET:
            return
    check_price(spending.amount, "amount is a number or {argument: NAME}; as a number it")


def _check_premises(rule: ActionRule, policy: Policy) -> None:
    names = list(rule.rests_on)
    for name, premise in rule.rests_on.items():
        check_name(name)
        claim_fields(premise.claim)
        _known(premise.verify_with, policy.verifiers, "verifier")
        _known(premise.rests_on, rule.rests_on, "premise")
        if premise.wrong is not None:
            check_price(premise.wrong, "wrong")
        check_probability(premise.confidence, "confidence")
        _check_require(premise.require)
    ordered(
        len(names),
        {n: [names.index(b) for b in p.rests_on] for n, p in enumerate(rule.rests_on.values())},
    )
    for verifier in policy.verifiers:
        check_observed(verifier, sum(verifier in p.verify_with for p in rule.rests_on.values()))


def _check_causes(rule: ActionRule) -> None:
    for cause in rule.causes:
        _known(cause.premises, rule.rests_on, "premise")
        check_probability(cause.probability, "probability")
        if len(set(cause.premises)) < 2:
            raise InvalidInput("a common cause is one of two premises or more")
    check_causes(len(rule.causes), (premise.rests_on for premise in rule.rests_on.values()))


def _check_require(require: Any) -> None:
    if not isinstance(require, Mapping):
        return
    match dict(require):
        case {"argument": str(), **rest} if not rest:
            return
        case {"one_of": [_, *_], **rest} if not rest:
            return
    raise InvalidInput(
        f"require is a value, {{argument: NAME}} or {{one_of: [value, ...]}}; got {shown(require)}"
    )


def _known(names: Sequence[str], known: Mapping[str, object], what: str) -> None:
    for name in names:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise InvalidInput(f"unknown {what} {name!r}; there is {there}")


def fields_of(rule: ActionRule) -> list[tuple[str, str]]:
    """Return where a rule speaks of an argument of its action, and the name of that."""
    found = []
    for name, premise in rule.rests_on.items():
        found += [(f"rests_on.{name}.claim", one) for one in claim_fields(premise.claim)]
        if (argument := required_argument(premise)) is not None:
            found.append((f"rests_on.{name}.require", argument))
    if rule.idempotency is not None:
        found += [("idempotency.key", one) for one in rule.idempotency.key]
    if rule.budget is not None and isinstance(rule.budget.amount, Mapping):
        found.append(("budget.amount", rule.budget.amount["argument"]))
    return found


def required_argument(rule: PremiseRule) -> str | None:
    """Return the argument that says what a premise requires; None where none does."""
    require = rule.require
    return require.get("argument") if isinstance(require, Mapping) else None


def claim_fields(template: str) -> list[str]:
    """Return the arguments a claim's template names; raises InvalidInput if it is no template.

    >>> claim_fields("order/{order_id}/status")
    ['order_id']
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise InvalidInput(f"claim {template!r} is no template: {error}") from error
    names = []
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise InvalidInput(f"claim {template!r} may hold {{argument}} only, got {name!r}")
        names.append(name)
    for (_, name, *_), (between, after, *_) in pairwise(parts):
        if name is not None and after is not None and not between:
            raise InvalidInput(
                f"claim {template!r} can't tell where {name!r} ends and {after!r} begins; put "
                "something between them"
            )
    subject, slash, attribute = template.rpartition("/")
    if not (slash and subject and attribute):
        raise InvalidInput(
            f"a claim is a subject, a slash and an attribute, such as order/{{id}}/status; "
            f"got {template!r}"
        )
    return names
