"""What the contract says about finding rows by value, metadata and time."""

from dataclasses import replace
from functools import partial

import pytest

from amv.memory import filters
from amv.memory.item import Protection, Status
from amv.memory.ports import Store
from amv.memory.tiers import Tier
from amv.memory.value import SCALE_BEFORE, Scale, rescaling
from amv.testing.row_contract import insert, new_namespace
from amv.testing.samples import FORMS, METADATA, NOW_S, plain, populated, state


class TierContract:
    """Ranges of the sweep's index; only live rows are in it."""

    def test_a_range_includes_its_low_end_and_not_its_high_end(self, store: Store) -> None:
        """An item exactly at a threshold is not below it."""
        ns_id = new_namespace(store)
        values = [3.0, 1.0, 2.0, 2.0, -1.5]
        keys = insert(
            store,
            *(
                replace(plain(ns_id, f"i{i}"), state=state(Tier.WARM, value))
                for i, value in enumerate(values)
            ),
        )
        ordered = sorted(zip(values, keys, strict=True))

        with store.read() as reader:
            ranged = partial(reader.tier_range, ns_id, Protection.NONE, Tier.WARM)
            assert ranged() == ordered
            assert ranged(low=1.0, high=3.0) == ordered[1:4]
            assert ranged(high=-1.5) == []
            assert ranged(low=2.0) == ordered[2:]
            assert ranged(limit=2) == ordered[:2]
            assert ranged(limit=0) == []
            assert ranged(descending=True) == ordered[::-1]
            assert ranged(high=3.0, descending=True, limit=2) == ordered[3:1:-1]
            assert ranged(low=float("-inf"), high=float("inf")) == ordered

    def test_a_range_is_of_one_protection_and_one_tier(self, store: Store) -> None:
        """So that a sweep does not read what it may not move."""
        ns_id = new_namespace(store)
        places = [(protection, tier) for protection in Protection for tier in Tier]
        keys = insert(
            store,
            *(
                replace(plain(ns_id, f"i{i}"), state=state(tier, float(i), protection))
                for i, (protection, tier) in enumerate(places)
            ),
        )

        with store.read() as reader:
            for i, (protection, tier) in enumerate(places):
                assert reader.tier_range(ns_id, protection, tier) == [(float(i), keys[i])]
            assert reader.protected_keys(ns_id, Protection.PINNED) == keys[6:9]
            assert sorted(reader.hot_keys(ns_id)) == keys[2::3]
            assert reader.tier_counts(ns_id) == {Tier.COLD: 4, Tier.WARM: 4, Tier.HOT: 4}

    @pytest.mark.parametrize("status", [Status.SUPERSEDED, Status.REFUTED])
    def test_only_live_rows_have_a_tier(self, store: Store, status: Status) -> None:
        """What is no longer believed takes no place in the hot tier."""
        ns_id = new_namespace(store)
        hot = state(Tier.HOT, 1.0, Protection.PINNED)
        rows = [replace(plain(ns_id, one), state=hot, metadata={"k": 1}) for one in "ab"]
        keys = insert(store, *rows)

        store.write(lambda w: w.update(replace(rows[0], key=keys[0], status=status)))

        with store.read() as reader:
            assert reader.tier_range(ns_id, Protection.PINNED, Tier.HOT) == [(1.0, keys[1])]
            assert reader.protected_keys(ns_id, Protection.PINNED) == [keys[1]]
            assert reader.hot_keys(ns_id) == [keys[1]]
            assert reader.tier_counts(ns_id) == {Tier.COLD: 0, Tier.WARM: 0, Tier.HOT: 1}
            assert reader.matching(ns_id, filters.parse({"k": 1}), NOW_S, 9) == [keys[1]]
            assert reader.rows([keys[0]])[keys[0]].state == hot

    def test_rekey_shifts_what_is_valid_already(self, store: Store) -> None:
        """An item that is yet to start has its value as of then, which does not decay."""
        scene = populated(store, "alice")
        other = populated(store, "bob")
        with store.read() as reader:
            before = {**reader.rows(scene.keys), **reader.rows(other.keys)}

        store.write(lambda w: w.rekey(scene.ns_id, -2.25))

        with store.read() as reader:
            after = {**reader.rows(scene.keys), **reader.rows(other.keys)}
            assert reader.tier_range(scene.ns_id, Protection.NONE, Tier.COLD) == [
                (-3.5 - 2.25, scene.keys[2])
            ]
        for key, row in before.items():
            waits = row.state.protection is Protection.NOT_YET_VALID
            shift = 0.0 if waits or key in other.keys else -2.25
            wanted = replace(row.state, value_key=row.state.value_key + shift)
            assert after[key] == replace(row, state=wanted)

    def test_rescale_shifts_what_is_valid_already_by_its_uses(self, store: Store) -> None:
        """Whatever their tier and status; what is yet to start has no value of now."""
        new, ns_id, other = Scale(2.0, 0.01, 0.1), new_namespace(store), new_namespace(store, "bob")
        used = [replace(state(Tier.WARM, 7.5), contributed_count=n) for n in (0, 1, 2, 3, 900)]
        waits = replace(used[1], tier=Tier.COLD, protection=Protection.NOT_YET_VALID)
        ended = replace(plain(ns_id, "ended"), state=used[1], status=Status.SUPERSEDED)
        rows = [replace(plain(ns_id, f"i{i}"), state=one) for i, one in enumerate((*used, waits))]
        keys = insert(store, *rows, ended, replace(plain(other, "other"), state=used[1]))

        store.write(lambda w: w.rescale(ns_id, SCALE_BEFORE, new))

        shifts = [rescaling(n, SCALE_BEFORE, new) for n in (0, 1, 2, 3, 900)]
        with store.read() as reader:
            after = [row.state.value_key for row in reader.rows(keys).values()]
            lowest = reader.tier_range(ns_id, Protection.NONE, Tier.WARM)[0]
        wanted = [*(7.5 + shift for shift in shifts), 7.5, 7.5 + shifts[1], 7.5]
        assert after == pytest.approx(wanted, rel=1e-12)
        assert lowest == (after[0], keys[0])
        store.write(lambda w: w.rescale(ns_id, new, SCALE_BEFORE))
        with store.read() as reader:
            back = [row.state.value_key for row in reader.rows(keys).values()]
        assert back == pytest.approx([7.5] * len(keys), rel=1e-12)


class FilterContract:
    """Finding rows by metadata and by time."""

    @pytest.mark.parametrize("form", FORMS, ids=str)
    def test_matching_agrees_with_matches(self, store: Store, form: dict[str, object]) -> None:
        """A store answers from an index; what it answers is defined by one function."""
        ns_id = new_namespace(store)
        rows = [replace(plain(ns_id, f"i{i}"), metadata=one) for i, one in enumerate(METADATA)]
        keys = insert(store, *rows)
        node = filters.parse(form)
        wanted = [
            key for key, one in zip(keys, METADATA, strict=True) if filters.matches(node, one)
        ]

        with store.read() as reader:
            assert sorted(reader.matching(ns_id, node, NOW_S, 100)) == wanted
            for limit in range(len(wanted) + 1):
                some = reader.matching(ns_id, node, NOW_S, limit)
                assert len(some) == len(set(some)) == limit
                assert set(some) <= set(wanted)

    def test_matching_without_a_filter_gives_all_live_unexpired_rows(self, store: Store) -> None:
        """Expiry is honoured from its very moment on, before any sweep ran."""
        ns_id = new_namespace(store)
        keys = insert(
            store,
            plain(ns_id, "lasting"),
            replace(plain(ns_id, "ends now"), expires_s=NOW_S),
            replace(plain(ns_id, "ends soon"), expires_s=NOW_S + 0.5),
            replace(plain(ns_id, "ended"), expires_s=NOW_S - 1.0),
            replace(plain(ns_id, "superseded"), status=Status.SUPERSEDED),
            replace(plain(ns_id, "refuted"), status=Status.REFUTED),
            replace(plain(ns_id, "later"), valid_from_s=NOW_S + 9.0),
        )

        with store.read() as reader:
            for node in (None, filters.parse({}), filters.parse({"no": {"ne": 1}})):
                found = sorted(reader.matching(ns_id, node, NOW_S, 100))
                assert found == [keys[0], keys[2], keys[6]]
                assert len(reader.matching(ns_id, node, NOW_S, 2)) == 2


class TimeContract:
    """Finding rows by when they end or ended."""

    def test_past_keys_are_superseded_rows_valid_at_that_moment(self, store: Store) -> None:
        """Newest first, so that a limit keeps the latest."""
        ns_id = new_namespace(store)
        old = replace(plain(ns_id, ""), status=Status.SUPERSEDED)
        keys = insert(
            store,
            replace(old, id="a", valid_from_s=10.0, valid_until_s=20.0),
            replace(old, id="b", valid_from_s=12.0, valid_until_s=15.0),
            replace(old, id="c", valid_from_s=14.0, valid_until_s=None),
            replace(old, id="live", valid_from_s=10.0, status=Status.LIVE),
            replace(old, id="refuted", valid_from_s=10.0, status=Status.REFUTED),
        )

        with store.read() as reader:
            past = partial(reader.past_keys, ns_id)
            assert past(9.9, 9) == []
            assert past(10.0, 9) == [keys[0]]
            assert past(14.0, 9) == [keys[2], keys[1], keys[0]]
            assert past(14.0, 2) == [keys[2], keys[1]]
            assert past(15.0, 9) == [keys[2], keys[0]]
            assert past(20.0, 9) == [keys[2]]

    def test_expiring_rows_come_in_the_order_in_which_they_expire(self, store: Store) -> None:
        """Of any status: what has expired is deleted, believed or not."""
        ns_id, other = new_namespace(store), new_namespace(store, "bob")
        ends = [30.0, 10.0, None, 20.0, 10.0]
        rows = [
            replace(plain(ns_id, f"i{i}"), expires_s=end, status=list(Status)[i % 3])
            for i, end in enumerate(ends)
        ]
        keys = insert(store, *rows)
        insert(store, replace(plain(other, "x"), expires_s=1.0))
        ordered = [(10.0, keys[1]), (10.0, keys[4]), (20.0, keys[3]), (30.0, keys[0])]

        with store.read() as reader:
            expiring = partial(reader.expiring, ns_id)
            assert expiring(9.9, 9) == []
            assert expiring(10.0, 9) == ordered[:2]
            assert expiring(29.0, 9) == ordered[:3]
            assert expiring(float("inf"), 9) == ordered
            assert expiring(float("inf"), 1) == ordered[:1]
        store.write(lambda w: w.update(replace(rows[1], key=keys[1], expires_s=40.0)))
        with store.read() as reader:
            assert reader.expiring(ns_id, 30.0, 9) == ordered[1:]

    def test_flagged_rows_that_end_come_in_that_order(self, store: Store) -> None:
        """Of live ones; others are no reason to doubt anything."""
        ns_id, other = new_namespace(store), new_namespace(store, "bob")
        flagged = replace(plain(ns_id, "a"), contradicted=True, valid_until_s=30.0)
        rows = [
            flagged,
            replace(flagged, id="b", valid_until_s=20.0),
            replace(flagged, id="c", valid_until_s=20.0),
            replace(flagged, id="d", valid_until_s=None),
            replace(flagged, id="e", contradicted=False),
            replace(flagged, id="f", status=Status.REFUTED),
        ]
        keys = insert(store, *rows)
        insert(store, replace(flagged, ns_id=other))
        ordered = [(20.0, keys[1]), (20.0, keys[2]), (30.0, keys[0])]

        with store.read() as reader:
            assert reader.doubted_ends(ns_id, 19.9, 9) == []
            assert reader.doubted_ends(ns_id, 20.0, 9) == ordered[:2]
            assert reader.doubted_ends(ns_id, float("inf"), 9) == ordered
            assert reader.doubted_ends(ns_id, float("inf"), 1) == ordered[:1]
        store.write(lambda w: w.update(replace(rows[0], key=keys[0], contradicted=False)))
        with store.read() as reader:
            assert reader.doubted_ends(ns_id, float("inf"), 9) == ordered[:2]
