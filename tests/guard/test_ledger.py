"""The ledger: at most one grant for each key, whatever order things happen in."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
)

import amv
from amv.guard.decision import Words
from amv.guard.ledger import STEPPED_S, key_of
from amv.guard.policy import ActionRule, Idempotency
from amv.guard.ports import LedgerRow, State
from amv.testing import FakeClock
from tests.guard.gates import OWNER, cancel, opened, policy_of, remember

EDGES = {
    None: {State.APPROVED},
    State.APPROVED: {State.APPROVED, State.RESERVED},
    State.RESERVED: {State.DISPATCHED, State.FAILED, State.UNKNOWN},
    State.DISPATCHED: {State.SUCCEEDED, State.FAILED, State.UNKNOWN},
    State.UNKNOWN: {State.SUCCEEDED, State.FAILED},
    State.SUCCEEDED: set(),
    State.FAILED: {State.APPROVED},
}
"""From where to where the ledger says that an execution may go; None: it is not there."""

ORDERS = ("W1", "W2")
PERMIT_S = 60.0


def ready(path: str = ":memory:", clock: FakeClock | None = None) -> amv.Guard:
    """Return a gate that lets both orders be cancelled."""
    guard = opened(path, clock=clock)
    guard.verifier("order_status")(lambda order_id: "pending")
    for order_id in ORDERS:
        remember(guard, order_id=order_id)
    return guard


@pytest.fixture(params=["memory", "sqlite"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[amv.Guard]:
    where = ":memory:" if request.param == "memory" else str(tmp_path / "amv.db")
    with ready(where, FakeClock()) as guard:
        yield guard


def token_of(decision: amv.Decision) -> str:
    """Return the permit that a decision must have given."""
    assert decision.permit is not None, decision.says
    return decision.permit.token


class Ledger(RuleBasedStateMachine):
    """The gate against a model: by key, the state, its digest and the permit that stands."""

    path = ":memory:"
    permits: Bundle[Any] = Bundle("permits")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.guard = ready(self.path, self.clock)
        self.states: dict[str, State] = {}
        self.standing: dict[str, tuple[str, str, float]] = {}
        self.executing: dict[str, int] = {}
        self.granted: dict[str, list[str]] = {}
        self.failed: dict[str, int] = {}

    def teardown(self) -> None:
        assert self.guard.replay() == []
        self.guard.close()

    def step(self, key: str, state: State) -> None:
        assert state in EDGES[self.states.get(key)], (self.states.get(key), state)
        self.states[key] = state
        if state is State.FAILED:
            self.failed[key] = self.failed.get(key, 0) + 1

    @rule(target=permits, order=st.sampled_from(ORDERS), note=st.sampled_from([None, "a", "b"]))
    def decide(self, order: str, note: str | None) -> Any:
        """A key is granted if nothing was, if the permit was not used, or if the call failed."""
        action = cancel(order) if note is None else cancel(order, note=note)
        decision = self.guard.decide(action)
        if self.states.get(order) not in (None, State.APPROVED, State.FAILED):
            assert (decision.verdict, decision.code) == ("ABSTAIN", "granted_before")
            assert decision.permit is None
            return None
        token = token_of(decision)
        self.granted.setdefault(order, []).append(decision.id)
        self.step(order, State.APPROVED)
        self.standing[order] = (token, action.digest(), self.clock() + PERMIT_S)
        return token, action, order

    @rule(permit=permits, order=st.sampled_from(ORDERS), note=st.sampled_from([None, "a", "b"]))
    def redeem(self, permit: Any, order: str, note: str | None) -> None:
        """Only the permit that stands, for its very action, before it expires, and once."""
        if permit is None:
            return
        token, _, key = permit
        action = cancel(order) if note is None else cancel(order, note=note)
        standing = self.standing.get(key, ("", "", 0.0))
        is_good = (
            standing[:2] == (token, action.digest())
            and self.states[key] is State.APPROVED
            and self.clock() < standing[2]
        )
        if not is_good:
            with pytest.raises(amv.PermitRefused):
                self.guard.redeem(token, action)
            return
        self.guard.redeem(token, action)
        self.step(key, State.RESERVED)
        self.executing[key] = self.executing.get(key, 0) + 1

    @rule(permit=consumes(permits))
    def redeem_as_granted(self, permit: Any) -> None:
        """The ordinary case, so that it is not left to luck."""
        if permit is not None:
            action = permit[1]
            note = action.arguments.get("note")
            self.redeem(permit, action.arguments["order_id"], note)

    def moved(self, order: str, state: State, move: Callable[[str], object]) -> None:
        if order not in self.states:
            return
        decision_id = self.granted[order][-1]
        if state in EDGES[self.states[order]] - {State.APPROVED, State.RESERVED}:
            move(decision_id)
            self.step(order, state)
        else:
            with pytest.raises(amv.Conflict):
                move(decision_id)
        for earlier in self.granted.get(order, [])[:-1]:
            # What became of an earlier call says nothing of this one.
            with pytest.raises(amv.Conflict):
                move(earlier)

    @rule(order=st.sampled_from(ORDERS))
    def dispatched(self, order: str) -> None:
        self.moved(order, State.DISPATCHED, self.guard.dispatched)

    @rule(
        order=st.sampled_from(ORDERS),
        state=st.sampled_from([State.SUCCEEDED, State.FAILED, State.UNKNOWN]),
    )
    def settle(self, order: str, state: State) -> None:
        self.moved(order, state, lambda one: self.guard.settle(one, state))

    @rule(older_than_s=st.sampled_from([-1.0, 45.0]))
    def reconcile(self, older_than_s: float) -> None:
        """All reserved or dispatched before that is UNKNOWN now, and nothing else has moved."""
        for decision_id in self.guard.reconcile(older_than_s):
            order = next(order for order, ids in self.granted.items() if ids[-1] == decision_id)
            self.step(order, State.UNKNOWN)
        if older_than_s < 0:
            assert not {State.RESERVED, State.DISPATCHED} & set(self.states.values())

    @rule(seconds=st.sampled_from([1.0, 30.0, PERMIT_S]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def at_most_one_execution_may_have_had_an_effect(self) -> None:
        """All others are known to have failed."""
        for order, count in self.executing.items():
            assert count - self.failed.get(order, 0) <= 1


class LedgerInFile(Ledger):
    """The same over SQLite."""

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.path = str(Path(self.folder.name) / "amv.db")
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestLedgerInMemory = Ledger.TestCase
TestLedgerInMemory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLedgerInFile = LedgerInFile.TestCase
TestLedgerInFile.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize(
    ("granted", "asked"),
    [
        ({"order_id": "W1", "note": 5}, {"order_id": "W1", "note": "5"}),
        ({"order_id": "W1", "note": None}, {"order_id": "W1"}),
        ({"order_id": "W1"}, {"order_id": "W1", "note": None}),
        ({"order_id": "W1", "note": 1}, {"order_id": "W1", "note": True}),
        ({"order_id": "W1", "note": "é"}, {"order_id": "W1", "note": "e\u0301"}),
        ({"order_id": "W1"}, {"order_id": "W2"}),
    ],
)
def test_a_permit_is_bound_to_the_very_arguments(
    guard: amv.Guard, granted: dict[str, Any], asked: dict[str, Any]
) -> None:
    def action(arguments: dict[str, Any]) -> amv.Action:
        return amv.Action(tool="cancel_order", arguments=arguments, namespace=OWNER)

    token = token_of(guard.decide(action(granted)))

    with pytest.raises(amv.PermitRefused, match="for other arguments"):
        guard.redeem(token, action(asked))
    guard.redeem(token, action(granted))


@pytest.mark.parametrize("field", ["tool", "namespace", "principal"])
def test_a_permit_is_bound_to_tool_namespace_and_principal(guard: amv.Guard, field: str) -> None:
    token = token_of(guard.decide(cancel()))
    other = {"tool": "look", "namespace": ("bob",), "principal": "bob"}
    fields = {"tool": "cancel_order", "namespace": OWNER, "principal": ""}
    fields[field] = other[field]

    with pytest.raises(amv.PermitRefused):
        guard.redeem(token, amv.Action(arguments={"order_id": "W1"}, **fields))  # type: ignore[arg-type]


def test_the_order_of_arguments_does_not_matter(guard: amv.Guard) -> None:
    token = token_of(guard.decide(cancel(note="x")))
    turned = amv.Action(
        tool="cancel_order", arguments={"note": "x", "order_id": "W1"}, namespace=OWNER
    )

    guard.redeem(token, turned)


@pytest.mark.parametrize("token", ["", "made up", "\ud800"])
def test_a_permit_that_was_never_given_is_refused(guard: amv.Guard, token: str) -> None:
    with pytest.raises(amv.PermitRefused, match="no such permit"):
        guard.redeem(token, cancel())


@pytest.mark.parametrize(("back_s", "is_good"), [(STEPPED_S, True), (STEPPED_S + 1.0, False)])
def test_a_clock_that_is_put_back_makes_no_permit_last(
    guard: amv.Guard, back_s: float, is_good: bool
) -> None:
    """As what was checked for it is as old as nobody knows."""
    token = token_of(guard.decide(cancel()))
    guard._clock.advance(-back_s)  # type: ignore[attr-defined]

    if is_good:
        guard.redeem(token, cancel())
    else:
        with pytest.raises(amv.PermitRefused, match="the clock was put back"):
            guard.redeem(token, cancel())
        guard.redeem(token_of(guard.decide(cancel())), cancel())


def test_a_permit_expires(guard: amv.Guard) -> None:
    decision = guard.decide(cancel())
    guard._clock.advance(PERMIT_S)  # type: ignore[attr-defined]

    with pytest.raises(amv.PermitRefused, match="expired"):
        guard.redeem(token_of(decision), cancel())
    # A new decision gives a new permit.
    guard.redeem(token_of(guard.decide(cancel())), cancel())


Record = Callable[[str, object], None]


def test_one_of_32_that_redeem_a_permit_wins(guard: amv.Guard, record_property: Record) -> None:
    token = token_of(guard.decide(cancel()))
    start = threading.Barrier(32)

    def redeem(_: int) -> bool:
        start.wait()
        try:
            guard.redeem(token, cancel())
        except amv.PermitRefused:
            return False
        return True

    with ThreadPoolExecutor(32) as pool:
        won = sum(pool.map(redeem, range(32)))

    record_property("redeemers in one process", 32)
    record_property("grants", won)
    assert won == 1
    assert guard.replay() == []


REDEEMING = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
import amv
from tests.guard.gates import cancel, opened

path, token = sys.argv[1:]

def redeem(_):
    start.wait()
    try:
        guard.redeem(token, cancel())
    except amv.PermitRefused:
        return False
    return True

with opened(path) as guard, ThreadPoolExecutor(8) as pool:
    start = threading.Barrier(9)
    found = [pool.submit(redeem, n) for n in range(8)]
    print("ready", flush=True)
    sys.stdin.readline()
    start.wait()
    print(sum(one.result() for one in found), flush=True)
"""
"""Redeems a permit 8 times at once, when it is told to; says how often that was granted."""


def test_one_of_32_in_four_processes_that_redeem_a_permit_wins(
    tmp_path: Path, record_property: Record
) -> None:
    path, counts = str(tmp_path / "amv.db"), []
    with ready(path) as guard:
        for order_id in ("W1", "W2"):
            # The second time, for an action that the permit is not for.
            token = token_of(guard.decide(cancel(order_id)))
            children = [
                subprocess.Popen(
                    [sys.executable, "-c", REDEEMING, path, token],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for _ in range(4)
            ]
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
            said = [child.communicate("go\n")[0] for child in children]
            counts.append(sum(map(int, said)))
        assert guard.replay() == []

    record_property("redeemers in four processes", 32)
    record_property("grants", counts[0])
    assert counts == [1, 0]


def test_of_32_that_decide_about_one_key_at_most_one_executes(
    guard: amv.Guard, record_property: Record
) -> None:
    """Each may be granted the key, in the place of the one before; one permit is redeemed."""
    start = threading.Barrier(32)
    executed: list[int] = []

    def decide(number: int) -> None:
        start.wait()
        decision = guard.decide(cancel(note=number % 3))
        if decision.permit is None:
            return
        try:
            decision_id = guard.redeem(decision.permit.token, cancel(note=number % 3))
        except amv.PermitRefused:
            return
        guard.dispatched(decision_id)
        executed.append(number)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(decide, range(32)))

    record_property("deciders", 32)
    record_property("executions", len(executed))
    assert len(executed) == 1
    assert guard.replay() == []


def test_control_without_the_ledger_many_would_execute(guard: amv.Guard) -> None:
    """Or the tests above would prove nothing: without a key in common all are granted."""
    executed = 0
    for number in range(8):
        action = amv.Action(
            tool="cancel_order",
            arguments={"order_id": "W1"},
            principal=str(number),
            namespace=OWNER,
        )
        guard.redeem(token_of(guard.decide(action)), action)
        executed += 1

    assert executed == 8


def test_what_is_reconciled_is_unknown_and_not_granted_again(guard: amv.Guard) -> None:
    decision_id = guard.redeem(token_of(guard.decide(cancel())), cancel())
    guard.dispatched(decision_id)
    assert guard.reconcile(0.0) == []
    guard._clock.advance(1.0)  # type: ignore[attr-defined]

    assert guard.reconcile(0.5) == [decision_id]
    assert guard.reconcile(0.5) == []
    again = guard.decide(cancel())
    assert (again.code, again.permit) == ("granted_before", None)
    assert "this very action before, which is UNKNOWN" in again.reason
    assert "another action" in guard.decide(cancel(note="x")).reason
    guard.settle(decision_id, State.FAILED)
    assert guard.decide(cancel()).verdict == "PROCEED"


def test_a_permit_that_another_took_the_place_of_says_so(guard: amv.Guard) -> None:
    """Nothing is wrong with its action or its arguments."""
    first, second = guard.decide(cancel()), guard.decide(cancel())

    with pytest.raises(amv.PermitRefused, match="a later decision under the same idempotency key"):
        guard.redeem(token_of(first), cancel())
    # Whoever has another action is told no more than of a permit that never was.
    with pytest.raises(amv.PermitRefused, match="no such permit"):
        guard.redeem(token_of(first), cancel("W2"))
    guard.redeem(token_of(second), cancel())


def test_a_permit_of_another_action_under_the_key_says_so_too(guard: amv.Guard) -> None:
    first = guard.decide(cancel(note="a"))
    guard.decide(cancel(note="b"))

    with pytest.raises(amv.PermitRefused, match="given another in its place"):
        guard.redeem(token_of(first), cancel(note="a"))


def test_what_was_only_reserved_is_reconciled_too(guard: amv.Guard) -> None:
    """A crash between the two steps must not keep a key for ever."""
    decision_id = guard.redeem(token_of(guard.decide(cancel())), cancel())
    guard._clock.advance(1.0)  # type: ignore[attr-defined]

    assert guard.reconcile(0.5) == [decision_id]
    # Whoever was only slow must not make the call after all.
    with pytest.raises(amv.Conflict, match="UNKNOWN can't become DISPATCHED"):
        guard.dispatched(decision_id)
    assert guard.decide(cancel()).code == "granted_before"
    guard.settle(decision_id, State.FAILED)
    assert guard.decide(cancel()).verdict == "PROCEED"
    assert guard.replay() == []


@pytest.mark.parametrize("to", [State.DISPATCHED, State.SUCCEEDED])
def test_a_call_that_goes_on_meanwhile_is_not_reconciled(guard: amv.Guard, to: State) -> None:
    decision_id = guard.redeem(token_of(guard.decide(cancel())), cancel())
    if to is State.SUCCEEDED:
        guard.dispatched(decision_id)
    guard._clock.advance(1.0)  # type: ignore[attr-defined]
    mark = guard._mark_unknown

    def late(row: LedgerRow) -> bool:
        if to is State.DISPATCHED:
            guard.dispatched(decision_id)
        else:
            guard.settle(decision_id, to)
        return mark(row)

    guard._mark_unknown = late  # type: ignore[method-assign]

    assert guard.reconcile(0.5) == []
    with guard._store.read() as reader:
        row = reader.ledger_of(decision_id)
    assert row is not None
    assert row.state is to


@pytest.mark.parametrize(
    ("said", "state"),
    [(True, State.SUCCEEDED), (False, State.FAILED), (None, State.UNKNOWN)],
)
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_reconciler_tells_what_became_of_a_call(
    guard: amv.Guard, said: bool | None, state: State, is_marked: bool
) -> None:
    asked: list[dict[str, Any]] = []
    decision_id = guard.redeem(token_of(guard.decide(cancel(note="x"))), cancel(note="x"))
    other = guard.redeem(token_of(guard.decide(cancel("W2"))), cancel("W2"))
    guard.dispatched(other)
    guard.settle(other, State.SUCCEEDED)
    if is_marked:
        guard.settle(decision_id, State.UNKNOWN)

    @guard.reconciler("cancel_order")
    def was_cancelled(**arguments: Any) -> bool | None:
        asked.append(arguments)
        return said

    assert guard.reconcile(-1.0) == ([] if is_marked else [decision_id])
    assert asked == [{"order_id": "W1", "note": "x"}]
    with guard._store.read() as reader:
        assert [
            row.decision_id for row in reader.in_state(state, 1e12) if row.decision_id != other
        ] == [decision_id]
    assert guard.replay() == []


def test_what_no_reconciler_can_tell_of_stays_unknown(guard: amv.Guard) -> None:
    """One that fails, or says what means nothing, settles nothing, and is asked again."""
    decision_id = guard.redeem(token_of(guard.decide(cancel())), cancel())
    guard.reconciler("cancel_order")(lambda order_id: 1 / 0 > 1)
    with pytest.raises(ZeroDivisionError):
        guard.reconcile(-1.0)
    guard.reconciler("cancel_order")(lambda order_id: "done")  # type: ignore[type-var]
    with pytest.raises(amv.InvalidInput, match="returns must be True or False, got 'done'"):
        guard.reconcile(-1.0)
    with pytest.raises(amv.InvalidInput, match="must be a function"):
        guard.reconciler("cancel_order")("done")  # type: ignore[type-var]
    # Nor can anyone ask about what was forgotten.
    guard.reconciler("cancel_order")(lambda order_id: True)
    guard.memory.forget_namespace(OWNER)
    assert guard.reconcile(-1.0) == []

    with guard._store.read() as reader:
        row = reader.ledger_of(decision_id)
    assert row is not None
    assert row.state is State.UNKNOWN


@pytest.mark.parametrize("state", ["APPROVED", "RESERVED", "DISPATCHED", "DONE", None, 3])
def test_a_call_is_settled_as_what_became_of_it(guard: amv.Guard, state: Any) -> None:
    decision_id = guard.redeem(token_of(guard.decide(cancel())), cancel())
    guard.dispatched(decision_id)

    with pytest.raises(amv.InvalidInput, match="SUCCEEDED, FAILED, UNKNOWN"):
        guard.settle(decision_id, state)
    guard.settle(decision_id, "SUCCEEDED")  # type: ignore[arg-type]


def test_what_an_action_rested_on_counts_as_used(guard: amv.Guard) -> None:
    decision_id = guard.redeem(token_of(guard.decide(cancel())), cancel())
    guard.dispatched(decision_id)
    guard.settle(decision_id, State.SUCCEEDED)
    guard.memory.flush()

    counts = [item.contributed_count for item in guard.memory.list(namespace=OWNER).items]
    assert sorted(counts)[-1] > 0


def test_settling_passes_over_what_was_forgotten(guard: amv.Guard) -> None:
    decision_id = guard.redeem(token_of(guard.decide(cancel())), cancel())
    guard.dispatched(decision_id)
    guard.memory.forget_namespace(OWNER)

    guard.settle(decision_id, State.SUCCEEDED)


@pytest.mark.parametrize("late", [State.FAILED, State.SUCCEEDED, State.UNKNOWN, "DISPATCHED"])
def test_an_old_call_does_not_settle_a_later_one_of_its_key(guard: amv.Guard, late: str) -> None:
    """It hung until it was given up, and another call was granted, which is under way."""
    first = guard.redeem(token_of(guard.decide(cancel())), cancel())
    guard.dispatched(first)
    guard.settle(first, State.FAILED)
    second = guard.redeem(token_of(guard.decide(cancel())), cancel())

    with pytest.raises(amv.Conflict, match="granted to a later decision"):
        guard.dispatched(first) if late == "DISPATCHED" else guard.settle(first, State(late))
    assert guard.decide(cancel()).code == "granted_before"
    guard.dispatched(second)
    guard.settle(second, State.SUCCEEDED)
    assert guard.replay() == []


def test_what_was_granted_nothing_can_not_be_settled(guard: amv.Guard) -> None:
    refused = guard.decide(amv.Action("unknown", {}, namespace=OWNER))

    for absent in ("absent", refused.id):
        for move in (guard.dispatched, lambda one: guard.settle(one, State.FAILED)):
            with pytest.raises(amv.ItemNotFound, match="was granted nothing"):
                move(absent)


NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@given(number=NUMBERS, place=st.sampled_from(["alone", "in a list", "in a mapping"]))
def test_what_is_one_action_has_one_key(number: float, place: str) -> None:
    """90 and 90.0 are the same JSON, also as text in a claim; their call is made once."""
    rule = ActionRule(idempotency=Idempotency(key=["amount"]))

    def keys(value: object) -> set[tuple[str, str]]:
        amounts = {"alone": value, "in a list": [value], "in a mapping": {"n": value}}
        action = amv.Action("pay", {"amount": amounts[place]}, namespace=OWNER)
        words = Words(
            namespace=OWNER,
            session="",
            principal="",
            arguments=dict(action.arguments),
            premises=(),
        )
        return {(action.digest(), key_of("pay", action.digest(), words, rule))}

    same = [number]
    same += [float(number)] if float(number) == number else []
    same += [int(number)] if int(number) == number and abs(number) < 2**53 else []
    assert len(set.union(*map(keys, same))) == 1
    if place == "alone" and isinstance(number, int):
        (found,) = keys(number)
        (text,) = keys(str(number))
        assert found[1] == text[1]


@pytest.mark.parametrize("text", ["caf\u00e9", "\u1e9b\u0323", "\uac00", "\u212b"])
def test_a_text_in_another_normal_form_is_not_granted_again(text: str) -> None:
    """They look the same, and a check that takes them for the same confirms each."""
    forms = {normalize(form, text) for form in ("NFC", "NFD")} | {text}
    with opened() as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        found = []
        for form in forms:
            remember(guard, order_id=form)
            decision = guard.decide(cancel(form))
            found.append(decision.code)
            if decision.permit is not None:
                guard.redeem(decision.permit.token, cancel(form))
    assert found == ["judged"] + ["granted_before"] * (len(forms) - 1)
    assert len(forms) > 1


def test_without_a_key_each_action_is_its_own() -> None:
    policy = policy_of()
    rule_of = dict(policy["actions"]["cancel_order"])
    del rule_of["idempotency"]
    with opened(policy=policy_of(actions={"cancel_order": rule_of})) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard)
        for note in ("a", "b"):
            guard.redeem(token_of(guard.decide(cancel(note=note))), cancel(note=note))

        assert guard.decide(cancel(note="a")).code == "granted_before"
