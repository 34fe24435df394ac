"""Run the comparison and print the tables.

    python -m bench.rivals                           # 10^3, 10^4 and 10^5 items
    python -m bench.rivals --sizes 1000,10000 --only amv,faiss --seconds 5

Items belong to owners, a thousand to each.  Every contender is filled, then
searched in a closed loop by one caller: over everything (``all``), and over
what one random owner has (``owner``).
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from bench import datasets, machine
from bench.rivals import report
from bench.rivals.contenders import ENTRIES, Entry, NotInstalled, environment, last_line, python_of
from bench.rivals.protocol import ALL, OWNER, Task, write_task
from bench.store_rows import Sink, now, read

SEED = 1
SIZES = "1000,10000,100000"
OWNER_ITEMS = 1000
K = 10


class Failed(Exception):
    """A contender did not finish."""


def write_data(folder: Path, dataset: datasets.Dataset, owner_items: int, searches: int) -> None:
    """Write what contenders read: vectors, contents, queries, and which is asked of which owner."""
    rng = np.random.default_rng([SEED, len(dataset), 5])
    owners = -(-len(dataset) // owner_items)
    query = np.arange(searches) % len(dataset.queries)
    np.save(folder / "vectors.npy", dataset.vectors)
    np.save(folder / "queries.npy", dataset.queries)
    np.save(folder / "asked.npy", np.stack([query, rng.integers(0, owners, searches)], axis=1))
    with (folder / "contents").open("w", encoding="utf-8") as file:
        for place, text in enumerate(dataset.contents):
            file.write(json.dumps(f"{text} [{place}]") + "\n")


def found_right(
    folder: Path, dataset: datasets.Dataset, workload: str, owner_items: int, found: list[list[int]]
) -> list[int]:
    """Return how many of the true neighbours each search found."""
    right = []
    nearest: dict[int, set[int]] = {}
    asked = np.load(folder / "asked.npy")[: len(found)].tolist()
    for (query, owner), places in zip(asked, found, strict=True):
        start, stop = 0, len(dataset)
        if workload == OWNER:
            start, stop = owner * owner_items, min((owner + 1) * owner_items, stop)
        if workload == OWNER or query not in nearest:
            products = dataset.vectors[start:stop] @ dataset.queries[query]
            best = np.argpartition(-products, min(K, stop - start) - 1)[:K]
            nearest[query] = set((start + best).tolist())
        right.append(len(nearest[query] & set(places)))
    return right


def run_one(entry: Entry, task: Task, *, timeout_s: float) -> dict[str, Any]:
    """Run a contender's process; return its result."""
    python = python_of(entry)
    with tempfile.TemporaryDirectory(prefix="amv-rival-") as home:
        given, out = Path(home) / "task.json", Path(home) / "result.json"
        write_task(given, task)
        try:
            done = subprocess.run(
                [str(python), "-m", entry.module, str(given), str(out)],
                cwd=machine.ROOT,
                env=environment(entry, Path(home)),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"not done after {timeout_s:.0f} s") from error
        if done.returncode:
            raise Failed(last_line(done.stderr) if done.returncode > 0 else "it crashed")
        result: dict[str, Any] = json.loads(out.read_text("utf-8"))
        return result


def measure(
    entries: Sequence[Entry],
    dataset: datasets.Dataset,
    sink: Sink,
    *,
    owner_items: int = OWNER_ITEMS,
    searches: int = 2000,
    seconds: float = 15.0,
    timeout_s: float = 1800.0,
    say: Console,
) -> None:
    """Measure all entries on one dataset."""
    sink = sink.naming(generator=dataset.name, items=len(dataset), owner_items=owner_items, k=K)
    with tempfile.TemporaryDirectory(prefix="amv-rivals-") as folder:
        write_data(Path(folder), dataset, owner_items, searches)
        for entry in entries:
            for workloads in [[ALL], [OWNER]] if entry.store_each else [[ALL, OWNER]]:
                with tempfile.TemporaryDirectory(prefix="amv-rival-") as work:
                    task = Task(
                        folder=folder,
                        work=work,
                        items=len(dataset),
                        owner_items=owner_items,
                        workloads=workloads,
                        variant=entry.variant,
                        k=K,
                        searches=searches,
                        seconds=seconds,
                        add_seconds=timeout_s / 2,
                    )
                    _note(entry, task, dataset, sink, timeout_s, say)


def _note(
    entry: Entry,
    task: Task,
    dataset: datasets.Dataset,
    sink: Sink,
    timeout_s: float,
    say: Console,
) -> None:
    """Run one task and write its rows: one for the store, one for each way of searching."""
    sink = sink.naming(contender=entry.name, workloads=task.workloads)
    title = f"{entry.name}, {task.items:,} items, {' and '.join(task.workloads)}"
    try:
        result = run_one(entry, task, timeout_s=timeout_s)
    except (Failed, NotInstalled) as error:
        say.print(f"{title}: {error}", markup=False)
        sink.add("failed", reason=str(error))
        return
    searches = result.pop("searches")
    sink.add("store", **result)
    for row in searches:
        found = row.pop("found")
        right = found_right(Path(task.folder), dataset, row["workload"], task.owner_items, found)
        row["searches_by_found"] = np.bincount(right, minlength=K + 1).tolist()
        sink.add("search", **row)
    say.print(f"{title}: added in {result['add']['wall_s']:.1f} s, searched", markup=False)


def main(
    sizes: Annotated[str, typer.Option(metavar="N,...", help="How many items.")] = SIZES,
    generator: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(datasets.GENERATORS)}.")
    ] = "clusters",
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Modules of those to run, as in amv,faiss."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="Most a pass of searches lasts.")
    ] = 15,
    searches: Annotated[int, typer.Option(metavar="N", help="Most searches in a pass.")] = 2000,
    minutes: Annotated[float, typer.Option(metavar="M", help="Most a contender may take.")] = 30,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure AMV and its rivals and print the tables."""
    if generator not in datasets.GENERATORS:
        known = ", ".join(datasets.GENERATORS)
        raise typer.BadParameter(f"need a generator out of {known}, got {generator!r}")
    modules = list(dict.fromkeys(entry.module.rpartition(".")[2] for entry in ENTRIES))
    names = modules if only is None else only.split(",")
    if unknown := set(names) - set(modules):
        raise typer.BadParameter(f"need names out of {', '.join(modules)}, got {sorted(unknown)}")
    entries = [entry for entry in ENTRIES if entry.module.rpartition(".")[2] in names]
    path = out or machine.RESULTS / f"rivals-{now()[:8]}.jsonl"
    sink = Sink(path=path).naming(seed=SEED)
    console = Console(width=None if sys.stdout.isatty() else report.WIDTH)
    for size in (int(text) for text in sizes.split(",")):
        measure(
            entries,
            datasets.make(generator, size, SEED),
            sink,
            searches=searches,
            seconds=seconds,
            timeout_s=60 * minutes,
            say=console,
        )
    report.show(read(path), console)
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
