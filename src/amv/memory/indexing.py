"""Putting vectors into cells, off the search's path.

New vectors wait outside the cells and are scanned exactly.  When too many
wait, whoever added the last one puts them away: each joins its nearest cell,
and cells that have grown too large are split.  What takes long, finding the
nearest cells, happens on a snapshot before the transaction begins; inside it,
what another process has moved in the meantime is left for the next time.
"""

import numpy as np

from amv.memory.cells import directions, divide, quantise, unit
from amv.memory.edit import Edit
from amv.memory.hot import View
from amv.memory.item import Namespace
from amv.memory.ports import PENDING, Floats, Ids, Members, NamespaceRow, Store, Vectors, Writer
from amv.memory.settings import CellSettings, MemorySettings

SNAPSHOT_SHARE = 0.5
"""The saved centroid index is renewed when this share of the cells has changed since."""

DRAIN_MAX = 4096
"""The most vectors put into cells by one transaction."""


def is_due(row: NamespaceRow, cells: CellSettings) -> bool:
    """Return whether too many vectors of a namespace wait outside the cells."""
    return row.pending > (cells.drain_at if row.cells else cells.from_vectors)


def drain_all(
    store: Store, view: View, row: NamespaceRow, settings: MemorySettings, now_s: float
) -> None:
    """Put waiting vectors of a namespace into cells until few enough wait."""
    now: NamespaceRow | None = row
    while now is not None and is_due(now, settings.cells):
        if not drain(store, view, now.name, settings, now_s):
            break
        save_index(store, view, now.name, settings, now_s)
        with store.read() as reader:
            now = reader.namespace(row.name)


def drain(
    store: Store, view: View, namespace: Namespace, settings: MemorySettings, now_s: float
) -> int:
    """Put waiting vectors of a namespace into cells; return how many."""
    with view.lock, store.read() as reader:
        row = reader.namespace(namespace)
        if row is None or not is_due(row, settings.cells):
            return 0
        view.follow(reader, row)
        waiting = reader.vectors(reader.pending_ids(row.ns_id)[:DRAIN_MAX])
        nearest = view.index.nearest(waiting.matrix) if view.index is not None else None
    drained: int = store.write(
        lambda tx: _place(_edit(tx, row.ns_id, settings, now_s), row.version, waiting, nearest)
    )
    return drained


def _edit(tx: Writer, ns_id: int, settings: MemorySettings, now_s: float) -> Edit | None:
    """Begin an edit of the namespace that was looked at, unless it was forgotten since."""
    row = tx.namespace_by_id(ns_id)
    return None if row is None else Edit(tx, row, settings, now_s)


def _place(edit: Edit | None, version: int, waiting: Vectors, nearest: Ids | None) -> int:
    if edit is None:
        return 0
    placements = edit.tx.placements(waiting.ids)
    still = np.asarray([placements.get(i) == PENDING for i in waiting.ids.tolist()], dtype=bool)
    ids, matrix = waiting.ids[still], waiting.matrix[still]
    if not len(ids):
        return 0
    if edit.row.version != version:
        # An item may have got other content, and with it another vector under the same id.
        matrix = edit.tx.vectors(ids).matrix
    if nearest is None:
        if edit.row.cells:
            return 0
        _add_cells(edit, ids, matrix)
        placed = len(ids)
    else:
        placed = _extend(edit, ids, matrix, nearest[still])
    edit.add_to_totals(pending=-placed)
    edit.close()
    return placed


def _add_cells(edit: Edit, ids: Ids, matrix: Floats) -> None:
    """Divide vectors among new cells."""
    cells = edit.settings.cells
    codes = quantise(matrix)
    groups = divide(matrix, target=cells.target, limit=cells.split_above)
    for group in groups:
        centroid = unit(matrix[group].mean(axis=0, keepdims=True))[0]
        cell_id = edit.tx.add_cell(edit.row.ns_id, centroid, Members(ids[group], codes[group]))
        edit.tx.place(ids[group], cell_id)
        edit.change.cells_in.append(cell_id)
    edit.change.placed += ids.tolist()
    edit.add_to_totals(cells=len(groups), cells_changed=len(groups))


def _extend(edit: Edit, ids: Ids, matrix: Floats, nearest: Ids) -> int:
    """Add each vector to its cell, and split the cells that have grown too large."""
    order = np.argsort(nearest, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(nearest[order]) != 0])
    groups = np.split(order, starts[1:])
    cell_ids = nearest[order[starts]]
    present = edit.tx.members(cell_ids)
    codes = quantise(matrix)
    placed = 0
    for cell_id, group in zip(cell_ids.tolist(), groups, strict=True):
        members = present.get(cell_id)
        if members is None:
            continue
        placed += len(group)
        if len(members.ids) + len(group) > edit.settings.cells.split_above:
            everything = np.concatenate([members.ids, ids[group]])
            edit.drop_cell(cell_id)
            _add_cells(edit, everything, np.concatenate([directions(members.codes), matrix[group]]))
            continue
        edit.tx.extend_cell(cell_id, Members(ids[group], codes[group]))
        edit.tx.place(ids[group], cell_id)
        edit.change.cells_touched.append(cell_id)
        edit.change.placed += ids[group].tolist()
    return placed


def save_index(
    store: Store, view: View, namespace: Namespace, settings: MemorySettings, now_s: float
) -> bool:
    """Save the centroid index of a namespace if enough has changed; return whether it was."""
    with view.lock, store.read() as reader:
        row = reader.namespace(namespace)
        if row is None or row.cells_changed <= SNAPSHOT_SHARE * row.cells:
            return False
        view.follow(reader, row)
        if view.index is None:
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
