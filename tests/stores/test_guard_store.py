"""What the gate writes down: in SQLite, beside the memory; in the process, the same."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import amv
from amv.guard.ports import GuardWriter
from amv.stores.memory import MemoryStore
from amv.stores.memory.guard import MemoryGuardStore
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.guard import (
    APPROVALS_OF,
    OPENED,
    OPENED_WITHIN,
    SqliteGuardReader,
    SqliteGuardStore,
    approvals_page,
)
from amv.stores.sqlite.migrate import migrations
from amv.testing.guard_contract import (
    Both,
    ForgettingContract,
    approval_row,
    ledger_row,
    populate,
    record_row,
    text_row,
)
from amv.testing.request_contract import RequestContract
from tests.guard.gates import OWNER, cancel, opened, policy_of, remember
from tests.stores.older import turn_back

CANARY = "zqcanaryxj"


class TestMemoryGuardStore(ForgettingContract, RequestContract):
    @pytest.fixture
    def both(self) -> Iterator[Both]:
        with closing(MemoryStore()) as store:
            yield Both(MemoryGuardStore(store), store)


class TestSqliteGuardStore(ForgettingContract, RequestContract):
    @pytest.fixture
    def both(self, path: Path) -> Iterator[Both]:
        with closing(SqliteStore.open(path)) as store:
            yield Both(SqliteGuardStore(store), store)


def test_everything_is_there_after_reopening(path: Path) -> None:
    with closing(SqliteStore.open(path)) as store:
        guard = SqliteGuardStore(store)
        guard.write(populate)
        secret = guard.secret()
        with guard.read() as reader:
            before = reader.records(), reader.ledger("k"), reader.text("d1"), reader.approvals()

    with closing(SqliteStore.open(path)) as store:
        guard = SqliteGuardStore(store)
        with guard.read() as reader:
            after = reader.records(), reader.ledger("k"), reader.text("d1"), reader.approvals()

        assert after == before
        assert guard.secret() == secret


def test_two_gates_that_open_a_new_file_at_once_agree_on_the_secret(path: Path) -> None:
    """The second finds in its transaction what the first has made meanwhile."""
    with closing(SqliteStore.open(path)) as store, closing(SqliteStore.open(path)) as other:
        one = SqliteGuardStore(store)
        late = SqliteGuardStore(_Hasty(other, one))  # type: ignore[arg-type]

        assert late.secret() == one.secret()


class _Hasty:
    """A store in which somebody else was faster, between a look and a write."""

    def __init__(self, store: SqliteStore, faster: SqliteGuardStore) -> None:
        self.read = store.read
        self._store = store
        self._faster = faster

    def write(self, work: object) -> object:
        self._faster.secret()
        return self._store.write(work)  # type: ignore[arg-type]


def test_a_file_of_the_first_version_keeps_everything(path: Path) -> None:
    """Opening it adds the gate's tables, and changes none of the items."""
    with amv.Memory.open(str(path), embedder="hashing:64") as memory:
        for number in range(30):
            memory.add(f"number {number}", namespace=OWNER, id=f"item{number}")
        before = list(memory.export_items(vectors=True))
    turn_back(path, 1)
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("PRAGMA user_version").get == 1

    with opened(str(path)) as guard:
        assert list(guard.memory.export_items(vectors=True)) == before
        assert guard.memory.check() == []
        remember(guard)
        guard.decide(cancel())
        assert guard.replay() == []
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("PRAGMA user_version").get == len(migrations())


def test_a_state_that_is_none_is_reported_as_damage(path: Path) -> None:
    """Neither passed on nor taken for a grant."""
    with closing(SqliteStore.open(path)) as store:
        guard = SqliteGuardStore(store)
        guard.write(lambda tx: tx.put_ledger(ledger_row()))
        store.write(lambda tx: tx.execute("UPDATE guard_ledger SET state = 'GRANTED'"))  # type: ignore[attr-defined]

        with guard.read() as reader, pytest.raises(amv.StoreError, match="the ledger is damaged"):
            reader.ledger("k")


def test_two_processes_share_one_ledger(path: Path) -> None:
    """What another process was granted is not granted here, and its records chain with ours."""
    code = (
        "from tests.guard.gates import *\n"
        f"with opened({str(path)!r}) as guard:\n"
        "    guard.verifier('order_status')(lambda order_id: 'pending')\n"
        "    for order_id in ('W1', 'W2'):\n"
        "        remember(guard, order_id=order_id)\n"
        "    decision = guard.decide(cancel())\n"
        "    key = guard.redeem(decision.permit.token, cancel())\n"
        "    guard.dispatched(key)\n"
    )
    with opened(str(path)) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        subprocess.run([sys.executable, "-c", code], check=True)

        assert guard.decide(cancel()).code == "granted_before"
        assert guard.decide(cancel("W2")).verdict == "PROCEED"
        assert guard.replay() == []


@pytest.mark.parametrize("forgets", ["item", "found", "many", "namespace"])
@pytest.mark.parametrize("is_file", [True, False])
def test_no_word_of_a_decision_outlives_what_it_is_about(
    path: Path, forgets: str, is_file: bool
) -> None:
    """Its numbers do: a replay needs no words, and the chain of records stays whole.

    The words are the value remembered, the value read, an argument, and what a
    check that went wrong has said.
    """
    policy = policy_of(
        verifiers={
            "order_status": {"cost": 0.02, "args": {"order_id": "$order_id"}},
            "broken": {"cost": 0.01},
        }
    )
    policy["actions"]["cancel_order"] = {
        **policy["actions"]["cancel_order"],
        "rests_on": {
            "status": {
                "claim": "order/{order_id}/status",
                "verify_with": ["broken", "order_status"],
            }
        },
    }
    guard = opened(str(path) if is_file else ":memory:", policy)

    @guard.verifier("broken")
    def broken(**arguments: str) -> str:
        raise ValueError(f"{CANARY}3")

    guard.verifier("order_status")(lambda order_id: f"{CANARY}2")
    item_id = remember(guard, f"{CANARY}0")
    decision = guard.decide(cancel(note=f"{CANARY}1"))
    assert decision.verdict == "REPAIR"
    words = guard.explain(decision.id)
    assert f"{CANARY}0" in words
    assert f"{CANARY}3" in words
    (found,) = [i.id for i in guard.memory.list(namespace=OWNER).items]

    if forgets == "item":
        guard.memory.forget(item_id)
    elif forgets == "found":
        guard.memory.forget(found)
    elif forgets == "many":
        guard.memory.forget_many([item_id, found], namespace=OWNER)
    else:
        guard.memory.forget_namespace(OWNER)

    assert CANARY not in guard.explain(decision.id)
    assert "were forgotten" in guard.explain(decision.id)
    assert guard.get(decision.id).values == {}
    assert guard.replay() == []
    if is_file and forgets in ("many", "namespace"):
        names = [str(file) for file in path.parent.iterdir()]
        stored = subprocess.run(["cat", *names], capture_output=True, check=True).stdout
        assert len(stored) > 10_000
        assert CANARY.encode() not in stored
    guard.close()


def test_control_the_words_of_a_decision_are_in_the_file_until_then(path: Path) -> None:
    """Or the search for their bytes would prove nothing."""
    with opened(str(path)) as guard:
        remember(guard)
        guard.decide(cancel(note=CANARY))
        names = [str(file) for file in path.parent.iterdir()]

        stored = subprocess.run(["cat", *names], capture_output=True, check=True).stdout
        assert CANARY.encode() in stored


def test_what_is_forgotten_while_a_check_runs_is_not_written_down(path: Path) -> None:
    with opened(str(path), policy_of(defaults={"audit": 1.0})) as guard:
        item_id = remember(guard, CANARY)

        # Another interpreter starts meanwhile, which takes its time on a busy machine.
        @guard.verifier("order_status", timeout_s=120.0)
        def order_status(order_id: str) -> str:
            _forget_elsewhere(path, item_id)
            return "pending"

        decision = guard.decide(cancel())

        assert CANARY not in guard.explain(decision.id)
        assert guard.replay() == []


def _forget_elsewhere(path: Path, item_id: str) -> None:
    code = f"import amv\nwith amv.Memory.open({str(path)!r}) as m: m.forget({item_id!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("is_file", [True, False])
def test_words_about_what_was_never_remembered_go_with_their_namespace(
    path: Path, is_known: bool, is_file: bool
) -> None:
    """Whether anything else was ever remembered in it or not."""
    guard = opened(str(path) if is_file else ":memory:")
    guard.verifier("order_status")(lambda order_id: f"{order_id} is shipped")
    if is_known:
        guard.memory.add("something else", namespace=OWNER)
    decision = guard.decide(cancel(f"{CANARY}0", note=f"{CANARY}1"))
    other = guard.decide(
        amv.Action(tool="cancel_order", arguments={"order_id": "W7"}, namespace=("bob",))
    )
    assert f"{CANARY}0" in guard.explain(decision.id)

    if is_known:
        guard.memory.forget_namespace(OWNER)
    else:
        with pytest.raises(amv.ItemNotFound, match="no namespace"):
            guard.memory.forget_namespace(OWNER)

    assert CANARY not in guard.explain(decision.id)
    assert "were forgotten" in guard.explain(decision.id)
    assert guard.decisions(namespace=OWNER) == []
    assert "W7" in guard.explain(other.id)
    assert guard.memory.namespaces() == []
    assert guard.memory.check() == []
    assert guard.replay() == []
    if is_file:
        names = [str(file) for file in path.parent.iterdir()]
        stored = subprocess.run(["cat", *names], capture_output=True, check=True).stdout
        assert len(stored) > 10_000
        assert CANARY.encode() not in stored
    guard.close()


PAGES = {
    "decisions": (OPENED, (0, 9)),
    "decisions within": (OPENED_WITHIN, ("a", 0, 9)),
    **{
        f"requests{' of a state' * of_state}{' within' * within}": (
            approvals_page(is_of_state=of_state, is_within=within),
            (*["pending"] * of_state, *["a"] * within, 0.0, "", 9),
        )
        for of_state in (False, True)
        for within in (False, True)
    },
    "requests for an action": (APPROVALS_OF, ("digest", "pending")),
}


@pytest.mark.parametrize("name", PAGES)
def test_what_is_listed_is_a_range_of_an_index(path: Path, name: str) -> None:
    """Nothing of others is gone through, and nothing sorted."""
    statement, params = PAGES[name]
    with closing(SqliteStore.open(path)) as store, store.read() as reader:
        plan = reader.execute(f"EXPLAIN QUERY PLAN {statement}", params)  # type: ignore[attr-defined]
        steps = [step for *_, step in plan]

    assert steps
    assert not [step for step in steps if "SCAN" in step or "TEMP B-TREE" in step], steps


@pytest.mark.parametrize("namespace", [(), OWNER])
@pytest.mark.parametrize("what", ["decisions", "requests"])
def test_a_page_costs_what_it_holds_however_much_there_is(
    path: Path, what: str, namespace: tuple[str, ...]
) -> None:
    """Counted in steps of SQLite's machine: ten times as many rows make it no dearer."""
    steps = []
    with closing(SqliteStore.open(path)) as store:
        guard = SqliteGuardStore(store)
        for part in range(2):

            def fill(tx: GuardWriter, part: int = part) -> None:
                first = 0 if part == 0 else 300
                for n in range(first, 300 if part == 0 else 3000):
                    tx.append(record_row(n + 1, f"d{n:05}"))
                    owner = OWNER if n % 2 else ("others",)
                    tx.put_text(text_row(f"d{n:05}")._replace(namespace=owner))
                    tx.put_approval(
                        approval_row(f"a{n:05}", decision_id=f"d{n:05}", created_s=float(n))
                    )

            guard.write(fill)
            with store.read() as reader:
                count = [0]

                def tick(count: list[int] = count) -> bool:
                    count[0] += 1
                    return False

                connection = reader.execute("SELECT 1").connection  # type: ignore[attr-defined]
                connection.set_progress_handler(tick, 10)
                own = SqliteGuardReader(reader.execute)  # type: ignore[attr-defined]
                if what == "requests":
                    page = own.approvals("pending", namespace=namespace, after=(99.0, ""), limit=20)
                    assert len(page) == 20
                elif namespace:
                    assert len(own.opened(namespace, after=99, limit=20)) == 20
                else:
                    assert len(own.records(kind="opened", after=99, limit=20)) == 20
                connection.set_progress_handler(None)
            steps.append(count[0])

    assert 0 < steps[1] <= 1.2 * steps[0]


def test_what_a_decision_reads_and_writes_costs_the_same_after_ten_times_as_many(
    path: Path,
) -> None:
    """Counted in steps of SQLite's machine, too."""
    with closing(SqliteStore.open(path)) as store:
        guard = SqliteGuardStore(store)

        def decide(tx: GuardWriter, n: int) -> None:
            decision_id = f"d{n:05}"
            tx.append(record_row(n, decision_id))
            tx.put_text(text_row(decision_id)._replace(namespace=OWNER))
            tx.put_approval(approval_row(f"a{n:05}", decision_id=decision_id))
            tx.put_ledger(ledger_row(decision_id, decision_id=decision_id))
            assert tx.last_record(decision_id) == tx.last_record(decision_id, kind="opened")
            assert len(tx.records(decision_id=decision_id)) == 1
            assert len(tx.records(decision_id=decision_id, kind="opened", limit=1)) == 1

        def steps_of(tx: GuardWriter, n: int) -> int:
            count = [0]

            def tick() -> bool:
                count[0] += 1
                return False

            connection = tx._execute("SELECT 1").connection  # type: ignore[attr-defined]
            connection.set_progress_handler(tick, 10)
            decide(tx, n)
            connection.set_progress_handler(None)
            return count[0]

        def fill(tx: GuardWriter, first: int, end: int) -> None:
            for n in range(first, end):
                decide(tx, n)

        guard.write(lambda tx: fill(tx, 1, 300))
        before = guard.write(lambda tx: steps_of(tx, 300))
        guard.write(lambda tx: fill(tx, 301, 3000))
        after = guard.write(lambda tx: steps_of(tx, 3000))

    assert 0 < after <= 1.2 * before


def test_a_file_of_before_pages_lists_the_same(path: Path) -> None:
    """Decisions and requests, in each namespace and those above, with odd names."""
    names = [("a",), ("a", "b c"), ('q"', "\\", "\t\u00e9\u2028'/"), ("a", "b c", "d")]
    policy = policy_of()
    policy["actions"]["cancel_order"] = {**policy["actions"]["cancel_order"], "approval": True}

    def listed(guard: amv.Guard) -> list[object]:
        found: list[object] = []
        for name in names:
            for depth in range(len(name) + 1):
                within = name[:depth]
                found.append([one.id for _, one in guard.decisions(namespace=within)])
                found += [guard.approvals.list(s, namespace=within) for s in (None, "pending")]
        return found

    with opened(str(path), policy) as guard:
        for number, name in enumerate(names * 2):
            action = amv.Action("cancel_order", {"order_id": f"W{number}"}, namespace=name)
            assert guard.decide(action).approval_id
        guard.approve(guard.approvals.list()[3].approval_id, by="ann")
        guard.memory.add("x", namespace=("a",))
        before = listed(guard)
    turn_back(path, 6)

    with opened(str(path), policy) as guard:
        assert listed(guard) == before
        guard.memory.forget_namespace(("a",))
        assert listed(guard) != before
        assert guard.decisions(namespace=("a",)) == guard.decisions(namespace=("a", "b c"))
        assert guard.replay() == []
