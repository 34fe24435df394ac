"""Value models and cache policies on traces alone: no store, no server, seconds a run.

    python -m bench.lifecycle.replayed --share 0.1 --seeds 3,4,5
    python -m bench.lifecycle.replayed --before 0.5     # as in a file of before, half of the days

What a read returns does not depend on what is hot, or hardly.  So it is computed
once, as the items most similar to the question and the one it needs, and then each
policy is told what happened, in its order, and asked what is hot.  Constants are
chosen with this; what they give is measured through the gateway.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Protocol

import numpy as np
import typer

from amv.memory.ports import Floats
from amv.memory.value import (
    PRESETS,
    EventKind,
    ValueModel,
    apply_event,
    rescaling,
    threshold_key,
    value_key,
)
from bench.lifecycle.arms import BY_NAME, Arm
from bench.lifecycle.measures import HALF_LIFE_DAYS
from bench.lifecycle.ops import DAY_S, QUESTION_K, RECALL_K, START_S, Op, Workload
from bench.lifecycle.policies.protocol import Entry
from bench.lifecycle.run import vectors_of
from bench.lifecycle.workloads import WORKLOADS

PACKED = 48
_K = {"recall": RECALL_K, "question": QUESTION_K, "ask": PACKED}

#: Those of the default until it got constants of its own.
BEFORE = replace(PRESETS["paper"], exposed_cap=0.61)

ARMS = "lru,fifo,lfu,w-tinylfu,s3-fifo,amv-paper,tried-alike,amv-default"


@dataclass(frozen=True, slots=True)
class Step:
    """One request, and what it returns, best first; nothing for those that return no items."""

    op: Op
    found: Sequence[str] = ()


def steps_of(workload: Workload, vectors: Floats) -> list[Step]:
    """Return the requests of a workload with what each returns."""
    rows: dict[int, list[int]] = {}
    ids: dict[int, list[str]] = {}
    starts = np.cumsum([0, *(len(op.texts) for op in workload.ops)]).tolist()
    for op, start in zip(workload.ops, starts, strict=False):
        if op.kind == "write":
            rows.setdefault(op.user, []).extend(range(start, start + len(op.texts)))
            ids.setdefault(op.user, []).extend(op.ids)
    own = {user: vectors[places] for user, places in rows.items()}
    there = dict.fromkeys(rows, 0)
    steps = []
    for op, start in zip(workload.ops, starts, strict=False):
        if op.kind == "write":
            there[op.user] += len(op.ids)
        if op.kind not in _K:
            steps.append(Step(op))
            continue
        held = there.get(op.user, 0)
        best = np.argsort(-(own[op.user][:held] @ vectors[start]), kind="stable")[: _K[op.kind]]
        found = [ids[op.user][place] for place in best.tolist()]
        # Words find what vectors do not.
        missing = [item_id for item_id in op.needs if item_id not in found]
        steps.append(Step(op, [*found[: _K[op.kind] - len(missing)], *missing]))
    return steps


class Replayed(Protocol):
    """One user's hot tier; *hot* are the ids in it."""

    hot: set[str]

    def add(self, item_id: str, at_s: float, *, pinned: bool) -> None:
        """Take note of an item that was written."""

    def read(self, found: Sequence[str], used: Sequence[str], at_s: float, *, packed: bool) -> None:
        """Take note of a read; *packed*: what was used stands in a prompt in this order."""

    def sweep(self, at_s: float) -> None:
        """Fold what was read, and move items."""


class Values:
    """The product's rule: newest and pinned items, and of the others those of the highest keys."""

    def __init__(
        self,
        model: ValueModel,
        hot_max: int,
        probation_max: int,
        before_until_s: float = -np.inf,
    ) -> None:
        self.hot: set[str] = set()
        self.keys: dict[str, float] = {}
        self._model = BEFORE if before_until_s > 0 else model
        self._later, self._until_s = model, before_until_s
        self._hot_max, self._probation_max = hot_max, probation_max
        self._pinned: set[str] = set()
        self._newest: deque[str] = deque()
        self._uses: dict[str, int] = {}
        self._waiting: list[tuple[str, float, EventKind, int]] = []

    def add(self, item_id: str, at_s: float, *, pinned: bool) -> None:
        """Begin hot, in the place of the oldest on probation and of the lowest."""
        self._go_on(at_s)
        self.keys[item_id] = value_key(self._model.initial, at_s, self._model)
        self._uses[item_id] = 0
        self.hot.add(item_id)
        if pinned:
            self._pinned.add(item_id)
        else:
            self._newest.append(item_id)
        least = threshold_key(self._model.hot.promote, at_s, self._model)
        while len(self._newest) > self._probation_max:
            gone = self._newest.popleft()
            if self.keys[gone] < least:
                self.hot.discard(gone)
        if (excess := len(self.hot) - self._hot_max) > 0:
            others = self.hot - self._pinned - set(self._newest)
            lowest: list[str] = heapq.nsmallest(excess, others, key=self._order)
            self.hot.difference_update(lowest)

    def read(self, found: Sequence[str], used: Sequence[str], at_s: float, *, packed: bool) -> None:
        """Log what an ask, a recall or a question with its feedback logs."""
        self._waiting += [(item_id, at_s, EventKind.EXPOSED, 0) for item_id in found]
        for place, item_id in enumerate(used):
            rank = place if packed else 0
            self._waiting.append((item_id, at_s, EventKind.CONTRIBUTED, rank))

    def sweep(self, at_s: float) -> None:
        """Fill hot with the highest of those that may be in it."""
        self._go_on(at_s)
        self._fold()
        stays = self._pinned | set(self._newest)
        rises = threshold_key(self._model.hot.promote, at_s, self._model)
        falls = threshold_key(self._model.hot.demote, at_s, self._model)
        others = [
            item_id
            for item_id, key in self.keys.items()
            if item_id not in stays and (key >= rises or (key >= falls and item_id in self.hot))
        ]
        room = self._hot_max - len(stays)
        self.hot = stays | set(heapq.nlargest(room, others, key=self._order))

    def _order(self, item_id: str) -> tuple[float, str]:
        return self.keys[item_id], item_id

    def _fold(self) -> None:
        for item_id, at_s, kind, rank in self._waiting:
            self.keys[item_id] = apply_event(self.keys[item_id], at_s, kind, self._model, rank)
            self._uses[item_id] += kind is EventKind.CONTRIBUTED
        self._waiting.clear()

    def _go_on(self, at_s: float) -> None:
        """Make the keys anew where a file of before is opened."""
        if self._model is self._later or at_s < self._until_s:
            return
        self._fold()
        old, self._model = self._model, self._later
        for item_id, uses in self._uses.items():
            self.keys[item_id] += rescaling(uses, old.scale, self._model.scale)


class Cached:
    """A cache policy, which decides whenever there is a sweep."""

    def __init__(self, arm: Arm, hot_max: int) -> None:
        assert arm.policy is not None
        self.hot: set[str] = set()
        self._policy, self._hot_max = arm.policy(hot_max), hot_max
        self._pinned: set[str] = set()
        self._entries: dict[str, Entry] = {}

    def add(self, item_id: str, at_s: float, *, pinned: bool) -> None:
        """Tell the policy; nobody chooses about pinned ones."""
        if pinned:
            self._pinned.add(item_id)
            self.hot.add(item_id)
            return
        self._entries[item_id] = Entry(len(self._entries), item_id, 1)
        self._policy.add(self._entries[item_id])

    def read(self, found: Sequence[str], used: Sequence[str], at_s: float, *, packed: bool) -> None:
        """Count being found and being used as one use."""
        for item_id in dict.fromkeys([*found, *used]):
            if item_id in self._entries:
                self._policy.use(self._entries[item_id])

    def sweep(self, at_s: float) -> None:
        """Have hot hold what the policy keeps near, as far as there is room beside the pinned."""
        ids = list(self._entries)
        near = [ids[key] for key in self._policy.near(at_s)]
        room = self._hot_max - len(self._pinned)
        self.hot = self._pinned | set(near[max(0, len(near) - room) :])


@dataclass(frozen=True, slots=True)
class Outcome:
    """Age in days and whether it was hot, of each needed item, and of each watched one found."""

    needed: "np.ndarray[tuple[int, int], np.dtype[np.float64]]"
    watched: "np.ndarray[tuple[int, int], np.dtype[np.float64]]"

    def hot(self, *, over_days: float = 0.0) -> float:
        """Return the share of needed items, of an age, that were hot."""
        some = self.needed[self.needed[:, 0] >= over_days]
        return float(some[:, 1].mean()) if len(some) else float("nan")

    def watched_hot(self) -> float:
        """Return how often a watched item was hot two half-lives on and later."""
        some = self.watched[self.watched[:, 0] >= 2 * HALF_LIFE_DAYS]
        return float(some[:, 1].mean()) if len(some) else float("nan")


def replayed(steps: Sequence[Step], make: Callable[[], Replayed], from_s: float = 0.0) -> Outcome:
    """Tell a policy what happened; return what was hot when it was needed, from a moment on."""
    users: dict[int, Replayed] = {}
    needed, watched = list[tuple[float, bool]](), list[tuple[float, bool]]()
    for step in steps:
        op, at_s = step.op, START_S + step.op.at_s
        if op.kind == "sweep":
            for one in users.values():
                one.sweep(at_s)
            continue
        user = users.setdefault(op.user, make())
        for item_id in op.ids:
            user.add(item_id, at_s, pinned=op.pinned)
        if not step.found:
            continue
        age = op.age_s / DAY_S
        # An ask does not say what was hot, through the gateway.
        if op.kind != "ask" and op.at_s >= from_s:
            needed += [(age, item_id in user.hot) for item_id in op.needs]
            watched += [(age, i in user.hot) for i in op.watch if i in step.found]
        used = {"ask": step.found, "question": op.needs}.get(op.kind, ())
        user.read(step.found, used, at_s, packed=op.kind == "ask")
    return Outcome(np.reshape(needed, (-1, 2)), np.reshape(watched, (-1, 2)))


def maker(arm: Arm, share: float, before_until_s: float = -np.inf) -> Callable[[], Replayed]:
    """Return what makes one user's hot tier under a policy."""
    settings = arm.settings(share)
    if not arm.is_ours:
        return lambda: Cached(arm, settings.hot_max)
    return lambda: Values(
        settings.value_model, settings.hot_max, settings.probation_max, before_until_s
    )


def main(
    share: Annotated[float, typer.Option(metavar="S", help="Of requests and limits.")] = 0.1,
    seeds: Annotated[str, typer.Option(metavar="N,...", help="Seeds.")] = "1,2",
    workloads: Annotated[str, typer.Option(metavar="NAME,...")] = ",".join(WORKLOADS),
    arms: Annotated[str, typer.Option(metavar="NAME,...")] = ARMS,
    before: Annotated[
        float,
        typer.Option(metavar="S", help="So much of the days in a file of before; 0: none."),
    ] = 0.0,
) -> None:
    """Print what was hot when it was needed: of all, and of what was older than 14 days."""
    print(f"| workload | {' | '.join(arms.split(','))} |")
    print("| --- |" + " --- |" * len(arms.split(",")))
    for name in workloads.split(","):
        traces = []
        for seed in seeds.split(","):
            workload = WORKLOADS[name](int(seed), share)
            traces.append(steps_of(workload, vectors_of(workload)))
        cells = []
        for arm in arms.split(","):
            outcomes = []
            for steps in traces:
                from_s = before * steps[-1].op.at_s
                until_s = START_S + from_s if before else -np.inf
                outcomes.append(replayed(steps, maker(BY_NAME[arm], share, until_s), from_s))
            all_of = Outcome(
                np.concatenate([one.needed for one in outcomes]),
                np.concatenate([one.watched for one in outcomes]),
            )
            poison = all_of.watched_hot()
            says = "" if np.isnan(poison) else f", poison {poison:.2f}"
            cells.append(f"{all_of.hot():.3f} / {all_of.hot(over_days=14):.3f}{says}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
