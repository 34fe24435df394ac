"""Putting vectors into cells, off the search's path.

New vectors wait outside the cells and are scanned exactly.  When too many
wait, whoever added the last one puts them away: each joins its cells, and
cells that have grown too large are split.  What takes long, finding the nearest
cells, happens on a snapshot before the transaction begins; inside it,
what another process has moved in the meantime is left for the next time.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from amv.memory.cells import (
    CentroidIndex,
    centroid_of,
    divide,
    quantise,
    rotate,
    rotate_back,
)
from amv.memory.edit import Edit
from amv.memory.hot import IndexDamaged, View
from amv.memory.item import Namespace
from amv.memory.ports import PENDING, Floats, Ids, Members, NamespaceRow, Store, Vectors, Writer
from amv.memory.settings import CellSettings, MemorySettings

SNAPSHOT_SHARE = 0.5
"""The saved centroid index is renewed when this share of the cells has changed since.

Whoever changed some renews it on closing, too."""

TIDIED_SHARE = 0.05
TIDIED_MAX = 32_768
"""On closing, an index of up to so many cells keeps at most that share of dropped ones.

Making it anew takes about 60 us a cell."""

SAME = 0.9999
"""A centroid that is as similar to a vector as this was made of that vector alone."""

DRAIN_MAX = 4096
"""The most vectors put into cells by one transaction."""


def is_due(row: NamespaceRow, cells: CellSettings) -> bool:
    """Return whether too many vectors of a namespace wait outside the cells."""
    return row.pending > (cells.drain_at if row.cells else cells.from_vectors)


def drain_all(
    store: Store, view: View, row: NamespaceRow, settings: MemorySettings, now_s: float
) -> int:
    """Put waiting vectors of a namespace into cells until few enough wait; return how many."""
    drained = 0
    now: NamespaceRow | None = row
    while now is not None and is_due(now, settings.cells):
        more = drain(store, view, now.name, settings, now_s)
        if not more:
            break
        drained += more
        save_index(store, view, now.name, settings, now_s)
        with store.read() as reader:
            now = reader.namespace(row.name)
    return drained


def drain(
    store: Store, view: View, namespace: Namespace, settings: MemorySettings, now_s: float
) -> int:
    """Put waiting vectors of a namespace into cells; return how many."""
    with view.lock, store.read() as reader:
        row = reader.namespace(namespace)
        if row is None or not is_due(row, settings.cells):
            return 0
        view.follow(reader, row)
        found = view.pending.oldest(DRAIN_MAX)
        waiting = Vectors(found.ids, rotate(found.matrix))
        spots = view.index.nearest(waiting.matrix) if view.index is not None else None
    drained: int = store.write(
        lambda tx: _place(_edit(tx, row.ns_id, settings, now_s), row.version, waiting, spots)
    )
    return drained


def _edit(tx: Writer, ns_id: int, settings: MemorySettings, now_s: float) -> Edit | None:
    """Begin an edit of the namespace that was looked at, unless it was forgotten since."""
    row = tx.namespace_by_id(ns_id)
    return None if row is None else Edit(tx, row, settings, now_s)


def _place(edit: Edit | None, version: int, waiting: Vectors, spots: Ids | None) -> int:
    if edit is None:
        return 0
    places = edit.tx.placements(waiting.ids)
    still = np.asarray(
        [i in places and places[i].cell_id == PENDING for i in waiting.ids.tolist()], dtype=bool
    )
    ids, matrix = waiting.ids[still], waiting.matrix[still]
    if edit.row.version != version:
        # An item may have got other content, and with it another vector under the same id.
        matrix = rotate(edit.tx.vectors(ids).matrix.reshape(matrix.shape))
    if spots is None:
        spots = _first_cells(edit, matrix) if len(ids) and not edit.row.cells else None
    else:
        spots = spots[still]
    if not len(ids) or spots is None:
        return 0
    placed = _put(edit, ids, matrix, spots)
    edit.add_to_totals(pending=-placed)
    edit.close()
    return placed


def _first_cells(edit: Edit, matrix: Floats) -> Ids:
    """Make a namespace's first cells; return which of them each vector belongs in."""
    cells = edit.settings.cells
    groups = divide(matrix, target=cells.target, limit=cells.split_above)
    centroids = np.stack([centroid_of(matrix[group], matrix) for group in groups])
    index = CentroidIndex(matrix.shape[1])
    index.add(np.arange(1, len(groups) + 1), centroids)
    chosen = index.nearest(matrix)
    nearest = np.unique(chosen[:, 0])
    if len(nearest) < len(groups):
        # Of groups of nearly equal vectors one gets them all.  A cell of the others would hold
        # strangers only, and keep its centroid, nearly equal to those vectors, once they are gone.
        index.remove(np.setdiff1d(np.arange(1, len(groups) + 1), nearest))
        chosen = index.nearest(matrix)
    nothing = Members(np.zeros(0, dtype=np.int64), quantise(matrix[:0]))
    cell_ids = np.zeros(len(groups) + 1, dtype=np.int64)
    for place in nearest.tolist():
        cell_ids[place] = _add_cell(edit, centroids[place - 1], nothing)
    spots: Ids = cell_ids[chosen]
    return spots


def _put(edit: Edit, ids: Ids, matrix: Floats, spots: Ids) -> int:
    """Put each vector into its cells, and split the cells that have grown too large."""
    sizes = edit.tx.cell_sizes(np.unique(spots[spots > 0]))
    there = np.isin(spots, np.asarray([0, *sizes], dtype=np.int64)).all(axis=1)
    if not there.any():
        return 0
    ids, codes, spots = ids[there], quantise(matrix[there]), spots[there]
    edit.change.placed += ids.tolist()
    # A vector stands in what follows as row n, n + len(ids), and so on, once for each cell.
    cell_ids = spots.T.reshape(-1)
    order = np.argsort(cell_ids, kind="stable")[np.count_nonzero(cell_ids == 0) :]
    starts = np.flatnonzero(np.diff(cell_ids[order], prepend=0))
    row = order % len(ids)
    those, theirs = ids[row], codes[row]
    bounds = pairwise([*starts.tolist(), len(order)])
    groups = {
        cell_id: Members(those[start:end], theirs[start:end])
        for cell_id, (start, end) in zip(cell_ids[order[starts]].tolist(), bounds, strict=True)
    }
    limit = edit.settings.cells.split_above
    full = {i: more for i, more in groups.items() if sizes[i] + len(more.ids) > limit}
    staying = {i: more for i, more in groups.items() if i not in full}
    edit.tx.extend_cells(staying)
    edit.change.cells_touched += staying
    moved, moves = _split(edit, full)
    # Of what is placed only now, the moves are taken into account at once.
    order = np.argsort(ids)
    place = np.searchsorted(ids, moved, sorter=order)
    row = order[np.minimum(place, len(ids) - 1)]
    is_new = ids[row] == moved
    at = np.argmax(spots[row] == moves[:, :1], axis=1)
    spots[row[is_new], at[is_new]] = moves[is_new, 1]
    edit.tx.place(ids, spots)
    edit.tx.move_vectors(moved[~is_new], moves[~is_new])
    return len(ids)


def _split(edit: Edit, full: Mapping[int, Members]) -> tuple[Ids, Ids]:
    """Divide cells, with members that join them, among new ones.

    Return the ids of all members, and from which cell to which each moves, of
    shape (n, 2); each stays in its other cells.
    """
    if not full:
        return np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.int64)
    cells = edit.settings.cells
    cell_ids = np.asarray(sorted(full), dtype=np.int64)
    held, old = edit.tx.members(cell_ids), edit.tx.centroids(cell_ids)
    new: list[Members] = []
    left: list[int] = []
    centroids: list[Floats] = []
    # Angles are the same before a rotation, which takes long but for many at once.
    for cell_id, middle in zip(old.ids.tolist(), rotate_back(old.matrix), strict=True):
        ids = np.concatenate([held[cell_id].ids, full[cell_id].ids])
        codes = np.concatenate([held[cell_id].codes, full[cell_id].codes])
        matrix = _vectors(edit.tx, ids)
        if (matrix @ middle > SAME).any():
            # It began with equal vectors only.  The saved index would keep theirs, also once
            # they are forgotten.
            edit.drop_snapshot()
        edit.drop_cell(cell_id)
        for group in divide(matrix, target=cells.target, limit=cells.split_above):
            new.append(Members(ids[group], codes[group]))
            left.append(cell_id)
            centroids.append(centroid_of(matrix[group], matrix))
    joined = [
        _add_cell(edit, centroid, members)
        for centroid, members in zip(rotate(np.stack(centroids)), new, strict=True)
    ]
    sizes = [len(members.ids) for members in new]
    moves = np.repeat(np.column_stack([left, joined]), sizes, axis=0)
    return np.concatenate([members.ids for members in new]), moves


def _vectors(tx: Writer, ids: Ids) -> Floats:
    """Return vectors in the order of their ids, of shape (n, d)."""
    found = tx.vectors(ids)
    if len(found.ids) != len(ids):
        raise IndexDamaged(
            f"{len(ids) - len(found.ids)} members of a cell have no vector; "
            "`amv doctor --rebuild` makes the index anew"
        )
    ordered: Floats = found.matrix[np.searchsorted(found.ids, ids)]
    return ordered


def _add_cell(edit: Edit, centroid: Floats, members: Members) -> int:
    cell_id = edit.tx.add_cell(edit.row.ns_id, centroid, members)
    edit.change.cells_in.append(cell_id)
    edit.add_to_totals(cells=1, cells_changed=1)
    return cell_id


def save_index(
    store: Store,
    view: View,
    namespace: Namespace,
    settings: MemorySettings,
    now_s: float,
    *,
    is_last: bool = False,
) -> bool:
    """Save the centroid index of a namespace if enough of its cells have changed since.

    When the memory closes, as *is_last* says, any change is enough, and an index
    of not too many cells is first rid of those that were dropped: they make a
    search longer and let it find less.  Returns whether it was saved.
    """
    with view.lock, store.read() as reader:
        row = reader.namespace(namespace)
        if row is None or not (is_last or row.cells_changed > SNAPSHOT_SHARE * row.cells):
            return False
        view.follow(reader, row)
        if view.index is None:
            return False
        is_anew = (
            is_last and row.cells <= TIDIED_MAX and view.index.tidy(TIDIED_SHARE, is_whole=True)
        )
        if not row.cells_changed and not is_anew:
            return False
        snapshot, changed = view.index.snapshot(), row.cells_changed

    def keep(edit: Edit | None) -> bool:
        if edit is None:
            return False
        edit.tx.put_cell_snapshot(edit.row.ns_id, snapshot)
        edit.add_to_totals(cells_changed=-changed)
        edit.close()
        return True

    return store.write(lambda tx: keep(_edit(tx, row.ns_id, settings, now_s)))
