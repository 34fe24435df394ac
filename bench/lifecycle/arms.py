"""The policies that are compared: on one store and one server, told apart by what orders the tiers.

The limits of the product are made smaller by *share* where a workload is
smaller than the real one, so that as large a part of it fits into hot.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import amv
from amv.memory.ranking import RankWeights
from amv.memory.settings import Budget, CellSettings, MemorySettings
from amv.memory.tiers import Band
from amv.memory.value import PRESETS, ValueModel
from bench.lifecycle.driven import FLAT, Driven, Noted, from_start
from bench.lifecycle.hnsw import Everything
from bench.lifecycle.ops import DAY_S, START_S
from bench.lifecycle.policies import POLICIES
from bench.lifecycle.policies.clairvoyant import Clairvoyant
from bench.lifecycle.policies.protocol import Policy

TTL_S = 30 * DAY_S
EVERYTHING = 1 << 30

#: Without a value that says anything, none is in the rank.
_NO_PRIOR = replace(RankWeights(), value=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One policy.  *scans_all*: every search scores all there is, exactly or by one graph."""

    name: str
    says: str
    memory: type[Noted] = Noted
    model: ValueModel = FLAT
    ttl_s: float | None = None
    scans_all: bool = False
    policy: Callable[[int], Policy] | None = None
    is_clairvoyant: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether value orders its tiers."""
        return self.model is not FLAT

    @property
    def has_tiers(self) -> bool:
        """Whether something is hot for a reason."""
        return not self.scans_all

    def settings(self, share: float) -> MemorySettings:
        """Return the settings of a memory of which the limits are a *share* of the real ones."""
        own = scaled(share)
        if self.scans_all:
            cells = CellSettings(from_vectors=EVERYTHING, drain_at=EVERYTHING)
            budget = Budget(warm=EVERYTHING, cold=EVERYTHING, postings=own.budget.postings)
            own = replace(own, cells=cells, budget=budget)
        if self.is_ours:
            return replace(own, value_model=self.model)
        return replace(own, value_model=self.model, weights=_NO_PRIOR, probation_max=0)

    def policy_for(self, needs: Mapping[str, Sequence[float]]) -> Callable[[int], Policy] | None:
        """Return what makes the policy, if it has one; *needs* count from the start."""
        if self.is_clairvoyant:
            return partial(Clairvoyant, needs=from_start(needs, START_S))
        return self.policy


def scaled(share: float) -> MemorySettings:
    """Return the default settings with limits of items multiplied by *share*."""
    if share == 1.0:
        return MemorySettings()
    usual, budget, cells = MemorySettings(), Budget(), CellSettings()

    def part(count: int) -> int:
        return max(256, round(share * count))

    return replace(
        usual,
        budget=Budget(hot=part(budget.hot), warm=part(budget.warm), cold=part(budget.cold)),
        hot_max=max(8, round(share * usual.hot_max)),
        probation_max=round(share * usual.probation_max),
        cells=replace(
            cells,
            from_vectors=max(64, round(share * cells.from_vectors)),
            drain_at=max(32, round(share * cells.drain_at)),
        ),
    )


def _cache(name: str, says: str) -> Arm:
    return Arm(name=name, says=says, memory=Driven, policy=POLICIES[name])


ARMS = (
    Arm(name="exact", says="all kept, exact scan", scans_all=True),
    Arm(name="ttl", says="TTL, exact scan", scans_all=True, ttl_s=TTL_S),
    Arm(name="ttl-hnsw", says="TTL, HNSW", scans_all=True, ttl_s=TTL_S, memory=Everything),
    Arm(name="hnsw", says="all kept, HNSW", scans_all=True, memory=Everything),
    _cache("lru", "LRU"),
    _cache("fifo", "FIFO"),
    _cache("lfu", "LFU"),
    _cache("w-tinylfu", "W-TinyLFU"),
    _cache("s3-fifo", "S3-FIFO"),
    _cache("gdsf", "GDSF"),
    Arm(name="amv-paper", says="AMV-L paper", model=PRESETS["paper"]),
    Arm(name="amv-default", says="AMV-L default", model=PRESETS["default"]),
    Arm(name="clairvoyant", says="clairvoyant", memory=Driven, is_clairvoyant=True),
)


def _tried(name: str, says: str, **changes: Any) -> Arm:
    return Arm(name=f"tried-{name}", says=says, model=replace(PRESETS["paper"], **changes))


_LOW = {"hot": Band(demote=0.02, promote=0.025), "warm": Band(demote=0.008, promote=0.01),
        "evict_below": 0.005}  # fmt: skip

TRIED = (
    _tried("half", "new 0.5, low thresholds", exposed_cap=0.09,
           hot=Band(demote=0.1, promote=0.12), warm=Band(demote=0.04, promote=0.05),
           evict_below=0.02),
    _tried("tenth", "new 0.1, low thresholds", initial=0.1, exposed_cap=0.045,
           hot=Band(demote=0.05, promote=0.06), warm=Band(demote=0.02, promote=0.03),
           evict_below=0.01),
    _tried("low", "new 0.05, low thresholds", initial=0.05, exposed_cap=0.018, **_LOW),
    _tried("shown", "as before, shown counts as new", initial=0.05, exposed_cap=0.05, **_LOW),
    _tried("threshold", "the default until then: new 0.5, exposed to 0.61", exposed_cap=0.61),
    _tried("slow", "new 0.05, half-life 90 days", initial=0.05, exposed_cap=0.018,
           half_life_s=90 * DAY_S, **_LOW),
    Arm(name="tried-alike", says="the default, all of a prompt alike",
        model=replace(PRESETS["default"], rank_power=0.0)),
)  # fmt: skip
"""Other constants of the value model; `docs/explanation/lifecycle.md` says what they gave."""

BY_NAME = {arm.name: arm for arm in (*ARMS, *TRIED)}


def opened(
    arm: Arm,
    db: str,
    *,
    share: float,
    embedder: str,
    clock: Callable[[], float],
    needs: Mapping[str, Sequence[float]],
    upkeep_interval_s: float | None,
) -> Noted:
    """Open a memory under a policy."""
    settings = amv.Settings(memory=arm.settings(share), upkeep_interval_s=upkeep_interval_s)
    memory = arm.memory.open(db, embedder=embedder, settings=settings, clock=clock)
    make = arm.policy_for(needs)
    if make is not None:
        assert isinstance(memory, Driven)
        memory.drive(make)
    return memory
