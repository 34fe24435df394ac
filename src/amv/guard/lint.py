"""Linting a policy: what is valid and yet surely not meant, and drafting one.

A policy can be valid and still guard nothing: it may ask for claims that no
item carries, name verifiers that settle nothing, or set losses with which no
check could ever pay.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from amv.checks import shown
from amv.errors import InvalidInput
from amv.guard.loss import regimes
from amv.guard.policy import ActionRule, Policy, claim_fields
from amv.guard.prior import P_MAX, P_MIN

_GRID = np.geomspace(P_MIN, 0.5, 40).tolist() + (1.0 - np.geomspace(0.5, 1 - P_MAX, 20)).tolist()


def lint(policy: Policy, known: Callable[[str], bool] | None = None) -> list[str]:
    """Return what is surely not meant, in plain sentences.

    *known* tells whether some remembered claim has an attribute of this name.
    """
    found: list[str] = []
    used = {v for r in policy.actions.values() for p in r.rests_on.values() for v in p.verify_with}
    for name in policy.verifiers:
        if name not in used:
            found.append(f"verifiers.{name}: no premise names it, so it is never asked")
    for name, rule in policy.actions.items():
        found += [f"actions.{name}{what}" for what in _of_action(rule, policy, known)]
    return found


def _of_action(
    rule: ActionRule, policy: Policy, known: Callable[[str], bool] | None
) -> Iterable[str]:
    if rule.effect == "read":
        if rule.rests_on:
            yield ": it is read-only, so that its premises are never looked at"
        return
    if not rule.rests_on:
        yield ": it rests on no premise; each of its arguments counts as one nobody verified"
    prices = policy.prices(rule)
    assert rule.loss is not None
    for name, premise in rule.rests_on.items():
        where = f".rests_on.{name}"
        theta = rule.loss.wrong if premise.wrong is None else premise.wrong
        attribute = premise.claim.rpartition("/")[2]
        if known is not None and not claim_fields(f"x/{attribute}") and not known(attribute):
            yield f"{where}: no remembered claim has the attribute {attribute!r}"
        if theta <= prices.critical_above:
            yield (
                f"{where}: what it loses, {theta:g}, is not more than abstaining costs, "
                f"{prices.critical_above:g}; it is never critical and never checked"
            )
            continue
        if not premise.verify_with:
            yield f"{where}: nothing can verify it, so that its action only proceeds or abstains"
        for verifier in premise.verify_with:
            if not _pays(policy, rule, verifier, theta):
                yield (
                    f"{where}: {verifier} is never worth its price of "
                    f"{policy.verifiers[verifier].cost:g}, however likely the premise is violated"
                )


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


def draft(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a policy to start from, by what tools say of themselves.

    *tools* are descriptions as MCP lists them: name, inputSchema, annotations.
    A tool that calls itself read-only is still drafted as a commit action: what
    it says of itself is not trusted until a person has looked.
    """
    actions: dict[str, Any] = {}
    for tool in tools:
        if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
            raise InvalidInput(f"a tool is an object with a name, got {shown(tool)}")
        notes = tool.get("annotations") or {}
        schema = tool.get("inputSchema") or {}
        if not isinstance(notes, Mapping) or not isinstance(schema, Mapping):
            raise InvalidInput(f"annotations and inputSchema are objects, got {shown(tool)}")
        fields = list(schema.get("properties") or {})
        destroys = bool(notes.get("destructiveHint", True))
        rule: dict[str, Any] = {"preset": "delete" if destroys else "calendar", "free": []}
        ids = [n for n in fields if n.isidentifier() and (n == "id" or n.endswith("_id"))]
        if ids:
            rule["idempotency"] = {"key": ids}
            rule["rests_on"] = {
                "status": {"claim": f"{ids[0].removesuffix('_id')}/{{{ids[0]}}}/status"}
            }
        rule["free"] = [name for name in fields if name not in ids]
        actions[tool["name"]] = rule
    return {"version": 1, "mode": "shadow", "actions": actions}
