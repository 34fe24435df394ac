"""What the contract says about vectors, cells and postings."""

import numpy as np
import pytest

from amv.memory.lexical import POSTING
from amv.memory.ports import PENDING, RETIRED, Floats, Members, NewPostings, Place, Store, Writer
from amv.testing.row_contract import insert, new_namespace
from amv.testing.samples import (
    codes_by_id,
    ids,
    members,
    pairs,
    plain,
    populated,
    spots,
    triples,
    unit,
    vector_id,
    vectors,
)


def items(store: Store, ns_id: int, count: int) -> list[int]:
    """Insert plain rows; return their keys."""
    return insert(store, *(plain(ns_id, f"i{i}") for i in range(count)))


def new_cell(store: Store, ns_id: int, *vector_ids: int) -> int:
    """Add a cell with these members; return its id."""
    return store.write(lambda w: w.add_cell(ns_id, unit(1), members(*vector_ids)))


class VectorContract:
    """Vectors and where they are."""

    def test_vectors_come_back_ascending_and_unchanged(self, store: Store) -> None:
        """The rerank is exact only if what is stored is what was embedded."""
        ns_id = new_namespace(store)
        a, b = items(store, ns_id, 2)
        put = vectors(vector_id(b), vector_id(a, 1), vector_id(a), vector_id(b, 4095))
        store.write(lambda w: w.add_vectors(ns_id, put))

        with store.read() as reader:
            found = reader.vectors(put.ids)
            some = reader.vectors(ids(vector_id(b), vector_id(a), vector_id(b, 7)))
        assert found.ids.tolist() == sorted(put.ids.tolist())
        assert found.ids.dtype == np.int64
        assert found.matrix.dtype == np.float32
        order = np.argsort(put.ids)
        np.testing.assert_allclose(found.matrix, put.matrix[order], rtol=0, atol=2e-5)
        assert some.ids.tolist() == [vector_id(a), vector_id(b)]
        np.testing.assert_array_equal(some.matrix, found.matrix[[0, 2]])

    def test_no_vectors_are_no_vectors(self, store: Store) -> None:
        """Nothing asked for, or nothing there, is an answer and not an error."""
        ns_id = new_namespace(store)

        with store.read() as reader:
            for asked in (ids(), ids(4096)):
                assert len(reader.vectors(asked).ids) == len(reader.vectors(asked).matrix) == 0
                assert len(reader.centroids(asked).ids) == 0
                assert reader.placements(asked) == {}
                assert reader.cell_sizes(asked) == {}
                assert reader.members(asked) == {}
            for none in (reader.vector_ids([1]), reader.pending_ids(ns_id), reader.cell_ids(ns_id)):
                assert none.tolist() == []
                assert none.dtype == np.int64

    def test_what_was_added_is_a_copy(self, store: Store) -> None:
        """Callers reuse their arrays."""
        ns_id = new_namespace(store)
        (key,) = items(store, ns_id, 1)
        put, centroid, held = vectors(vector_id(key)), unit(3), members(vector_id(key))
        store.write(lambda w: w.add_vectors(ns_id, put))
        cell_id = store.write(lambda w: w.add_cell(ns_id, centroid, held))
        put.matrix[:], centroid[:], held.codes[:] = 0.0, 0.0, 0

        with store.read() as reader:
            assert reader.vectors(put.ids).matrix.any()
            assert reader.centroids(ids(cell_id)).matrix.any()
            assert reader.members(ids(cell_id))[cell_id].codes.any()

    def test_all_vectors_of_an_item_are_found_by_its_key(self, store: Store) -> None:
        """Also retired ones, or forgetting an item would leave them behind."""
        ns_id = new_namespace(store)
        a, b, c = items(store, ns_id, 3)
        put = vectors(vector_id(c), vector_id(a), vector_id(a, 4095), vector_id(b))
        store.write(lambda w: w.add_vectors(ns_id, put))
        store.write(lambda w: w.retire_vectors(ids(vector_id(a, 4095))))

        with store.read() as reader:
            assert reader.vector_ids([c, a, c + 1000]).tolist() == [
                vector_id(a),
                vector_id(a, 4095),
                vector_id(c),
            ]

    def test_a_vector_is_pending_then_placed_then_retired_then_gone(self, store: Store) -> None:
        """Each of these is seen on every path at once."""
        ns_id, other = new_namespace(store), new_namespace(store, "bob")
        a, b = items(store, ns_id, 2)
        one, two = vector_id(a), vector_id(b)
        both = ids(one, two)
        store.write(lambda w: w.add_vectors(ns_id, vectors(two, one)))

        def seen() -> tuple[list[int], list[int], dict[int, Place]]:
            with store.read() as reader:
                assert reader.pending_ids(other).tolist() == []
                assert reader.indexed_ids(other).tolist() == []
                return (
                    reader.pending_ids(ns_id).tolist(),
                    reader.indexed_ids(ns_id).tolist(),
                    reader.placements(both),
                )

        waiting = Place(PENDING)
        assert seen() == ([one, two], [one, two], {one: waiting, two: waiting})
        cell_id = store.write(lambda w: w.add_cell(ns_id, unit(0), members(one)))
        store.write(lambda w: w.place(ids(one), spots(Place(cell_id))))
        assert seen() == ([two], [one, two], {one: Place(cell_id), two: waiting})
        store.write(lambda w: w.remove_members(cell_id, ids(one)))
        store.write(lambda w: w.retire_vectors(ids(one)))
        assert seen() == ([two], [two], {one: Place(RETIRED), two: waiting})
        with store.read() as reader:
            assert reader.vectors(both).ids.tolist() == [one, two]
        store.write(lambda w: w.drop_vectors(both))
        assert seen() == ([], [], {})
        with store.read() as reader:
            assert len(reader.vectors(both).ids) == 0
            assert reader.vector_ids([a, b]).tolist() == []

    def test_a_vector_can_go_back_to_pending(self, store: Store) -> None:
        """As when its cell is dissolved, or a superseded item becomes live again."""
        ns_id = new_namespace(store)
        (key,) = items(store, ns_id, 1)
        store.write(lambda w: w.add_vectors(ns_id, vectors(vector_id(key))))
        store.write(lambda w: w.retire_vectors(ids(vector_id(key))))

        store.write(lambda w: w.place(ids(vector_id(key)), spots(Place(PENDING))))

        with store.read() as reader:
            assert reader.pending_ids(ns_id).tolist() == [vector_id(key)]

    def test_staged_vectors_wait_beside_the_others(self, store: Store) -> None:
        """A change of embedder goes on where it stopped: what lacks new vectors is asked for."""
        ns_id = new_namespace(store)
        a, b, without = items(store, ns_id, 3)
        store.write(lambda w: w.add_vectors(ns_id, vectors(*map(vector_id, (a, b)))))
        before = read_vectors(store, vector_id(a))
        with store.read() as reader:
            assert reader.unstaged_keys(0, 10) == [a, b]

        staged = vectors(vector_id(a, 1), vector_id(a))
        store.write(lambda w: w.stage_vectors(staged))
        store.write(lambda w: w.stage_vectors(staged))

        with store.read() as reader:
            assert reader.unstaged_keys(0, 10) == reader.unstaged_keys(a, 1) == [b]
            assert reader.staged_ids([without, b, a]).tolist() == [vector_id(a), vector_id(a, 1)]
            kept = reader.staged(ids(vector_id(a, 1), vector_id(b)))
            assert kept.ids.tolist() == [vector_id(a, 1)]
            assert np.allclose(kept.matrix[0], staged.matrix[0], atol=2e-5)
        assert np.array_equal(read_vectors(store, vector_id(a)), before)

    def test_dropping_the_vectors_of_an_item_drops_what_is_staged_for_it(
        self, store: Store
    ) -> None:
        """Its content has changed, or it is forgotten: either way they are not its own."""
        ns_id = new_namespace(store)
        a, b = items(store, ns_id, 2)
        both = vectors(vector_id(a), vector_id(b))
        store.write(lambda w: w.add_vectors(ns_id, both))
        store.write(lambda w: w.stage_vectors(vectors(vector_id(a), vector_id(a, 1), vector_id(b))))

        store.write(lambda w: w.drop_vectors(ids(vector_id(a))))

        with store.read() as reader:
            assert reader.staged_ids([a, b]).tolist() == [vector_id(b)]
        store.write(lambda w: w.clear_stage())
        with store.read() as reader:
            assert reader.staged_ids([a, b]).tolist() == []

    @pytest.mark.parametrize("count", [1, 999, 3000])
    def test_many_vectors_come_and_go(self, store: Store, count: int) -> None:
        """However a store packs them, erasing every third leaves the others as they were."""
        ns_id = new_namespace(store)
        put = vectors(*(vector_id(key) for key in items(store, ns_id, count)))
        store.write(lambda w: w.add_vectors(ns_id, put))
        gone = put.ids[::3]

        store.write(lambda w: w.drop_vectors(gone))

        stays = np.delete(np.arange(count), np.s_[::3])
        with store.read() as reader:
            found = reader.vectors(put.ids)
            assert reader.indexed_ids(ns_id).tolist() == put.ids[stays].tolist()
        assert found.ids.tolist() == put.ids[stays].tolist()
        np.testing.assert_allclose(
            found.matrix.reshape(-1, put.matrix.shape[1]), put.matrix[stays], rtol=0, atol=2e-5
        )


class CellContract:
    """Cells, their centroids and the index over those."""

    def test_a_cell_holds_what_was_put_in(self, store: Store) -> None:
        """Codes are compared as they are, so they come back equal."""
        ns_id = new_namespace(store)
        first = store.write(lambda w: w.add_cell(ns_id, unit(1), members(4096, 8192)))
        second = store.write(lambda w: w.add_cell(ns_id, unit(2), members(12288)))
        store.write(lambda w: w.extend_cells({first: members(4097, 4098)}))
        store.write(lambda w: w.remove_members(first, ids(4098, 4096, 999)))

        assert PENDING < first < second
        with store.read() as reader:
            assert reader.cell_ids(ns_id).tolist() == [first, second]
            found = reader.members(ids(second, first, second + 1000))
            centroids = reader.centroids(ids(second, first, second + 1000))
        assert {i: codes_by_id(one) for i, one in found.items()} == {
            first: codes_by_id(members(8192, 4097)),
            second: codes_by_id(members(12288)),
        }
        assert centroids.ids.tolist() == [first, second]
        assert centroids.matrix.dtype == np.float32
        halves = np.stack([unit(1), unit(2)]).astype(np.float16)
        np.testing.assert_array_equal(centroids.matrix, halves.astype(np.float32))

    def test_cells_tell_their_sizes(self, store: Store) -> None:
        """Whatever parts they grew by and lost; a cell that is not there has none."""
        ns_id = new_namespace(store)
        first = store.write(lambda w: w.add_cell(ns_id, unit(1), members(4096, 8192)))
        second = store.write(lambda w: w.add_cell(ns_id, unit(2), members()))
        store.write(lambda w: w.extend_cells({second: members(4096), first: members(4097, 4098)}))
        store.write(lambda w: w.remove_members(first, ids(4097, 8192)))

        with store.read() as reader:
            sizes = reader.cell_sizes(ids(second + 1000, second, first))
            held = reader.members(ids(first, second))
        assert sizes == {first: 2, second: 1}
        assert sizes == {i: len(one.ids) for i, one in held.items()}

    def test_a_cell_that_is_gone_takes_no_members(self, store: Store) -> None:
        """What is written for it would belong to no namespace; the other cells get theirs."""
        ns_id = new_namespace(store)
        gone, kept = (new_cell(store, ns_id, 4096) for _ in range(2))
        store.write(lambda w: w.drop_cell(gone))

        store.write(lambda w: w.extend_cells({gone: members(8192), kept: members(8192)}))
        store.write(lambda w: w.extend_cells({}))

        with store.read() as reader:
            assert reader.cell_sizes(ids(gone, kept)) == {kept: 2}
            assert sorted(reader.members(ids(gone, kept))) == [kept]

    def test_a_vector_is_in_three_cells_and_moves_from_one_at_a_time(self, store: Store) -> None:
        """As when one of them is split: in the others it stays, each in the place it had."""
        ns_id = new_namespace(store)
        a, b, c, d = items(store, ns_id, 4)
        near, far, last, away = (vector_id(key) for key in (a, b, c, d))
        all_ids = ids(near, far, last, away)
        store.write(lambda w: w.add_vectors(ns_id, vectors(*all_ids.tolist())))
        old, other, third, new, newest = (new_cell(store, ns_id) for _ in range(5))
        put = spots(
            Place(old, other, third), Place(other, old), Place(third, other, old), Place(other)
        )
        store.write(lambda w: w.place(all_ids, put))
        with store.read() as reader:
            assert reader.placements(all_ids) == {
                near: Place(old, other, third),
                far: Place(other, old),
                last: Place(third, other, old),
                away: Place(other),
            }

        # One was placed elsewhere meanwhile and one is gone.
        moves = pairs(*[(old, new)] * 4)
        store.write(lambda w: w.move_vectors(ids(away, far, last, 999), moves))

        with store.read() as reader:
            assert reader.placements(all_ids) == {
                near: Place(old, other, third),
                far: Place(other, new),
                last: Place(third, other, new),
                away: Place(other),
            }
        # One that leaves several at once is told of once for each.
        moves = pairs((third, newest), (old, new), (other, far), (other, new))
        store.write(lambda w: w.move_vectors(ids(near, near, near, away), moves))
        with store.read() as reader:
            assert reader.placements(ids(near, away)) == {
                near: Place(new, far, newest),
                away: Place(new),
            }
            assert reader.pending_ids(ns_id).tolist() == []
        store.write(lambda w: w.retire_vectors(ids(near)))
        with store.read() as reader:
            assert reader.placements(ids(near)) == {near: Place(RETIRED)}

    @pytest.mark.parametrize("which", ["cell_id", "second_id", "third_id"])
    @pytest.mark.parametrize(
        "damage", ["no longer in it", "in it but not placed there", "dropped", "unknown"]
    )
    def test_the_check_compares_all_cells_of_a_vector(
        self, store: Store, which: str, damage: str
    ) -> None:
        """A slip in any would leave a forgotten item's code behind, or lose a neighbour."""
        scene = populated(store, "alice")
        assert store.check() == []
        first, hot = vector_id(scene.keys[0]), vector_id(scene.keys[1])
        place = Place(scene.cell_id, scene.second_id, scene.third_id)
        cell_id = getattr(place, which)

        def work(writer: Writer) -> None:
            if damage == "no longer in it":
                writer.remove_members(cell_id, ids(first))
            elif damage == "in it but not placed there":
                writer.extend_cells({cell_id: members(hot)})
            elif damage == "dropped":
                writer.drop_cell(cell_id)
            else:
                writer.place(ids(first), spots(place._replace(**{which: cell_id + 1000})))

        store.write(work)

        said = " ".join(store.check())
        assert "placed" in said

    def test_the_number_of_a_cell_is_never_used_again(self, store: Store) -> None:
        """An index over centroids that still names the old one must find nothing."""
        ns_id = new_namespace(store)
        first = store.write(lambda w: w.add_cell(ns_id, unit(1), members(4096)))
        store.write(lambda w: w.drop_cell(first))

        second = store.write(lambda w: w.add_cell(ns_id, unit(1), members(4096)))

        assert second > first
        with store.read() as reader:
            assert reader.cell_ids(ns_id).tolist() == [second]
            assert sorted(reader.members(ids(first, second))) == [second]
            assert reader.centroids(ids(first, second)).ids.tolist() == [second]

    def test_an_emptied_cell_stays_until_it_is_dropped(self, store: Store) -> None:
        """So that the totals of its namespace change only where they are kept."""
        ns_id = new_namespace(store)
        cell_id = store.write(lambda w: w.add_cell(ns_id, unit(1), members(4096)))

        store.write(lambda w: w.remove_members(cell_id, ids(4096)))

        with store.read() as reader:
            assert reader.cell_ids(ns_id).tolist() == [cell_id]
            assert reader.cell_sizes(ids(cell_id)) == {cell_id: 0}
            emptied = reader.members(ids(cell_id))[cell_id]
        # As wide as ever: a search puts the codes of several cells together.
        assert emptied.codes.shape == (0, members(4096).codes.shape[1])
        store.write(lambda w: w.extend_cells({cell_id: members(8192)}))
        with store.read() as reader:
            assert codes_by_id(reader.members(ids(cell_id))[cell_id]) == codes_by_id(members(8192))

    def test_a_cell_far_larger_than_usual_is_kept_whole(self, store: Store) -> None:
        """Cells are split when they outgrow 96 at most; nothing is lost until then."""
        ns_id = new_namespace(store)
        wanted = members(*range(4096, 4096 + 500))

        def work(writer: Writer) -> int:
            cell_id = writer.add_cell(ns_id, unit(1), members())
            for start in range(0, 500, 7):
                part = slice(start, start + 7)
                writer.extend_cells({cell_id: Members(wanted.ids[part], wanted.codes[part])})
            return cell_id

        cell_id = store.write(work)

        with store.read() as reader:
            assert codes_by_id(reader.members(ids(cell_id))[cell_id]) == codes_by_id(wanted)

    def test_the_snapshot_is_kept_byte_for_byte(self, store: Store) -> None:
        """It is large and opaque, and derived: losing it costs time only."""
        ns_id, other = new_namespace(store), new_namespace(store, "bob")
        snapshot = bytes(range(256)) * 9000

        store.write(lambda w: w.put_cell_snapshot(ns_id, b"older"))
        store.write(lambda w: w.put_cell_snapshot(ns_id, snapshot))

        with store.read() as reader:
            assert reader.cell_snapshot(ns_id) == snapshot
            assert reader.cell_snapshot(other) is None
        store.write(lambda w: w.put_cell_snapshot(ns_id, None))
        with store.read() as reader:
            assert reader.cell_snapshot(ns_id) is None

    def test_clear_index_leaves_vectors_pending(self, store: Store) -> None:
        """The index is derived: it can be dropped and is built again from these."""
        scene = populated(store, "alice")
        with store.read() as reader:
            indexed = reader.indexed_ids(scene.ns_id).tolist()
            before = reader.vectors(reader.vector_ids(scene.keys))

        store.write(lambda w: w.clear_index(scene.ns_id))

        retired = vector_id(scene.keys[3])
        with store.read() as reader:
            assert reader.cell_ids(scene.ns_id).tolist() == []
            assert reader.members(ids(scene.cell_id, scene.second_id, scene.third_id)) == {}
            assert set(reader.placements(np.array(indexed)).values()) == {Place(PENDING)}
            assert reader.cell_snapshot(scene.ns_id) is None
            assert reader.frequencies(scene.ns_id, ["rome", "trip"]) == {}
            assert len(reader.postings(scene.ns_id, "rome", 9)) == 0
            assert reader.pending_ids(scene.ns_id).tolist() == indexed
            assert reader.indexed_ids(scene.ns_id).tolist() == indexed
            assert reader.placements(ids(retired)) == {retired: Place(RETIRED)}
            after = reader.vectors(reader.vector_ids(scene.keys))
        assert after.ids.tolist() == before.ids.tolist()
        np.testing.assert_array_equal(after.matrix, before.matrix)


class PostingContract:
    """Postings, by which rare words are found."""

    def test_the_newest_postings_come_first(self, store: Store) -> None:
        """A budget that ends early must cost the oldest."""
        ns_id = new_namespace(store)
        a, b, c = items(store, ns_id, 3)
        store.write(
            lambda w: w.add_postings(
                ns_id, [NewPostings(c, {"rome": 3}, 30), NewPostings(a, {"rome": 1, "x": 2}, 10)]
            )
        )
        store.write(lambda w: w.add_postings(ns_id, [NewPostings(b, {"rome": 2}, 20)]))

        with store.read() as reader:
            found = reader.postings(ns_id, "rome", 9)
            assert found.dtype == POSTING
            assert triples(found) == [(c, 3, 30), (b, 2, 20), (a, 1, 10)]
            assert triples(reader.postings(ns_id, "rome", 2)) == [(c, 3, 30), (b, 2, 20)]
            assert triples(reader.postings(ns_id, "rome", 0)) == []
            assert triples(reader.postings(ns_id, "x", 9)) == [(a, 2, 10)]
            assert reader.postings(ns_id, "absent", 9).dtype == POSTING
            assert reader.frequencies(ns_id, ["x", "rome", "absent"]) == {"x": 1, "rome": 3}

    def test_a_term_in_no_item_is_gone(self, store: Store) -> None:
        """The words of a forgotten item must not stay behind in the index."""
        ns_id = new_namespace(store)
        a, b = items(store, ns_id, 2)
        both = [NewPostings(a, {"rome": 1, "secret": 1}, 2), NewPostings(b, {"rome": 5}, 1)]
        store.write(lambda w: w.add_postings(ns_id, both))

        store.write(lambda w: w.remove_postings(ns_id, a, ["rome", "secret", "absent"]))

        with store.read() as reader:
            assert reader.frequencies(ns_id, ["rome", "secret"]) == {"rome": 1}
            assert triples(reader.postings(ns_id, "rome", 9)) == [(b, 5, 1)]
            assert len(reader.postings(ns_id, "secret", 9)) == 0

    def test_postings_added_after_a_removal_are_found(self, store: Store) -> None:
        """As when the text of an item changes: its key moves within the list."""
        ns_id = new_namespace(store)
        a, b = items(store, ns_id, 2)
        both = [NewPostings(a, {"rome": 1}, 1), NewPostings(b, {"rome": 1}, 1)]
        store.write(lambda w: w.add_postings(ns_id, both))
        store.write(lambda w: w.remove_postings(ns_id, a, ["rome"]))

        store.write(lambda w: w.add_postings(ns_id, [NewPostings(a, {"rome": 9}, 9)]))

        with store.read() as reader:
            assert triples(reader.postings(ns_id, "rome", 9)) == [(b, 1, 1), (a, 9, 9)]

    def test_counts_that_a_posting_can_not_hold_are_kept_as_the_largest(self, store: Store) -> None:
        """A text that repeats one word must not wrap around to a rare one."""
        ns_id = new_namespace(store)
        (key,) = items(store, ns_id, 1)
        store.write(lambda w: w.add_postings(ns_id, [NewPostings(key, {"ha": 70_000}, 70_001)]))

        with store.read() as reader:
            assert triples(reader.postings(ns_id, "ha", 9)) == [(key, 255, 65_535)]

    def test_a_common_term_is_read_up_to_a_limit(self, store: Store) -> None:
        """Whatever a store packs together, a limit and a removal mean single postings."""
        ns_id = new_namespace(store)
        keys = items(store, ns_id, 3000)
        put = [NewPostings(key, {"the": 1 + i % 9}, i) for i, key in enumerate(keys)]
        store.write(lambda w: w.add_postings(ns_id, put))
        store.write(lambda w: w.remove_postings(ns_id, keys[-2], ["the"]))
        store.write(lambda w: w.remove_postings(ns_id, keys[100], ["the"]))

        with store.read() as reader:
            found = triples(reader.postings(ns_id, "the", 5000))
            newest = triples(reader.postings(ns_id, "the", 1000))
            assert reader.frequencies(ns_id, ["the"]) == {"the": 2998}
        gone = (keys[-2], keys[100])
        assert found == [(p.key, p.counts["the"], p.length) for p in put if p.key not in gone][::-1]
        assert newest == found[:1000]


def read_vectors(store: Store, *vector_ids: int) -> Floats:
    """Return vectors by id."""
    with store.read() as reader:
        return reader.vectors(ids(*vector_ids)).matrix
