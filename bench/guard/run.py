"""A run: every policy at every price over every world, in pieces that can be taken up again.

A piece is some instances under one policy at one price.  Its row is appended as
soon as it is done, and a piece that has a row already is not done again: what
was stopped goes on where it was.  A row names what it was made from (instances,
code, calibration), so that none of another version is taken for it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from amv.guard.calibration import Calibration
from bench import machine
from bench.guard.arms import ALL, DEFAULT, REFERENCE, Arm, Setting
from bench.guard.calibrating import taught
from bench.guard.freeze import digests, frozen
from bench.guard.instances import Instance, Truth
from bench.guard.trial import Outcome, Trial
from bench.guard.worlds import world_named
from bench.store_rows import Row, Sink

PIECE = 880
"""Instances of a piece."""

_SOURCES = (
    "src/amv",
    *(
        f"bench/guard/{name}"
        for name in (
            "families", "frozen", "worlds", "arms.py", "calibrating.py", "freeze.py", "hidden.py",
            "instances.py", "trial.py", "world.py",
        )
    ),
)  # fmt: skip
"""What an outcome depends on; how it is reported does not."""


class Piece(NamedTuple):
    """Some instances of a world under one policy at one price."""

    world: str
    arm: str
    setting: Setting
    start: int
    stop: int

    @property
    def key(self) -> tuple[object, ...]:
        """What its row is found by."""
        return (self.world, self.arm, self.setting.name, self.start, self.stop)


class Lesson(NamedTuple):
    """What policies are told: the calibration, and the threshold that was certified."""

    calibration: bytes
    threshold: float | None


@cache
def inputs() -> str:
    """Return what a row was made from, in short: code and instances."""
    found = sha256()
    places = [machine.ROOT / one for one in _SOURCES]
    paths = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    for path in sorted(path for path in paths if path.suffix in (".py", ".yaml", ".json")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def pieces(
    world: str, arms: Iterable[str], settings: Iterable[Setting], count: int
) -> Iterator[Piece]:
    """Return the pieces of a world under some policies at some prices."""
    for setting in settings:
        for arm in arms:
            for start in range(0, count, PIECE):
                yield Piece(world, arm, setting, start, min(count, start + PIECE))


def of_certificate(arm: Arm, setting: Setting, lesson: Lesson) -> Setting:
    """Return a setting with the certified threshold, where the policy has one; else 0."""
    if not arm.is_certified:
        return setting
    return setting._replace(epsilon=0.0 if lesson.threshold is None else lesson.threshold)


def done(piece: Piece, lesson: Lesson) -> dict[str, Any]:
    """Do one piece; return its figures."""
    world, arm = world_named(piece.world), ALL[piece.arm]
    instances = frozen(piece.world)[1][piece.start : piece.stop]
    learned = msgspec.json.decode(lesson.calibration, type=Calibration)
    setting = of_certificate(arm, piece.setting, lesson)
    with Trial(world, arm, setting, learned=learned) as trial:
        trial.remember(instances)
        return columns([trial.run(one) for one in instances], is_said=piece.arm in SAID)


SAID = (DEFAULT, REFERENCE)
"""Policies of which it is kept what they said of memories; of others that would be the same."""


def columns(found: Sequence[Outcome], *, is_said: bool) -> dict[str, Any]:
    """Return outcomes as a row keeps them."""
    return {
        "codes": "".join(one.code for one in found),
        "firsts": "".join(one.first[0] for one in found),
        "calls": [one.calls for one in found],
        "repairs": "".join(str(one.repairs) for one in found),
        "said": [one.said for one in found if is_said],
        "was": ["".join(str(int(so)) for so in one.was) for one in found if is_said],
    }


def _key(row: Row) -> tuple[object, ...]:
    return (row["world"], row["arm"], row["setting"], row["start"], row["stop"])


def run(
    wanted: Sequence[Piece],
    lesson: Lesson,
    known: Sequence[Row],
    sink: Sink,
    console: Console,
    *,
    processes: int | None = None,
) -> None:
    """Do the pieces that have no row yet."""
    there = {_key(row) for row in known if row["measure"] == "trial"}
    left = [piece for piece in wanted if piece.key not in there]
    with _bar(console) as bar, ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        all_of_them = bar.add_task("deciding", total=sum(p.stop - p.start for p in left))
        running = {pool.submit(done, piece, lesson): piece for piece in left}
        for one in as_completed(running):
            piece = running[one]
            about = piece._asdict() | {"setting": piece.setting.name}
            sink.add("trial", **about, **one.result())
            bar.advance(all_of_them, piece.stop - piece.start)


def _bar(console: Console) -> Progress:
    name, count = TextColumn("{task.description}"), MofNCompleteColumn()
    return Progress(name, BarColumn(), count, TimeElapsedColumn(), console=console)


def teach(name: str, count: int, known: Sequence[Row], sink: Sink, console: Console) -> Row:
    """Return the row of what a world's calibration split taught, made now if it is not there."""
    for row in known:
        if row["measure"] == "taught" and (row["world"], row["count"]) == (name, count):
            return row
    instances = frozen(name)[0][:count]
    with _bar(console) as bar:
        all_of_them = bar.add_task("learning", total=len(instances))
        found = taught(world_named(name), instances, lambda: bar.advance(all_of_them))
    row = {
        "world": name,
        "count": count,
        "labels": found.labels,
        "certificate": msgspec.to_builtins(found.certificate),
        "calibration": msgspec.to_builtins(found.calibration),
    }
    sink.add("taught", **row)
    return {"measure": "taught", **row}


def lesson_of(row: Row) -> Lesson:
    """Return what a row of `teach` tells policies."""
    return Lesson(msgspec.json.encode(row["calibration"]), row["certificate"]["threshold"])


def about(instances: Sequence[Instance], name: str) -> dict[str, Any]:
    """Return what a report must know of a world's instances."""
    world = world_named(name)
    truths = [Truth(world, world.policy.actions[one.tool], one) for one in instances]
    return {
        "world": name,
        "digest": digests()[name],
        "families": [one.family for one in instances],
        "is_seen": [one.is_seen for one in instances],
        "tools": [one.tool for one in instances],
        "groups": [one.group for one in instances],
        "as_given": [truth.of(one.arguments) for truth, one in zip(truths, instances, strict=True)],
        "is_doable": [
            truth.corrected is not None and truth.of(truth.corrected) == "right" for truth in truths
        ],
    }
