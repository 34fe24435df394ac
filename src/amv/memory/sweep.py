"""The sweep: moves items whose value has crossed a threshold, and touches no other.

Value keys are constant while time passes, so the items below a threshold are a
range of the index (namespace, protection, tier, value_key).  A sweep reads just
those ranges:

    wake     not yet valid -> in force, when their valid_from has come; what they
             supersede is in force no longer
    demote   hot below hot.demote; warm below warm.demote
    promote  cold from warm.promote up; warm and cold from hot.promote up, as far
             as hot has room, or in place of a hot item that ranks lower by
             (value_key, key); the highest first, and the first that does not
             get in ends it
    delete   what has expired, and, if eviction is on, what is below evict_below

Planning reads and applying writes are apart, so a dry run lists exactly what a
real run does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from amv.errors import StoreError
from amv.memory.edit import Edit, begun_key, model_of
from amv.memory.item import Protection, Row
from amv.memory.life import ended_by, supersede
from amv.memory.ports import NamespaceRow, Reader
from amv.memory.settings import MemorySettings
from amv.memory.tiers import Tier, next_tier
from amv.memory.value import ValueModel, threshold_key, value_at

DELETE_MAX = 10_000
"""The most expired or evicted items that one sweep of a namespace deletes."""

FIRST_LOOK = 2
GROWTH = 8
"""How many candidates for hot are read first, and how much further if all of them get in."""


class Move(NamedTuple):
    """One item that changes tier, begins or ends; *to* is None where it is deleted."""

    key: int
    was: Tier
    to: Tier | None
    why: str


@dataclass(slots=True)
class Plan:
    """What a sweep of one namespace does: moves, and how many index rows it read for them."""

    moves: list[Move] = field(default_factory=list)
    visited: int = 0


class _Entry(NamedTuple):
    """An item on its way up; entries are ordered by (value_key, key)."""

    value_key: float
    key: int
    was: Tier
    why: str = "promote"


@dataclass(slots=True)
class _Planner:
    reader: Reader
    row: NamespaceRow
    settings: MemorySettings
    model: ValueModel
    now_s: float
    plan: Plan = field(default_factory=Plan)

    def read(
        self,
        tier: Tier,
        protection: Protection = Protection.NONE,
        *,
        low: float | None = None,
        high: float | None = None,
        descending: bool = False,
        limit: int = -1,
    ) -> list[tuple[float, int]]:
        """Read a range of the index and count its rows."""
        found = self.reader.tier_range(
            self.row.ns_id, protection, tier, low=low, high=high, descending=descending, limit=limit
        )
        self.plan.visited += len(found)
        return found

    def threshold(self, value: float) -> float:
        return threshold_key(value, self.now_s, self.model)

    def move(self, key: int, was: Tier, to: Tier | None, why: str) -> None:
        self.plan.moves.append(Move(key, was, to, why))

    def deletions(self) -> set[int]:
        expired = self.reader.expiring(self.row.ns_id, self.now_s, DELETE_MAX)
        self.plan.visited += len(expired)
        for _, key in expired:
            self.move(key, Tier.COLD, None, "expired")
        gone = {key for _, key in expired}
        evict_from = self.threshold(self.model.evict_below)
        for tier in Tier if self.settings.evict else ():
            for _, key in self.read(tier, high=evict_from, limit=DELETE_MAX - len(gone)):
                if key not in gone:
                    self.move(key, tier, None, "evict")
                    gone.add(key)
        return gone

    def wakes(self, gone: set[int]) -> list[_Entry]:
        """Bring items into force whose valid_from has come; return those worth hot.

        What they supersede joins *gone*.
        """
        until = math.nextafter(self.now_s, math.inf)
        begun = self.read(Tier.COLD, Protection.NOT_YET_VALID, high=until)
        rows = rows_of(self.reader, [key for _, key in begun])
        for _, key in begun:
            for ended in ended_by(self.reader, rows[key]):
                if ended.key not in gone:
                    self.move(ended.key, ended.state.tier, Tier.COLD, "superseded")
                    gone.add(ended.key)
        rising = []
        for _, key in begun:
            if key in gone:
                continue
            first = begun_key(rows[key], self.model)
            value = value_at(first, self.now_s, self.model)
            tier = next_tier(Tier.WARM, value, warm=self.model.warm, hot=self.model.hot)
            if rows[key].pinned:
                # Above all others; there is room, since at most half of hot is pinned.
                rising.append(_Entry(math.inf, key, Tier.COLD, "wake"))
            elif self.settings.evict and value < self.model.evict_below:
                self.move(key, Tier.COLD, None, "evict")
            elif tier is Tier.HOT:
                rising.append(_Entry(first, key, Tier.COLD, "wake"))
            else:
                self.move(key, Tier.COLD, tier, "wake")
        return rising

    def demotions(self, gone: set[int]) -> int:
        """Move what fell below its tier; return how many left hot."""
        left = 0
        warm_floor = self.threshold(self.model.warm.demote)
        for found, key in self.read(Tier.HOT, high=self.threshold(self.model.hot.demote)):
            if key not in gone:
                self.move(key, Tier.HOT, Tier.COLD if found < warm_floor else Tier.WARM, "demote")
                left += 1
        for _, key in self.read(Tier.WARM, high=warm_floor):
            if key not in gone:
                self.move(key, Tier.WARM, Tier.COLD, "demote")
        return left

    def cold_rises(self, gone: set[int]) -> list[_Entry]:
        """Move cold items that are worth warm; return those worth hot."""
        rising = []
        hot_from = self.threshold(self.model.hot.promote)
        for found, key in self.read(Tier.COLD, low=self.threshold(self.model.warm.promote)):
            if key in gone:
                continue
            if found >= hot_from:
                rising.append(_Entry(found, key, Tier.COLD))
            else:
                self.move(key, Tier.COLD, Tier.WARM, "promote")
        return rising

    def admissions(self, rising: list[_Entry], room: int, gone: set[int]) -> None:
        """Let the highest candidates into hot while there is room or a lower hot item.

        Reads a few candidates and a few of the lowest hot items, and more only
        if those of one sort ran out: most sweeps find that the first does not get in.
        """
        hot_from = self.threshold(self.model.hot.promote)
        hot_floor = self.threshold(self.model.hot.demote)
        limit = FIRST_LOOK
        while True:
            warm = self.read(Tier.WARM, low=hot_from, descending=True, limit=limit)
            lowest = self.read(Tier.HOT, low=hot_floor, limit=limit)
            entries = [_Entry(found, key, Tier.WARM) for found, key in warm]
            more_warm = len(warm) == limit
            # One that ranks below the last warm one read waits for those that were not.
            entries += [e for e in rising if not more_warm or (e.value_key, e.key) > warm[-1]]
            entries = [e for e in entries if e.key not in gone]
            entries.sort(key=lambda e: (e.value_key, e.key), reverse=True)
            stay = iter([pair for pair in lowest if pair[1] not in gone])
            admitted: list[_Entry] = []
            displaced: list[tuple[float, int]] = []
            read_on = more_warm
            for entry in entries:
                if len(admitted) - len(displaced) < room:
                    admitted.append(entry)
                    continue
                rival = next(stay, None)
                if rival is None or (entry.value_key, entry.key) <= rival:
                    read_on = rival is None and len(lowest) == limit
                    break
                admitted.append(entry)
                displaced.append(rival)
            if not read_on:
                break
            limit *= GROWTH
        for _, key in displaced:
            self.move(key, Tier.HOT, Tier.WARM, "displaced")
        taken = {entry.key for entry in admitted}
        for entry in admitted:
            self.move(entry.key, entry.was, Tier.HOT, entry.why)
        for entry in rising:
            if entry.key not in taken:
                self.move(entry.key, entry.was, Tier.WARM, entry.why)


def rows_of(reader: Reader, keys: Sequence[int]) -> dict[int, Row]:
    """Return the rows that states belong to; raises StoreError unless each is there."""
    rows = reader.rows(keys)
    if lost := set(keys) - rows.keys():
        raise StoreError(
            f"the items of {len(lost)} states are gone: the store is damaged; run `amv doctor`"
        )
    return rows


def plan_sweep(reader: Reader, row: NamespaceRow, settings: MemorySettings, now_s: float) -> Plan:
    """Return what a sweep of a namespace at *now_s* does; reads only what must move."""
    model = model_of(row, settings.value_model)
    planner = _Planner(reader, row, settings, model, now_s)
    gone = planner.deletions()
    rising = planner.wakes(gone)
    left = planner.demotions(gone)
    rising += planner.cold_rises(gone)
    hot_gone = sum(r.state.tier is Tier.HOT for r in reader.rows(sorted(gone)).values())
    room = settings.hot_max - (row.hot - left - hot_gone)
    planner.admissions(rising, room, gone)
    return planner.plan


def apply_plan(edit: Edit, plan: Plan) -> list[Row]:
    """Carry out the tier moves of a plan; return the rows it says to delete.

    Then looks up when the next item crosses a threshold, one index row a tier.
    """
    rows = rows_of(edit.tx, [move.key for move in plan.moves])
    doomed = []
    for move in plan.moves:
        row = rows[move.key]
        if move.to is None:
            doomed.append(row)
        elif move.why == "superseded":
            assert row.valid_until_s is not None
            supersede(edit, row, row.valid_until_s)
        else:
            protection = Protection.PINNED if row.pinned else Protection.NONE
            key = begun_key(row, edit.model)
            state = replace(row.state, tier=move.to, protection=protection, value_key=key)
            edit.move(move.key, state, was=row.state)
    return doomed


def set_next_due(edit: Edit) -> None:
    """Note the earliest moment at which an item of the namespace moves by itself."""
    edit.row = replace(edit.row, next_due_s=None)
    ns_id, tx = edit.row.ns_id, edit.tx
    for tier in Tier:
        for found, key in tx.tier_range(ns_id, Protection.NONE, tier, limit=1):
            state = rows_of(tx, [key])[key].state
            edit.wake_at(edit.next_crossing_s(replace(state, value_key=found)))
    for valid_from_s, _ in tx.tier_range(ns_id, Protection.NOT_YET_VALID, Tier.COLD, limit=1):
        edit.wake_at(valid_from_s)
    for expires_s, _ in tx.expiring(ns_id, math.inf, 1):
        edit.wake_at(expires_s)
    for ends_s, _ in tx.doubted_ends(ns_id, math.inf, 1):
        edit.wake_at(ends_s)
