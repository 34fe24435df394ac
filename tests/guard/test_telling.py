"""What checks tell the memory stands if the decision's record does, and only then."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.guard.ports import GuardWriter
from amv.guard.state import READING_BYTES_MAX
from amv.memory.item import CLAIM_CHARS_MAX
from tests.guard.gates import CANCEL, OWNER, cancel, opened, policy_of, remember

PARTS = ("status", "owner", "total", "address")


@pytest.fixture(params=["memory", "sqlite"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[amv.Guard]:
    """Give a gate over each kind of store, whose action rests on four claims."""
    rests_on = {
        part: {"claim": f"order/{{order_id}}/{part}", "verify_with": [f"read_{part}"]}
        for part in PARTS
    }
    verifiers = {f"read_{part}": {"cost": 0.02, "sensitivity": 0.99} for part in PARTS}
    policy = policy_of(
        verifiers=verifiers, actions={"cancel_order": {**CANCEL, "rests_on": rests_on}}
    )
    path = ":memory:" if request.param == "memory" else str(tmp_path / "amv.db")
    with opened(path, policy) as guard:
        for part in PARTS:
            claim = amv.Claim("order/W1", part, part)
            guard.memory.add(f"the {part}", namespace=OWNER, claim=claim, id=part)
            guard.verifier(f"read_{part}")(answering(part))
        yield guard


def answering(value: object) -> Callable[[str], object]:
    """Return a verifier that always reads the same."""
    return lambda order_id: value


def memory_of(guard: amv.Guard) -> list[tuple[Any, ...]]:
    """Return what the memory holds, as far as checks can change it."""
    items = guard.memory.list(namespace=OWNER, status=None).items
    return [
        (i.id, i.claim, i.status, i.last_verified_at, i.contributed_count, i.superseded_by)
        for i in items
    ]


class Writes:
    """Counts writes to a store; *fails* after the work of each, before it is durable."""

    def __init__(self, guard: amv.Guard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.fails = 0, False
        store: Any = guard.memory.store
        write = store.write

        def counted(work: Callable[[Any], Any]) -> Any:
            self.count += 1

            def worked(tx: Any) -> Any:
                result = work(tx)
                if self.fails:
                    raise amv.StoreUnavailable("the disk is gone")
                return result

            return write(worked)

        monkeypatch.setattr(store, "write", counted)


def test_a_decision_and_all_that_its_checks_tell_are_one_write(
    guard: amv.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of its own would wait for the disk once more, and could stand alone."""
    guard.decide(cancel("other"))
    writes = Writes(guard, monkeypatch)

    decision = guard.decide(cancel())

    assert decision.verdict == "PROCEED"
    assert writes.count == 1
    assert decision.values == {part: part for part in PARTS}
    items = guard.memory.list(namespace=OWNER).items
    assert [item.contributed_count for item in items] == [1, 1, 1, 1]
    assert all(item.last_verified_at is not None for item in items)


@pytest.mark.parametrize("reads", ["owner", "nobody", amv.NOT_FOUND])
def test_what_a_decision_that_is_not_written_down_has_read_is_not_told(
    guard: amv.Guard, monkeypatch: pytest.MonkeyPatch, reads: object
) -> None:
    guard.verifier("read_owner")(answering(reads))
    guard.decide(cancel("other"))
    before, writes = memory_of(guard), Writes(guard, monkeypatch)
    writes.fails = True

    decision = guard.decide(cancel())
    writes.fails = False

    assert (decision.verdict, decision.code) == ("ABSTAIN", "gate_error")
    assert memory_of(guard) == before
    assert guard.memory.check() == []
    # It is the write that kept it from being told.
    guard.decide(cancel())
    assert memory_of(guard) != before


def test_evidence_that_comes_twice_is_told_once(guard: amv.Guard) -> None:
    """The one that comes second has decided on a state that is no more."""
    decision = guard.decide(cancel(), run_checks=False)
    assert decision.check is not None
    name, observed = decision.check.verifier, guard._observed
    value = name.removeprefix("read_")

    def slow(*args: Any) -> Any:
        guard._observed = observed  # type: ignore[method-assign]
        guard.evidence(decision.id, name, value)
        return observed(*args)

    guard._observed = slow  # type: ignore[method-assign, assignment]
    with pytest.raises(amv.Conflict, match="went on elsewhere"):
        guard.evidence(decision.id, name, value)

    assert guard.memory.get(value, namespace=OWNER).contributed_count == 1


@pytest.mark.parametrize("reads", ["status", "shipped", amv.NOT_FOUND, ["shipped"]])
@pytest.mark.parametrize("meanwhile", ["forgotten", "replaced", "all forgotten"])
def test_what_is_gone_meanwhile_is_passed_over(
    guard: amv.Guard, reads: object, meanwhile: str
) -> None:
    """The other claims are told of all the same."""

    def change() -> None:
        if meanwhile == "forgotten":
            guard.memory.forget("status", namespace=OWNER)
        elif meanwhile == "replaced":
            guard.memory.refute("status", "lost", namespace=OWNER)
        else:
            guard.memory.forget_namespace(OWNER)

    guard.verifier("read_status")(answering(reads))
    write = guard._store.write

    def late(work: Callable[[GuardWriter], Any]) -> Any:
        change()
        return write(work)

    guard._store.write = late  # type: ignore[method-assign]
    guard.decide(cancel())
    guard._store.write = write  # type: ignore[method-assign]

    wanted = {"forgotten": [], "replaced": ["lost"], "all forgotten": []}[meanwhile]
    found = guard.memory.list(namespace=OWNER).items
    assert [i.claim.value for i in found if i.claim and i.claim.attribute == "status"] == wanted
    owner = [i.contributed_count for i in found if i.id == "owner"]
    assert owner == ([] if meanwhile == "all forgotten" else [1])
    assert guard.memory.check() == []
    assert guard.replay() == []


@pytest.mark.parametrize(
    "reading",
    ["x" * 4097, "\0", "\u00e9" * 2049, ["x" * 5000], {"n": 10**5000}, 10**5000],
    ids=["long", "NUL", "long in bytes", "long list", "integer in it", "integer"],
)
def test_what_no_claim_can_say_is_no_evidence(reading: object) -> None:
    """It would refute a claim, and nothing take its place."""
    with opened() as guard:
        remember(guard)
        guard.verifier("order_status")(answering(reading))

        decision = guard.decide(cancel())

        assert (decision.verdict, decision.code, decision.values) == ("ABSTAIN", "unresolved", {})
        assert decision.checks[0].ended == "failed"
        assert decision.checks[0].problem
        found = guard.memory.find_claim(OWNER, "order/W1", "status")
        assert found is not None
        assert found.claim == amv.Claim("order/W1", "status", "pending")
        assert guard.replay() == []


def test_the_longest_reading_takes_a_claims_place() -> None:
    with opened() as guard:
        remember(guard)
        guard.verifier("order_status")(answering("x" * READING_BYTES_MAX))

        guard.decide(cancel())

        found = guard.memory.find_claim(OWNER, "order/W1", "status")
        assert found is not None
        assert found.claim == amv.Claim("order/W1", "status", "x" * CLAIM_CHARS_MAX)


def test_what_two_checks_found_of_one_item_is_told_in_their_order() -> None:
    """The first to refute it wins; the second has nothing left to refute."""
    rule = {**CANCEL, "rests_on": {"status": dict(CANCEL["rests_on"]["status"])}}
    rule["rests_on"]["status"]["verify_with"] = ["first", "second"]
    check = {"cost": 0.02, "sensitivity": 0.6, "specificity": 0.6}
    policy = policy_of(
        verifiers={"first": check, "second": check},
        actions={"cancel_order": rule},
        defaults={"audit": 1.0},
    )
    with opened(policy=policy) as guard:
        item_id = remember(guard)
        guard.verifier("first")(answering("shipped"))
        guard.verifier("second")(answering("lost"))
        decision = guard.decide(cancel(), run_checks=False)
        read = []
        while decision.check is not None:
            read.append({"first": "shipped", "second": "lost"}[decision.check.verifier])
            decision = guard.evidence(decision.id, decision.check.verifier, read[-1])
        found = guard.memory.list(namespace=OWNER).items

        assert len(read) == 2
        assert [item.claim.value for item in found if item.claim] == read[:1]
        assert guard.memory.get(item_id, namespace=OWNER).superseded_by == found[0].id
