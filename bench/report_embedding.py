"""The table of `bench.embedding_cost`, recomputed from its raw rows.

python -m bench.report_embedding bench/results/embedding-20261201.jsonl --markdown
"""

from collections.abc import Sequence

import numpy as np
import typer
from rich.console import Console

from bench.report_command import as_markdown, as_printed, report_command
from bench.store_rows import Row

BASE = "packaged graph, as many threads"
HEADING = ("arm", "CPU a query", "of the base's", "time", "to load", "memory", "least cosine")


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return medians over all rounds, a row an arm; *of the base's* compares CPU.

    The cosine is that of a query's vector and the same query's as shipped.
    """
    by_arm: dict[str, list[Row]] = {}
    for row in rows:
        if row["measure"] == "embedding_cost":
            by_arm.setdefault(row["arm"], []).append(row)
    base = _median_ms(by_arm.get(BASE, ()), "cpu_us")
    found = [list(HEADING)]
    for arm, own in by_arm.items():
        cosines = [row["cosine_min"] for row in own if row["cosine_min"] is not None]
        cpu_ms = _median_ms(own, "cpu_us")
        found.append(
            [
                arm,
                f"{cpu_ms:.3f} ms",
                f"{cpu_ms / base:.2f}" if base else "",
                f"{_median_ms(own, 'wall_us'):.3f} ms",
                f"{np.median([row['load_ms'] for row in own]):.0f} ms",
                f"{np.median([row['memory_bytes'] for row in own]) / 2**20:.0f} MiB",
                f"{min(cosines):.6f}" if cosines else "",
            ]
        )
    return found


def _median_ms(rows: Sequence[Row], name: str) -> float:
    return float(np.median([us for row in rows for us in row[name]])) / 1e3 if rows else 0.0


def markdown(rows: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    return as_markdown(table(rows))


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table."""
    console.print(as_printed(table(rows)))


main = report_command(markdown, show, 120)

if __name__ == "__main__":
    typer.run(main)
