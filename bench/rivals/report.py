"""The tables of the comparison, made from its raw rows.

python -m bench.rivals.report FILE [--run ID] [--markdown]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench.report_command import pipes, report_command
from bench.rivals.protocol import ALL, OWNER
from bench.store_rows import Row

WIDTH = 180
FAILED = "failed, see below"
"""Of the tables where there is no terminal that has one."""

AMV, HNSW = "AMV", "faiss HNSW"
DEFAULT = "default"
"""The way of searching AMV that the others are compared with."""

RATIO = 4.0
"""How many times the throughput of HNSW over everything is asked for on a hot set."""

HEADINGS = (
    "store",
    "search",
    "recall@10",
    "p50 ms",
    "p95",
    "p99",
    "p99.9",
    "searches/s",
    "× AMV",
    "CPU µs",
    "× AMV by CPU",
    "RAM B/item",
    "RSS MB",
    "disk B/item",
    "adds/s",
    "per CPU s",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One way of searching one store: its row, and the row of the store."""

    search: Row
    store: Row

    @property
    def is_amv(self) -> bool:
        """Whether this is what the others are compared with."""
        return (self.search["contender"], self.search["mode"]) == (AMV, DEFAULT)

    @property
    def recall(self) -> float:
        """Share of the true neighbours that were found."""
        k = min(self.search["k"], self.search["items"], self.search["owner_items"])
        counts = np.asarray(self.search["searches_by_found"])
        return float(counts @ np.arange(len(counts)) / counts.sum() / k)

    @property
    def per_s(self) -> float:
        """Searches a second of one caller."""
        return 1e6 / float(np.mean(self.search["took_us"]))

    @property
    def cpu_us(self) -> float:
        """Microseconds of processor time a search took, of all threads of the process."""
        return float(self.search["cpu_s"]) * 1e6 / len(self.search["took_us"])

    def cells(self, amv: "Line | None") -> list[str]:
        """Return what stands in the table, the ratio being to *amv*."""
        took_ms = np.asarray(self.search["took_us"]) / 1000
        count, items = len(took_ms), self.search["items"]
        rss = max(self.store["rss_loaded_bytes"], self.search["rss_bytes"])
        # Of fewer searches, the 99.9th percentile would be the slowest of them by another name.
        quantiles = [q for q in (0.5, 0.95, 0.99, 0.999) if count * (1 - q) >= 1]
        return [
            f"{self.recall:.4f}",
            *(f"{q:,.0f}" if q >= 100 else f"{q:.3g}" for q in np.quantile(took_ms, quantiles)),
            *[""] * (4 - len(quantiles)),
            f"{self.per_s:,.0f}" if self.per_s >= 10 else f"{self.per_s:.2g}",
            f"{self.per_s / amv.per_s:.3g}" if amv else "",
            f"{self.cpu_us:,.0f}",
            f"{amv.cpu_us / self.cpu_us:.3g}" if amv else "",
            f"{(rss - self.store['rss_before_bytes']) / items:,.0f}",
            f"{rss / 1e6:,.0f}",
            f"{self.store['disk_bytes'] / items:,.0f}",
            f"{items / self.store['add']['wall_s']:,.0f}",
            f"{items / self.store['add']['cpu_s']:,.0f}",
        ]


@dataclass(frozen=True, slots=True)
class Group:
    """What was measured of one workload at one size."""

    items: int
    workload: str
    lines: list[Line]
    failed: list[Row]

    @property
    def title(self) -> str:
        """Say what was searched."""
        if self.workload == ALL:
            return f"{self.items:,} items, search over all of them"
        owner_items = (self.lines[0].search if self.lines else self.failed[0])["owner_items"]
        return f"{self.items:,} items, search in one owner's {min(owner_items, self.items):,}"

    def rows(self) -> list[list[str]]:
        """Return the body of the table."""
        amv = next((line for line in self.lines if line.is_amv), None)
        body = [
            [line.search["contender"], line.search["mode"], *line.cells(amv)] for line in self.lines
        ]
        return body + [[row["contender"], FAILED] for row in self.failed]

    def reasons(self) -> list[str]:
        """Return why those that failed did."""
        return [f"{row['contender']} failed: {row['reason']}" for row in self.failed]


def groups(rows: Sequence[Row]) -> list[Group]:
    """Return a table for each size and workload measured."""
    stores = {_key(row): row for row in rows if row["measure"] == "store"}
    out = []
    for items in sorted({row["items"] for row in rows}):
        for workload in (ALL, OWNER):
            own = [row for row in rows if row["items"] == items]
            lines = [
                Line(row, stores[_key(row)])
                for row in own
                if row["measure"] == "search" and row["workload"] == workload
            ]
            failed = [r for r in own if r["measure"] == "failed" and workload in r["workloads"]]
            if lines or failed:
                out.append(Group(items, workload, lines, failed))
    return out


def _key(row: Row) -> tuple[int, str, str]:
    return row["items"], row["contender"], " ".join(row["workloads"])


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Compare each AMV search of a hot set with HNSW over everything, where both were measured."""
    by = {(group.items, group.workload): group.lines for group in groups(rows)}
    said = []
    for items in sorted({row["items"] for row in rows}):
        amv = [line for line in by.get((items, OWNER), []) if line.search["contender"] == AMV]
        hnsw = [line for line in by.get((items, ALL), []) if line.search["contender"] == HNSW]
        said += [_verdict(items, line, hnsw) for line in amv if hnsw]
    return said


def _verdict(items: int, amv: Line, hnsw: Sequence[Line]) -> str:
    """Say how many times faster AMV is than the HNSW search nearest to its recall from below.

    Judged by processor time: one thread does all the work of either, so that on an
    idle machine it is the throughput, and on a shared one others disturb it less.
    """
    head = (
        f"{items:,} items, AMV in one owner's hot set, {amv.search['mode']} ({_speed(amv)}), "
        "against HNSW over all"
    )
    lower = [line for line in hnsw if line.recall <= amv.recall]
    if not lower:
        return f"{head}: no HNSW search has as low a recall"
    best = max(lower, key=lambda line: line.recall)
    ratio = best.cpu_us / amv.cpu_us
    others = ", ".join(
        f"{line.search['mode'].rpartition(' ')[2]}: {line.cpu_us / amv.cpu_us:.2f}"
        for line in lower
    )
    return (
        f"{head} at {best.search['mode']} ({_speed(best)}): {ratio:.2f} times the throughput by "
        f"processor time, {amv.per_s / best.per_s:.2f} by the clock; {RATIO:g} asked, "
        f"{'reached' if ratio >= RATIO else 'NOT reached'}. At each efSearch of no higher "
        f"recall, by processor time: {others}"
    )


def _speed(line: Line) -> str:
    return f"recall {line.recall:.4f}, {line.cpu_us:,.0f} CPU µs, {line.per_s:,.0f}/s"


def about(rows: Sequence[Row]) -> str:
    """Say where, when and with what the rows were measured."""
    place = rows[-1]["machine"]
    loads = [row["load_1m"] for row in rows]
    versions: dict[str, str] = {}
    for row in rows:
        if row["measure"] == "store":
            versions |= row["versions"]
    revision = f"{str(place['git'])[:10]}{' with changes' if place['git_is_dirty'] else ''}"
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return (
        f"run {rows[-1]['run']}, revision {revision}, {rows[-1]['generator']}, seed "
        f"{rows[-1]['seed']}; {place['cpu']}, {place['cores']} cores, "
        f"{place['memory_bytes'] / 2**30:.0f} GiB, load {min(loads)}–{max(loads)}; {listed}"
    )


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the tables."""
    for group in groups(rows):
        table = Table(title=group.title)
        for place, heading in enumerate(HEADINGS):
            # Figures that come out long fold before the words that say what failed.
            table.add_column(
                heading,
                justify="left" if place < 2 else "right",
                overflow="fold",
                min_width=len(FAILED) if place == 1 else None,
            )
        for cells in group.rows():
            table.add_row(*cells)
        console.print(table)
        for reason in group.reasons():
            console.print(reason, markup=False, highlight=False)
    for line in [*verdicts(rows), about(rows)]:
        console.print(line, markup=False, highlight=False)


def markdown(rows: Sequence[Row]) -> str:
    """Return the tables as Markdown."""
    out: list[str] = []
    for group in groups(rows):
        out += [f"**{group.title}**", "", pipes(HEADINGS), pipes(["---"] * len(HEADINGS))]
        for cells in group.rows():
            out.append(pipes([*cells, *[""] * (len(HEADINGS) - len(cells))]))
        out += ["", *(f"{reason}.\n" for reason in group.reasons())]
    out += [f"- {line}." for line in verdicts(rows)]
    return "\n".join([*out, "", f"Measured: {about(rows)}."])


main = report_command(markdown, show, WIDTH)

if __name__ == "__main__":
    typer.run(main)
