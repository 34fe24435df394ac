"""The log: every change of it is found, and each decision is judged again the same."""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import amv
from amv.guard import record
from amv.guard.ports import GuardWriter, RecordRow, State
from amv.guard.state import decision_of, loaded
from amv.testing import FakeClock
from tests.guard.gates import CANCEL, OWNER, cancel, opened, policy_of, remember

REFUND = {**CANCEL, "approval": True, "loss": {"wrong": 120.0, "abstain": 5.0}}


def lived(path: str) -> amv.Guard:
    """Return a gate that has decided in each of the ways in which it can."""
    actions = {**policy_of()["actions"], "refund": REFUND}
    guard = opened(path, policy_of(defaults={"harm_max": 0.05}, actions=actions), FakeClock())
    answers = {"W1": "pending", "W2": "shipped", "W4": None, "W5": amv.NOT_FOUND}
    guard.verifier("order_status")(lambda order_id: answers[order_id])
    for order_id in answers:
        remember(guard, order_id=order_id)
    for order_id in (*answers, "W1"):
        guard.decide(cancel(order_id))
    asked = guard.decide(cancel("W1", note="x"), run_checks=False)
    guard.evidence(asked.id, "order_status", "pending")
    guard.decide(cancel("W1", note="x"))
    guard.decide(amv.Action(tool="look"))
    guard.decide(amv.Action(tool="unheard_of"))
    decision = guard.decide(cancel("W1", note="x"))
    assert decision.permit is not None
    assert guard.redeem(decision.permit.token, cancel("W1", note="x")) == decision.id
    guard.dispatched(decision.id)
    guard.settle(decision.id, State.SUCCEEDED)
    refund = amv.Action("refund", {"order_id": "W4"}, namespace=OWNER)
    guard.approve(guard.decide(refund).approval_id, by="Ann", key_id="k1")
    guard.decide(amv.Action("refund", {"order_id": "W5"}, namespace=OWNER))
    return guard


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[RecordRow]:
    """Give the records of a gate's life."""
    with lived(":memory:") as guard, guard._store.read() as reader:
        return reader.records()


def test_a_life_holds_records_of_every_sort(log: list[RecordRow]) -> None:
    assert {row.kind for row in log} == {"opened", "observed", "moved", "asked"}
    assert len(log) > 20
    assert record.faults(log) == []


def test_every_flipped_byte_is_found(log: list[RecordRow]) -> None:
    flipped = 0
    for place, row in enumerate(log):
        for i in range(len(row.body)):
            body = row.body[:i] + bytes([row.body[i] ^ 1]) + row.body[i + 1 :]
            changed = [*log[:place], row._replace(body=body), *log[place + 1 :]]
            assert record.faults(changed)
            flipped += 1
    assert flipped > 5000


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row._replace(decision_id=row.decision_id[::-1]),
        lambda row: row._replace(kind=row.kind + "x"),
        lambda row: row._replace(before="0" * 63 + "1"),
        lambda row: row._replace(hash="0" * 63 + "1"),
        lambda row: row._replace(number=row.number + 1),
        lambda row: row._replace(number=-row.number),
    ],
)
def test_every_changed_field_is_found(
    log: list[RecordRow], change: Callable[[RecordRow], RecordRow]
) -> None:
    for place, row in enumerate(log):
        assert record.faults([*log[:place], change(row), *log[place + 1 :]])


def test_every_record_dropped_from_within_is_found(log: list[RecordRow]) -> None:
    """Also where those after it are numbered anew."""
    for place in range(len(log) - 1):
        left = [*log[:place], *log[place + 1 :]]
        renumbered = [row._replace(number=n) for n, row in enumerate(left, start=1)]

        assert record.faults(left)
        assert record.faults(renumbered)


def test_every_duplicate_and_every_exchange_is_found(log: list[RecordRow]) -> None:
    for place, row in enumerate(log):
        doubled = [*log[: place + 1], row, *log[place + 1 :]]
        assert record.faults(doubled)
        assert record.faults([r._replace(number=n) for n, r in enumerate(doubled, start=1)])
        for other in range(place):
            turned = list(log)
            turned[place], turned[other] = turned[other], turned[place]
            assert record.faults(turned)
            assert record.faults([r._replace(number=n) for n, r in enumerate(turned, start=1)])


@given(seed=st.integers(0, 2**32))
def test_a_log_in_any_other_order_is_found(log: list[RecordRow], seed: int) -> None:
    shuffled = list(log)
    Random(seed).shuffle(shuffled)

    assert bool(record.faults(shuffled)) == (shuffled != log)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[amv.Guard]:
    with lived(str(tmp_path / "amv.db")) as guard:
        yield guard


def altered(guard: amv.Guard, statement: str) -> None:
    """Change the log behind the gate's back."""
    guard.memory.store.write(lambda tx: tx.execute(statement))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "UPDATE guard_record SET body = CAST(body || ' ' AS BLOB) WHERE number = 5",
            "record 5 is not what was",
        ),
        ("DELETE FROM guard_record WHERE number = 7", "record 7 is missing; the next one is 8"),
        ("UPDATE guard_record SET before = hash WHERE number = 3", "record 3 does not follow"),
    ],
)
def test_replay_tells_what_is_wrong_with_the_log(
    guard: amv.Guard, statement: str, says: str
) -> None:
    assert guard.replay() == []

    altered(guard, statement)

    assert any(problem.startswith(says) for problem in guard.replay())


def test_a_log_cut_off_at_its_end_is_found_by_the_last_hash_alone(guard: amv.Guard) -> None:
    """What is left is whole in itself; so the last hash is to be kept somewhere else."""
    early, last = record.FIRST, guard.last_hash()
    assert guard.replay(last_hash=last) == guard.replay(last_hash=early) == []
    # The ledger tells of a record that it was moved with; not so of what grants nothing.
    cut = "DELETE FROM guard_record WHERE number = (SELECT max(number) FROM guard_record)"
    altered(guard, cut)
    (problem,) = guard.replay()
    assert "does not say of request" in problem
    assert guard.replay(last_hash=last)[0] == "the record whose hash was kept is missing"


def test_a_log_cut_off_at_what_granted_nothing_is_found_by_the_last_hash_alone() -> None:
    with opened() as guard:
        guard.decide(amv.Action(tool="unheard_of"))
        guard.decide(amv.Action(tool="look"))
        last = guard.last_hash()
        guard._store._tables.log.pop()  # type: ignore[attr-defined]

        assert guard.replay() == []
        assert guard.replay(last_hash=last) == ["the record whose hash was kept is missing"]


def test_the_last_hash_of_an_empty_log_is_that_before_all_records() -> None:
    with opened() as guard:
        assert guard.last_hash() == record.FIRST


def test_a_decision_that_would_be_judged_otherwise_now_is_told(guard: amv.Guard) -> None:
    """Written by another version, say, or by whoever can compute hashes."""
    with guard._store.read() as reader:
        rows = reader.records()
    altered(guard, "DELETE FROM guard_record")

    def rewrite(tx: object) -> None:
        for row in rows:
            body = row.body.replace(b'"verdict":"VERIFY"', b'"verdict":"PROCEED"')
            record.append(tx, row.decision_id, row.kind, msgspec.Raw(body))  # type: ignore[arg-type]

    guard._store.write(rewrite)

    assert guard.replay()
    assert all("would be judged otherwise now" in problem for problem in guard.replay())


@pytest.mark.parametrize("missing", ["opened", "case"])
def test_a_record_that_can_not_be_judged_is_told(guard: amv.Guard, missing: str) -> None:
    """Though its hash is right."""
    with guard._store.read() as reader:
        row = reader.records(kind="observed")[0]
    body = row.body if missing == "opened" else b"{}"

    guard._store.write(lambda tx: record.append(tx, "another", "observed", msgspec.Raw(body)))

    (problem,) = guard.replay()
    assert "can't be judged" in problem


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE %text SET body = CAST(replace(body, 'W2', 'W7') AS BLOB)", "words of decision"),
        (
            "UPDATE %text SET body = CAST(replace(body, 'shipped', 'pending') AS BLOB)",
            "words of decision",
        ),
        ("UPDATE %text SET body = x'7B'", "words of decision"),
        ("UPDATE %text SET namespace = '[\"bob\"]'", "words of decision"),
        ("DELETE FROM %text_item", "words of decision"),
        ("UPDATE %ledger SET state = 'FAILED' WHERE state = 'SUCCEEDED'", "the ledger says"),
        ("UPDATE %ledger SET expires_s = expires_s + 1", "the ledger says"),
        ("UPDATE %ledger SET permit_hash = 'made up' || key", "the ledger says"),
        ("UPDATE %ledger SET digest = decision_id", "the ledger says"),
        ("UPDATE %ledger SET approval_id = 'a'", "the ledger says"),
        ("UPDATE %ledger SET state = 'DONE'", "the ledger has lost"),
        ("UPDATE %ledger SET key = 'another' || key", "the ledger has lost"),
        ("DELETE FROM %ledger", "the ledger has lost"),
        ("UPDATE %approval SET state = 'approved', decided_by = 'Ann'", "does not say of request"),
        ("UPDATE %approval SET expires_s = expires_s + 1", "does not say of request"),
        ("UPDATE %approval SET decided_key = 'k'", "does not say of request"),
        ("UPDATE %approval SET approval_id = 'another' || approval_id", "was lost"),
        ("DELETE FROM %approval", "was lost"),
    ],
)
def test_what_stands_beside_the_log_is_compared_with_it(
    guard: amv.Guard, statement: str, says: str
) -> None:
    assert guard.replay() == []

    altered(guard, statement.replace("%%", "\0").replace("%", "guard_").replace("\0", "%"))

    found = guard.replay()
    assert any(says in problem for problem in found), found


def test_what_was_forgotten_beside_the_log_is_no_fault(guard: amv.Guard) -> None:
    guard.memory.forget_namespace(OWNER)

    assert guard.replay() == []


def test_a_grant_of_a_log_that_does_not_say_more_is_compared_by_its_state(
    guard: amv.Guard,
) -> None:
    """As the logs of before do."""
    with guard._store.read() as reader:
        rows = reader.records()
    altered(guard, "DELETE FROM guard_record")
    altered(guard, "DELETE FROM guard_approval")

    def rewrite(tx: GuardWriter) -> None:
        for row in rows:
            data = msgspec.json.decode(row.body)
            for name in ("name", "row", "words"):
                data.pop(name, None)
            if row.kind != "asked":
                record.append(tx, row.decision_id, row.kind, data)

    guard._store.write(rewrite)
    assert guard.replay() == []
    altered(guard, "UPDATE guard_ledger SET state = 'FAILED' WHERE state = 'SUCCEEDED'")

    (problem,) = guard.replay()
    assert problem.endswith("what the log does not: FAILED")


def test_a_record_of_a_grant_that_says_nothing_sensible_is_told(guard: amv.Guard) -> None:
    guard._store.write(lambda tx: record.append(tx, "another", "moved", {}))

    (problem,) = guard.replay()
    assert "can't be judged" in problem


def test_words_that_say_nothing_sensible_are_damage(guard: amv.Guard) -> None:
    decision_id = guard.decide(cancel("W2")).id
    altered(guard, f"UPDATE guard_text SET body = x'7B' WHERE decision_id = '{decision_id}'")

    with pytest.raises(amv.StoreError, match="are damaged"):
        guard.get(decision_id)


def test_a_record_that_says_nothing_sensible_is_damage(guard: amv.Guard) -> None:
    decision_id = guard.decide(cancel("W2")).id
    altered(guard, f"UPDATE guard_record SET body = x'7B' WHERE decision_id = '{decision_id}'")

    with pytest.raises(amv.StoreError, match="is damaged"):
        guard.get(decision_id)


def test_a_fresh_process_judges_every_decision_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "amv.db")
    with lived(path) as guard:
        decided, last = guard.decided(), guard.last_hash()
    code = (
        "from tests.guard.gates import *\n"
        f"with opened({path!r}) as guard:\n"
        "    print(guard.decided(), guard.replay(), guard.last_hash())\n"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.split() == [str(decided), "[]", last]


def test_no_record_holds_a_word(tmp_path: Path) -> None:
    """Records stay for ever; what could have to be forgotten is not in them."""
    with opened(policy=policy_of(defaults={"audit": 1.0})) as guard:

        @guard.verifier("order_status")
        def order_status(order_id: str) -> str:
            raise RuntimeError("secret 3")

        remember(guard, "secret 1", "secret 2")
        asked = guard.decide(cancel("secret 2", note="secret 4"))
        guard.decide(cancel("secret 2", note="secret 4"), run_checks=False)
        assert "secret 3" in guard.explain(asked.id)

        with guard._store.read() as reader:
            assert not any(b"secret" in row.body for row in reader.records())


@pytest.mark.parametrize(
    ("reads", "ended"), [("pending", "answered"), (None, "inconclusive"), (math.nan, "failed")]
)
def test_a_record_that_does_not_say_how_a_check_ended_is_read_too(
    reads: object, ended: str
) -> None:
    """Those of old do not."""
    with opened() as guard:
        guard.verifier("order_status")(lambda order_id: reads)
        remember(guard)
        decision = guard.decide(cancel())
        with guard._store.read() as reader:
            state = loaded(reader, decision.id)
    old = tuple(msgspec.structs.replace(one, ended="") for one in state.observed)

    assert [one.ended for one in decision.checks] == [ended]
    assert decision_of(replace(state, observed=old)).checks == decision.checks
