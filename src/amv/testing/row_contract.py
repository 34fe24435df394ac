"""What the contract says about namespaces and rows."""

from dataclasses import replace
from functools import partial

import pytest

from amv.errors import StoreError
from amv.memory import filters
from amv.memory.item import Claim, Protection, Row, State, Status
from amv.memory.ports import Change, HistoryRow, Store, Writer
from amv.memory.repeats import digest
from amv.memory.tiers import Tier
from amv.memory.value import Scale
from amv.testing.samples import (
    HALF_LIFE_S,
    NOW_S,
    plain,
    rich,
)

CHANGES_KEPT = 256


def new_namespace(store: Store, *name: str) -> int:
    """Create a namespace; return its number."""
    return store.write(lambda w: w.create_namespace(name or ("alice",), HALF_LIFE_S)).ns_id


def insert(store: Store, *rows: Row) -> list[int]:
    """Insert rows in one write; return their keys."""
    return store.write(lambda w: w.insert(rows))


class NamespaceContract:
    """Namespaces, their totals and their change log."""

    def test_a_new_namespace_starts_at_version_0_with_nothing(self, store: Store) -> None:
        """Caches take version 0 for a namespace that they know all about: it is empty."""
        made = store.write(lambda w: w.create_namespace(("alice", "notes"), 60.0))

        assert (made.name, made.version, made.half_life_s) == (("alice", "notes"), 0, 60.0)
        assert (made.live, made.length, made.hot, made.pinned, made.vectors) == (0, 0, 0, 0, 0)
        assert (made.pending, made.cells, made.cells_changed, made.next_due_s) == (0, 0, 0, None)
        with store.read() as reader:
            assert reader.namespace(("alice", "notes")) == made
            assert reader.namespace_by_id(made.ns_id) == made
            assert reader.namespace(("alice",)) is None
            assert reader.namespace_by_id(made.ns_id + 1000) is None

    def test_a_namespace_comes_back_as_it_was_put(self, store: Store) -> None:
        """Totals are kept by whoever changes them; the store only stores them."""
        ns_id = new_namespace(store)
        with store.read() as reader:
            made = reader.namespace_by_id(ns_id)
        assert made is not None
        row = replace(
            made,
            version=7,
            half_life_s=0.1 + 0.2,
            live=1,
            length=2**40,
            hot=3,
            pinned=4,
            vectors=5,
            pending=6,
            cells=7,
            cells_changed=8,
            next_due_s=NOW_S + 1 / 3,
            scale=Scale(4.0, 0.1 + 0.2, 1 / 3),
        )

        store.write(lambda w: w.put_namespace(row))

        with store.read() as reader:
            assert reader.namespace(("alice",)) == row

    def test_namespaces_come_in_order_of_name(self, store: Store) -> None:
        """In the order of the tuples, whatever separator a store writes between parts."""
        names = [("b",), ("a", "b"), ("a b",), ("a",), ("a!",), ("é",), ("a", "a", "z"), ("B",)]
        for name in names:
            new_namespace(store, *name)

        with store.read() as reader:
            assert [row.name for row in reader.namespaces()] == sorted(names)

    def test_due_namespaces_are_those_whose_moment_has_come(self, store: Store) -> None:
        """A sweep visits no other; one without a moment is never due."""

        def work(writer: Writer) -> None:
            for name, due_s in (("a", 10.0), ("b", 10.5), ("c", None), ("d", 9.0)):
                row = writer.create_namespace((name,), HALF_LIFE_S)
                writer.put_namespace(replace(row, next_due_s=due_s))

        store.write(work)

        with store.read() as reader:
            assert [row.name for row in reader.namespaces(due_s=10.0)] == [("a",), ("d",)]
            assert len(reader.namespaces()) == 4

    def test_the_number_of_a_namespace_is_never_used_again(self, store: Store) -> None:
        """Or a cache that still holds the dropped one would show it under the new name."""
        first = new_namespace(store)
        store.write(lambda w: w.drop_namespace(first))

        assert new_namespace(store) > first

    def test_changes_are_those_after_a_version(self, store: Store) -> None:
        """Oldest first, so that a cache can catch up by applying them in turn."""
        ns_id = new_namespace(store)
        first = Change(hot_in=[1, 2], vectors_in=[4096], cells_in=[1], items=[9])
        second = Change(
            hot_out=[2],
            placed=[4096],
            vectors_out=[8192],
            cells_out=[1],
            cells_touched=[2, 2**40],
            used=[3, 2**40],
        )
        for version, change in ((1, first), (2, second)):
            store.write(partial(_log, ns_id=ns_id, version=version, change=change))

        with store.read() as reader:
            assert reader.changes(ns_id, 0) == [first, second]
            assert reader.changes(ns_id, 1) == [second]
            assert reader.changes(ns_id, 2) == []

    def test_a_logged_change_is_a_copy(self, store: Store) -> None:
        """A `Change` is mutable, and its owner goes on using it."""
        ns_id = new_namespace(store)
        change = Change(items=[1])
        store.write(partial(_log, ns_id=ns_id, version=1, change=change))

        change.items.append(2)
        with store.read() as reader:
            for found in reader.changes(ns_id, 0) or []:
                found.items.append(3)

        with store.read() as reader:
            assert reader.changes(ns_id, 0) == [Change(items=[1])]

    def test_the_last_256_changes_are_kept_and_older_ones_go(self, store: Store) -> None:
        """A cache is told that it missed some, never given a list with holes."""
        ns_id, last = new_namespace(store), 6 * CHANGES_KEPT

        def work(writer: Writer) -> None:
            for version in range(1, last + 1):
                _log(writer, ns_id=ns_id, version=version, change=Change(items=[version]))

        store.write(work)

        with store.read() as reader:
            assert reader.changes(ns_id, 0) is None
            for since in range(last - CHANGES_KEPT, last + 1, 16):
                wanted = [Change(items=[v]) for v in range(since + 1, last + 1)]
                assert reader.changes(ns_id, since) == wanted
            for since in range(0, last, 64):
                changes = reader.changes(ns_id, since)
                assert changes is None or len(changes) == last - since


class RowContract:
    """Rows, their history and the ways to find them."""

    def test_keys_ascend_and_are_never_used_again(self, store: Store) -> None:
        """A key in a log or a cache must not come to mean another item."""
        ns_id = new_namespace(store)
        first = insert(store, plain(ns_id, "a"), plain(ns_id, "b"))
        store.write(lambda w: w.delete(first))
        second = insert(store, plain(ns_id, "a"))
        store.write(lambda w: w.drop_namespace(ns_id))
        third = insert(store, plain(new_namespace(store), "a"))

        assert 0 < first[0] < first[1] < second[0] < third[0]

    def test_a_row_comes_back_as_it_went_in(self, store: Store) -> None:
        """Every field, byte for byte; the key that came with it is not looked at."""
        ns_id = new_namespace(store)
        rows = [rich(ns_id, "rich"), replace(plain(ns_id, "plain"), key=99)]

        keys = insert(store, *rows)

        wanted = [replace(row, key=key) for row, key in zip(rows, keys, strict=True)]
        with store.read() as reader:
            assert reader.rows(keys) == dict(zip(keys, wanted, strict=True))
            assert reader.rows([keys[1], keys[1] + 1000]) == {keys[1]: wanted[1]}
            assert reader.rows([]) == {}

    @pytest.mark.parametrize("value", ["Rome", "", "7", 7, 7.5, -(2**40), True, False, None])
    def test_a_claim_keeps_the_type_of_its_value(
        self, store: Store, value: str | float | bool | None
    ) -> None:
        """The text "7" and the number 7 are two claims."""
        row = replace(plain(new_namespace(store), "a"), claim=Claim("user", "x", value))
        (key,) = insert(store, row)

        with store.read() as reader:
            claim = reader.rows([key])[key].claim
        assert claim == row.claim
        assert claim is not None
        assert type(claim.value) is type(value)

    def test_an_id_is_taken_once_in_a_namespace(self, store: Store) -> None:
        """Two writers that add one id at a time must not both succeed."""
        ns_id, other = new_namespace(store), new_namespace(store, "bob")
        insert(store, plain(ns_id, "a"), plain(other, "a"))

        with pytest.raises(StoreError):
            insert(store, plain(ns_id, "b"), plain(ns_id, "a"))

        with store.read() as reader:
            assert reader.rows_with_id("b") == []
            assert len(reader.rows_with_id("a", ns_id)) == 1

    def test_what_a_reader_returned_is_no_part_of_the_store(self, store: Store) -> None:
        """Callers get metadata to keep, and may change them."""
        metadata: dict[str, object] = {"tags": ["a"]}
        (key,) = insert(store, replace(plain(new_namespace(store), "a"), metadata=metadata))
        metadata["more"] = 1
        with store.read() as reader:
            found = dict(reader.rows([key])[key].metadata)
        found_tags = found["tags"]
        assert isinstance(found_tags, list)
        found_tags.append("b")

        with store.read() as reader:
            assert reader.rows([key])[key].metadata == {"tags": ["a"]}

    def test_update_replaces_a_row_with_its_state(self, store: Store) -> None:
        """And every index with it: the old claim, link, status and tier find nothing."""
        ns_id = new_namespace(store)
        (key,) = insert(store, rich(ns_id, "a"))
        row = replace(
            plain(ns_id, "a"),
            key=key,
            content="new",
            claim=Claim("user", "job", None),
            metadata={"k": "v"},
            state=State(
                tier=Tier.COLD, protection=Protection.NONE, value_key=-1.5, exposed_count=8
            ),
        )

        store.write(lambda w: w.update(row))

        with store.read() as reader:
            assert reader.rows([key]) == {key: row}
            assert reader.claim_rows(ns_id, "user", "city") == []
            assert reader.claim_rows(ns_id, "user", "job") == [row]
            assert reader.linked_rows(ns_id, "older") == []
            assert reader.hot_keys(ns_id) == []
            assert reader.tier_range(ns_id, Protection.NONE, Tier.COLD) == [(-1.5, key)]
            assert reader.matching(ns_id, filters.parse({"k": "v"}), NOW_S, 9) == [key]
            assert reader.matching(ns_id, filters.parse({"big": 2**53}), NOW_S, 9) == []

    def test_live_rows_are_found_by_the_digest_of_their_content(self, store: Store) -> None:
        """By what it is now, within one namespace; those that are not live are not found."""
        ns_id = new_namespace(store)
        keys = insert(
            store,
            replace(plain(ns_id, "a"), content="port  8080"),
            replace(plain(ns_id, "b"), content="port 8080"),
            replace(plain(ns_id, "c"), content="port 8080", status=Status.SUPERSEDED),
            replace(plain(ns_id, "d"), content="port 8081"),
        )
        other = store.write(lambda w: w.create_namespace(("another",), 1.0)).ns_id
        insert(store, replace(plain(other, "e"), content="port 8080"))
        one, two, three = (digest(f"port {number}") for number in (8080, 8081, 8082))

        with store.read() as reader:
            assert reader.told(ns_id, [three, two, one, one]) == {one: keys[:2], two: keys[3:]}
            assert reader.told(ns_id, []) == {}
            row = reader.rows(keys[:1])[keys[0]]
        store.write(lambda w: w.update(replace(row, content="port 8082")))
        store.write(lambda w: w.delete(keys[1:2]))
        with store.read() as reader:
            assert reader.told(ns_id, [one, three]) == {three: keys[:1]}

    def test_put_states_replaces_states_alone(self, store: Store) -> None:
        """It is the write of every sweep and fold, and touches nothing else."""
        ns_id = new_namespace(store)
        first, second = insert(store, rich(ns_id, "a"), rich(ns_id, "b"))
        new = State(
            tier=Tier.WARM,
            protection=Protection.PROBATION,
            value_key=1.25,
            exposed_count=2**33,
            contributed_count=1,
        )

        store.write(lambda w: w.put_states([(second, new)]))

        with store.read() as reader:
            rows = reader.rows([first, second])
            assert rows[first].state == rich(ns_id, "a").state
            assert rows[second] == replace(rich(ns_id, "b"), key=second, state=new)
            assert reader.protected_keys(ns_id, Protection.PROBATION) == [second]
            assert reader.hot_keys(ns_id) == [first]

    def test_writes_to_a_deleted_row_do_not_bring_it_back(self, store: Store) -> None:
        """An event folded, or a sweep planned, just before the item was forgotten."""
        ns_id = new_namespace(store)
        (key,) = insert(store, rich(ns_id, "a"))
        row = replace(rich(ns_id, "a"), key=key)
        store.write(lambda w: w.delete([key]))

        store.write(lambda w: w.put_states([(key, row.state)]))
        store.write(lambda w: w.update(row))

        with store.read() as reader:
            assert reader.rows([key]) == {}
            assert reader.hot_keys(ns_id) == []
            assert reader.claim_rows(ns_id, "user", "city") == []
            assert reader.matching(ns_id, None, NOW_S, 9) == []
        assert store.check() == []

    def test_delete_removes_rows_with_history_and_metadata(self, store: Store) -> None:
        """What was forgotten is found on no path, and its id is free again."""
        ns_id = new_namespace(store)
        key, other = insert(store, rich(ns_id, "a"), plain(ns_id, "b"))
        store.write(lambda w: w.add_history(key, HistoryRow(NOW_S, "updated", "before", None)))

        store.write(lambda w: w.delete([key, key + 1000]))

        with store.read() as reader:
            assert sorted(reader.rows([key, other])) == [other]
            assert reader.history(key) == []
            assert reader.rows_with_id("a") == []
            assert reader.claim_rows(ns_id, "user", "city") == []
            assert reader.linked_rows(ns_id, "older") == []
            assert reader.matching(ns_id, filters.parse({"a": 1}), NOW_S, 9) == []
            assert reader.matching(ns_id, None, NOW_S, 9) == [other]
        assert insert(store, plain(ns_id, "a")) > [other]

    def test_states_are_those_of_live_items_of_one_namespace(self, store: Store) -> None:
        """Whoever applies events to them must touch nothing that is believed no more."""
        ns_id, other = new_namespace(store), new_namespace(store, "bob")
        live, rich_one, gone = insert(
            store,
            plain(ns_id, "a"),
            rich(ns_id, "b"),
            replace(plain(ns_id, "c"), status=Status.SUPERSEDED),
        )
        (foreign,) = insert(store, plain(other, "a"))
        keys = [rich_one, live, gone, foreign, foreign + 1000]

        with store.read() as reader:
            rows = reader.rows(keys)
            assert reader.states(ns_id, keys) == {
                key: rows[key].state for key in (rich_one, live) if rows[key].status is Status.LIVE
            }
            assert live in reader.states(ns_id, keys)
            assert reader.states(ns_id, []) == {}

    def test_history_is_oldest_first(self, store: Store) -> None:
        """In the order it was added, also where the clock stood still or went back."""
        (key,) = insert(store, plain(new_namespace(store), "a"))
        entries = [
            HistoryRow(NOW_S, "added", "", None),
            HistoryRow(NOW_S, "updated", "it was\nÉlan", Claim("user", "city", 7)),
            HistoryRow(NOW_S - 9.5, "superseded", "then", Claim("user", "city", None)),
        ]

        def work(writer: Writer) -> None:
            for entry in entries:
                writer.add_history(key, entry)

        store.write(work)

        with store.read() as reader:
            assert reader.history(key) == entries
            assert reader.history(key + 1000) == []

    def test_pages_follow_each_other(self, store: Store) -> None:
        """Listing everything a page at a time gives each row once, whatever its status."""
        ns_id, other = new_namespace(store), new_namespace(store, "bob")
        statuses = list(Status)
        rows = [
            replace(
                plain(ns_id, f"i{i}"), status=statuses[i % 3], source="odd" if i % 2 else "even"
            )
            for i in range(7)
        ]
        keys = insert(store, *rows)
        insert(store, plain(other, "x"))

        with store.read() as reader:
            page = partial(reader.page, ns_id)
            assert [r.key for r in page(source=None, after_key=0, limit=3)] == keys[:3]
            assert [r.key for r in page(source=None, after_key=keys[2], limit=99)] == keys[3:]
            assert [r.key for r in page(source="odd", after_key=keys[1], limit=99)] == keys[3::2]
            assert page(source=None, after_key=keys[-1], limit=3) == []
            assert page(source="absent", after_key=0, limit=3) == []

    def test_claims_are_found_by_subject_and_attribute(self, store: Store) -> None:
        """Only those that are live: an attribute may have changed any number of times."""
        ns_id = new_namespace(store)
        claims = [("user", "city"), ("user", "job"), ("user", "city"), ("User", "city")]
        rows = [
            replace(plain(ns_id, f"i{i}"), claim=Claim(*claim, i)) for i, claim in enumerate(claims)
        ]
        ended = [
            replace(rows[0], id=f"ended {status}", status=status)
            for status in Status
            if status is not Status.LIVE
        ]
        keys = insert(store, *rows, plain(ns_id, "no claim"), *ended)

        with store.read() as reader:
            found = reader.claim_rows(ns_id, "user", "city")
            assert [row.key for row in found] == [keys[0], keys[2]]
            assert found[1] == replace(rows[2], key=keys[2])
            assert reader.claim_rows(ns_id, "city", "user") == []
            assert reader.claims_in(("alice",), "user", "city") == found
            assert reader.claims_in(("alice",), "city", "user") == []
            assert reader.claims_in(("alice", "user"), "user", "city") == []

    def test_links_are_found_from_the_other_end(self, store: Store) -> None:
        """To forget an item, its id must also go from the rows that name it."""
        ns_id = new_namespace(store)
        keys = insert(
            store,
            replace(plain(ns_id, "a"), status=Status.SUPERSEDED, superseded_by="b"),
            replace(plain(ns_id, "b"), supersedes="a", superseded_by="c"),
            replace(plain(ns_id, "c"), supersedes="b"),
        )

        with store.read() as reader:
            linked = [[row.key for row in reader.linked_rows(ns_id, one)] for one in "abcd"]
        assert linked == [[keys[1]], [keys[0], keys[2]], [keys[1]], []]

    def test_an_id_is_found_in_one_namespace_or_in_all(self, store: Store) -> None:
        """In no way that depends on which one was there first."""
        first, second = new_namespace(store), new_namespace(store, "bob")
        keys = insert(store, plain(first, "a"), plain(second, "a"), plain(second, "A"))

        with store.read() as reader:
            assert [row.key for row in reader.rows_with_id("a", second)] == [keys[1]]
            assert sorted(row.key for row in reader.rows_with_id("a")) == keys[:2]
            assert reader.rows_with_id("b") == []


def _log(writer: Writer, *, ns_id: int, version: int, change: Change) -> None:
    row = writer.namespace_by_id(ns_id)
    assert row is not None
    writer.log_change(ns_id, version, change)
    writer.put_namespace(replace(row, version=version))
