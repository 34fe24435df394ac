"""What a caller may pass by mistake or on purpose: an error that says so, and nothing done."""

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import amv
from amv.errors import PolicyError
from amv.guard.loss import PRICE_MAX
from amv.guard.policy import Policy, parse
from amv.guard.ports import State
from tests.guard.gates import OWNER, cancel, opened, remember


def _deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def _cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


ODD: dict[str, Any] = {
    "NaN": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "-1": -1,
    "10**400": 10**400,
    "10**5000": 10**5000,
    "1e308": 1e308,
    "text": "none such",
    "surrogate": "\ud800",
    "NUL": "\0",
    "true": True,
    "null": None,
    "list": [],
    "mapping": {},
    "numbered": {1: 2},
    "bytes": b"x",
    "object": object(),
    "deep": _deep(5000),
    "cycle": _cycle(),
    "set": {1},
    "NOT_FOUND": amv.NOT_FOUND,
}
Call = Callable[[amv.Guard, str, Any], object]

CALLS: dict[str, Call] = {
    "decide: arguments": lambda g, _, odd: g.decide(
        amv.Action("cancel_order", odd, namespace=OWNER)
    ),
    "decide: action": lambda g, _, odd: g.decide(odd),
    "decide: session": lambda g, _, odd: g.decide(amv.Action("cancel_order", session=odd)),
    "decide: principal": lambda g, _, odd: g.decide(amv.Action("cancel_order", principal=odd)),
    "decide: order_id": lambda g, _, odd: g.decide(cancel([odd])),
    "evidence: decision": lambda g, _, odd: g.evidence(odd, "order_status", "pending"),
    "evidence: verifier": lambda g, one, odd: g.evidence(one, odd, "pending"),
    "label: decision": lambda g, _, odd: g.label(odd, {"status": True}),
    "label: truth": lambda g, one, odd: g.label(one, odd),
    "label: premise": lambda g, one, odd: g.label(one, {str(type(odd)): True}),
    "label: value": lambda g, one, odd: g.label(one, {"status": [odd]}),  # type: ignore[dict-item]
    "label: weight": lambda g, one, odd: g.label(one, {"status": True}, weight=[odd]),  # type: ignore[arg-type]
    "label: by": lambda g, one, odd: g.label(one, {"status": True}, by=[odd]),  # type: ignore[arg-type]
    "redeem: permit": lambda g, _, odd: g.redeem(odd, cancel()),
    "redeem: action": lambda g, _, odd: g.redeem("permit", odd),
    "settle: key": lambda g, _, odd: g.settle(odd, State.FAILED),
    "settle: state": lambda g, _, odd: g.settle("key", odd),
    "approve: request": lambda g, _, odd: g.approve(odd, by="ann"),
    "approvals: state": lambda g, _, odd: g.approvals.list([odd]),  # type: ignore[arg-type]
    "approvals: after": lambda g, _, odd: g.approvals.list(after=[odd]),  # type: ignore[arg-type]
    "approvals: limit": lambda g, _, odd: g.approvals.list(limit=[odd]),  # type: ignore[arg-type]
    "get": lambda g, _, odd: g.get(odd),
    "explain": lambda g, _, odd: g.explain(odd),
    "number_of": lambda g, _, odd: g.number_of(odd),
    "rank": lambda g, _, odd: g.rank([odd]),
    "decisions: after": lambda g, _, odd: g.decisions(after=[odd]),  # type: ignore[arg-type]
    "decisions: limit": lambda g, _, odd: g.decisions(limit=[odd]),  # type: ignore[arg-type]
    "decisions: verdict": lambda g, _, odd: g.decisions(verdict=[odd]),  # type: ignore[arg-type]
    "certify: epsilon": lambda g, _, odd: g.certify(epsilon=[odd]),  # type: ignore[arg-type]
    "certify: delta": lambda g, _, odd: g.certify(delta=[odd]),  # type: ignore[arg-type]
    "adopt": lambda g, _, odd: g.adopt(odd, g.ground),
    "reconcile": lambda g, _, odd: g.reconcile([odd]),  # type: ignore[arg-type]
}


@pytest.fixture(scope="module", params=["file", "process"])
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[amv.Guard, str]]:
    """Give a gate, and a decision of its that asks for a check."""
    path = (
        str(tmp_path_factory.mktemp("gate") / "amv.db") if request.param == "file" else ":memory:"
    )
    with opened(path) as guard:
        remember(guard)
        decision = guard.decide(cancel(), run_checks=False)
        assert decision.check is not None
        yield guard, decision.id


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("call", CALLS)
def test_what_can_not_be_meant_is_an_error_and_does_nothing(
    asked: tuple[amv.Guard, str], call: str, odd: str
) -> None:
    guard, decision_id = asked
    before = guard.last_hash()

    with pytest.raises(amv.AmvError):
        CALLS[call](guard, decision_id, ODD[odd])

    assert guard.last_hash() == before


@pytest.mark.parametrize("number", [-1, 1 << 63, 1.5, "1", None, True])
def test_a_number_that_is_none_is_refused_wherever_one_is_counted(
    asked: tuple[amv.Guard, str], number: Any
) -> None:
    guard, _ = asked
    for call in (
        lambda: guard.decisions(after=number),
        lambda: guard.decisions(limit=number),
        lambda: guard.approvals.list(limit=number if number is not None else -1),
    ):
        with pytest.raises(amv.InvalidInput, match="whole number"):
            call()


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 1e300, 10**400, "60", None])
def test_a_time_that_is_none_marks_nothing(asked: tuple[amv.Guard, str], seconds: Any) -> None:
    guard, _ = asked

    with pytest.raises(amv.InvalidInput, match="need a number of seconds"):
        guard.reconcile(seconds)


WHOLE: dict[str, Any] = {
    "version": 1,
    "mode": "enforce",
    "defaults": {
        "unknown_tool": "commit",
        "on_gate_error": "abstain",
        "harm_max": 0.05,
        "risk_max": 10.0,
        "audit": 0.1,
        "check_weight": 1.0,
        "planner": "default",
    },
    "verifiers": {
        "v": {
            "tool": "t",
            "url": None,
            "args": {"id": "$id"},
            "read": "$.a",
            "cost": 0.1,
            "timeout_s": 1.0,
            "sensitivity": 0.9,
            "specificity": 0.9,
            "inconclusive": 0.1,
            "group": "g",
            "fresh_s": 1.0,
            "by_client": False,
            "read_only": True,
        }
    },
    "budgets": {"b": {"limit": 10.0, "window_s": 10.0, "per": "principal"}},
    "actions": {
        "a": {
            "loss": {"wrong": 100.0, "abstain": 5.0, "repair": 1.0},
            "effect": "commit",
            "rests_on": {
                "p": {
                    "claim": "o/{id}/s",
                    "require": "x",
                    "kind": "k",
                    "verify_with": ["v"],
                    "wrong": 50.0,
                    "rests_on": [],
                    "confidence": 0.9,
                },
                "q": {"claim": "o/{id}/t", "rests_on": ["p"]},
            },
            "causes": [],
            "free": ["f"],
            "idempotency": {"key": ["id"]},
            "harm_max": 0.1,
            "risk_max": 5.0,
            "audit": 0.2,
            "permit_s": 10.0,
            "approval": True,
            "approval_s": 10.0,
            "budget": {"of": "b", "amount": 1.0},
        }
    },
}


def _paths(part: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in part.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _paths(value, (*above, name))


@pytest.mark.parametrize("path", list(_paths(WHOLE)), ids=".".join)
def test_a_field_of_a_policy_takes_a_value_or_refuses_it_as_one(path: tuple[str, ...]) -> None:
    """Whatever stands there; where it is taken, decisions can be made by it."""
    refused = 0
    for value in ODD.values():
        data = copy.deepcopy(WHOLE)
        part = data
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = value
        try:
            policy = parse(data)
        except PolicyError:
            refused += 1
            continue
        _use(policy)

    assert refused >= 4


def _use(policy: Policy) -> None:
    with opened(policy=policy) as guard:  # type: ignore[arg-type]
        guard.verifier("t")(lambda id: {"a": "x"})
        claim = amv.Claim("o/1", "s", "x")
        guard.memory.add("x", namespace=OWNER, claim=claim, source_trust=0.9)
        guard.decide(amv.Action("a", {"id": "1"}, namespace=OWNER))
        guard.lint()
        assert guard.replay() == []


@pytest.mark.parametrize("read", ["x", "y"])
def test_what_is_counted_with_the_greatest_prices_can_be_read_again(read: str) -> None:
    """What overflows would be written as null, and no record of the log be read after that."""
    data = copy.deepcopy(WHOLE)
    data["defaults"]["check_weight"] = PRICE_MAX
    for verifier in data["verifiers"].values():
        verifier["cost"] = PRICE_MAX
    data["actions"]["a"]["loss"] = {"wrong": PRICE_MAX, "abstain": PRICE_MAX, "repair": PRICE_MAX}
    with opened(policy=parse(data)) as guard:  # type: ignore[arg-type]
        guard.verifier("t")(lambda id: {"a": read})
        for run_checks in (True, False):
            action = amv.Action("a", {"id": "1"}, namespace=OWNER)
            decision = guard.decide(action, run_checks=run_checks)
            assert decision.expected_loss <= PRICE_MAX
        assert len(guard.decisions()) == 2
        assert guard.replay() == []
        with guard._store.read() as reader:
            assert not any(b"null" in _numbers(row.body) for row in reader.records())


def _numbers(body: bytes) -> bytes:
    """Return what a record says of losses and values."""
    found = json.loads(body).get("judgement") or {}
    return json.dumps([found.get(name, 0) for name in ("expected_loss", "proceed", "voi")]).encode()


def test_control_the_whole_policy_is_one() -> None:
    _use(parse(WHOLE))
