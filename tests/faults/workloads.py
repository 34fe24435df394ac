"""What a process does while faults are injected, told in steps whose outcome is known.

A workload is written once and used twice: the child (`child.py`) runs its steps
and says when each begins and when it has returned; from that the test knows
which states the file may be in, however the child ended.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import amv
from amv.embedders.hashing import Hashing
from amv.memory.lookup import EMBEDDER_META, embedder_mark
from amv.memory.reembed import reembed
from amv.stores.sqlite import SqliteStore
from amv.testing import FakeClock

START_S = 1_700_000_000.0
DAY_S = 86_400.0

OLD, NEW = Hashing(), Hashing(dimension=64)
"""A file begins with vectors of the first; one workload changes over to the other."""

ALICE = ("alice",)
BOB = ("bob", "work")

CANARY = "zqcanaryxj"
"""A word that stands in no other text, file format or code."""


class Fact(NamedTuple):
    """What must be known of one item; JSON makes it a list."""

    namespace: str
    status: str
    content: str
    contributed: int = 0


World = dict[str, Fact]
"""Every item of a memory, by id."""

Delta = Mapping[str, Fact | None]
"""What changes in a world; None: the item is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call.  Its *parts* take place in order, each wholly or not at all."""

    run: Callable[[amv.Memory], object]
    parts: tuple[Delta, ...] = ()


def _sound(_memory: amv.Memory, _folder: Path) -> Iterable[str]:
    return ()


def _any_bytes(_worlds: list[World], _folder: Path) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a child does, and what makes the file it starts from.

    *prepare* None: it starts from nothing.  *check* yields what is wrong after
    the file was opened again, beyond what is asked of every file; it may change
    the memory.  *check_bytes* does so before that, given the states the file may
    be in.  The clock moves on by *later_s* after the file was prepared.  With
    *threads*, that many run the steps, each every n-th.
    """

    steps: Callable[[amv.Memory, Path], Iterator[Step]]
    prepare: Callable[[amv.Memory, Path], object] | None = None
    settings: amv.MemorySettings = field(default_factory=amv.MemorySettings)
    check: Callable[[amv.Memory, Path], Iterable[str]] = _sound
    check_bytes: Callable[[list[World], Path], Iterable[str]] = _any_bytes
    later_s: float = 0.0
    threads: int = 0


def opened(
    path: Path, workload: Workload, *, at_s: float | None = None, synchronous: Any = "FULL"
) -> amv.Memory:
    """Open a file as a workload does, by default at the moment at which its steps run."""
    settings = amv.Settings(
        memory=workload.settings, upkeep_interval_s=None, synchronous=synchronous
    )
    clock = FakeClock(START_S + workload.later_s if at_s is None else at_s)
    try:
        return amv.Memory.open(str(path), embedder=OLD, settings=settings, clock=clock)
    except amv.DimensionMismatch:
        return amv.Memory.open(str(path), embedder=NEW, settings=settings, clock=clock)


def world_of(memory: amv.Memory) -> World:
    """Return every item of a memory."""
    world: World = {}
    for namespace in memory.namespaces():
        page = memory.list(namespace=namespace, status=None, limit=10_000)
        assert page.cursor is None
        for item in page.items:
            owner = "/".join(item.namespace)
            world[item.id] = Fact(owner, item.status.value, item.content, item.contributed_count)
    return world


def changed(world: World, delta: Delta) -> World:
    """Return *world* after *delta*."""
    after = {**world, **delta}
    return {item_id: Fact(*fact) for item_id, fact in after.items() if fact is not None}


def files_with(folder: Path, needle: bytes) -> list[str]:
    """Return the names of the files below *folder* whose bytes hold *needle*."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return [str(file.relative_to(folder)) for file in files if needle in file.read_bytes()]


def text_of(item_id: str) -> str:
    """Return a content with a word, the id itself, that no other content has."""
    return f"{item_id} went to market with {item_id[::-1]} and came home"


def numbered(prefix: str, count: int) -> list[str]:
    """Return ids that are words, so that they can be searched for."""
    return [f"{prefix}{number:04}x" for number in range(count)]


def living(item_id: str, owner: tuple[str, ...] = ALICE, contributed: int = 0) -> Delta:
    """Return that an item is there, with its own text."""
    return {item_id: Fact("/".join(owner), "live", text_of(item_id), contributed)}


def adds(item_id: str, owner: tuple[str, ...] = ALICE, **fields: Any) -> Step:
    """Return the addition of one item."""
    run = partial(_add, content=text_of(item_id), namespace=owner, id=item_id, **fields)
    return Step(run=run, parts=(living(item_id, owner),))


def _add(memory: amv.Memory, **fields: Any) -> None:
    memory.add(**fields)


def adds_many(item_ids: list[str], *owners: tuple[str, ...]) -> Step:
    """Return a bulk add, which is one transaction, to one or several namespaces."""
    fields = []
    together: dict[str, Fact | None] = {}
    for number, item_id in enumerate(item_ids):
        owner = owners[number % len(owners)]
        fields.append({"content": text_of(item_id), "namespace": owner, "id": item_id})
        together |= living(item_id, owner)
    return Step(run=lambda memory: memory.add_many(fields), parts=(together,))


def forgets(item_id: str) -> Step:
    """Return the forgetting of one item, bytes and all."""
    return Step(run=lambda memory: memory.forget(item_id).erased, parts=({item_id: None},))


# ---------------------------------------------------------------- a new file


def _first_steps(_memory: amv.Memory, _folder: Path) -> Iterator[Step]:
    yield adds("first")
    yield adds("second", BOB)


# ---------------------------------------------------------------- the life of items


def _prepare_life(memory: amv.Memory, _folder: Path) -> None:
    adds_many(numbered("old", 24), ALICE, BOB).run(memory)
    adds("city0", claim=amv.Claim("alice", "city", "before")).run(memory)
    adds("job0", claim=amv.Claim("alice", "job", "before")).run(memory)


def _seen(memory: amv.Memory) -> World:
    """Return what is there, though a fault may strike the first look."""
    try:
        return world_of(memory)
    except amv.StoreError:
        return world_of(memory)


def _life_steps(memory: amv.Memory, _folder: Path) -> Iterator[Step]:
    yield adds("plain", metadata={"colour": "green", "size": 3}, context="said at noon")
    move = adds("city1", claim=amv.Claim("alice", "city", "after"))
    city0 = Fact("alice", "superseded", text_of("city0"))
    yield Step(run=move.run, parts=({**living("city1"), "city0": city0},))
    renewed = Fact("alice", "live", text_of("renewed"))
    yield Step(
        run=lambda memory: memory.update("old0002x", content=renewed.content),
        parts=({"old0002x": renewed},),
    )
    yield adds_many(numbered("bulk", 12), ALICE, BOB)
    refuted = Fact("alice", "refuted", text_of("job0"))
    yield Step(run=lambda memory: memory.refute("job0"), parts=({"job0": refuted},))
    yield Step(run=lambda memory: memory.pin("old0004x"))
    yield forgets("old0006x")
    yield forgets("bulk0001x")
    yield adds("last", BOB)
    everything = {i: None for i, fact in _seen(memory).items() if fact.namespace == "bob/work"}
    yield Step(run=lambda memory: memory.forget_namespace(BOB), parts=(everything,))
    yield adds("again", BOB)


# ---------------------------------------------------------------- cells

SMALL_CELLS = amv.MemorySettings(
    cells=amv.CellSettings(from_vectors=48, drain_at=12, target=4, split_above=8)
)


def _prepare_cells(memory: amv.Memory, _folder: Path) -> None:
    adds_many(numbered("old", 44), ALICE).run(memory)


def _cells_steps(_memory: amv.Memory, _folder: Path) -> Iterator[Step]:
    yield adds_many(numbered("begin", 8), ALICE)
    yield adds_many(numbered("more", 20), ALICE)
    yield forgets("old0003x")
    renewed = Fact("alice", "live", text_of("renewed"))
    yield Step(
        run=lambda memory: memory.update("begin0001x", content=renewed.content),
        parts=({"begin0001x": renewed},),
    )
    yield adds_many(numbered("rest", 16), ALICE)


# ---------------------------------------------------------------- value events

EVENTS = 4200
"""More than one transaction folds."""


def _prepare_fold(memory: amv.Memory, _folder: Path) -> None:
    adds_many(["often", "seldom", "never"], ALICE).run(memory)


def _fold_steps(_memory: amv.Memory, _folder: Path) -> Iterator[Step]:
    for item_id, count, total in (("seldom", 3, 3), ("often", EVENTS, EVENTS), ("seldom", 2, 5)):
        yield _counts([item_id] * count, living(item_id, contributed=total))


def _counts(item_ids: list[str], counted: Delta) -> Step:
    """Return the use of items, and that it is counted; tried again, it is the same use."""
    unused = [item_ids]

    def run(memory: amv.Memory) -> None:
        if unused:
            memory.reinforce(unused[0], namespace=ALICE)
            unused.clear()
        memory.flush()

    return Step(run=run, parts=(counted,))


# ---------------------------------------------------------------- sweep


def _prepare_sweep(memory: amv.Memory, _folder: Path) -> None:
    for owner in (ALICE, BOB):
        for number, item_id in enumerate(numbered(owner[0], 30)):
            adds(
                item_id,
                owner,
                expires_at=START_S + DAY_S if number % 5 == 0 else None,
                valid_from=START_S + 20 * DAY_S if number % 7 == 1 else None,
            ).run(memory)


def _sweep_steps(memory: amv.Memory, _folder: Path) -> Iterator[Step]:
    evicted: dict[tuple[str, ...], dict[str, Fact | None]] = {}
    for move in memory.sweep(dry_run=True).moves:
        if move.to is None:
            evicted.setdefault(move.namespace, {})[move.item_id] = None
    yield Step(run=lambda memory: memory.sweep(), parts=tuple(evicted.values()))
    yield adds("after")


def _nothing_is_left_to_move(memory: amv.Memory, _folder: Path) -> Iterator[str]:
    memory.sweep()
    if moves := memory.sweep(dry_run=True).moves:
        yield f"a second sweep at the same moment would still move {moves[:3]}"


# ---------------------------------------------------------------- import

IMPORTED = 1040
"""More than one transaction takes."""


def _prepare_import(memory: amv.Memory, folder: Path) -> None:
    clock = FakeClock(START_S)
    with amv.Memory.open(":memory:", embedder="hashing", clock=clock) as source:
        adds_many(numbered("in", IMPORTED), ALICE).run(source)
        lines = [json.dumps(item) for item in source.export_items(vectors=True)]
    (folder / "export.jsonl").write_text("\n".join(lines), encoding="utf-8")
    adds("old").run(memory)


def _exported(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "export.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _import_steps(_memory: amv.Memory, folder: Path) -> Iterator[Step]:
    items = _exported(folder)
    parts: list[dict[str, Fact | None]] = [{}, {}]
    for number, item in enumerate(items):
        # A thousand share a transaction.
        parts[number // 1000] |= living(item["id"])
    yield Step(run=lambda memory: memory.restore(items), parts=tuple(parts))


def _the_import_goes_on(memory: amv.Memory, folder: Path) -> Iterator[str]:
    before = len(world_of(memory)) - 1
    report = memory.restore(_exported(folder))
    if (report.added, report.present) != (IMPORTED - before, before):
        yield f"of {before} items there, the import that was run again said {report}"
    if len(world_of(memory)) != IMPORTED + 1:
        yield f"after the import was run again there are {len(world_of(memory))} items"


# ---------------------------------------------------------------- erasing


def _prepare_erase(memory: amv.Memory, _folder: Path) -> None:
    adds_many(numbered("old", 30), ALICE).run(memory)
    for item_id in SECRETS:
        memory.add(
            f"{CANARY}{item_id} " * 40,
            namespace=ALICE,
            id=item_id,
            context=f"{CANARY}{item_id}context",
            metadata={"key": f"{CANARY}{item_id}metadata"},
        )


def _erase_steps(_memory: amv.Memory, _folder: Path) -> Iterator[Step]:
    yield adds("cover1")
    yield forgets("secret1")
    yield adds("cover2")
    yield forgets("secret2")


SECRETS = ("secret1", "secret2")


def _no_byte_comes_back(worlds: list[World], folder: Path) -> Iterator[str]:
    """Look for what was reported as erased in every file, before any of them is opened."""
    for item_id in SECRETS:
        if not any(item_id in world for world in worlds):
            for name in files_with(folder, f"{CANARY}{item_id}".encode()):
                yield f"{item_id}, which was erased, stands in {name}"


def _no_byte_is_left(memory: amv.Memory, folder: Path) -> Iterator[str]:
    """Forget what the child may not have come to forget, and look at the bytes of every file."""
    left = [item_id for item_id in SECRETS if item_id in world_of(memory)]
    for item_id in [*left, "old0001x"]:
        if not memory.forget(item_id).erased:
            yield f"{item_id} was forgotten and not erased, though nobody reads"
    for name in files_with(folder, CANARY.encode()):
        yield f"the forgotten text stands in {name}"


# ---------------------------------------------------------------- another embedder


def _prepare_reembed(memory: amv.Memory, _folder: Path) -> None:
    # More than one transaction stages.
    adds_many(numbered("old", 300), ALICE, BOB).run(memory)
    for item_id in ("city0", "city1"):
        adds(item_id, claim=amv.Claim("alice", "city", item_id)).run(memory)


def _reembed(path: Path) -> int:
    store = SqliteStore.open(path)
    try:
        return reembed(store, NEW, amv.MemorySettings(), START_S)
    finally:
        store.close()


def _reembed_steps(_memory: amv.Memory, folder: Path) -> Iterator[Step]:
    yield adds("late")
    yield Step(run=lambda _: _reembed(folder / "amv.db"))


def _the_change_goes_on(_memory: amv.Memory, folder: Path) -> Iterator[str]:
    _reembed(folder / "amv.db")
    with closing(SqliteStore.open(folder / "amv.db")) as store, store.read() as reader:
        if (mark := reader.meta(EMBEDDER_META)) != embedder_mark(NEW):
            yield f"the change of embedder, run again, ended with {mark}"
        left = reader.staged_ids(range(1, 1000))
        if len(left):
            yield f"{len(left)} vectors are still kept aside"


# ---------------------------------------------------------------- many threads


def _crowd_steps(_memory: amv.Memory, _folder: Path) -> Iterator[Step]:
    for number, item_id in enumerate(numbered("crowd", 36)):
        yield adds(item_id, (ALICE, BOB)[number % 2])


WORKLOADS = {
    "first": Workload(steps=_first_steps),
    "life": Workload(steps=_life_steps, prepare=_prepare_life),
    "cells": Workload(steps=_cells_steps, prepare=_prepare_cells, settings=SMALL_CELLS),
    "fold": Workload(steps=_fold_steps, prepare=_prepare_fold),
    "sweep": Workload(
        steps=_sweep_steps,
        prepare=_prepare_sweep,
        settings=amv.MemorySettings(evict=True),
        check=_nothing_is_left_to_move,
        later_s=60 * DAY_S,
    ),
    "import": Workload(steps=_import_steps, prepare=_prepare_import, check=_the_import_goes_on),
    "erase": Workload(
        steps=_erase_steps,
        prepare=_prepare_erase,
        check=_no_byte_is_left,
        check_bytes=_no_byte_comes_back,
    ),
    "reembed": Workload(steps=_reembed_steps, prepare=_prepare_reembed, check=_the_change_goes_on),
    "crowd": Workload(steps=_crowd_steps, prepare=_prepare_fold, threads=6),
}
