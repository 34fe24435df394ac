"""Linting a policy: what is valid and yet surely not meant, and drafting one.

A policy can be valid and still guard nothing: it may ask for claims that no
item carries, name verifiers that settle nothing, or set losses with which no
check could ever pay.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from amv.checks import shown
from amv.errors import InvalidInput
from amv.guard import baselines
from amv.guard.bind import is_repairable
from amv.guard.budget import amount_of
from amv.guard.loss import regimes
from amv.guard.policy import (
    URL_FIELD,
    ActionRule,
    Policy,
    PremiseRule,
    VerifierRule,
    check_name,
    claim_fields,
    fields_of,
)
from amv.guard.prior import P_MAX, P_MIN

_GRID = np.geomspace(P_MIN, 0.5, 40).tolist() + (1.0 - np.geomspace(0.5, 1 - P_MAX, 20)).tolist()


def lint(
    policy: Policy,
    known: Callable[[str], bool] | None = None,
    arguments: Mapping[str, Collection[str]] | None = None,
) -> list[str]:
    """Return what is surely not meant, in plain sentences.

    *known* tells whether some remembered claim has an attribute of this name,
    *arguments* which arguments a tool takes, by its name.
    """
    found = list(_of_the_whole(policy))
    for name, rule in policy.actions.items():
        found += [f"actions.{name}{what}" for what in _of_action(rule, policy, known)]
        taken = None if arguments is None else arguments.get(name)
        found += [f"actions.{name}{what}" for what in _of_arguments(rule, policy, taken)]
    return found


def _of_the_whole(policy: Policy) -> Iterable[str]:
    planner = policy.defaults.planner
    if policy.mode == "enforce" and planner in baselines.PLANNERS:
        yield (
            f"defaults.planner: {planner} is a baseline to compare with; under enforce it lets "
            "actions go ahead, or stops them, whatever that loses"
        )
    rules = policy.actions.values()
    used = {v for rule in rules for p in rule.rests_on.values() for v in p.verify_with}
    for name, verifier in policy.verifiers.items():
        if name not in used:
            yield f"verifiers.{name}: no premise names it, so it is never asked"
        if verifier.by_client and verifier.url is None:
            yield f"verifiers.{name}.by_client: it has no url, so a client may make it anyway"
        yield from (f"verifiers.{name}.url: {what}" for what in _of_url(verifier))
    spent = {rule.budget.of for rule in rules if rule.budget is not None}
    for name in policy.budgets:
        if name not in spent:
            yield f"budgets.{name}: no action takes anything of it"


def _of_url(verifier: VerifierRule) -> Iterable[str]:
    """Say where an address has what can never be filled in."""
    url = verifier.url or ""
    for part in re.findall(r"\{[^{}]*\}", URL_FIELD.sub("", url)):
        yield f"{part} is no name of an argument, so that it is asked for as it stands"
    for name in dict.fromkeys(URL_FIELD.findall(url)):
        if verifier.args and name not in verifier.args:
            there = ", ".join(sorted(verifier.args))
            yield f"{{{name}}} is none of its args ({there}), so that it is never asked"
    for name in URL_FIELD.findall("".join(url.split("/")[2:3])):
        yield f"{{{name}}} stands in its host, so that whoever calls says who is asked"


def _of_arguments(rule: ActionRule, policy: Policy, taken: Collection[str] | None) -> Iterable[str]:
    """Say where a rule names arguments that the tool has not, or that the rule itself forgot."""
    if taken is not None:
        places = [*fields_of(rule), *(("free", name) for name in rule.free)]
        for where, name in places:
            if name not in taken:
                there = ", ".join(sorted(taken)) or "none"
                yield f".{where}: {name!r} is no argument of the tool; there is {there}"
    own = {*rule.free, *(name for _, name in fields_of(rule))} if taken is None else {*taken}
    whose = "no other part of the rule names" if taken is None else "the tool does not take"
    asked = dict.fromkeys(v for p in rule.rests_on.values() for v in p.verify_with)
    for verifier in asked:
        check = policy.verifiers[verifier]
        for given in check.args.values():
            if isinstance(given, str) and given[:1] == "$" and given[1:] not in own:
                yield f": its verifier {verifier} is given {given}, an argument that {whose}"
        # Without args, an address gets all the arguments of the action.
        for name in dict.fromkeys(URL_FIELD.findall("" if check.args else check.url or "")):
            if name not in own:
                yield (
                    f": the url of its verifier {verifier} needs {{{name}}}, an argument that "
                    f"{whose}"
                )


def _of_action(
    rule: ActionRule, policy: Policy, known: Callable[[str], bool] | None
) -> Iterable[str]:
    if rule.effect == "read":
        if rule.rests_on:
            yield ": it is read-only, so that its premises are never looked at"
        if rule.budget is not None:
            yield ": it is read-only, so that it takes nothing of its budget"
        return
    yield from _of_grants(rule, policy)
    yield from _of_repair(rule)
    if not rule.rests_on:
        yield ": it rests on no premise; each of its arguments counts as one nobody verified"
    for name, premise in rule.rests_on.items():
        yield from _of_premise(f".rests_on.{name}", rule, premise, policy, known)


def _of_grants(rule: ActionRule, policy: Policy) -> Iterable[str]:
    if rule.idempotency is not None and not rule.idempotency.key:
        yield (
            ".idempotency.key: it is empty, so that all calls are one, and the first is the only "
            "one ever granted"
        )
    if rule.budget is not None:
        limit, least = policy.budgets[rule.budget.of].limit, _amount(rule)
        if least > limit:
            yield f".budget: each call takes {least:g} of a limit of {limit:g}: none is granted"


def _of_repair(rule: ActionRule) -> Iterable[str]:
    """Say where a repair has a price, and nothing that is checked can be repaired."""
    checked = [one for one in rule.rests_on.values() if one.verify_with]
    has_price = rule.loss is not None and rule.loss.repair is not None
    if has_price and checked and not any(map(is_repairable, checked)):
        yield (
            ".loss.repair: each premise that is checked requires a constant, which no other call "
            "can change, so that nothing is ever repaired"
        )


def _of_premise(
    where: str,
    rule: ActionRule,
    premise: PremiseRule,
    policy: Policy,
    known: Callable[[str], bool] | None,
) -> Iterable[str]:
    prices = policy.prices(rule)
    assert rule.loss is not None
    theta = rule.loss.wrong if premise.wrong is None else premise.wrong
    attribute = premise.claim.rpartition("/")[2]
    if known is not None and not claim_fields(f"x/{attribute}") and not known(attribute):
        yield f"{where}: no remembered claim has the attribute {attribute!r}"
    if theta <= prices.critical_above:
        yield (
            f"{where}: what it loses, {theta:g}, is not more than abstaining costs, "
            f"{prices.critical_above:g}; it is never critical and never checked"
        )
        return
    if not premise.verify_with:
        yield f"{where}: nothing can verify it, so that its action only proceeds or abstains"
    for verifier in premise.verify_with:
        if not _pays(policy, rule, verifier, theta):
            yield (
                f"{where}: {verifier} is never worth its price of "
                f"{policy.verifiers[verifier].cost:g}, however likely the premise is violated"
            )


def _amount(rule: ActionRule) -> float:
    """Return what each call takes of its budget; 0 where an argument says that."""
    assert rule.budget is not None
    by_argument = isinstance(rule.budget.amount, Mapping)
    return 0.0 if by_argument else amount_of(rule, {})


def _pays(policy: Policy, rule: ActionRule, verifier: str, theta: float) -> bool:
    """Return whether a check can pay for some probability that the premise is violated."""
    check, prices = policy.verifiers[verifier], policy.prices(rule)
    for p in _GRID:
        low, high = regimes(
            p=p,
            abstain_cost=prices.abstain,
            verify_cost=prices.check_weight * check.cost,
            sensitivity=check.sensitivity,
            specificity=check.specificity,
            repair_cost=prices.repair,
        )
        if low < theta < high:
            return True
    return False


def arguments_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the arguments that tools take, by name; *tools* as `draft` takes them.

    One whose schema allows for more arguments than it names is left out.
    """
    found = {}
    for tool in tools:
        schema = _schema_of(tool)
        # Without a word on it, JSON Schema allows for more; tools do not mean that.
        if "properties" in schema and not schema.get("additionalProperties", False):
            found[tool["name"]] = list(schema["properties"])
    return found


def _schema_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
        raise InvalidInput(f"a tool is an object with a name, got {shown(tool)}")
    schema = tool.get("inputSchema") or {}
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties") or {}, Mapping):
        raise InvalidInput(f"annotations and inputSchema are objects, got {shown(tool)}")
    return schema


def draft(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a policy to start from, by what tools say of themselves.

    *tools* are descriptions as MCP lists them: name, inputSchema, annotations.
    A tool that calls itself read-only is still drafted as a commit action: what
    it says of itself is not trusted until a person has looked.  Of its
    arguments none is drafted as free: that nothing can go wrong with one is for a
    person to say.  Raises InvalidInput for a tool that no policy can name, or that
    comes twice.
    """
    actions: dict[str, Any] = {}
    for tool in tools:
        schema, name = _schema_of(tool), tool["name"]
        check_name(name)
        if name in actions:
            raise InvalidInput(f"the tool {name!r} is there twice; a policy has one rule of a name")
        notes = tool.get("annotations") or {}
        if not isinstance(notes, Mapping):
            raise InvalidInput(f"annotations and inputSchema are objects, got {shown(tool)}")
        fields = list(schema.get("properties") or {})
        destroys = bool(notes.get("destructiveHint", True))
        rule: dict[str, Any] = {"preset": "delete" if destroys else "calendar"}
        ids = [n for n in fields if n.isidentifier() and (n == "id" or n.endswith("_id"))]
        if ids:
            rule["idempotency"] = {"key": ids}
            rule["rests_on"] = {
                "status": {"claim": f"{ids[0].removesuffix('_id')}/{{{ids[0]}}}/status"}
            }
        actions[name] = rule
    return {"version": 1, "mode": "shadow", "actions": actions}
