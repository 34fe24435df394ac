"""The policy: valid ones say what they mean, and the others are refused with a reason."""

import math
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from amv.errors import PolicyError
from amv.guard.policy import ActionRule, Policy, claim_fields, parse
from amv.guard.presets import PRESETS, with_preset

WHOLE: dict[str, Any] = {
    "version": 1,
    "mode": "shadow",
    "defaults": {
        "unknown_tool": "read",
        "on_gate_error": "abstain",
        "harm_max": 0.1,
        "risk_max": 3.0,
        "check_weight": 2.0,
        "planner": "exact",
    },
    "verifiers": {
        "look": {
            "tool": "get_order",
            "args": {"order_id": "$order_id"},
            "read": "$.items[0].status",
            "cost": 0.02,
            "timeout_s": 3.0,
            "sensitivity": 0.99,
            "specificity": 0.995,
            "inconclusive": 0.01,
            "group": "shop",
            "fresh_s": 60.0,
            "read_only": True,
        },
        "fetch": {"url": "https://shop.example/order"},
    },
    "actions": {
        "cancel": {
            "loss": {"wrong": 120.0, "abstain": 5.0, "repair": 1.0},
            "effect": "commit",
            "rests_on": {
                "status": {
                    "claim": "order/{order_id}/status",
                    "require": "pending",
                    "kind": "order_status",
                    "verify_with": ["look"],
                    "wrong": 60.0,
                    "confidence": 0.8,
                },
                "owner": {"claim": "order/{order_id}/owner", "require": {"argument": "user"}},
            },
            "causes": [{"premises": ["status", "owner"], "probability": 0.01}],
            "free": ["reason"],
            "idempotency": {"key": ["order_id"]},
            "harm_max": 0.2,
            "risk_max": 9.0,
            "permit_s": 30.0,
            "approval": True,
            "approval_s": 3600.0,
        },
        "look": {"effect": "read"},
    },
}

PARTS = [
    (),
    ("defaults",),
    ("verifiers", "look"),
    ("actions", "cancel"),
    ("actions", "cancel", "loss"),
    ("actions", "cancel", "rests_on", "status"),
    ("actions", "cancel", "causes", 0),
    ("actions", "cancel", "idempotency"),
]

CANCEL = ("actions", "cancel")
STATUS = (*CANCEL, "rests_on", "status")
OWNER = (*CANCEL, "rests_on", "owner")
LOOK = ("verifiers", "look")
FETCH = ("verifiers", "fetch")


def changed(path: tuple[Any, ...], value: object) -> dict[str, Any]:
    """Return the whole policy with one field set."""
    data = deepcopy(WHOLE)
    part: Any = data
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return data


def test_a_whole_policy_says_what_it_says() -> None:
    policy = parse(WHOLE)
    rule = policy.actions["cancel"]
    prices = policy.prices(rule)

    look = msgspec.to_builtins(policy)["verifiers"]["look"]
    assert look == {**WHOLE["verifiers"]["look"], "url": None, "by_client": False}
    assert (prices.abstain, prices.repair, prices.check_weight) == (5.0, 1.0, 2.0)
    assert (prices.harm_max, prices.risk_max) == (0.2, 9.0)
    assert policy.mode == "shadow"


def test_an_action_takes_from_the_defaults_what_it_does_not_say() -> None:
    loss = {"wrong": 1, "abstain": 1}
    policy = parse({**WHOLE, "actions": {"pay": {"loss": loss}}})
    bare = parse({"version": 1, "actions": {"pay": {"loss": loss}}})

    assert policy.prices(policy.actions["pay"]).harm_max == 0.1
    assert policy.prices(policy.actions["pay"]).risk_max == 3.0
    assert bare.prices(bare.actions["pay"]).harm_max == 0.05
    assert bare.prices(bare.actions["pay"]).risk_max == math.inf


@pytest.mark.parametrize("path", PARTS)
def test_unknown_keys_are_refused_everywhere(path: tuple[Any, ...]) -> None:
    """A misspelt limit that is ignored is no limit."""
    with pytest.raises(PolicyError, match="unknown field `harm_mx`"):
        parse(changed((*path, "harm_mx"), 0.1))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version"),
        (("mode",), "off", "mode"),
        (("actions", "cancel"), {}, "a commit action needs a loss"),
        (("actions", "cancel"), None, "Expected `object`"),
        (("actions", "a b"), {"effect": "read"}, "need a name of letters"),
        (("verifiers", ""), {}, "need a name of letters"),
        ((*CANCEL, "rests_on", "a b"), {"claim": "a/b"}, "need a name of letters"),
        ((*CANCEL, "effect"), "write", "effect"),
        ((*CANCEL, "permit_s"), 0.0, "permit_s must be above 0"),
        ((*CANCEL, "permit_s"), math.nan, "permit_s must be above 0"),
        ((*CANCEL, "permit_s"), 90_000.0, "permit_s must be above 0"),
        ((*CANCEL, "approval_s"), math.inf, "approval_s must be above 0"),
        ((*CANCEL, "harm_max"), 1.5, "harm_max"),
        ((*CANCEL, "risk_max"), -1.0, "risk_max"),
        ((*CANCEL, "rests_on"), {f"p{i}": {"claim": "a/b"} for i in range(49)}, "48 premises"),
        ((*STATUS, "claim"), "status", "a subject, a slash and an attribute"),
        ((*STATUS, "claim"), "/status", "a subject, a slash and an attribute"),
        ((*STATUS, "claim"), "order/", "a subject, a slash and an attribute"),
        ((*STATUS, "claim"), "order/{/status", "is no template"),
        ((*STATUS, "claim"), "order/{}/status", "may hold {argument} only"),
        ((*STATUS, "claim"), "order/{a.b}/status", "may hold {argument} only"),
        ((*STATUS, "claim"), "order/{a!r}/status", "may hold {argument} only"),
        ((*STATUS, "claim"), "order/{a:>9}/status", "may hold {argument} only"),
        ((*STATUS, "claim"), "order/{a}{b}/status", "where 'a' ends and 'b' begins"),
        ((*STATUS, "require"), {"argument": 5}, "require is a value"),
        ((*STATUS, "require"), {"one_of": []}, "require is a value"),
        ((*STATUS, "require"), {"one_of": "ab"}, "require is a value"),
        ((*STATUS, "require"), {"argument": "a", "one_of": [1]}, "require is a value"),
        ((*STATUS, "require"), {"one_off": [1]}, "require is a value"),
        ((*STATUS, "require"), 2**60, "must be JSON"),
        ((*STATUS, "verify_with"), ["loook"], "unknown verifier 'loook'; there is fetch, look"),
        ((*STATUS, "rests_on"), ["ownr"], "unknown premise 'ownr'; there is owner, status"),
        ((*STATUS, "rests_on"), ["status"], "in a circle"),
        ((*STATUS, "rests_on"), ["owner"], "one common cause"),
        ((*STATUS, "confidence"), 1.5, "confidence must be a probability"),
        ((*CANCEL, "causes", 0, "probability"), math.nan, "probability must be a probability"),
        ((*CANCEL, "causes", 0, "premises"), ["status", "ownr"], "unknown premise 'ownr'"),
        ((*CANCEL, "causes", 0, "premises"), ["owner", "owner"], "two premises or more"),
        ((*CANCEL, "causes"), WHOLE["actions"]["cancel"]["causes"] * 2, "one common cause"),
        ((*LOOK, "sensitivity"), 0.005, "right more often than chance"),
        ((*LOOK, "specificity"), 1.5, "specificity must be a probability"),
        ((*LOOK, "timeout_s"), 0.0, "timeout_s"),
        ((*LOOK, "timeout_s"), math.inf, "timeout_s"),
        ((*LOOK, "inconclusive"), 1.0, "inconclusive"),
        ((*LOOK, "fresh_s"), math.nan, "fresh_s"),
        ((*LOOK, "read"), "status", "read must be a path"),
        ((*LOOK, "read"), "$..status", "read must be a path"),
        ((*LOOK, "read_only"), False, "must be read-only"),
        ((*LOOK, "args"), {"a": math.nan}, "must be JSON"),
        ((*FETCH, "url"), "file:///etc/passwd", "url must begin with http"),
        ((*FETCH, "tool"), "get_order", "a tool or a url, not both"),
        (("defaults", "harm_max"), math.nan, "harm_max"),
        (("defaults", "check_weight"), math.inf, "check_weight"),
        (("defaults", "check_weight"), 1e200, "check_weight.*at most 1e.100"),
        ((*LOOK, "cost"), 1e200, "cost must be at least 0 and finite .at most 1e.100"),
        ((*CANCEL, "approval_s"), 1e13, "at most 3.16224e.07, a year"),
        (("defaults", "planner"), "best", "unknown planner 'best'; there is always_proceed"),
        (("defaults", "on_gate_error"), "proceed", "on_gate_error"),
    ],
)
def test_what_is_no_policy_is_refused(path: tuple[Any, ...], value: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse(changed(path, value))


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize(
    "path",
    [
        *((*CANCEL, "loss", name) for name in ("wrong", "abstain", "repair")),
        (*STATUS, "wrong"),
        (*LOOK, "cost"),
    ],
)
def test_a_price_that_is_none_is_refused_by_its_name(path: tuple[Any, ...], amount: float) -> None:
    with pytest.raises(PolicyError, match=f"'?{path[-1]}'? must be at least 0 and finite"):
        parse(changed(path, amount))


def test_more_critical_premises_than_can_be_thought_through_are_refused() -> None:
    """When the policy is read, rather than when an action waits for its answer."""
    many = {f"p{i}": {"claim": "a/b"} for i in range(13)}
    some = {**many, "p0": {"claim": "a/b", "wrong": 1}}
    loss = {"wrong": 9, "abstain": 1}

    assert parse(changed(CANCEL, {"loss": loss, "rests_on": some}))
    with pytest.raises(PolicyError, match="at most 12 critical premises"):
        parse(changed(CANCEL, {"loss": loss, "rests_on": many}))


def test_one_verifier_of_too_many_premises_is_refused() -> None:
    many = {f"p{i}": {"claim": "a/b", "verify_with": ["look"]} for i in range(9)}

    with pytest.raises(PolicyError, match="at most 8 premises of an action, 'look' checks 9"):
        parse(changed(CANCEL, {"loss": {"wrong": 9, "abstain": 1}, "rests_on": many}))


def test_unknown_names_are_told_also_where_none_is_known() -> None:
    data = changed(("verifiers",), {})

    with pytest.raises(PolicyError, match="unknown verifier 'look'; there is none"):
        parse(data)


def test_a_refusal_says_where() -> None:
    with pytest.raises(PolicyError, match=r"at actions\.cancel$"):
        parse(changed((*CANCEL, "permit_s"), 0.0))
    with pytest.raises(PolicyError, match=r"at verifiers\.look$"):
        parse(changed((*LOOK, "cost"), -1.0))


@pytest.mark.parametrize("data", [None, [], "x", {}, {"version": 1, "actions": []}])
def test_what_is_not_even_an_object_of_actions_is_refused(data: object) -> None:
    with pytest.raises(PolicyError, match="the policy is not valid"):
        parse(data)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_a_whole_rule(name: str) -> None:
    policy = parse({"version": 1, "actions": {"do": {"preset": name}}})
    rule = policy.actions["do"]

    assert rule.loss is not None
    assert rule.loss.wrong > rule.loss.abstain


def test_what_an_action_says_itself_goes_before_its_preset() -> None:
    rule = {"preset": "payment", "loss": {"wrong": 50.0}, "permit_s": 5.0}
    found = parse({"version": 1, "actions": {"pay": rule}}).actions["pay"]

    assert found.loss is not None
    assert (found.loss.wrong, found.loss.abstain, found.permit_s) == (50.0, 1.0, 5.0)
    assert found.approval
    assert with_preset({"loss": 5}, {"loss": {"wrong": 1}}) == {"loss": 5}


@pytest.mark.parametrize("preset", ["paymnt", ["payment"], None])
def test_an_unknown_preset_is_refused(preset: object) -> None:
    with pytest.raises(PolicyError, match=r"unknown preset .* at actions\.pay"):
        parse({"version": 1, "actions": {"pay": {"preset": preset}}})


def test_the_digest_tells_one_policy_from_another() -> None:
    """Decisions name the policy they were made under by it."""
    policy = parse(WHOLE)

    assert policy.digest() == parse(deepcopy(WHOLE)).digest() == policy.digest()
    assert parse(changed((*STATUS, "require"), "5")) != parse(changed((*STATUS, "require"), 5))
    digests = {parse(changed((*STATUS, "require"), one)).digest() for one in ("5", 5, None)}
    assert len(digests) == 3


def test_an_action_without_losses_has_no_prices() -> None:
    with pytest.raises(PolicyError, match="has no prices"):
        Policy(version=1).prices(ActionRule(effect="read"))


def test_the_fields_of_a_template_are_arguments() -> None:
    assert claim_fields("{a}/{b}/{a}") == ["a", "b", "a"]
    assert claim_fields("a/{{b}}") == []
    assert claim_fields("{a}{{{b}/c") == ["a", "b"]
