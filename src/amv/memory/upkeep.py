"""Upkeep: what happens off the request path.

Value events are folded into the items, namespaces that are due are swept, and
the indexes, which are derived data, are made anew when they are missing, stale
or damaged.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from amv.errors import AmvError, StoreError
from amv.memory import doubts, lexical, life, sweep
from amv.memory.edit import Edit, indexed_text
from amv.memory.item import Namespace, Status
from amv.memory.ports import Event, NamespaceRow, NewPostings, Reader, Store, Writer
from amv.memory.results import SweepReport, TierMove
from amv.memory.settings import MemorySettings
from amv.memory.tiers import Tier

REBUILD_PAGE = 500

Warn = Callable[[str, AmvError], None]
"""Told what failed that costs time only, and why; whoever runs a memory writes it to a log."""


def apply_events(
    tx: Writer, events: Sequence[Event], settings: MemorySettings, now_s: float
) -> None:
    """Apply events in order, as increments; those of absent namespaces and items are dropped."""
    by_namespace: dict[int, list[Event]] = {}
    for event in events:
        by_namespace.setdefault(event.ns_id, []).append(event)
    for ns_id, own in by_namespace.items():
        ns = tx.namespace_by_id(ns_id)
        if ns is None:
            continue
        edit = Edit(tx, ns, settings, now_s)
        life.apply_events(edit, own)
        edit.close()


def sweep_namespaces(
    store: Store,
    due: Sequence[NamespaceRow],
    settings: MemorySettings,
    now_s: float,
    *,
    dry_run: bool,
    warn: Warn,
) -> SweepReport:
    """Sweep namespaces, each in a transaction of its own, or say what that would do.

    What was deleted is erased at the end, in one go, as that can take long.
    """
    moves: list[TierMove] = []
    visited = 0
    for ns in due:
        plan, named = (
            _dry(store, ns, settings, now_s)
            if dry_run
            else store.write(_sweeper(ns.ns_id, settings, now_s))
        )
        moves += named
        visited += plan.visited
    has_deleted = not dry_run and any(move.to is None for move in moves)
    return SweepReport(
        moves=tuple(moves),
        visited=visited,
        namespaces=len(due),
        dry_run=dry_run,
        erased=not has_deleted or _erased(store, warn),
    )


def _erased(store: Store, warn: Warn) -> bool:
    try:
        return store.erase()
    except StoreError as error:
        warn("a sweep could not erase yet", error)
        return False


def _dry(
    store: Store, ns: NamespaceRow, settings: MemorySettings, now_s: float
) -> tuple[sweep.Plan, list[TierMove]]:
    with store.read() as reader:
        current = reader.namespace_by_id(ns.ns_id)
        if current is None:
            return sweep.Plan(), []
        if current.scale == settings.value_model.scale:
            plan = sweep.plan_sweep(reader, current, settings, now_s)
            return plan, _named(plan, reader, current.name)
    return _undone(store, ns.ns_id, settings, now_s)


class _Undo(Exception):
    """Takes back what a transaction did."""


def _undone(
    store: Store, ns_id: int, settings: MemorySettings, now_s: float
) -> tuple[sweep.Plan, list[TierMove]]:
    """Do what a sweep does, where that makes every value anew first, and take it back."""
    done: list[tuple[sweep.Plan, list[TierMove]]] = []

    def work(tx: Writer) -> None:
        done.append(_sweeper(ns_id, settings, now_s)(tx))
        raise _Undo

    with suppress(_Undo):
        store.write(work)
    return done[-1]


def _sweeper(
    ns_id: int, settings: MemorySettings, now_s: float
) -> Callable[[Writer], tuple[sweep.Plan, list[TierMove]]]:
    def work(tx: Writer) -> tuple[sweep.Plan, list[TierMove]]:
        current = tx.namespace_by_id(ns_id)
        if current is None:
            return sweep.Plan(), []
        edit = Edit(tx, current, settings, now_s)
        plan = sweep.plan_sweep(tx, edit.row, settings, now_s)
        named = _named(plan, tx, current.name)
        doubts.end(edit)
        life.delete(edit, sweep.apply_plan(edit, plan))
        sweep.set_next_due(edit)
        edit.close()
        return plan, named

    return work


def _named(plan: sweep.Plan, reader: Reader, namespace: Namespace) -> list[TierMove]:
    rows = sweep.rows_of(reader, [move.key for move in plan.moves])
    return [
        TierMove(
            item_id=rows[move.key].id,
            namespace=namespace,
            was=rows[move.key].state.tier,
            to=move.to,
            why=move.why,
        )
        for move in plan.moves
    ]


def rebuild(tx: Writer, ns_id: int, settings: MemorySettings, now_s: float) -> NamespaceRow | None:
    """Make both indexes of a namespace anew from its items; vectors wait to be put into cells."""
    ns = tx.namespace_by_id(ns_id)
    if ns is None:
        return None
    edit = Edit(tx, ns, settings, now_s)
    edit.change.cells_out += tx.cell_ids(ns_id).tolist()
    tx.clear_index(ns_id)
    live = length = hot = pinned = 0
    after_key = 0
    while rows := tx.page(ns_id, source=None, after_key=after_key, limit=REBUILD_PAGE):
        after_key = rows[-1].key
        postings = []
        for row in rows:
            if row.status is not Status.LIVE:
                continue
            counts, terms = lexical.term_counts(indexed_text(row.content, row.context))
            postings.append(NewPostings(row.key, counts, terms))
            if terms != row.length:
                tx.update(replace(row, length=terms))
                edit.change.items.append(row.key)
            live, length = live + 1, length + terms
            if row.state.tier is Tier.HOT:
                hot += 1
                edit.change.hot_in.append(row.key)
            pinned += row.pinned
        tx.add_postings(ns_id, postings)
    # All are told as gone, too: with another embedder they are other vectors by the same ids.
    edit.change.vectors_in += tx.pending_ids(ns_id).tolist()
    edit.change.vectors_out += edit.change.vectors_in
    pending = len(edit.change.vectors_in)
    edit.add_to_totals(
        live=live - edit.row.live,
        length=length - edit.row.length,
        hot=hot - edit.row.hot,
        pinned=pinned - edit.row.pinned,
        vectors=pending - edit.row.vectors,
        pending=pending - edit.row.pending,
        cells=-edit.row.cells,
        cells_changed=-edit.row.cells_changed,
    )
    edit.wake_at(now_s)
    return edit.close()
