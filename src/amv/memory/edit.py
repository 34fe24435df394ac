"""One namespace within one transaction: every change keeps index, totals and log in step.

Whatever happens to an item (added, superseded, moved, forgotten) goes through
an `Edit`, which collects what caches must know and closes with one new version
of the namespace.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from amv.memory import lexical
from amv.memory.cells import rotate
from amv.memory.item import Namespace, Protection, Row, State, Status
from amv.memory.ports import (
    PASSAGES_MAX,
    PENDING,
    Change,
    Floats,
    Ids,
    NamespaceRow,
    NewPostings,
    Place,
    Vectors,
    Writer,
)
from amv.memory.settings import MemorySettings
from amv.memory.tiers import Tier, next_tier
from amv.memory.value import ValueModel, crossing_s, value_at, value_key

COPY = 0.98
"""A centroid that is as similar to a vector as this is taken for a copy of it."""


def model_of(row: NamespaceRow, model: ValueModel) -> ValueModel:
    """Return *model* with the half-life the namespace's value keys were made with."""
    if row.half_life_s == model.half_life_s:
        return model
    return replace(model, half_life_s=row.half_life_s)


def begun_key(row: Row, model: ValueModel) -> float:
    """Return the value key of a row, that of one not in force yet as from when it begins."""
    if row.state.protection is Protection.NOT_YET_VALID:
        return value_key(model.initial, row.valid_from_s, model)
    return row.state.value_key


def indexed_text(content: str, context: str) -> str:
    """Return the text whose terms stand in the lexical index."""
    return f"{content}\n{context}" if context else content


@dataclass(slots=True)
class Edit:
    """Changes to one namespace at the moment *now_s*; call `close` once, at the end.

    *doubted* are keys of items whose flags may have lost their cause, *reconsidered* for how
    many that was asked (see `doubts`).
    """

    tx: Writer
    row: NamespaceRow
    settings: MemorySettings
    now_s: float
    change: Change = field(default_factory=Change)
    doubted: set[int] = field(default_factory=set)
    reconsidered: int = 0

    def __post_init__(self) -> None:
        wanted = self.settings.value_model
        if self.row.half_life_s != wanted.half_life_s:
            # A new half-life keeps every value as of now: one statement re-keys them all.
            old = model_of(self.row, wanted)
            self.tx.rekey(self.row.ns_id, (wanted.decay_rate - old.decay_rate) * self.now_s)
            self.row = replace(self.row, half_life_s=wanted.half_life_s, next_due_s=self.now_s)
        if self.row.scale != wanted.scale:
            self.tx.rescale(self.row.ns_id, self.row.scale, wanted.scale)
            self.row = replace(self.row, scale=wanted.scale, next_due_s=self.now_s)

    @classmethod
    def of(cls, tx: Writer, namespace: Namespace, settings: MemorySettings, now_s: float) -> "Edit":
        """Begin an edit of a namespace, which is created if it is not there yet."""
        row = tx.namespace(namespace)
        if row is None:
            model = settings.value_model
            row = replace(tx.create_namespace(namespace, model.half_life_s), scale=model.scale)
        return cls(tx, row, settings, now_s)

    @property
    def model(self) -> ValueModel:
        """The value model of this namespace."""
        return self.settings.value_model

    def add_to_totals(self, **deltas: int) -> None:
        """Add to live, length, hot, pinned, vectors, pending, cells or cells_changed."""
        self.row = replace(
            self.row, **{name: getattr(self.row, name) + n for name, n in deltas.items()}
        )

    def wake_at(self, moment_s: float | None) -> None:
        """Make sure that a sweep comes by at *moment_s*."""
        due = self.row.next_due_s
        if moment_s is not None and (due is None or moment_s < due):
            self.row = replace(self.row, next_due_s=moment_s)

    def insert(
        self, rows: Sequence[Row], vectors: Sequence[Vectors], terms: Sequence[Mapping[str, int]]
    ) -> None:
        """Add live rows, with vectors (ids from 0) and terms of each, and give them their keys."""
        if not rows:
            return
        for row, key in zip(rows, self.tx.insert(rows), strict=True):
            row.give_key(key)
        self.index(rows, vectors, terms)
        hot = [row.key for row in rows if row.state.tier is Tier.HOT]
        self.change.hot_in += hot
        self.add_to_totals(hot=len(hot), pinned=sum(row.pinned for row in rows))
        last: Row | None = None
        for row in rows:
            # Most of a batch begin in one state, and never expire.
            is_like = last is not None and row.state is last.state and not row.contradicted
            if last is None or not is_like or row.expires_s != last.expires_s:
                self.wake_for(row)
            last = row

    def index(
        self, rows: Sequence[Row], vectors: Sequence[Vectors], terms: Sequence[Mapping[str, int]]
    ) -> None:
        """Put live rows into both indexes and into the totals."""
        ids = [v.ids + row.key * PASSAGES_MAX for row, v in zip(rows, vectors, strict=True)]
        together = Vectors(np.concatenate(ids), np.concatenate([v.matrix for v in vectors]))
        self.tx.add_vectors(self.row.ns_id, together)
        self.change.vectors_in += together.ids.tolist()
        postings = [
            NewPostings(row.key, counts, row.length)
            for row, counts in zip(rows, terms, strict=True)
        ]
        self.tx.add_postings(self.row.ns_id, postings)
        n = len(together.ids)
        self.add_to_totals(
            live=len(rows), length=sum(row.length for row in rows), vectors=n, pending=n
        )

    def wake_for(self, row: Row) -> None:
        """Note when a live row next crosses a threshold, begins, expires or, in doubt, ends."""
        self.wake_at(row.expires_s)
        if row.contradicted:
            self.wake_at(row.valid_until_s)
        state = row.state
        if state.protection is Protection.NOT_YET_VALID:
            self.wake_at(row.valid_from_s)
        elif state.protection is Protection.NONE:
            self.wake_at(self.next_crossing_s(state))

    def next_crossing_s(self, state: State) -> float | None:
        """Return when an unprotected item in this state moves down a tier by itself."""
        if state.tier is Tier.HOT:
            return crossing_s(state.value_key, self.model.hot.demote, self.model)
        if state.tier is Tier.WARM:
            return crossing_s(state.value_key, self.model.warm.demote, self.model)
        if self.settings.evict:
            return crossing_s(state.value_key, self.model.evict_below, self.model)
        return None

    def wake_for_states(self, states: Iterable[State]) -> None:
        """Note when the first of many live items, whose values changed, has to move.

        Of those in one tier, the one of the lowest value leaves it below first, and if
        any has left it above by now, so has the one of the highest.
        """
        ends: dict[Tier, tuple[State, State]] = {}
        for state in states:
            if state.protection is Protection.NONE:
                low, high = ends.get(state.tier, (state, state))
                if state.value_key < low.value_key:
                    ends[state.tier] = state, high
                elif state.value_key >= high.value_key:
                    ends[state.tier] = low, state
        for low, high in ends.values():
            if self.is_misplaced(low) or self.is_misplaced(high):
                self.wake_at(self.now_s)
            else:
                self.wake_at(self.next_crossing_s(low))

    def is_misplaced(self, state: State) -> bool:
        """Return whether an unprotected item's value has left the band of its tier."""
        value = value_at(state.value_key, self.now_s, self.model)
        tier = next_tier(state.tier, value, warm=self.model.warm, hot=self.model.hot)
        return tier is not state.tier

    def unindex(self, row: Row, *, keep_vectors: bool) -> None:
        """Take a live row out of both indexes, out of hot and out of the totals."""
        terms, _ = lexical.term_counts(indexed_text(row.content, row.context))
        self.tx.remove_postings(self.row.ns_id, row.key, list(terms))
        self.take_vectors(self.tx.vector_ids([row.key]), keep=keep_vectors)
        if row.state.tier is Tier.HOT:
            self.change.hot_out.append(row.key)
        self.change.items.append(row.key)
        self.add_to_totals(
            live=-1,
            length=-row.length,
            hot=-(row.state.tier is Tier.HOT),
            pinned=-int(row.pinned),
        )

    def take_vectors(self, ids: Ids, *, keep: bool) -> None:
        """Take vectors out of their cells; keep them for searches of the past, or drop them."""
        by_cell: dict[int, list[int]] = {}
        places = self.tx.placements(ids)
        first = [place.cell_id for place in places.values()]
        self.add_to_totals(
            vectors=-sum(cell_id >= PENDING for cell_id in first),
            pending=-sum(cell_id == PENDING for cell_id in first),
        )
        for vector_id, place in places.items():
            for cell_id in place:
                if cell_id > PENDING:
                    by_cell.setdefault(cell_id, []).append(vector_id)
        for cell_id, members in by_cell.items():
            self._take_from(cell_id, np.asarray(members, dtype=np.int64))
        self.change.vectors_out += ids.tolist()
        if keep:
            self.tx.retire_vectors(ids)
        else:
            self.tx.drop_vectors(ids)

    def _take_from(self, cell_id: int, gone: Ids) -> None:
        """Take members out of a cell, and drop it where its centroid is a copy of one of them.

        That of a cell that began with equal vectors only is such a copy (see
        `cells.centroid_of`), and may not stay behind, unless it is as much that of
        another one, which stays.
        """
        cell_ids = np.asarray([cell_id], dtype=np.int64)
        self.tx.remove_members(cell_id, gone)
        held = self.tx.members(cell_ids).get(cell_id)
        centroids = self.tx.centroids(cell_ids).matrix
        if held is None or not len(centroids):
            # The store is damaged, which must not keep an item from being forgotten.
            return
        centroid = centroids[0]
        is_copy = self._closest(centroid, gone) > COPY >= self._closest(centroid, held.ids)
        if len(held.ids) and not is_copy:
            self.change.cells_touched.append(cell_id)
            return
        self._leave(cell_id, held.ids)
        self.drop_cell(cell_id)
        self.drop_snapshot()

    def drop_snapshot(self) -> None:
        """Remove the saved index over centroids; the next drain saves it anew."""
        self.tx.put_cell_snapshot(self.row.ns_id, None)
        self.add_to_totals(cells_changed=max(1, self.row.cells))

    def _closest(self, centroid: Floats, ids: Ids) -> float:
        """Return the similarity of a centroid and that of these vectors which is most like it."""
        matrix = rotate(self.tx.vectors(ids).matrix)
        if matrix.shape[1:] != centroid.shape:
            return -1.0
        return float((matrix @ centroid).max())

    def _leave(self, cell_id: int, ids: Ids) -> None:
        """Have vectors be in their other cells only; those that have none are pending again."""
        places = self.tx.placements(ids)
        others = [Place(*(i for i in place if i != cell_id)) for place in places.values()]
        self.tx.place(np.asarray(list(places), dtype=np.int64), np.asarray(others, dtype=np.int64))
        waiting = [i for i, place in zip(places, others, strict=True) if place.cell_id == PENDING]
        self.change.vectors_in += waiting
        self.add_to_totals(pending=len(waiting))

    def put(self, row: Row) -> None:
        """Replace a stored row in what no index goes by."""
        self.tx.update(row)
        self.change.items.append(row.key)

    def drop_cell(self, cell_id: int) -> None:
        """Remove a cell; its members must be elsewhere by now."""
        self.tx.drop_cell(cell_id)
        self.change.cells_out.append(cell_id)
        self.add_to_totals(cells=-1, cells_changed=1)

    def move(self, key: int, state: State, *, was: State) -> None:
        """Replace the state of a live item, whatever tier that puts it in."""
        self.tx.put_states([(key, state)])
        self.change.items.append(key)
        hot, was_hot = state.tier is Tier.HOT, was.tier is Tier.HOT
        if hot and not was_hot:
            self.change.hot_in.append(key)
        if was_hot and not hot:
            self.change.hot_out.append(key)
        self.add_to_totals(hot=hot - was_hot)
        if state.protection is Protection.NONE:
            self.wake_at(self.next_crossing_s(state))

    def retire(self, row: Row, *, status: Status) -> Row:
        """Take a live row out of every search of now; a superseded one stays for the past."""
        self.unindex(row, keep_vectors=status is Status.SUPERSEDED)
        state = replace(row.state, tier=Tier.COLD, protection=Protection.NONE)
        if row.state.protection is Protection.NOT_YET_VALID:
            state = replace(state, value_key=value_key(self.model.initial, self.now_s, self.model))
        # What is believed no more contradicts nothing.
        retired = replace(row, status=status, pinned=False, contradicted=False, state=state)
        self.tx.update(retired)
        return retired

    def released_state(self, state: State) -> State:
        """Return the state of an item that nothing protects any more: its tier by value."""
        value = value_at(state.value_key, self.now_s, self.model)
        tier = next_tier(Tier.WARM, value, warm=self.model.warm, hot=self.model.hot)
        return replace(state, protection=Protection.NONE, tier=tier)

    def settle_probation(self) -> None:
        """Release the oldest items in probation, then demote while hot is over its cap.

        The lowest unprotected hot items go first; what is released and belongs
        in hot by its value competes with them on equal terms.
        """
        held = self.tx.protected_keys(self.row.ns_id, Protection.PROBATION)
        surplus = held[: max(0, len(held) - self.settings.probation_max)]
        for key, row in self.tx.rows(surplus).items():
            self.move(key, self.released_state(row.state), was=row.state)
        self.shed_hot()

    def shed_hot(self) -> None:
        """Demote the lowest unprotected hot items while there are more than hot_max."""
        excess = self.row.hot - self.settings.hot_max
        if excess <= 0:
            return
        lowest = self.tx.tier_range(self.row.ns_id, Protection.NONE, Tier.HOT, limit=excess)
        held = self.tx.states(self.row.ns_id, [key for _, key in lowest])
        states = [(key, replace(state, tier=Tier.WARM)) for key, state in held.items()]
        self.tx.put_states(states)
        self.change.items += held
        self.change.hot_out += held
        self.add_to_totals(hot=-len(states))
        # Of one tier, that of the lowest value leaves it first.
        for _, state in sorted(states, key=lambda each: each[1].value_key)[:1]:
            self.wake_at(self.next_crossing_s(state))

    def close(self) -> NamespaceRow:
        """Store totals, a new version and what changed; return the namespace."""
        self.row = replace(self.row, version=self.row.version + 1)
        self.tx.put_namespace(self.row)
        self.tx.log_change(self.row.ns_id, self.row.version, self.change)
        return self.row
