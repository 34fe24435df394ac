"""The store benchmark: what adding, keeping and searching cost as a memory grows.

    python -m bench.store [--quick] [--sizes 1000,10000,100000] [--generators clusters,...]

For every generator and size one namespace is filled in a fresh file, left to
age, searched, opened by fresh processes and added to by threads.  What is
measured is appended to bench/results as raw rows, from which
`python -m bench.report_store` makes the table again.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import amv
from amv.testing import FakeClock
from bench import datasets, report_store, store_cold, store_memory, store_searches, store_writes
from bench.store_given import NAMESPACE
from bench.store_memory import Subject
from bench.store_rows import Sink, default_path, read

SEED = 1
SIZES = (1_000, 10_000, 100_000)
QUICK_SIZES = (1_000, 10_000)
_STEPS = 7
_ADD_REPEATS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How often each thing is measured."""

    queries: int = datasets.QUERIES
    processes: int = 3
    one_by_one: int = 800
    batched_at_least: int = 5_000


QUICK = Effort(queries=200, one_by_one=400)


def measure(
    name: str,
    size: int,
    sink: Sink,
    *,
    effort: Effort,
    settings: amv.MemorySettings,
    progress: Progress,
) -> None:
    """Measure everything for one generator and size."""
    sink = sink.naming(generator=name, size=size, seed=SEED)
    title = f"{name} {size:,}"
    task = progress.add_task(title, total=_STEPS)

    def step(what: str) -> None:
        progress.update(task, advance=1, description=f"{title}: {what}")

    began_s = time.monotonic()
    progress.update(task, description=f"{title}: making items")
    dataset = datasets.make(name, size, SEED)
    with tempfile.TemporaryDirectory(prefix="amv-bench-") as folder:
        step("adding in batches")
        subject, ids = _filled(dataset, Path(folder), sink, effort, settings)
        store_writes.disk(subject, sink)
        step("ageing")
        with subject.open() as memory:
            store_memory.age(memory, subject.clock, ids, SEED)
            where = store_memory.placed(memory, ids)
            stats = memory.stats(NAMESPACE)
        tiers = {tier.name: count for tier, count in stats.tiers.items()}
        sink.add("aged", items=len(ids), tiers=tiers, cells=stats.cells, pending=stats.pending)
        step("searching")
        right = store_searches.truth(subject, where, effort.queries)
        store_searches.passes(subject, where, right, sink)
        step("searching with other budgets")
        if name == "spectrum" and stats.cells:
            store_searches.curve(subject, where, right, sink)
        step("starting processes")
        if name == "passages":
            store_cold.text_searches(subject, sink, effort.processes)
        store_cold.vector_searches(subject, sink, effort.processes)
        step("adding one by one")
        store_writes.one_by_one(subject, sink, effort.one_by_one)
    step(f"done in {time.monotonic() - began_s:.0f} s")


def _filled(
    dataset: datasets.Dataset,
    folder: Path,
    sink: Sink,
    effort: Effort,
    settings: amv.MemorySettings,
) -> tuple[Subject, list[str]]:
    """Add the dataset to a fresh file; a small one to several, as one batch tells little."""
    repeats = max(1, min(_ADD_REPEATS_MAX, effort.batched_at_least // len(dataset)))
    for n in range(repeats):
        path = folder / f"{n}.db"
        subject = Subject(path=path, dataset=dataset, clock=FakeClock(), settings=settings)
        ids = store_writes.batches(subject, sink)
    return subject, ids


def run(
    names: list[str],
    sizes: list[int],
    path: Path,
    *,
    effort: Effort,
    settings: amv.MemorySettings,
    console: Console,
) -> None:
    """Measure every generator at every size, smallest first; append the rows to *path*."""
    sink = Sink(path=path)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for size in sorted(sizes):
            for name in names:
                measure(name, size, sink, effort=effort, settings=settings, progress=progress)


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="Sizes 1,000 and 10,000, fewer queries.")
    ] = False,
    sizes: Annotated[
        str | None, typer.Option(metavar="N,...", help="How many items; 1000,10000,100000.")
    ] = None,
    generators: Annotated[str, typer.Option(metavar="NAME,...", help="What is stored.")] = ",".join(
        datasets.GENERATORS
    ),
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure the store and print the table."""
    names = [name.strip() for name in generators.split(",")]
    if unknown := set(names) - set(datasets.GENERATORS):
        known = ", ".join(datasets.GENERATORS)
        raise typer.BadParameter(f"need generators out of {known}, got {sorted(unknown)}")
    chosen: tuple[int, ...] = QUICK_SIZES if quick else SIZES
    if sizes is not None:
        try:
            chosen = tuple(int(size) for size in sizes.split(","))
        except ValueError as error:
            raise typer.BadParameter(f"need numbers such as 1000,10000, got {sizes!r}") from error
    if min(chosen) < 100:
        raise typer.BadParameter(f"need sizes of at least 100, got {min(chosen)}")
    path = out or default_path()
    console = Console(width=None if sys.stdout.isatty() else report_store.WIDTH)
    run(
        names,
        list(chosen),
        path,
        effort=QUICK if quick else Effort(),
        settings=amv.MemorySettings(),
        console=console,
    )
    report_store.show(read(path), console)
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
