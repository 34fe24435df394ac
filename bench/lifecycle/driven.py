"""Memories of which something other than value orders the tiers, and that note what it costs.

A cache policy decides which items are hot and the memory does the rest: it
stores, searches and moves items as it always does.  With every fold of value
events the policy is told what was written and used since, in its order, and
the value keys of the items it now wants near, or no longer, are set to one of
two constants, far above the threshold of hot and far below.  The sweep that
follows moves them.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import amv
from amv.memory.edit import Edit
from amv.memory.item import Protection, Row
from amv.memory.ports import Event, NamespaceRow, Writer
from amv.memory.tiers import Band
from amv.memory.value import ValueModel, value_key
from bench.lifecycle.policies.protocol import Entry, Policy

PAGE = 4096
NEAR, FAR = 0.9, 0.1

#: Of two constants, one is hot and the other warm, at whatever time.
FLAT = ValueModel(
    value_max=1.0,
    initial=FAR,
    exposed_gain=1e-6,
    contributed_gain=1e-6,
    negative_gain=1e-6,
    rank_power=0.0,
    exposed_cap=1.0,
    half_life_s=1e13,
    hot=Band(demote=0.4, promote=0.6),
    warm=Band(demote=0.01, promote=0.02),
    evict_below=0.0,
)


class Noted(amv.Memory):
    """A memory that notes how long value events waited until they were folded."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._lags_s: list[float] = []

    def _apply_events(self, tx: Writer, events: Sequence[Event]) -> None:
        now_s = self._clock()
        self._lags_s += [now_s - event.at_s for event in events]
        super()._apply_events(tx, events)

    def warm(self) -> None:
        """Have in RAM what searches need of what is there already."""
        for name in self.namespaces():
            self.find(vector=np.ones(self._embedder.dimension), namespace=name, k=1)

    def figures(self) -> dict[str, object]:
        """Return what was noted: median, 99th percentile and most, in simulated seconds."""
        lags_s = np.quantile(self._lags_s, [0.5, 0.99, 1.0]).tolist() if self._lags_s else []
        return {"lags_s": lags_s}


class Driven(Noted):
    """A memory whose hot tier is what a policy keeps near; call `drive` once it is open."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._make: Callable[[int], Policy] | None = None
        self._policies: dict[int, Policy] = {}
        self._near: dict[int, set[int]] = {}
        self._entries: dict[int, dict[int, Entry]] = {}
        self._last_key: dict[int, int] = {}
        self._events: list[Event] = []

    def drive(self, make: Callable[[int], Policy]) -> None:
        """Have a policy, made for so many items, decide in each namespace."""
        self._make = make

    def _apply_events(self, tx: Writer, events: Sequence[Event]) -> None:
        super()._apply_events(tx, events)
        self._events += events

    def flush(self) -> int:
        """Fold events, tell the policies of what happened and let them choose."""
        folded = super().flush()
        if self._make is not None:
            events, self._events = self._events, []
            self._store.write(lambda tx: self._choose_all(tx, events))
        return folded

    def _choose_all(self, tx: Writer, events: Sequence[Event]) -> None:
        by_namespace: dict[int, list[Event]] = {}
        for event in events:
            by_namespace.setdefault(event.ns_id, []).append(event)
        for ns in tx.namespaces():
            self._choose(tx, ns, by_namespace.get(ns.ns_id, []))

    def _choose(self, tx: Writer, ns: NamespaceRow, events: Sequence[Event]) -> None:
        assert self._make is not None
        if ns.ns_id not in self._policies:
            self._policies[ns.ns_id] = self._make(self._settings.hot_max)
            self._near[ns.ns_id], self._entries[ns.ns_id] = set(), {}
        policy, entries = self._policies[ns.ns_id], self._entries[ns.ns_id]
        rows = list(self._written(tx, ns.ns_id))
        entries.update((row.key, Entry(row.key, row.id, len(row.content))) for row in rows)
        happened = heapq.merge(
            ((row.created_s, 0, row.key) for row in rows),
            ((event.at_s, 1, event.key) for event in once(events) if event.key in entries),
        )
        for _, is_use, key in happened:
            (policy.use if is_use else policy.add)(entries[key])
        near = set(policy.near(self._clock()))
        changed = near ^ self._near[ns.ns_id]
        self._near[ns.ns_id] = near
        if changed:
            self._write(tx, ns, near, changed)

    def _written(self, tx: Writer, ns_id: int) -> Iterator[Row]:
        """Yield the items written since the last time; nobody chooses about pinned ones."""
        after_key = self._last_key.get(ns_id, 0)
        while rows := tx.page(ns_id, source=None, after_key=after_key, limit=PAGE):
            after_key = self._last_key[ns_id] = rows[-1].key
            yield from (row for row in rows if not row.pinned)

    def _write(self, tx: Writer, ns: NamespaceRow, near: set[int], changed: set[int]) -> None:
        now_s, model = self._clock(), self._settings.value_model
        edit = Edit(tx, ns, self._settings, now_s)
        states = {
            key: replace(state, value_key=value_key(NEAR if key in near else FAR, now_s, model))
            for key, state in tx.states(ns.ns_id, sorted(changed)).items()
            if state.protection is Protection.NONE
        }
        tx.put_states(list(states.items()))
        edit.change.used += states
        edit.wake_at(now_s)
        edit.close()


def once(events: Sequence[Event]) -> Iterator[Event]:
    """Yield events in order of time, one for each item and moment.

    An item that is placed in a prompt was exposed and contributed, which is one use.
    """
    seen: set[tuple[int, float]] = set()
    for event in sorted(events, key=lambda event: event.at_s):
        if (event.key, event.at_s) not in seen:
            seen.add((event.key, event.at_s))
            yield event


def from_start(needs: Mapping[str, Sequence[float]], start_s: float) -> dict[str, list[float]]:
    """Return moments counted from *start_s* as unix seconds, ascending."""
    return {item_id: sorted(start_s + at_s for at_s in own) for item_id, own in needs.items()}
