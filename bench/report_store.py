"""The table of the store benchmark, made from its raw rows.

    python -m bench.report_store FILE [--run ID] [--markdown]

Targets stand here and nowhere in the rows, so that a stricter one can be
applied to an old run.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench.report_command import pipes, report_command
from bench.store_rows import Row

BATCHED_PER_S = 5_000
ONE_BY_ONE_PER_S = 300
DISK_PER_CONTENT = 2.5
DISK_PER_VECTOR = 1.3
RECALL = 0.98
RECALL_ON = ("clusters", "passages")
FIRST_TEXT_S = 1.0
READY_MS = {1_000: 10.0, 100_000: 300.0}

WIDTH = 140
"""Of the table where there is no terminal that has one."""


class Cell(NamedTuple):
    """What one figure is for one generator and size; *passed* None where nothing is asked."""

    text: str
    passed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of one generator at all sizes measured."""

    figure: str
    target: str
    generator: str
    cells: dict[int, Cell]

    @property
    def passed(self) -> bool | None:
        """Whether the target is met at every size that has one."""
        asked = [cell.passed for cell in self.cells.values() if cell.passed is not None]
        return all(asked) if asked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A line of the table: from which rows it is made, and how."""

    name: str
    target: str = ""
    measure: str = "searches"
    prior: bool | None = None
    cold: str | None = None
    show: Callable[[Sequence[Row]], Cell]

    def takes(self, row: Row) -> bool:
        """Tell whether it is made from *row*."""
        return (
            row["measure"] == self.measure
            and (self.prior is None or row["prior"] == self.prior)
            and (self.cold is None or row["cold"] == self.cold)
        )


def _batched(rows: Sequence[Row]) -> Cell:
    rate = statistics.median(row["items"] / row["amv_s"] for row in rows)
    raw = statistics.median(row["items"] / row["raw_s"] for row in rows)
    return Cell(f"{rate:,.0f} ({rate / raw:.2f} of {raw:,.0f})", rate >= BATCHED_PER_S)


def _per_cpu(rows: Sequence[Row]) -> Cell:
    rate = statistics.median(row["items"] / row["amv_cpu_s"] for row in rows)
    return Cell(f"{rate:,.0f}")


def _one_by_one(rows: Sequence[Row]) -> Cell:
    rate = statistics.median(row["items"] / row["amv_s"] for row in rows)
    raw = statistics.median(row["raw_items"] / row["raw_s"] for row in rows)
    return Cell(f"{rate:,.0f} ({rate / raw:.2f} of {raw:,.0f})", rate >= ONE_BY_ONE_PER_S)


def _disk(rows: Sequence[Row]) -> Cell:
    row = rows[-1]
    allowed = DISK_PER_CONTENT * row["content_bytes"] + DISK_PER_VECTOR * row["vector_bytes"]
    used = row["store_bytes"]
    return Cell(f"{used / allowed:.2f} ({used / row['items']:,.0f} B/item)", used <= allowed)


def _tiers(rows: Sequence[Row]) -> Cell:
    tiers = rows[-1]["tiers"]
    return Cell(" / ".join(f"{tiers[name]:,}" for name in ("HOT", "WARM", "COLD")))


def _share(rows: Sequence[Row], key: str) -> float:
    return float(np.mean([n / row["k"] for row in rows for n in row[key]]))


def _recall_nearest(rows: Sequence[Row]) -> Cell:
    return Cell(f"{_share(rows, 'found_nearest'):.4f}")


def _recall_asked(rows: Sequence[Row]) -> Cell:
    recall = _share(rows, "found_nearest")
    return Cell(f"{recall:.4f}", recall >= RECALL if rows[0]["generator"] in RECALL_ON else None)


def _recall_ranked(rows: Sequence[Row]) -> Cell:
    recall = _share(rows, "found_ranked")
    nearest = _share(rows, "found_nearest")
    passed = recall >= RECALL if rows[0]["generator"] in RECALL_ON else None
    return Cell(f"{recall:.4f} (nearest {nearest:.3f})", passed)


def _by_tier(rows: Sequence[Row]) -> Cell:
    parts = []
    for name in ("HOT", "WARM", "COLD"):
        found = sum(row["found_by_tier"][name][0] for row in rows)
        wanted = sum(row["found_by_tier"][name][1] for row in rows)
        parts.append(f"{found / wanted:.3f}" if wanted else "–")
    return Cell(" / ".join(parts))


def _went_cold(rows: Sequence[Row]) -> Cell:
    probed, queries = (sum(row[key] for row in rows) for key in ("cold_probed", "queries"))
    return Cell(f"{probed / queries:.1%}")


def _scanned(rows: Sequence[Row]) -> Cell:
    most = {part: max(row["scanned_max"][part] for row in rows) for part in rows[0]["scanned_max"]}
    over = sum(row["over_budget"] for row in rows)
    parts = "+".join(str(most[part]) for part in ("hot", "warm", "cold", "postings"))
    return Cell(f"{most['total']:,} ({parts}); {over} over", over == 0)


def _latency(rows: Sequence[Row]) -> Cell:
    times = np.concatenate([row["latency_ms"] for row in rows])
    return Cell(" / ".join(f"{q:.2f}" for q in np.percentile(times, [50, 95, 99])))


def _first_text(rows: Sequence[Row]) -> Cell:
    middle = sorted(rows, key=lambda row: float(row["answered_s"]))[len(rows) // 2]
    answered, imported = middle["answered_s"], middle["imported_s"]
    return Cell(f"{answered:.2f} (imports {imported:.2f})", answered < FIRST_TEXT_S)


def _ready(rows: Sequence[Row]) -> Cell:
    ready = statistics.median(row["first_ms"] - row["second_ms"] for row in rows)
    most = READY_MS.get(rows[0]["size"])
    return Cell(f"{ready:.1f}", None if most is None else ready < most)


_R = f"≥ {RECALL}"
FIGURES = (
    Figure(
        name="adds/s in batches (of raw)",
        target=f"≥ {BATCHED_PER_S:,}",
        measure="add_batches",
        show=_batched,
    ),
    Figure(name="… per second of CPU", measure="add_batches", show=_per_cpu),
    Figure(
        name="adds/s, 16 threads (of raw)",
        target=f"≥ {ONE_BY_ONE_PER_S}",
        measure="add_one_by_one",
        show=_one_by_one,
    ),
    Figure(name="bytes on disk / allowed", target="≤ 1", measure="disk", show=_disk),
    Figure(name="items hot / warm / cold", measure="aged", show=_tiers),
    Figure(name="recall@10 cold=True", target=_R, prior=False, cold="cold", show=_recall_asked),
    Figure(name="… value prior on", target=_R, prior=True, cold="cold", show=_recall_ranked),
    Figure(name="recall@10 default", prior=False, cold="default", show=_recall_nearest),
    Figure(name="… by tier h / w / c", prior=False, cold="default", show=_by_tier),
    Figure(name="… searches going cold", prior=False, cold="default", show=_went_cold),
    Figure(name="recall@10 cold=False", prior=False, cold="no_cold", show=_recall_nearest),
    Figure(name="scanned at most", target="0 over", show=_scanned),
    Figure(name="ms p50/p95/p99 default", prior=True, cold="default", show=_latency),
    Figure(name="… first 50 after reopening", measure="reopened", show=_latency),
    Figure(name="ms p50/p95/p99 cold=True", prior=True, cold="cold", show=_latency),
    Figure(name="cold process, text, s", target="< 1", measure="cold_text", show=_first_text),
    Figure(
        name="first − second search, ms",
        target="< 10 at 1,000; < 300 at 100,000",
        measure="cold_vector",
        show=_ready,
    ),
)


def sizes_of(rows: Iterable[Row]) -> list[int]:
    """Return the sizes measured, smallest first."""
    return sorted({row["size"] for row in rows})


def lines(rows: Sequence[Row]) -> list[Line]:
    """Return the table, a line for each figure and generator that was measured."""
    generators = list(dict.fromkeys(row["generator"] for row in rows))
    table = []
    for figure in FIGURES:
        for generator in generators:
            by_size: dict[int, list[Row]] = {}
            for row in rows:
                if row["generator"] == generator and figure.takes(row):
                    by_size.setdefault(row["size"], []).append(row)
            if not by_size:
                continue
            cells = {size: figure.show(own) for size, own in by_size.items()}
            is_asked = any(cell.passed is not None for cell in cells.values())
            target = figure.target if is_asked else ""
            table.append(Line(figure=figure.name, target=target, generator=generator, cells=cells))
    return table


def curve(rows: Sequence[Row]) -> list[Line]:
    """Return recall against budget, a line for each budget measured."""
    by_budget: dict[int, list[Row]] = {}
    for row in rows:
        if row["measure"] == "curve":
            by_budget.setdefault(row["budget"]["total"], []).append(row)
    return [
        Line(
            figure=f"{own[0]['budget']['warm']:,} + {own[0]['budget']['cold']:,}",
            target=f"{own[0]['probes']['cold']} cells",
            generator=own[0]["generator"],
            cells={row["size"]: _curve_cell(row) for row in own},
        )
        for _, own in sorted(by_budget.items())
    ]


def _curve_cell(row: Row) -> Cell:
    recall, scanned = _share([row], "found_nearest"), statistics.fmean(row["scanned"])
    return Cell(f"{recall:.4f} ({scanned:,.0f} scanned, {_latency([row]).text} ms)")


def about(rows: Sequence[Row]) -> str:
    """Say in a line where and when the rows were measured."""
    machine = rows[-1]["machine"]
    loads = [row["load_1m"] for row in rows]
    revision = f"{str(machine['git'])[:10]}{' with changes' if machine['git_is_dirty'] else ''}"
    versions = ", ".join(f"{n} {machine[n]}" for n in ("python", "numpy", "apsw", "sqlite"))
    return (
        f"run {rows[-1]['run']}, revision {revision}; {machine['cpu']}, {machine['cores']} cores, "
        f"load {min(loads)}–{max(loads)}; {versions}"
    )


_MARKS = {True: "pass", False: "FAIL", None: ""}


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the tables."""
    sizes = sizes_of(rows)
    table = Table(title="store benchmark", caption=about(rows))
    for heading in ("figure", "generator", "target", *(f"{size:,}" for size in sizes), ""):
        table.add_column(heading, overflow="fold")
    before = None
    for line in lines(rows):
        if before not in (None, line.figure):
            table.add_section()
        head = line.figure if line.figure != before else ""
        before = line.figure
        cells = [line.cells.get(size, Cell("")) for size in sizes]
        texts = [f"[red]{c.text}[/red]" if c.passed is False else c.text for c in cells]
        table.add_row(head, line.generator, line.target, *texts, _MARKS[line.passed])
    console.print(table)
    if budgets := curve(rows):
        table = Table(title="recall@10 against budget, cold=True (p50/p95/p99 in ms)")
        for heading in ("warm + cold", "generator", "probes", *(f"{size:,}" for size in sizes)):
            table.add_column(heading, overflow="fold")
        for line in budgets:
            texts = [line.cells.get(size, Cell("")).text for size in sizes]
            table.add_row(line.figure, line.generator, line.target, *texts)
        console.print(table)


def markdown(rows: Sequence[Row]) -> str:
    """Return the tables as Markdown."""
    sizes = sizes_of(rows)
    head = ["figure", "generator", "target", *(f"{size:,}" for size in sizes), ""]
    out = [pipes(head), pipes(["---"] * len(head))]
    for line in lines(rows):
        cells = [line.cells.get(size, Cell("")).text for size in sizes]
        out.append(pipes([line.figure, line.generator, line.target, *cells, _MARKS[line.passed]]))
    if budgets := curve(rows):
        head = ["warm + cold budget", "generator", "probes", *(f"{size:,}" for size in sizes)]
        out += ["", pipes(head), pipes(["---"] * len(head))]
        for line in budgets:
            cells = [line.cells.get(size, Cell("")).text for size in sizes]
            out.append(pipes([line.figure, line.generator, line.target, *cells]))
    return "\n".join([*out, "", f"Measured: {about(rows)}."])


main = report_command(markdown, show, WIDTH)

if __name__ == "__main__":
    typer.run(main)
