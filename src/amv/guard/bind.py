"""Binding: which remembered claims an action rests on, and how likely each is wrong.

The policy's templates, filled with the action's arguments, name the claims.
What is remembered of each gives its probability to be violated; a claim of
which nothing is remembered, and an argument that no rule speaks of, is a
premise that nobody verified.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from string import Formatter
from types import MappingProxyType
from typing import Any

import msgspec

from amv.checks import shown
from amv.errors import InvalidInput
from amv.guard.actions import Action, equal
from amv.guard.judge import Case, CaseCause, CaseCheck, CasePremise
from amv.guard.policy import (
    ActionRule,
    Policy,
    PremiseRule,
    VerifierRule,
    claim_fields,
    fields_of,
    required_argument,
)
from amv.guard.ports import Claims, Remembered
from amv.guard.prior import TRUSTED_FROM, UNKNOWN, Features, clipped
from amv.guard.reliability import LEARNED_FROM, Reliability, Supposed

_ARGUMENT = "argument"
"""The subject of a premise that an argument is right of which no rule speaks."""

Prior = Callable[[Features, str], float]
"""How likely a claim of a kind is wrong; see `amv.guard.prior`."""


UNKNOWN_CHECK = Reliability()
"""What is known of a check of which nothing was learned."""


class Premise(msgspec.Struct, frozen=True, kw_only=True):
    """A premise of one action, bound to a claim.

    *remembered* is what the memory says, *required* what must hold; *p* is the
    probability that it does not, *theta* what a wrong execution would then lose.
    *p_confirmed* and *p_repaired* are that probability of a call decided about once
    a check has confirmed it, or has read what it then requires; *is_repairable* tells
    whether another call can require that.
    *features* are what *p* was said of, if the claim is trusted and supports it.
    """

    name: str
    subject: str
    attribute: str
    remembered: Any = None
    is_remembered: bool
    required: Any = msgspec.UNSET
    item_id: str = ""
    age_h: float = 0.0
    kind: str = ""
    features: Features | None = None
    p: float
    p_confirmed: float | None = None
    p_repaired: float | None = None
    is_repairable: bool = True
    theta: float
    verify_with: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()

    @property
    def is_unbound(self) -> bool:
        """Whether it is an argument that no rule speaks of, and so about no claim."""
        return self.subject == _ARGUMENT and self.name == f"{_ARGUMENT}.{self.attribute}"

    def holds_for(self, value: object) -> bool:
        """Return whether the premise holds if the world shows *value*."""
        if self.required is msgspec.UNSET:
            return self.is_remembered and equal(value, self.remembered)
        return any(equal(value, one) for one in self.required)


def filled(template: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Return subject and attribute of a claim's template; raises InvalidInput.

    No value can make one claim look like another: only the last slash of the template
    itself divides subject and attribute, and of several arguments only the last may hold
    what the template has behind it.
    """
    subject, _, attribute = template.rpartition("/")
    values: dict[str, str] = {}
    for name in claim_fields(template):
        value = arguments.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InvalidInput(
                f"claim {template!r} needs the argument {name!r} as a string or a whole number, "
                f"got {shown(value)}"
            )
        values[name] = str(value)
    for text in (subject, attribute):
        _check_told_apart(template, text, values)
    return subject.format_map(values), attribute.format_map(values)


def _check_told_apart(template: str, text: str, values: Mapping[str, str]) -> None:
    """Raise InvalidInput if other values would fill part of a template in the same way."""
    last, between = "", ""
    for before, name, _, _ in Formatter().parse(text):
        between += before
        if name is None:
            continue
        if last and (values[last] + between).index(between) < len(values[last]):
            raise InvalidInput(
                f"claim {template!r} can't tell where {last!r} ends with {between!r} in it, "
                f"got {shown(values[last])}"
            )
        last, between = name, ""


def required_by(rule: PremiseRule, arguments: Mapping[str, Any]) -> Any:
    """Return the values of which one must hold, or UNSET for what is remembered."""
    require, name = rule.require, required_argument(rule)
    if name is not None:
        if name not in arguments:
            raise InvalidInput(f"a premise requires the argument {name!r}, which is not there")
        return (arguments[name],)
    if isinstance(require, Mapping) and set(require) == {"one_of"}:
        return tuple(require["one_of"])
    return require if require is msgspec.UNSET else (require,)


def premises_of(
    action: Action, rule: ActionRule, claims: Claims, prior: Prior, now_s: float
) -> list[Premise]:
    """Return all premises of an action, those nobody verified among them."""
    wrong = 0.0 if rule.loss is None else rule.loss.wrong
    bound = []
    for name, premise in rule.rests_on.items():
        subject, attribute = filled(premise.claim, action.arguments)
        found = claims.find(action.namespace, subject, attribute)
        required = required_by(premise, action.arguments)
        features = _features(premise, found, now_s)
        p = _probability(premise, found, required, prior, features)
        is_support = found is not None and _supports(found, required)
        p_held, p_read = _told(premise, found, prior)
        bound.append(
            Premise(
                name=name,
                subject=subject,
                attribute=attribute,
                remembered=None if found is None else found.value,
                is_remembered=found is not None,
                required=required,
                item_id="" if found is None else found.item_id,
                age_h=0.0 if found is None else max(0.0, now_s - found.since_s) / 3600.0,
                kind=kind_of(premise),
                features=features if is_support else None,
                p=p,
                p_confirmed=p_held if is_support else p_read,
                p_repaired=p_read,
                is_repairable=is_repairable(premise),
                theta=wrong if premise.wrong is None else premise.wrong,
                verify_with=tuple(premise.verify_with),
                rests_on=tuple(premise.rests_on),
            )
        )
    return bound + [_unbound(name, wrong) for name in unbound_arguments(action, rule)]


def is_repairable(rule: PremiseRule) -> bool:
    """Return whether a call can be made that requires what a check reads.

    One that requires what an argument says can be made with another, and one
    that rests on what is remembered anew.  A constant stays what it is.
    """
    return rule.require is msgspec.UNSET or required_argument(rule) is not None


def _told(rule: PremiseRule, found: Remembered | None, prior: Prior) -> tuple[float, float]:
    """Return how likely a claim will be wrong that a check has just confirmed, and just read.

    Of what was not remembered before nothing is after it.  A confirmed claim is
    still what its source said; a value read takes the trust of the verifier.
    """
    if found is None:
        return UNKNOWN, UNKNOWN
    trusts = (found.trust, max(found.trust, TRUSTED_FROM))
    each = [Features(confidence=rule.confidence, age_h=0.0, trust=trust) for trust in trusts]
    held, read = (clipped(prior(one, kind_of(rule))) for one in each)
    return (held if found.is_trusted else UNKNOWN), read


def kind_of(rule: PremiseRule) -> str:
    """Return the sort of attribute that a premise is about: as named, or else the attribute.

    An attribute that is filled from arguments is no sort, and might hold what
    no record may.
    """
    attribute = rule.claim.rpartition("/")[2]
    return rule.kind or ("" if "{" in attribute else attribute)


def _features(rule: PremiseRule, found: Remembered | None, now_s: float) -> Features | None:
    """Return what is known of a claim; of one that an untrusted source made, nothing is."""
    if found is None or not found.is_trusted:
        return None
    return Features(
        confidence=rule.confidence,
        age_h=max(0.0, now_s - found.since_s) / 3600.0,
        trust=found.trust,
        is_contradicted=found.is_contradicted,
    )


def _supports(found: Remembered, required: Any) -> bool:
    return required is msgspec.UNSET or any(equal(found.value, one) for one in required)


def _probability(
    rule: PremiseRule,
    found: Remembered | None,
    required: Any,
    prior: Prior,
    features: Features | None,
) -> float:
    """Return how likely a premise is violated, by what is remembered of it."""
    if found is None or features is None:
        return UNKNOWN
    # Anyone can contradict a claim, also who is not trusted: that is a reason to doubt that
    # a premise holds, and none to doubt that it is violated.
    alone = replace(features, is_contradicted=False)
    said = [clipped(prior(one, kind_of(rule))) for one in (features, alone)]
    if _supports(found, required):
        return max(said)
    # The memory says that it does not hold; that may be what is wrong by now.
    return clipped(max(UNKNOWN, 1.0 - min(said)))


def unbound_arguments(action: Action, rule: ActionRule) -> list[str]:
    """Return the arguments of a commit action that no part of its rule speaks of."""
    if rule.effect == "read":
        return []
    known = {*rule.free, *(name for _, name in fields_of(rule))}
    return [name for name in action.arguments if name not in known]


def _unbound(name: str, theta: float) -> Premise:
    return Premise(
        name=f"{_ARGUMENT}.{name}",
        subject=_ARGUMENT,
        attribute=name,
        is_remembered=False,
        p=UNKNOWN,
        theta=theta,
    )


def _critical(premises: list[Premise], above: float) -> list[Premise]:
    """Return the premises that would lose more than *above*, and all that these rest on."""
    by_name = {premise.name: premise for premise in premises}
    found = {premise.name for premise in premises if premise.theta > above}
    todo = list(found)
    while todo:
        below = set(by_name[todo.pop()].rests_on) - found
        found |= below
        todo += below
    return [premise for premise in premises if premise.name in found]


def _reliable(
    rule: VerifierRule, own: Reliability, expected: Reliability | Supposed
) -> tuple[float, float]:
    """Return sensitivity and specificity of a check: as learned, or else as declared.

    Of what was declared no more is believed than what others proved to be, or what its
    own answers let suppose; from `LEARNED_FROM` answers on these count instead.
    """
    guess = own.supposed
    if guess is not None and guess.violated + guess.held >= LEARNED_FROM:
        most = [guess.sensitivity, guess.specificity]
    else:
        most = _at_most(rule, expected if guess is None else guess)
    return (
        most[0] if own.sensitivity is None else own.sensitivity,
        most[1] if own.specificity is None else own.specificity,
    )


def _at_most(rule: VerifierRule, expected: Reliability | Supposed) -> list[float]:
    return [
        declared if others is None else min(declared, others)
        for declared, others in (
            (rule.sensitivity, expected.sensitivity),
            (rule.specificity, expected.specificity),
        )
    ]


def _is_in_call(rule: ActionRule, name: str) -> bool:
    """Return whether a premise is about an argument of the call."""
    premise = rule.rests_on.get(name)
    return premise is not None and required_argument(premise) is not None


def _group(name: str, rule: VerifierRule, own: Reliability) -> str:
    """Return of which checks only the first answer counts: as declared, or as learned."""
    return rule.group or own.group or name


def case_of(
    premises: list[Premise],
    rule: ActionRule,
    policy: Policy,
    planner: str,
    learned: Mapping[str, Reliability] = MappingProxyType({}),
    typical: Reliability = UNKNOWN_CHECK,
) -> Case:
    """Return the case of an action, with its critical premises and what can check them.

    *learned* tells how reliable checks have proved, *typical* what to expect of
    any other; one that proved to tell nothing is not made.
    """
    prices = policy.prices(rule)
    critical = _critical(premises, prices.critical_above)
    place = {premise.name: i for i, premise in enumerate(critical)}
    checks: dict[str, list[int]] = {}
    for i, premise in enumerate(critical):
        for name in dict.fromkeys(premise.verify_with):
            checks.setdefault(name, []).append(i)
    known = {name: learned.get(name, UNKNOWN_CHECK) for name in checks}
    reliable = {n: _reliable(policy.verifiers[n], known[n], typical) for n in checks}
    risk_max = prices.risk_max
    return Case(
        premises=tuple(
            CasePremise(
                name=premise.name,
                p=clipped(premise.p),
                p_confirmed=premise.p_confirmed,
                p_repaired=premise.p_repaired,
                is_repairable=premise.is_repairable,
                theta=premise.theta,
                age_h=premise.age_h,
                kind=premise.kind,
                features=premise.features,
                rests_on=tuple(place[b] for b in premise.rests_on),
                in_call=_is_in_call(rule, premise.name),
            )
            for premise in critical
        ),
        checks=tuple(
            CaseCheck(
                name=name,
                premises=tuple(about),
                cost=policy.verifiers[name].cost,
                sensitivity=reliable[name][0],
                specificity=reliable[name][1],
                inconclusive=policy.verifiers[name].inconclusive,
                group=_group(name, policy.verifiers[name], known[name]),
            )
            for name, about in checks.items()
            if sum(reliable[name]) > 1.0
        ),
        causes=tuple(
            CaseCause(
                premises=tuple(place[name] for name in cause.premises if name in place),
                probability=cause.probability,
            )
            for cause in rule.causes
            if any(name in place for name in cause.premises)
        ),
        abstain=prices.abstain,
        repair=prices.repair,
        risk_max=None if risk_max == float("inf") else risk_max,
        harm_max=prices.harm_max,
        harm_own=rule.harm_max,
        check_weight=prices.check_weight,
        planner=planner,
    )
