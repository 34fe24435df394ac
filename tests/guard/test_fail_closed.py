"""The gate fails closed: whatever goes wrong with a check, nothing proceeds on it.

Every fault of a verifier meets every class of action, with premises of all
likelihoods; counted are the runs in which the verifier was really asked, or in
which there was none to ask.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import amv
from amv.guard.calibration import Calibration
from amv.guard.policy import VerifierRule, parse
from amv.guard.ports import (
    Claims,
    Finding,
    GuardReader,
    GuardStore,
    GuardWriter,
    RecordRow,
    Remembered,
    Shown,
)
from amv.guard.presets import PRESETS
from amv.guard.service import GuardService
from amv.stores.memory import MemoryStore
from amv.stores.memory.guard import MemoryGuardStore
from amv.testing import FakeClock
from amv.testing.row_contract import insert, new_namespace
from amv.testing.samples import plain

pytestmark = pytest.mark.long

OWNER = ("alice",)
RUNS = 120
"""Of each fault with each class of action."""


class FakeClaims:
    """Claims that are all remembered alike; *broken* names a method that fails with *error*."""

    def __init__(self, broken: str = "", error: Exception | None = None) -> None:
        self.told: list[str] = []
        self._broken = broken
        self._error = error

    def _called(self, name: str) -> None:
        if name == self._broken:
            assert self._error is not None
            raise self._error
        self.told.append(name)

    def find(self, namespace: tuple[str, ...], subject: str, attribute: str) -> Remembered | None:
        self._called("find")
        return Remembered(attribute, "good", 0.0, 1.0, False, True)

    def find_in(
        self, tx: GuardWriter, namespace: tuple[str, ...], subject: str, attribute: str
    ) -> Remembered | None:
        self._called("find_in")
        return Remembered(attribute, "good", 0.0, 1.0, False, True)

    @contextmanager
    def telling(
        self, namespace: tuple[str, ...], shown: Sequence[Shown]
    ) -> Iterator[Callable[[GuardWriter], list[str]]]:
        self._called("telling")

        def tell(tx: GuardWriter) -> list[str]:
            self._called("tell")
            return [one.item_id for one in shown]

        yield tell

    def used(self, namespace: tuple[str, ...], item_ids: Sequence[str]) -> None:
        self._called("used")


class FakeChecker:
    """A checker that finds the same each time, and counts how often it is asked."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.asked = 0

    def run(
        self, name: str, rule: VerifierRule, arguments: Mapping[str, Any], *, worth: float
    ) -> Finding:
        self.asked += 1
        return self.finding

    def knows(self, name: str, rule: VerifierRule) -> bool:
        return True


def fake_store() -> MemoryGuardStore:
    """Return a store beside a memory that holds what `FakeClaims` speak of."""
    store = MemoryStore()
    ns_id = new_namespace(store, *OWNER)
    insert(store, *(plain(ns_id, f"state{n}") for n in range(3)))
    return MemoryGuardStore(store)


def service(
    policy: Mapping[str, Any],
    finding: Finding,
    *,
    p: Callable[[], float] = lambda: 0.02,
    claims: Claims | None = None,
    store: GuardStore | None = None,
    chance: float = 0.0,
) -> tuple[GuardService, FakeChecker]:
    """Return a gate whose premises are violated with probability *p*, and its checker."""
    checker, ids = FakeChecker(finding), itertools.count()
    gate = GuardService(
        parse(dict(policy)),
        FakeClaims() if claims is None else claims,
        fake_store() if store is None else store,
        checker,
        prior=lambda features: p(),
        calibration=Calibration(),
        clock=FakeClock(),
        new_id=lambda: f"id{next(ids)}",
        new_token=lambda: f"token{next(ids)}",
        chance=lambda: chance,
    )
    return gate, checker


def rests_on(count: int = 1) -> dict[str, Any]:
    """Return premises, each with a check of its own and one that they share."""
    return {
        f"p{n}": {"claim": f"thing/{{id}}/state{n}", "verify_with": [f"v{n}", "all"]}
        for n in range(count)
    }


VERIFIERS = {
    name: {"cost": 0.001, "sensitivity": 0.999, "specificity": 0.999}
    for name in ("v0", "v1", "v2", "all")
}
ID = {"id": "7"}
CLASSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{
        name: ({"preset": name, "rests_on": rests_on(n % 3 + 1)}, ID)
        for n, name in enumerate(PRESETS)
    },
    **{
        f"{name} with an unbound argument": (
            {"preset": name, "rests_on": rests_on()},
            {**ID, "amount": 5},
        )
        for name in PRESETS
    },
    "joint, with a common cause": (
        {
            "loss": {"wrong": 50.0, "abstain": 2.0, "repair": 0.1},
            "rests_on": rests_on(3),
            "causes": [{"premises": ["p0", "p1"], "probability": 0.01}],
        },
        ID,
    ),
}
UNKNOWN = "an unknown tool"

EMPTY: tuple[object, ...] = (None, "", [], {})

FAULTS: dict[str, list[Finding]] = {
    "timeout": [Finding(None, "no answer within 5.0 s")],
    "late": [Finding("good", "the answer came too late")],
    "exception": [Finding(None, "the verifier failed: ValueError()")],
    "HTTP 500": [Finding(None, "the verifier answered 500")],
    "redirect": [Finding(None, "the verifier answered 301")],
    "truncated": [Finding(None, "the reply is no JSON")],
    "hung": [Finding(None, "64 checks are under way, and none ends")],
    "empty": [Finding(value) for value in EMPTY],
    "wrong type": [
        Finding(value) for value in (0, 1, True, False, 1.5, ["good"], {"status": "good"}, "GOOD")
    ],
    "no JSON": [Finding(value) for value in (object(), b"good", {1: "good"}, 2**80, {"good"})],
    "NaN": [Finding(value) for value in (math.nan, [math.nan], {"state": math.nan})],
    "infinite": [Finding(value) for value in (math.inf, -math.inf, [math.inf])],
    "not there": [Finding(amv.NOT_FOUND)],
}


class Matrix:
    """Runs of one class of action under one fault, with premises of all likelihoods.

    Two of the same fault and class are alike, run by run.
    """

    def __init__(
        self, fault: str, name: str, *, audit: float = 0.0, store: GuardStore | None = None
    ) -> None:
        rule, arguments = CLASSES.get(name, ({}, ID))
        policy = {
            "version": 1,
            "defaults": {"audit": audit},
            "verifiers": VERIFIERS,
            "actions": {"act": rule} if rule else {},
        }
        self._random, self._findings = Random(f"{fault} {name}"), FAULTS[fault]
        self.gate, self.checker = service(
            policy, Finding(None), p=lambda: 10 ** self._random.uniform(-3.5, -0.3), store=store
        )
        self.action = amv.Action(tool="act", arguments=arguments, namespace=OWNER)

    def run(self, *, run_checks: bool = True) -> amv.Decision:
        self.checker.asked, self.checker.finding = 0, self._random.choice(self._findings)
        return self.gate.decide(self.action, run_checks=run_checks)


def runs(fault: str, name: str, count: int) -> Iterator[tuple[amv.Decision, int]]:
    """Yield decisions under a fault, with how often a check was asked."""
    matrix = Matrix(fault, name)
    for _ in range(count):
        yield matrix.run(), matrix.checker.asked
    assert matrix.gate.replay() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_proceeds_on_a_verifier_that_is_broken(
    fault: str, record_property: Callable[[str, object], None]
) -> None:
    """All faults together make more than 10,000 runs; see the control below."""
    done = struck = proceeded = 0
    for name in (*CLASSES, UNKNOWN):
        for decision, asked in runs(fault, name, RUNS):
            is_struck = asked > 0
            has_check = name in CLASSES and "unbound" not in name
            if has_check and not is_struck:
                # Known well enough, or hopeless: nothing was asked, so nothing has failed.
                continue
            done, struck = done + 1, struck + is_struck
            proceeded += decision.verdict == "PROCEED"
            assert decision.verdict in ("ABSTAIN", "REPAIR"), (name, decision.says)
            assert decision.permit is None
    record_property("runs", done)
    record_property("faults_injected", struck)
    record_property("PROCEED", proceeded)
    assert done > 780
    assert struck > 250


def test_all_faults_make_ten_thousand_runs() -> None:
    assert 780 * len(FAULTS) > 10_000


REFUTING = {"wrong type", "not there"}
"""Faults that are an answer, and one against the action."""


@pytest.mark.parametrize("fault", FAULTS)
def test_an_audit_under_a_fault_stops_only_what_it_refutes(
    fault: str, record_property: Callable[[str, object], None]
) -> None:
    """Beside the same decisions without an audit: it lets through nothing that they do not."""
    done = struck = 0
    for name in (*CLASSES, UNKNOWN):
        plain, audited = Matrix(fault, name), Matrix(fault, name, audit=1.0)
        for _ in range(RUNS // 2):
            alone, decision = plain.run(), audited.run()
            done, struck = done + 1, struck + (audited.checker.asked > plain.checker.asked)
            goes_ahead = alone.verdict == "PROCEED" and fault not in REFUTING
            if alone.verdict == "PROCEED" and not decision.checks:
                # Nothing critical, so that nothing could be audited.
                goes_ahead = True
            is_granted_before = decision.code == alone.code == "granted_before"
            assert is_granted_before or (decision.verdict == "PROCEED") is goes_ahead, (
                name,
                alone.says,
                decision.says,
            )
        assert audited.gate.replay() == []
    record_property("runs", done)
    record_property("faults injected in an audit", struck)
    assert struck > 100


def test_evidence_that_is_late_or_comes_twice_lets_nothing_proceed(
    record_property: Callable[[str, object], None],
) -> None:
    """Of a caller's own checks, for each class of action that has one."""
    counted = {"duplicate": 0, "stale": 0}
    for name in CLASSES:
        for fault in counted:
            matrix = Matrix("not there", name)
            for _ in range(RUNS):
                asked = matrix.run(run_checks=False)
                if asked.check is None:
                    continue
                counted[fault] += 1
                verifier, gate = asked.check.verifier, matrix.gate
                if fault == "stale":
                    gate._clock.advance(3601.0)  # type: ignore[attr-defined]
                    with pytest.raises(amv.Conflict, match="opened more than"):
                        gate.evidence(asked.id, verifier, "good")
                else:
                    first = gate.evidence(asked.id, verifier, None)
                    with pytest.raises(amv.InvalidInput, match="got evidence of"):
                        gate.evidence(asked.id, verifier, "good")
                    assert first.permit is None
                assert gate.get(asked.id).verdict != "PROCEED"
    for fault, count in counted.items():
        record_property(f"runs, {fault}", count)
        assert count > 250


@pytest.mark.parametrize("name", PRESETS)
def test_control_a_healthy_verifier_lets_each_preset_proceed(name: str) -> None:
    """A gate that never lets anything through fails closed too."""
    rule, arguments = CLASSES[name]
    gate, checker = service(
        {"version": 1, "verifiers": VERIFIERS, "actions": {"act": rule}},
        Finding("good"),
        p=lambda: 0.05,
    )

    decision = gate.decide(amv.Action(tool="act", arguments=arguments, namespace=OWNER))

    assert checker.asked > 0
    assert (decision.verdict, decision.permit is not None) == ("PROCEED", True)


@pytest.mark.parametrize("fault", FAULTS)
def test_control_a_gate_that_takes_faults_for_support_is_found_out(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken on purpose: the test above must be able to fail, under each fault."""
    monkeypatch.setattr("amv.guard.service.outcome_of", lambda premise, finding: "confirmed")
    monkeypatch.setattr("amv.guard.service.checked", lambda finding: Finding("good"))

    verdicts = [
        decision.verdict for name in PRESETS for decision, asked in runs(fault, name, 20) if asked
    ]

    assert "PROCEED" in verdicts


def test_control_a_gate_that_ignores_a_check_that_told_nothing_is_found_out() -> None:
    """What is so likely that it would be executed unchecked is not, once a check was due."""
    rule = {"loss": {"wrong": 50.0, "abstain": 5.0}, "rests_on": rests_on()}
    policy = {"version": 1, "verifiers": VERIFIERS, "actions": {"act": rule}}
    gate, checker = service(policy, Finding(None, "no answer"), p=lambda: 0.01)

    decision = gate.decide(amv.Action(tool="act", arguments=ID, namespace=OWNER))

    assert checker.asked > 0
    assert decision.risk < decision.expected_loss == 5.0
    assert (decision.verdict, decision.code) == ("ABSTAIN", "unresolved")
    assert decision.reason.endswith("checks told nothing of p0 (v0: failed, all: failed)")


def test_one_check_that_works_makes_up_for_one_that_does_not() -> None:
    """Failing closed is not failing at the first fault."""
    rule = {"loss": {"wrong": 50.0, "abstain": 5.0}, "rests_on": rests_on()}
    policy = {"version": 1, "verifiers": VERIFIERS, "actions": {"act": rule}}
    gate, _ = service(policy, Finding("good"), p=lambda: 0.02)
    action = amv.Action(tool="act", arguments=ID, namespace=OWNER)
    first = gate.decide(action, run_checks=False)
    assert first.check is not None

    second = gate.evidence(first.id, first.check.verifier, math.nan)
    assert second.verdict == "VERIFY"
    assert second.check is not None
    third = gate.evidence(first.id, second.check.verifier, "good")

    assert third.verdict == "PROCEED"
    assert gate.replay() == []


# ---------------------------------------------------------------- evidence of a caller's own


@pytest.fixture
def asked() -> tuple[GuardService, amv.Decision]:
    """Give a gate and a decision of its that asks for a check."""
    rule = {"loss": {"wrong": 50.0, "abstain": 5.0}, "rests_on": rests_on()}
    gate, _ = service(
        {"version": 1, "verifiers": VERIFIERS, "actions": {"act": rule}}, Finding(None)
    )
    decision = gate.decide(amv.Action(tool="act", arguments=ID, namespace=OWNER), run_checks=False)
    assert decision.verdict == "VERIFY"
    assert decision.check is not None
    assert decision.permit is None
    return gate, decision


def test_evidence_given_twice_counts_once(asked: tuple[GuardService, amv.Decision]) -> None:
    gate, decision = asked
    assert decision.check is not None
    assert gate.evidence(decision.id, decision.check.verifier, "good").permit is not None

    with pytest.raises(amv.InvalidInput, match="asks for no check"):
        gate.evidence(decision.id, decision.check.verifier, "good")


def test_evidence_of_what_was_not_asked_is_refused(
    asked: tuple[GuardService, amv.Decision],
) -> None:
    gate, decision = asked
    for verifier in ("made_up", "v2"):
        with pytest.raises(amv.InvalidInput, match=f"got evidence of '{verifier}'"):
            gate.evidence(decision.id, verifier, "good")
    with pytest.raises(amv.ItemNotFound):
        gate.evidence("another", "v0", "good")
    unknown = gate.decide(amv.Action(tool="unheard_of"))
    with pytest.raises(amv.InvalidInput, match="asks for no check"):
        gate.evidence(unknown.id, "v0", "good")


def test_evidence_for_a_decision_of_long_ago_is_refused(
    asked: tuple[GuardService, amv.Decision],
) -> None:
    gate, decision = asked
    gate._clock.advance(3601.0)  # type: ignore[attr-defined]

    with pytest.raises(amv.Conflict, match="opened more than 3600 s ago"):
        gate.evidence(decision.id, "v0", "good")


def test_evidence_under_another_policy_is_refused(
    asked: tuple[GuardService, amv.Decision],
) -> None:
    gate, decision = asked
    gate._policy = parse({"version": 1})

    with pytest.raises(amv.Conflict, match="under another policy"):
        gate.evidence(decision.id, "v0", "good")


def test_evidence_that_two_give_at_once_counts_once(
    asked: tuple[GuardService, amv.Decision],
) -> None:
    """The second has decided on a state that is no more."""
    gate, decision = asked
    assert decision.check is not None
    verifier, observed = decision.check.verifier, gate._observed

    def slow(*args: Any) -> Any:
        gate._observed = observed  # type: ignore[method-assign]
        gate.evidence(decision.id, verifier, "good")
        return observed(*args)

    gate._observed = slow  # type: ignore[method-assign, assignment]
    with pytest.raises(amv.Conflict, match="went on elsewhere"):
        gate.evidence(decision.id, verifier, "good")
    assert gate.replay() == []


# ---------------------------------------------------------------- the store and the claims

ERRORS = (
    amv.StoreUnavailable("the disk is gone"),
    amv.OutcomeUnknown("the commit failed"),
    amv.StoreError("the file is damaged"),
)


PARTS = ["read", "write", "commit", "secret", "log"]
"""Of a store: a snapshot, a transaction, its end, its key, and appending to the log."""

RUNS_BROKEN = 5
"""Of each fault with each class of action, each part of the store and each error."""


class FailingStore:
    """A store of which one part fails; *at* is the write from which on it does."""

    def __init__(self, part: str, error: Exception, at: int = 0) -> None:
        self.inner = fake_store()
        self.failed = 0
        self._part, self._error, self._left = part, error, at

    def _called(self, part: str) -> None:
        if part == self._part:
            self._left -= 1
            if self._left < 0:
                self.failed += 1
                raise self._error

    @contextmanager
    def read(self) -> Iterator[GuardReader]:
        self._called("read")
        with self.inner.read() as reader:
            yield reader

    def write(self, work: Callable[[GuardWriter], Any]) -> Any:
        self._called("write")

        def committed(tx: GuardWriter) -> Any:
            append = tx.append

            def appended(row: RecordRow) -> None:
                self._called("log")
                append(row)

            tx.append = appended  # type: ignore[method-assign]
            result = work(tx)
            self._called("commit")
            return result

        return self.inner.write(committed)

    def secret(self) -> bytes:
        self._called("secret")
        return self.inner.secret()


def simple(kind: str = "commit") -> dict[str, Any]:
    rule = {"loss": {"wrong": 50.0, "abstain": 5.0}, "rests_on": rests_on(), "effect": kind}
    return {"version": 1, "verifiers": VERIFIERS, "actions": {"act": rule}}


ACT = amv.Action(tool="act", arguments=ID, namespace=OWNER)


@pytest.mark.parametrize("part", PARTS)
def test_nothing_proceeds_while_the_store_or_the_log_fails(
    part: str, record_property: Callable[[str, object], None]
) -> None:
    """Every fault of a verifier, and none, with every class of action and every error."""
    done = struck = proceeded = 0
    for name in (*CLASSES, UNKNOWN):
        for fault in FAULTS:
            for error in ERRORS:
                store = FailingStore(part, error)
                matrix = Matrix(fault, name, store=store)
                decisions = [matrix.run() for _ in range(RUNS_BROKEN - 1)]
                matrix.checker.finding = Finding("good")
                for decision in (*decisions, matrix.gate.decide(matrix.action)):
                    done, proceeded = done + 1, proceeded + (decision.verdict == "PROCEED")
                    assert decision.verdict == "ABSTAIN", (name, decision.says)
                    assert decision.permit is None
                struck += store.failed
                if name == UNKNOWN and part == "read":
                    # Of such a tool nothing is looked up.
                    continue
                with store.inner.read() as reader:
                    assert reader.records() == []
                    assert reader.approvals() == []
    record_property(f"runs, {part} failing", done)
    record_property(f"faults injected at {part}", struck)
    record_property("PROCEED", proceeded)
    assert struck >= 0.9 * done > 2_000


def test_all_parts_of_a_store_make_ten_thousand_runs() -> None:
    count = len(PARTS) * (len(CLASSES) + 1) * len(FAULTS) * len(ERRORS) * RUNS_BROKEN
    assert count > 10_000


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("found", ["good", "bad"])
def test_a_store_that_fails_means_abstain(part: str, error: Exception, found: str) -> None:
    store = FailingStore(part, error)
    gate, _ = service(simple(), Finding(found), store=store)

    for _ in range(20):
        decision = gate.decide(ACT)
        assert (decision.verdict, decision.code) == ("ABSTAIN", "gate_error")
        assert decision.permit is None
        assert str(error) in decision.reason

    with store.inner.read() as reader:
        assert reader.records() == []
        assert reader.approvals() == []


@pytest.mark.parametrize("part", ["read", "write", "commit", "log"])
def test_a_store_that_fails_under_evidence_or_execution_grants_nothing(part: str) -> None:
    """These raise: whoever calls them holds a decision and is not to be told another."""
    error = amv.StoreUnavailable("the disk is gone")
    store = FailingStore(part, error, at=10**9)
    gate, _ = service(simple(), Finding("good"), store=store)
    waiting = gate.decide(ACT, run_checks=False)
    granted = gate.decide(ACT)
    assert waiting.check is not None
    assert granted.permit is not None
    store._left = 0
    before = len(store.inner._tables.log)

    with pytest.raises(amv.StoreUnavailable):
        gate.evidence(waiting.id, waiting.check.verifier, "good")
    if part != "read":
        with pytest.raises(amv.StoreUnavailable):
            gate.redeem(granted.permit.token, ACT)

    assert len(store.inner._tables.log) == before


@pytest.mark.parametrize(
    "error",
    [*ERRORS, amv.EmbedderError("no model"), amv.ItemNotFound("gone"), amv.Conflict("changed")],
    ids=lambda error: type(error).__name__,
)
def test_claims_that_fail_mean_abstain(error: Exception) -> None:
    gate, checker = service(simple(), Finding("good"), claims=FakeClaims("find", error))

    for _ in range(20):
        decision = gate.decide(ACT)
        assert (decision.verdict, decision.code) == ("ABSTAIN", "gate_error")
        assert [one.code for one in gate.rank([ACT])] == ["gate_error"]
    assert checker.asked == 0
    assert gate.decided() == 0


# What is refuted goes ahead no more, so that nobody asks whether it is still so.
@pytest.mark.parametrize(
    ("broken", "found"),
    [*itertools.product(["telling", "tell"], ["good", "bad"]), ("find_in", "good")],
)
def test_a_memory_that_can_not_be_told_or_asked_means_abstain(broken: str, found: str) -> None:
    gate, _ = service(simple(), Finding(found), claims=FakeClaims(broken, ERRORS[0]))

    decision = gate.decide(ACT)

    assert (decision.verdict, decision.code) == ("ABSTAIN", "gate_error")
    assert gate.decided() == 0


def test_a_memory_that_can_not_be_asked_again_lets_nothing_go_ahead() -> None:
    """What a decision rests on is looked at once more where it is granted, and redeemed."""
    claims = FakeClaims("find_in", ERRORS[0])
    gate, _ = service(simple(), Finding("good"), claims=claims)
    assert gate.decide(ACT).code == "gate_error"
    assert gate.decided() == 0
    claims._broken = ""
    granted = gate.decide(ACT)
    assert granted.permit is not None
    claims._broken = "find_in"

    with pytest.raises(type(ERRORS[0])):
        gate.redeem(granted.permit.token, ACT)

    assert gate.unsettled() == []


@pytest.mark.parametrize("part", ["write", "commit"])
def test_what_changes_nothing_passes_a_gate_that_is_out_of_order(part: str) -> None:
    gate, _ = service(simple("read"), Finding(None), store=FailingStore(part, ERRORS[0]))
    decision = gate.decide(ACT)

    assert (decision.verdict, decision.code, decision.permit) == ("PROCEED", "read_only", None)
    assert gate.decide(amv.Action(tool="unheard_of")).code == "gate_error"


def test_an_unknown_tool_counts_as_a_commit_action_unless_the_policy_says_otherwise() -> None:
    gate, _ = service({"version": 1}, Finding(None))
    free, _ = service({"version": 1, "defaults": {"unknown_tool": "read"}}, Finding(None))

    assert (gate.decide(ACT).verdict, gate.decide(ACT).code) == ("ABSTAIN", "unknown_tool")
    assert (free.decide(ACT).verdict, free.decide(ACT).code) == ("PROCEED", "read_only")


@pytest.mark.parametrize(
    "arguments",
    [{}, {"id": None}, {"id": 1.5}, {"id": True}, {"id": ["7"]}, {"id": {"a": 1}}],
)
def test_an_action_that_can_not_be_bound_is_an_error(arguments: dict[str, Any]) -> None:
    gate, _ = service(simple(), Finding("good"))

    with pytest.raises(amv.InvalidInput, match="needs the argument 'id'"):
        gate.decide(amv.Action(tool="act", arguments=arguments, namespace=OWNER))
    assert gate.decided() == 0


def test_more_premises_than_can_be_weighed_are_an_error() -> None:
    rule = {
        "loss": {"wrong": 50.0, "abstain": 5.0},
        "rests_on": {f"p{n}": {"claim": f"thing/{{id}}/s{n}"} for n in range(13)},
    }
    with pytest.raises(amv.PolicyError, match="12"):
        service({"version": 1, "actions": {"act": rule}}, Finding("good"))


@pytest.mark.parametrize("action", [None, "act", {"tool": "act"}])
def test_what_is_no_action_is_an_error(action: Any) -> None:
    gate, _ = service(simple(), Finding("good"))

    with pytest.raises(amv.InvalidInput, match=r"need an amv\.Action"):
        gate.decide(action)
