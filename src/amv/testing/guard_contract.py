"""What every store of the gate does, as tests: subclass `GuardStoreContract` and give it stores.

The store of the gate stands beside a memory's, and loses words when the items
that they are about are deleted there; so the contract is given both.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import pytest

from amv.errors import StoreError
from amv.guard.ports import (
    ApprovalRow,
    GuardReader,
    GuardStore,
    GuardWriter,
    LedgerRow,
    RecordRow,
    SpentRow,
    State,
    TextRow,
)
from amv.memory.ports import Store
from amv.testing.row_contract import insert, new_namespace
from amv.testing.samples import plain

T = TypeVar("T")

OWNER = ("alice", "é/x")


class Both(NamedTuple):
    """A store of the gate, and that of the memory beside it."""

    guard: GuardStore
    memory: Store


def record_row(number: int, decision_id: str = "d1", kind: str = "opened") -> RecordRow:
    """Return a record; its hashes need not fit, that is none of a store's business."""
    return RecordRow(number, decision_id, kind, f"before{number}", f"hash{number}", b'{"n": 1}')


def ledger_row(key: str = "k", **fields: object) -> LedgerRow:
    """Return a row of the ledger."""
    row = LedgerRow(key, "digest", State.APPROVED, f"permit of {key}", 60.5, f"d of {key}", 1.25)
    return row._replace(**fields)  # type: ignore[arg-type]


def approval_row(approval_id: str = "a", **fields: object) -> ApprovalRow:
    """Return a request to a person."""
    row = ApprovalRow(approval_id, "d1", "digest", "pending", 1.0, 2.5, "")
    return row._replace(**fields)  # type: ignore[arg-type]


def text_row(decision_id: str = "d1", *item_ids: str) -> TextRow:
    """Return words about items."""
    return TextRow(decision_id, OWNER, item_ids, b"words of " + decision_id.encode())


WRITES: dict[str, Callable[[GuardWriter], None]] = {
    "append": lambda tx: tx.append(record_row(2)),
    "put_ledger": lambda tx: tx.put_ledger(ledger_row(state=State.UNKNOWN)),
    "put_replaced": lambda tx: tx.put_replaced("old permit", "digest"),
    "put_text": lambda tx: tx.put_text(text_row("d2")),
    "put_approval": lambda tx: tx.put_approval(approval_row(state="used", decided_key="k1")),
    "put_spent": lambda tx: tx.put_spent(SpentRow("purse", "k", 7.0, 1.25)),
}
"""A call of each method of `GuardWriter` that changes a populated store."""


def populate(tx: GuardWriter) -> None:
    """Write one row of each sort."""
    tx.append(record_row(1))
    tx.put_ledger(ledger_row())
    tx.put_text(text_row("d1"))
    tx.put_approval(approval_row())


def each(put: Callable[[T], None], rows: Iterable[T]) -> None:
    """Put several rows."""
    for row in rows:
        put(row)


def overview(reader: GuardReader) -> tuple[object, ...]:
    """Return all that `populate` and `WRITES` touch."""
    return (
        reader.records(),
        reader.ledger("k"),
        reader.replaced("old permit"),
        reader.text("d1"),
        reader.text("d2"),
        reader.approvals(),
        reader.spent("purse", since_s=0.0, now_s=2.0, but=""),
    )


class GuardStoreContract:
    """All that is asked of any store of the gate."""

    @pytest.fixture
    def both(self) -> Iterator[Both]:
        """Give an open, empty store of the gate with the memory's, and close it afterwards."""
        raise NotImplementedError("override this fixture so that it yields your stores")

    @pytest.fixture
    def store(self, both: Both) -> GuardStore:
        """Give the store of the gate."""
        return both.guard

    def test_an_empty_store_has_nothing(self, store: GuardStore) -> None:
        """Nothing found is no error."""
        with store.read() as reader:
            assert reader.last_record() is None
            assert reader.records() == []
            assert reader.opened(OWNER, after=0, limit=9) == []
            assert reader.ledger("k") is None
            assert reader.ledger_of("d") is None
            assert reader.granted("p") is None
            assert reader.replaced("p") is None
            assert reader.in_state(State.DISPATCHED, 1e12) == []
            assert reader.text("d") is None
            assert reader.approval("a") is None
            assert reader.approvals() == []

    def test_records_come_back_in_order_by_what_is_asked(self, store: GuardStore) -> None:
        """All of them, of one decision, of one kind, after a number, and so many."""
        rows = [
            record_row(1, "d1", "opened"),
            record_row(2, "d2", "opened"),
            record_row(3, "d1", "observed"),
            record_row(4, "d1", "moved"),
        ]
        store.write(lambda tx: each(tx.append, rows))

        with store.read() as reader:
            assert reader.records() == rows
            assert reader.last_record() == rows[-1]
            assert reader.records(decision_id="d1") == [rows[0], rows[2], rows[3]]
            assert reader.records(kind="opened") == rows[:2]
            assert reader.records(after=1, decision_id="d1", kind="observed") == [rows[2]]
            assert reader.records(after=1, limit=2) == rows[1:3]
            assert reader.records(limit=0) == []

    def test_decisions_are_found_by_their_namespace_and_those_above(
        self, store: GuardStore
    ) -> None:
        """A namespace that only begins with the same letters is another one."""
        names = [("a",), ("a", "b"), ("ab",), ('a"', "b"), ("a", "b", "c"), ("é",), ("a",), ("b",)]

        def work(tx: GuardWriter) -> None:
            for n, name in enumerate(names):
                tx.append(record_row(2 * n + 1, f"d{n}"))
                tx.append(record_row(2 * n + 2, f"d{n}", "observed"))
                tx.put_text(text_row(f"d{n}")._replace(namespace=name))
            tx.append(record_row(2 * len(names) + 1, "without words"))

        store.write(work)

        def found(*name: str, after: int = 0, limit: int = 99) -> list[str]:
            rows = reader.opened(name, after=after, limit=limit)
            assert all(row.kind == "opened" for row in rows)
            return [row.decision_id for row in rows]

        with store.read() as reader:
            assert found("a") == ["d0", "d1", "d4", "d6"]
            assert found("a", "b") == ["d1", "d4"]
            assert found('a"') == ["d3"]
            assert found("é") == ["d5"]
            assert found("c") == []
            assert found("a", after=1, limit=2) == ["d1", "d4"]
            assert found("a", after=9) == ["d6"]

    @pytest.mark.parametrize("number", [0, 1, 3, -1])
    def test_a_record_with_a_wrong_number_is_refused(self, store: GuardStore, number: int) -> None:
        """The log has neither gaps nor two records of one number; the write leaves nothing."""
        store.write(lambda tx: tx.append(record_row(1)))

        def work(tx: GuardWriter) -> None:
            tx.put_ledger(ledger_row())
            tx.append(record_row(number))

        with pytest.raises(StoreError, match="the next record is number 2"):
            store.write(work)

        with store.read() as reader:
            assert reader.records() == [record_row(1)]
            assert reader.ledger("k") is None

    def test_the_ledger_is_found_by_key_permit_and_decision(self, store: GuardStore) -> None:
        """And a row that is put again replaces the one before, its permit with it."""
        one, other = ledger_row("k1"), ledger_row("k2")
        renewed = one._replace(permit_hash="new permit", decision_id="later", state=State.FAILED)
        store.write(lambda tx: each(tx.put_ledger, (one, other)))
        with store.read() as reader:
            assert (reader.ledger("k1"), reader.ledger("k2")) == (one, other)
            assert reader.granted(one.permit_hash) == one
            assert reader.ledger_of(other.decision_id) == other
        store.write(lambda tx: tx.put_ledger(renewed))

        with store.read() as reader:
            assert reader.ledger("k1") == renewed
            assert reader.granted(one.permit_hash) is None
            assert reader.granted("new permit") == renewed
            assert reader.ledger_of(one.decision_id) is None
            found = reader.ledger("k1")
            assert found is not None
            assert found.state is State.FAILED

    def test_a_ledger_row_keeps_the_approval_it_was_granted_by(self, store: GuardStore) -> None:
        """Redeeming its permit uses that up."""
        row = ledger_row(approval_id="a1")
        store.write(lambda tx: tx.put_ledger(row))

        with store.read() as reader:
            assert reader.ledger("k") == row

    def test_permits_that_were_replaced_are_known(self, store: GuardStore) -> None:
        """Whoever holds one is told what became of it."""
        store.write(lambda tx: tx.put_replaced("one", "digest"))
        store.write(lambda tx: tx.put_replaced("one", "digest"))

        with store.read() as reader:
            assert reader.replaced("one") == "digest"
            assert reader.replaced("other") is None

    def test_rows_in_a_state_since_before_a_moment(self, store: GuardStore) -> None:
        """Oldest first; what changed at that very moment is not before it."""
        rows = [
            ledger_row(f"k{n}", state=state, changed_s=float(at))
            for n, (state, at) in enumerate(
                [(State.DISPATCHED, 5), (State.DISPATCHED, 3), (State.UNKNOWN, 1)]
            )
        ]
        store.write(lambda tx: each(tx.put_ledger, rows))

        with store.read() as reader:
            assert reader.in_state(State.DISPATCHED, 6.0) == [rows[1], rows[0]]
            assert reader.in_state(State.DISPATCHED, 5.0) == [rows[1]]

    def test_words_are_replaced(self, store: GuardStore) -> None:
        """A decision has one text, that of its last check."""
        store.write(lambda tx: tx.put_text(text_row()))
        store.write(lambda tx: tx.put_text(text_row()._replace(body=b"new")))

        with store.read() as reader:
            assert reader.text("d1") == text_row()._replace(body=b"new")

    def test_the_newest_record_is_found_of_a_decision_and_of_a_kind(
        self, store: GuardStore
    ) -> None:
        """And of a decision of some kind."""
        rows = [record_row(1), record_row(2, "d2"), record_row(3, "d1", "moved")]
        store.write(lambda tx: each(tx.append, rows))

        with store.read() as reader:
            assert reader.last_record("d1") == rows[2]
            assert reader.last_record("d1", kind="opened") == rows[0]
            assert reader.last_record(kind="opened") == rows[1]
            assert reader.last_record("none") is None
            assert reader.last_record(kind="none") is None

    def test_what_was_taken_of_a_purse_counts_while_its_grant_stands(
        self, store: GuardStore
    ) -> None:
        """What surely came to nothing is given back, and nothing else."""
        states = {state.value: ledger_row(state.value, state=state) for state in State}
        over = ledger_row("over", state=State.APPROVED, expires_s=10.0)

        def work(tx: GuardWriter) -> None:
            each(tx.put_ledger, [*states.values(), over])
            for number, key in enumerate([*states, "over"]):
                tx.put_spent(SpentRow("p", key, 2.0**number, 1.0))
            tx.put_spent(SpentRow("p", State.UNKNOWN, 100.5, 5.0))
            tx.put_spent(SpentRow("q", State.UNKNOWN, 9.0, 5.0))

        store.write(work)

        def spent(purse: str = "p", **how: object) -> list[float]:
            asked = {"since_s": 0.0, "now_s": 10.0, "but": "", **how}
            with store.read() as reader:
                return sorted(reader.spent(purse, **asked))  # type: ignore[arg-type]

        # A permit that has expired, and what FAILED, are given back; a key counts once.
        standing = [1.0, 2.0, 4.0, 8.0, 100.5]
        assert list(State).index(State.FAILED) == 4
        assert spent() == standing
        assert spent(now_s=9.75) == sorted([*standing, 64.0])
        assert spent(now_s=60.5) == standing[1:]
        assert spent(since_s=1.0) == [100.5]
        assert spent(but="SUCCEEDED") == [1.0, 2.0, 4.0, 100.5]
        assert spent("q") == [9.0]
        assert spent("none") == []

    @pytest.mark.parametrize("name", WRITES)
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_a_write_that_raises_leaves_nothing(
        self, store: GuardStore, name: str, error: type[BaseException]
    ) -> None:
        """After it was seen to change something within its own transaction."""
        store.write(populate)
        with store.read() as reader:
            before = overview(reader)

        def work(tx: GuardWriter) -> None:
            WRITES[name](tx)
            assert overview(tx) != before
            raise error

        with pytest.raises(error):
            store.write(work)

        with store.read() as reader:
            assert overview(reader) == before

    def test_a_write_returns_what_its_work_returned(self, store: GuardStore) -> None:
        """That is how a decision reaches its caller."""
        answer = object()

        assert store.write(lambda tx: answer) is answer

    def test_writes_of_many_threads_take_turns(self, store: GuardStore) -> None:
        """What a transaction reads stays so until it ends: no number is given twice."""
        start = threading.Barrier(8)

        def work(tx: GuardWriter) -> None:
            last = tx.last_record()
            tx.append(record_row(1 if last is None else last.number + 1))

        def append(_: int) -> None:
            start.wait()
            for _ in range(5):
                store.write(work)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append, range(8)))

        with store.read() as reader:
            assert [row.number for row in reader.records()] == list(range(1, 41))

    def test_the_secret_is_made_once(self, store: GuardStore) -> None:
        """And is long enough to tell nothing."""
        assert store.secret() == store.secret()
        assert len(store.secret()) == 32


class ForgettingContract(GuardStoreContract):
    """Words go with what they are about; records, numbers only, stay."""

    @pytest.fixture
    def keys(self, both: Both) -> dict[str, int]:
        """Add two items, and words about one, the other, both and neither."""
        ns_id = new_namespace(both.memory, *OWNER)
        one, other = insert(both.memory, plain(ns_id, "one"), plain(ns_id, "other"))

        def work(tx: GuardWriter) -> None:
            tx.append(record_row(1))
            for row in (
                text_row("of one", "one", "one"),
                text_row("of other", "other"),
                text_row("of both", "one", "other"),
                text_row("of none"),
            ):
                tx.put_text(row)

        both.guard.write(work)
        return {"one": one, "other": other, "ns_id": ns_id}

    def left(self, both: Both) -> list[str]:
        """Return the decisions that still have words."""
        with both.guard.read() as reader:
            assert reader.records() == [record_row(1)]
            names = ("of one", "of other", "of both", "of none", "late")
            return [name for name in names if reader.text(name) is not None]

    def test_words_name_each_item_once(self, both: Both, keys: dict[str, int]) -> None:
        """In order, so that two stores give the same."""
        with both.guard.read() as reader:
            assert reader.text("of one") == text_row("of one", "one")
            assert reader.text("of both") == text_row("of both", "one", "other")

    def test_words_go_when_an_item_of_theirs_is_deleted(
        self, both: Both, keys: dict[str, int]
    ) -> None:
        """Also if it is only one of several."""
        both.memory.write(lambda tx: tx.delete([keys["one"], 999]))

        assert self.left(both) == ["of other", "of none"]

    def test_words_go_with_their_namespace(self, both: Both, keys: dict[str, int]) -> None:
        """Those about no item as well."""
        both.memory.write(lambda tx: tx.drop_namespace(keys["ns_id"]))

        assert self.left(both) == []

    def test_words_about_no_item_go_with_their_namespace_alone(self, both: Both) -> None:
        """It need not be there: what nobody remembers has none."""
        words = text_row("d1")._replace(namespace=("nobody",))
        both.guard.write(lambda tx: tx.put_text(words))
        both.guard.write(lambda tx: tx.put_text(text_row("d2")))

        def undone(tx: object) -> None:
            assert tx.drop_beside(("nobody",))  # type: ignore[attr-defined]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            both.memory.write(undone)
        with both.guard.read() as reader:
            assert reader.text("d1") == words
        assert both.memory.write(lambda tx: tx.drop_beside(("nobody",)))

        with both.guard.read() as reader:
            assert reader.text("d1") is None
            assert reader.text("d2") == text_row("d2")

    def test_an_item_of_another_namespace_takes_nothing_along(
        self, both: Both, keys: dict[str, int]
    ) -> None:
        """Though it has the same id."""
        ns_id = new_namespace(both.memory, "bob")
        (key,) = insert(both.memory, plain(ns_id, "one"))
        both.memory.write(lambda tx: tx.delete([key]))
        both.memory.write(lambda tx: tx.drop_namespace(ns_id))

        assert self.left(both) == ["of one", "of other", "of both", "of none"]

    def test_a_deletion_that_is_undone_takes_nothing_along(
        self, both: Both, keys: dict[str, int]
    ) -> None:
        """Words go when the item does."""

        def work(tx: object) -> None:
            tx.delete([keys["one"]])  # type: ignore[attr-defined]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            both.memory.write(work)

        assert self.left(both) == ["of one", "of other", "of both", "of none"]

    @pytest.mark.parametrize("item_ids", [("gone",), ("other", "gone"), ("one", "other")])
    def test_words_about_what_is_gone_are_not_kept(
        self, both: Both, keys: dict[str, int], item_ids: tuple[str, ...]
    ) -> None:
        """An item may be forgotten while a decision is made; nothing would forget its words."""
        both.memory.write(lambda tx: tx.delete([keys["one"]]))
        both.guard.write(lambda tx: tx.put_text(text_row("late", *item_ids)))

        assert self.left(both) == ["of other", "of none"]

    def test_words_are_dropped_when_they_come_to_be_about_what_is_gone(
        self, both: Both, keys: dict[str, int]
    ) -> None:
        """What was kept before goes as well: it is older words of the same decision."""
        both.guard.write(lambda tx: tx.put_text(text_row("late", "other")))
        both.guard.write(lambda tx: tx.put_text(text_row("late", "other", "gone")))

        assert "late" not in self.left(both)
