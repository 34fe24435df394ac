"""Budgets: however small each action is, together they never come to more than the limit."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import amv
from amv.guard.policy import parse
from amv.guard.ports import State
from amv.testing import FakeClock
from tests.guard.gates import opened

DAY_S = 86_400.0
LOSS = {"wrong": 1.0, "abstain": 5.0}


def pay(amount: object = 90, number: int = 0, **how: Any) -> amv.Action:
    """Return a payment; *number* tells one from another of the same amount."""
    how = {"namespace": ("alice",), **how}
    return amv.Action("pay", {"amount": amount, "number": number}, **how)


def policy(limit: float = 500, *, rule: dict[str, Any] | None = None, **budget: Any) -> Any:
    taken = {"of": "payouts", "amount": {"argument": "amount"}}
    action = {"loss": LOSS, "free": ["amount", "number"], "budget": taken, **(rule or {})}
    budgets = {"payouts": {"limit": limit, **budget}}
    return {"version": 1, "budgets": budgets, "actions": {"pay": action, "other": action}}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == "memory" else str(tmp_path / "amv.db")


@pytest.fixture
def guard(where: str, clock: FakeClock) -> Iterator[amv.Guard]:
    with opened(where, policy=policy(), clock=clock) as guard:
        yield guard


def settled(guard: amv.Guard, action: amv.Action, state: State = State.SUCCEEDED) -> amv.Decision:
    """Decide about an action and, if it may, execute it."""
    decision = guard.decide(action)
    if decision.permit is not None:
        key = guard.redeem(decision.permit.token, action)
        guard.dispatched(key)
        guard.settle(key, state)
    return decision


def test_ten_payments_of_90_do_not_evade_a_limit_of_500(guard: amv.Guard) -> None:
    said = [settled(guard, pay(number=number)) for number in range(10)]

    assert [one.verdict for one in said] == ["PROCEED"] * 5 + ["ABSTAIN"] * 5
    assert {one.code for one in said[5:]} == {"over_budget"}
    assert said[5].permit is None
    assert said[5].reason == (
        "it would take 90 of the budget 'payouts', of which 450 of 500 were granted in the last "
        "86400 s"
    )
    # What is left can still be spent, to the last, by any tool that takes of it.
    other = amv.Action("other", {"amount": 50}, namespace=("alice",))
    assert settled(guard, other).verdict == "PROCEED"
    assert settled(guard, pay(0.01)).code == "over_budget"
    assert guard.replay() == []


def test_a_permit_counts_from_when_it_is_given(guard: amv.Guard, clock: FakeClock) -> None:
    """Otherwise all ten would be decided about before the first is executed."""
    held = [guard.decide(pay(number=number)) for number in range(6)]
    assert [one.code for one in held] == ["judged"] * 5 + ["over_budget"]

    clock.advance(60)

    assert guard.decide(pay(number=5)).verdict == "PROCEED"


def test_the_same_call_takes_its_share_once(guard: amv.Guard) -> None:
    for _ in range(10):
        assert guard.decide(pay(300)).verdict == "PROCEED"
    assert guard.decide(pay(200, 1)).verdict == "PROCEED"
    assert settled(guard, pay(300)).verdict == "PROCEED"
    assert guard.decide(pay(300)).code == "granted_before"


@pytest.mark.parametrize(
    ("state", "is_given_back"),
    [(State.SUCCEEDED, False), (State.UNKNOWN, False), (State.FAILED, True)],
)
def test_only_what_surely_did_nothing_is_given_back(
    guard: amv.Guard, state: State, is_given_back: bool
) -> None:
    settled(guard, pay(500), state)

    assert (guard.decide(pay(1, 1)).verdict == "PROCEED") is is_given_back


def test_a_grant_counts_until_its_window_is_over(guard: amv.Guard, clock: FakeClock) -> None:
    settled(guard, pay(500))
    clock.advance(DAY_S - 1)
    assert guard.decide(pay(1, 1)).code == "over_budget"

    clock.advance(1)

    assert guard.decide(pay(500, 1)).verdict == "PROCEED"


HOLDERS: dict[str, dict[str, bool]] = {
    # Whether an action of another namespace, principal or session has a budget of its own.
    "namespace": {"namespace": True, "principal": False, "session": False},
    "principal": {"namespace": True, "principal": True, "session": False},
    "session": {"namespace": True, "principal": True, "session": True},
}


@pytest.mark.parametrize("per", HOLDERS)
@pytest.mark.parametrize("changed", ["namespace", "principal", "session"])
def test_a_budget_is_that_of_its_holder(per: str, changed: str) -> None:
    who: dict[str, Any] = {"namespace": ("alice",), "principal": "p", "session": "s"}
    other = {**who, changed: ("bob",) if changed == "namespace" else "other"}
    with opened(policy=policy(100, per=per)) as guard:
        settled(guard, pay(100, **who))

        assert guard.decide(pay(1, 1, **who)).code == "over_budget"
        is_own = guard.decide(pay(1, 2, **other)).verdict == "PROCEED"
        assert is_own is HOLDERS[per][changed]


def test_an_approval_lifts_no_budget() -> None:
    """It takes the place of the screen, which is about this action alone."""
    rule = {"approval": True, "free": ["amount"], "loss": {"wrong": 9.0, "abstain": 1.0}}
    with opened(policy=policy(100, rule=rule)) as guard:
        first, asked = (guard.decide(pay(60, number)).approval_id for number in (1, 2))
        for request in (first, asked):
            guard.approve(request, by="Eve")
        assert guard.decide(pay(60, 1), approval_id=first).verdict == "PROCEED"

        decision = guard.decide(pay(60, 2), approval_id=asked)

        assert (decision.verdict, decision.code) == ("ABSTAIN", "over_budget")
        assert guard.approvals.get(asked).state == "approved"


@pytest.mark.parametrize(
    ("amount", "taken"), [({}, 1.0), ({"amount": 3}, 3.0), ({"amount": 2.5}, 2.5)]
)
def test_without_an_argument_each_call_takes_the_same(amount: Any, taken: float) -> None:
    """What a wrong execution loses, unless the policy names a number."""
    rule = {"budget": {"of": "payouts", **amount}}
    with opened(policy=policy(2 * taken, rule=rule)) as guard:
        codes = [settled(guard, pay(1e9, number)).code for number in range(3)]

    assert codes == ["judged", "judged", "over_budget"]


def test_tenths_add_up_to_one() -> None:
    with opened(policy=policy(1.0)) as guard:
        codes = [settled(guard, pay(0.1, number)).code for number in range(11)]

    assert codes == ["judged"] * 10 + ["over_budget"]


@pytest.mark.parametrize("least", [1e-9, 3e-86, 5e-324])
def test_nothing_is_too_little_to_count(least: float) -> None:
    """Were sums rounded, what is over the limit would be at it."""
    with opened(policy=policy(200.0)) as guard:
        codes = [settled(guard, pay(amount)).code for amount in (150.0, least, 50.0)]

    assert codes == ["judged", "judged", "over_budget"]


@pytest.mark.parametrize("amount", [-1, -0.01, "90", None, True, [90], {"value": 90}])
@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_an_amount_that_is_none_is_an_error(amount: object, mode: str) -> None:
    """A negative one would make room for others; nothing is recorded of it."""
    with opened(policy={**policy(), "mode": mode}) as guard:
        with pytest.raises(amv.InvalidInput, match="the amount in the argument 'amount'"):
            guard.decide(pay(amount))
        with pytest.raises(amv.InvalidInput, match="needs the argument 'amount'"):
            guard.decide(amv.Action("pay", {"number": 1}, namespace=("alice",)))
        assert guard.decided() == 0


def test_shadow_mode_grants_nothing_and_counts_nothing() -> None:
    with opened(policy={**policy(), "mode": "shadow"}) as guard:
        assert {guard.decide(pay(number=n)).code for n in range(10)} == {"judged"}


def test_of_many_that_are_decided_about_at_once_only_so_many_get_a_permit(where: str) -> None:
    """The sum is read in the transaction that grants, so none is granted on an old one."""
    start = threading.Barrier(16)
    with opened(where, policy=policy()) as guard:

        def decide(number: int) -> str:
            start.wait()
            return guard.decide(pay(number=number)).verdict

        with ThreadPoolExecutor(16) as pool:
            said = list(pool.map(decide, range(16)))

    assert said.count("PROCEED") == 5


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["SUCCEEDED", "UNKNOWN", "FAILED", "held", "reserved"]),
        st.one_of(st.integers(0, 120), st.floats(0, 120)),
        st.integers(0, 6),
        st.sampled_from([0.0, 1.0, 61.0, 500.0]),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_no_sequence_comes_to_more_than_the_limit(
    steps: list[tuple[str, float, int, float]],
) -> None:
    """Whatever is granted, settled or left lying, in any order, in any window."""
    clock, window_s, limit = FakeClock(), 1000.0, 200
    # By key: when it was granted, how much, and until when its permit is good if it is not used.
    granted: dict[tuple[float, int], tuple[float, Fraction, float | None]] = {}
    with opened(policy=policy(limit, window_s=window_s), clock=clock) as guard:
        for how, amount, number, wait_s in steps:
            clock.advance(wait_s)
            now_s, action = clock(), pay(amount, number)
            decision = guard.decide(action)
            if decision.permit is not None:
                exact = Fraction(str(amount))
                granted[amount, number] = (now_s, exact, decision.permit.expires_s)
                if how != "held":
                    key = guard.redeem(decision.permit.token, action)
                    granted[amount, number] = (now_s, exact, None)
                if how in State.__members__:
                    guard.dispatched(key)
                    guard.settle(key, State(how))
                if how == "FAILED":
                    del granted[amount, number]
            standing = [
                taken
                for at_s, taken, until_s in granted.values()
                if at_s > now_s - window_s and (until_s is None or until_s > now_s)
            ]
            assert sum(standing) <= limit
            is_over = decision.code == "over_budget"
            assert not is_over or sum(standing) + Fraction(str(amount)) > limit


BAD: list[tuple[dict[str, Any], str]] = [
    ({"limit": -1}, "limit"),
    ({"limit": float("nan")}, "limit"),
    ({"limit": float("inf")}, "limit"),
    ({"limit": 1, "window_s": 0}, "window_s"),
    ({"limit": 1, "window_s": float("inf")}, "window_s"),
    ({"limit": 1, "per": "tool"}, "per"),
    ({"limit": 1, "each": 1}, "each"),
]


@pytest.mark.parametrize(("budget", "says"), BAD)
def test_a_budget_that_is_none_is_refused(budget: dict[str, Any], says: str) -> None:
    with pytest.raises(amv.PolicyError, match=says):
        parse({"version": 1, "budgets": {"b": budget}})


@pytest.mark.parametrize(
    "taken",
    [
        {"of": "unheard_of"},
        {"of": "payouts", "amount": -1},
        {"of": "payouts", "amount": "90"},
        {"of": "payouts", "amount": {"argument": 5}},
        {"of": "payouts", "amount": {"argument": "amount", "times": 2}},
        {"of": "payouts", "amount": None},
        {"amount": 1},
    ],
)
def test_what_takes_of_no_budget_is_refused(taken: dict[str, Any]) -> None:
    with pytest.raises(amv.PolicyError):
        parse(policy(rule={"budget": taken}))


def test_nobody_is_asked_for_what_no_approval_would_lift() -> None:
    """A person would approve it in vain."""
    rule = {"loss": {"wrong": 100.0, "abstain": 5.0}, "approval": True}
    rests_on = {"status": {"claim": "order/{number}/status"}}
    with opened(policy=policy(500, rule={**rule, "rests_on": rests_on})) as guard:
        few, much = guard.decide(pay(500)), guard.decide(pay(501))

        assert (few.verdict, bool(few.approval_id)) == ("ABSTAIN", True)
        assert (much.verdict, much.code, much.approval_id) == ("ABSTAIN", "over_budget", "")
        assert len(guard.approvals.list()) == 1
