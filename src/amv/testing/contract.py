"""What every store does, as tests: subclass `StoreContract` and give it a store.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            store = MyStore()
            yield store
            store.close()

A store that outlives its process passes `DurableStoreContract` as well, which
also needs a way to close it and open it anew.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from amv.errors import StoreClosed
from amv.memory.item import Namespace, State
from amv.memory.ports import Event, Store, Writer
from amv.memory.value import EventKind
from amv.testing.actions import ACTIONS
from amv.testing.index_contract import CellContract, PostingContract, VectorContract
from amv.testing.query_contract import FilterContract, TierContract, TimeContract
from amv.testing.row_contract import NamespaceContract, RowContract, insert, new_namespace
from amv.testing.samples import NOW_S, Scene, gateway_key, picture, plain, populate, populated

LOOKALIKES: tuple[tuple[Namespace, Namespace], ...] = (
    (("a/b",), ("a", "b")),
    (("a", "b"), ("a",)),
    (("a", "b", "c"), ("a", "b/c")),
    (('a","b',), ("a", "b")),
    (("a\x1fb",), ("a", "b")),
    (("foo",), ("foobar",)),
    (("john_doe",), ("john-doe",)),
    (("a%",), ("abc",)),
    (("Alice",), ("alice",)),
    (("\u00e9",), ("e\u0301",)),
    (("1",), ("01",)),
)


class Abandoned(Exception):
    """What the contract raises to have a write undone."""


class TransactionContract:
    """Writes happen as a whole or not at all."""

    @pytest.mark.parametrize("name", ACTIONS)
    def test_a_write_that_raises_leaves_nothing(self, store: Store, name: str) -> None:
        """After the same call was seen to change something, within its own transaction."""
        scene = populated(store, "alice")
        before = overview(store, scene)
        raised = Abandoned()

        def work(writer: Writer) -> None:
            ACTIONS[name](writer, scene)
            seen = (writer.meta("embedder"), writer.namespaces(), picture(writer, scene))
            assert seen != before
            raise raised

        with pytest.raises(Abandoned) as caught:
            store.write(work)

        assert caught.value is raised
        assert overview(store, scene) == before
        assert store.check() == []

    def test_a_write_of_everything_is_undone_also_when_interrupted(self, store: Store) -> None:
        """Ctrl-C is no `Exception`, and half a write is no better for it."""
        scene = populated(store, "alice")
        before = overview(store, scene)

        def work(writer: Writer) -> None:
            for action in ACTIONS.values():
                action(writer, scene)
            populate(writer, ("bob",))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.write(work)

        assert overview(store, scene) == before

    def test_a_store_works_on_after_a_write_that_raised(self, store: Store) -> None:
        """Neither a lock nor an open transaction stays behind."""
        ns_id = new_namespace(store)

        def work(writer: Writer) -> None:
            writer.insert([plain(ns_id, "a")])
            raise Abandoned

        for _ in range(3):
            with pytest.raises(Abandoned):
                store.write(work)
        (key,) = insert(store, plain(ns_id, "a"))

        with store.read() as reader:
            assert list(reader.rows([key])) == [key]

    def test_a_write_returns_what_its_work_returned(self, store: Store) -> None:
        """That is how new keys reach the caller."""
        answer = object()

        assert store.write(lambda w: answer) is answer

    def test_a_snapshot_shows_one_moment(self, store: Store) -> None:
        """What another thread writes meanwhile is seen by the next snapshot, whole."""
        scene = populated(store, "alice")
        started = threading.Event()

        def change() -> None:
            started.set()
            drop(store, scene)

        with ThreadPoolExecutor(1) as pool:
            with store.read() as reader:
                before = picture(reader, scene)
                done = pool.submit(change)
                started.wait()
                # Long enough for a write that need not wait for the snapshot to be done.
                done_event = threading.Event()
                done.add_done_callback(lambda _: done_event.set())
                done_event.wait(0.2)
                assert picture(reader, scene) == before
            done.result(timeout=30)
        with store.read() as reader:
            assert reader.namespace(("alice",)) is None

    def test_writers_take_turns(self, store: Store) -> None:
        """Each sees what the one before it wrote, so that no increment is lost."""
        new_namespace(store)

        def work(writer: Writer) -> None:
            row = writer.namespace(("alice",))
            assert row is not None
            writer.put_namespace(replace(row, version=row.version + 1))

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(store.write, work) for _ in range(40)]:
                done.result(timeout=30)

        with store.read() as reader:
            row = reader.namespace(("alice",))
        assert row is not None
        assert row.version == 40

    def test_settings_are_kept_until_removed(self, store: Store) -> None:
        """Such as which model made the vectors."""
        store.write(lambda w: w.set_meta("a", "1"))
        store.write(lambda w: w.set_meta("a", "zwei\n"))
        store.write(lambda w: w.set_meta("b", ""))
        store.write(lambda w: w.set_meta("absent", None))

        with store.read() as reader:
            assert [reader.meta(one) for one in ("a", "b", "absent")] == ["zwei\n", "", None]
        store.write(lambda w: w.set_meta("a", None))
        with store.read() as reader:
            assert [reader.meta(one) for one in ("a", "b")] == [None, ""]

    def test_keys_to_the_gateway_are_kept_and_replaced_by_their_id(self, store: Store) -> None:
        """As when one is revoked; all are listed, oldest first."""
        first = gateway_key("b", "alice", "\u00e9/%")
        later = gateway_key("a")._replace(created_s=NOW_S + 1.0)
        store.write(lambda w: w.put_key(later))
        store.write(lambda w: w.put_key(first))
        revoked = later._replace(revoked_s=NOW_S + 2.5)

        with store.read() as reader:
            assert reader.keys() == [first, later]
        store.write(lambda w: w.put_key(revoked))
        with store.read() as reader:
            assert [reader.key(one) for one in ("b", "a", "absent")] == [first, revoked, None]
            assert reader.keys() == [first, revoked]


class IsolationContract:
    """No namespace sees, changes or outlives another."""

    @pytest.mark.parametrize(("name", "other"), LOOKALIKES)
    def test_lookalike_names_are_different_namespaces(
        self, store: Store, name: Namespace, other: Namespace
    ) -> None:
        """One is untouched by everything that can be done to the other."""
        for first, second in ((name, other), (other, name)):
            scene = populated(store, *first)
            before = overview(store, scene)[2]
            twin = populated(store, *second)
            assert overview(store, scene)[2] == before
            assert overview(store, twin)[2] != before

            drop(store, twin)

            assert overview(store, scene)[2] == before
            drop(store, scene)

    # A change of embedder, and so what is staged for it, is the whole store's; so are keys.
    @pytest.mark.parametrize("name", sorted(ACTIONS.keys() - {"clear_stage", "put_key"}))
    def test_no_write_to_one_namespace_shows_in_another(self, store: Store, name: str) -> None:
        """Both hold the same ids, claims and words."""
        scene = populated(store, "john_doe")
        twin = populated(store, "john-doe")
        before = overview(store, scene)[2]

        store.write(lambda w: ACTIONS[name](w, twin))

        assert overview(store, scene)[2] == before

    def test_nothing_is_left_of_a_dropped_namespace(self, store: Store) -> None:
        """It answers as one that never was, and starts anew under its old name."""
        scene = populated(store, "alice")
        stranger = Scene(
            ("nobody",),
            scene.ns_id + 1000,
            tuple(key + 1000 for key in scene.keys),
            scene.cell_id + 1000,
            scene.second_id + 1000,
            scene.third_id + 1000,
        )

        drop(store, scene)

        with store.read() as reader:
            assert reader.namespaces() == []
            assert reader.namespace_by_id(scene.ns_id) is None
            assert not reader.changes(scene.ns_id, 0)
            dropped, never = picture(reader, scene), picture(reader, stranger)
            assert {**dropped, "changes": None} == {**never, "changes": None}
            assert reader.rows_with_id("plain") == []
        assert store.check() == []
        again = populated(store, "alice")
        with store.read() as reader:
            assert sorted(reader.rows(again.keys)) == sorted(again.keys)
        assert store.check() == []


class EventContract:
    """The log of value events."""

    def test_events_are_folded_once_in_their_order(self, store: Store) -> None:
        """Value is capped and floored along the way, so the order matters."""
        events = sample_events(9)
        folded: list[Event] = []
        store.log(events[:2])
        store.log([])
        store.log(events[2:])

        assert store.unfolded() == 9
        assert store.fold(lambda w, some: folded.extend(some)) == 9
        assert folded == events
        assert store.unfolded() == 0
        assert store.fold(lambda w, some: folded.extend(some)) == 0
        store.log(events[:1])
        assert store.fold(lambda w, some: folded.extend(some)) == 1
        assert folded == [*events, events[0]]
        assert {type(event.kind) for event in folded} == {EventKind}

    def test_a_fold_that_raises_keeps_its_events(self, store: Store) -> None:
        """And undoes what it applied: each event counts exactly once."""
        ns_id = new_namespace(store)
        (key,) = insert(store, plain(ns_id, "a"))
        store.log([Event(ns_id, key, EventKind.EXPOSED, NOW_S + i) for i in range(5)])

        def count(writer: Writer, events: Sequence[Event]) -> None:
            row = writer.rows([key])[key]
            total = row.state.exposed_count + len(events)
            writer.put_states([(key, replace(row.state, exposed_count=total))])

        def count_and_raise(writer: Writer, events: Sequence[Event]) -> None:
            count(writer, events)
            raise Abandoned

        for _ in range(2):
            with pytest.raises(Abandoned):
                store.fold(count_and_raise)
        assert exposed(store, key) == 0

        assert store.fold(count) == 5
        assert store.fold(count) == 0
        assert exposed(store, key) == 5

    def test_many_events_from_many_threads_are_all_folded(self, store: Store) -> None:
        """Also those that are logged while others are being folded."""
        folded: list[Event] = []

        def log(ns_id: int) -> None:
            for event in sample_events(200, ns_id=ns_id):
                store.log([event])

        with ThreadPoolExecutor(3) as pool:
            logging = [pool.submit(log, ns_id) for ns_id in range(3)]
            while not all(one.done() for one in logging):
                store.fold(lambda w, some: folded.extend(some))
            for one in logging:
                one.result()
        store.fold(lambda w, some: folded.extend(some))

        for ns_id in range(3):
            mine = [event for event in folded if event.ns_id == ns_id]
            assert mine == sample_events(200, ns_id=ns_id)


class HouseholdContract:
    """Sizes, checks, erasing and closing."""

    def test_sound_data_pass_the_check(self, store: Store) -> None:
        """With one of everything in two namespaces, and after taking one away."""
        assert store.check() == []
        scene = populated(store, "alice")
        populated(store, "bob")
        assert store.check() == []
        drop(store, scene)
        assert store.check() == []

    @pytest.mark.parametrize(
        "total", ["live", "length", "hot", "pinned", "vectors", "pending", "cells"]
    )
    def test_the_check_finds_a_wrong_total(self, store: Store, total: str) -> None:
        """Totals decide what is scanned and how much it costs, so they must not drift."""
        scene = populated(store, "alice")

        def work(writer: Writer) -> None:
            row = writer.namespace_by_id(scene.ns_id)
            assert row is not None
            wrong: dict[str, int] = {total: getattr(row, total) + 1}
            writer.put_namespace(replace(row, **wrong))  # type: ignore[arg-type]

        store.write(work)

        (problem,) = store.check()
        assert total in problem

    def test_the_size_follows_what_is_kept(self, store: Store) -> None:
        """A store that said nothing of a megabyte would be of no use to who watches it."""
        ns_id = new_namespace(store)
        before = store.size_bytes()
        big = replace(plain(ns_id, "big"), content="x" * 2**20)
        insert(store, big)

        assert store.size_bytes() >= before + 2**20

    def test_what_was_deleted_can_be_erased(self, store: Store) -> None:
        """True once no byte of it is left; with nobody reading, at once."""
        scene = populated(store, "alice")
        store.write(lambda w: w.delete(scene.keys[:1]))

        assert store.erase() is True
        with store.read() as reader:
            assert sorted(reader.rows(scene.keys)) == sorted(scene.keys[1:])

    @pytest.mark.parametrize("name", ["read", "write", "log", "fold", "erase", "size", "check"])
    def test_a_closed_store_refuses_everything(self, store: Store, name: str) -> None:
        """With one clear error, not with whatever its driver says."""
        populated(store, "alice")
        calls: dict[str, Callable[[], object]] = {
            "read": lambda: store.read().__enter__(),
            "write": lambda: store.write(lambda w: w.namespaces()),
            "log": lambda: store.log(sample_events(1)),
            "fold": lambda: store.fold(lambda w, events: None),
            "erase": store.erase,
            "size": store.size_bytes,
            "check": store.check,
        }
        store.close()
        store.close()

        with pytest.raises(StoreClosed):
            calls[name]()


class StoreContract(
    NamespaceContract,
    RowContract,
    TierContract,
    FilterContract,
    TimeContract,
    VectorContract,
    CellContract,
    PostingContract,
    TransactionContract,
    IsolationContract,
    EventContract,
    HouseholdContract,
):
    """All that is asked of any store; the subclass gives the store, open and empty."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Give an open, empty store, and close it afterwards."""
        raise NotImplementedError("override this fixture so that it yields your store")


class DurableStoreContract(StoreContract):
    """And what is asked of one that keeps its data when it is closed."""

    @pytest.fixture
    def reopen(self, store: Store) -> Callable[[], Store]:
        """Give a function that closes the store, or the last one it gave, and opens it anew."""
        raise NotImplementedError("override this fixture so that it reopens your store")

    def test_everything_is_there_after_reopening(
        self, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """Of two namespaces, also after every kind of write."""
        scene = populated(store, "a", "é/\x1f")
        other = populated(store, "bob")

        def work(writer: Writer) -> None:
            for name, action in ACTIONS.items():
                if name != "drop_namespace":
                    action(writer, other)

        store.write(work)
        before = overview(store, scene), overview(store, other)

        again = reopen()

        assert (overview(again, scene), overview(again, other)) == before

    def test_a_reopened_store_passes_its_check(
        self, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """What was written is sound to the eyes of another process too."""
        populated(store, "alice")

        assert reopen().check() == []

    def test_no_number_is_used_again_after_reopening(
        self, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """Also where the largest was deleted before."""
        scene = populated(store, "alice")
        drop(store, scene)

        again = populated(reopen(), "alice")

        assert again.ns_id > scene.ns_id
        assert again.cell_id > scene.cell_id
        assert min(again.keys) > max(scene.keys)

    def test_logged_events_survive_closing_and_are_folded_once(
        self, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """A process that ends without folding leaves that to the next."""
        events = sample_events(7)
        folded: list[Event] = []
        store.log(events[:3])
        assert store.fold(lambda w, some: folded.extend(some)) == 3
        store.log(events[3:])

        assert reopen().fold(lambda w, some: folded.extend(some)) == 4
        assert folded == events
        assert reopen().fold(lambda w, some: folded.extend(some)) == 0

    def test_what_was_undone_stays_undone(self, store: Store, reopen: Callable[[], Store]) -> None:
        """A write that raised has left nothing for recovery to find."""
        scene = populated(store, "alice")
        before = overview(store, scene)

        def work(writer: Writer) -> None:
            writer.drop_namespace(scene.ns_id)
            raise Abandoned

        with pytest.raises(Abandoned):
            store.write(work)

        assert overview(reopen(), scene) == before


def drop(store: Store, scene: Scene) -> None:
    """Drop the namespace of a scene."""
    store.write(lambda w: w.drop_namespace(scene.ns_id))


def overview(store: Store, scene: Scene) -> tuple[object, object, dict[str, object]]:
    """Return a setting, all namespaces, and the picture of one."""
    with store.read() as reader:
        return reader.meta("embedder"), reader.namespaces(), picture(reader, scene)


def sample_events(count: int, *, ns_id: int = 1) -> list[Event]:
    """Return events of all kinds that differ from each other."""
    kinds = list(EventKind)
    return [Event(ns_id, i + 1, kinds[i % len(kinds)], NOW_S + i / 7) for i in range(count)]


def exposed(store: Store, key: int) -> int:
    """Return how often an item was exposed."""
    with store.read() as reader:
        found: State = reader.rows([key])[key].state
        return found.exposed_count
