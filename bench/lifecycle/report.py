"""The tables of the lifecycle bench, made from its raw rows.

python -m bench.lifecycle.report FILE [--run ID] [--markdown] [--pictures FOLDER]
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table as RichTable

from bench.lifecycle import pictures
from bench.lifecycle.arms import BY_NAME
from bench.lifecycle.measures import READS, WRITES, Of, grouped
from bench.lifecycle.targets import (
    EXACT,
    FORTNIGHT,
    LRU,
    OURS,
    PUBLISHED_LRU,
    PUBLISHED_OVER_2S,
    PUBLISHED_TTL,
    TTL,
    Groups,
    of,
    verdicts,
)
from bench.report_command import RawRows, WhichRun, pipes
from bench.store_rows import Row, read

WIDTH = 190


class Table(NamedTuple):
    """A table with its title."""

    title: str
    headings: Sequence[str]
    rows: list[list[str]]


FOUND = (
    "policy",
    "seeds",
    "recall",
    f"older than {FORTNIGHT:.0f} d",
    "in hot",
    f"older than {FORTNIGHT:.0f} d",
    "of exact's",
    "scanned p50",
    "p95",
    "most",
    "tokens",
    "requests/CPU s",
    "moves/1,000",
    "watched hot",
)
TOOK = (
    "policy",
    "requests/s",
    "per CPU s",
    *(
        f"{what} {q}"
        for what in ("reads ms p50", "writes ms p50")
        for q in ("", "95", "99", "99.9")
    ),
    "> 10 p50",
    "> 2 s",
    "refused",
    "RAM MB",
    "disk MB",
    "lag s p50",
    "most",
)
_TOOK_HEADINGS = tuple(
    name.replace(" p50 ", " p") if not name.endswith("p50 ") else name.strip() for name in TOOK
)


def tables(groups: Groups) -> Iterator[Table]:
    """Yield every table the rows allow."""
    published = _published(groups)
    if published.rows:
        yield published
    for workload, ways in groups.items():
        for way, arms in ways.items():
            if way == "closed" and not workload.startswith("scale"):
                yield Table(
                    _title(workload, way, arms), FOUND, [_found(*one) for one in _in_order(arms)]
                )
            else:
                rows = [_took(*one) for one in _in_order(arms)]
                yield Table(_title(workload, way, arms), _TOOK_HEADINGS, rows)


def _title(workload: str, way: str, arms: Mapping[str, Of]) -> str:
    row = next(iter(arms.values())).rows[0]
    how = {
        "closed": "twelve connections, each sends when it has its reply",
        "paced": f"{row['rate']:g} requests a second",
        "embedded": "the default embedder in the path, twelve connections",
    }[way]
    return (
        f"{workload}: {how}; share {row['share']:g}, {row['about']['days']:g} days "
        f"{row['factor']:,.0f} times as fast"
    )


def _in_order(arms: Mapping[str, Of]) -> list[tuple[str, Of]]:
    return [(name, arms[name]) for name in BY_NAME if name in arms]


def _found(name: str, one: Of) -> list[str]:
    scanned = one.scanned()[1:] or [np.nan] * 3
    says, tiers = BY_NAME[name].says, BY_NAME[name].has_tiers
    return [
        says,
        ", ".join(str(row["seed"]) for row in one.rows),
        _number(one.recall(), 4),
        _number(one.recall(over_days=FORTNIGHT), 4),
        _number(one.hot_recall(), 3) if tiers else "",
        _number(one.hot_recall(over_days=FORTNIGHT), 3) if tiers else "",
        _number(one.overlap(), 4),
        *(_number(count, 0) for count in scanned),
        _number(one.tokens(), 0),
        _number(one.per_cpu_s, 0),
        _number(one.moves, 0),
        _number(one.watched_hot(), 3) if tiers else "",
    ]


def _took(name: str, one: Of) -> list[str]:
    ten, two = one.late(READS)
    lag, most = one.lag_s()
    return [
        BY_NAME[name].says,
        _number(one.per_s, 0),
        _number(one.per_cpu_s, 0),
        *(_number(one.ms(READS, q), 2) for q in (0.5, 0.95, 0.99, 0.999)),
        *(_number(one.ms(WRITES, q), 2) for q in (0.5, 0.95, 0.99, 0.999)),
        f"{ten:.2%}",
        f"{two:.2%}",
        str(one.refused),
        _number(one.rss_mb, 0),
        _number(one.disk_mb, 1),
        _number(lag, 1),
        _number(most, 1),
    ]


def _number(figure: float, digits: int) -> str:
    return "" if np.isnan(figure) else f"{figure:,.{digits}f}"


def _published(groups: Groups) -> Table:
    """The paper's comparison with ours beside it, as ratios."""
    rows = []
    headings = ("AMV-L default against", "figure", "the paper's", "ours")
    paced, counted = (of(groups, "paper", way, OURS, TTL) for way in ("paced", "closed"))
    if paced is not None and counted is not None:
        ratios = {
            "per_s": counted[0].per_cpu_s / counted[1].per_cpu_s,
            **{
                f"p{q}": paced[1].ms(READS, q / 100) / paced[0].ms(READS, q / 100)
                for q in (50, 95, 99)
            },
        }
        for name, says in (
            ("per_s", "times the throughput (ours: by processor time)"),
            ("p50", "times lower median"),
            ("p95", "times lower p95"),
            ("p99", "times lower p99"),
        ):
            rows.append(["TTL", says, f"{PUBLISHED_TTL[name]:.1f}", f"{ratios[name]:.2f}"])
        before, after = PUBLISHED_OVER_2S
        ours = [f"{one.late(READS)[1]:.3%}" for one in (paced[1], paced[0])]
        rows.append(
            ["TTL", "above 2 s, from → to", f"{before:.1%} → {after:.3%}", " → ".join(ours)]
        )
    paced, counted = (of(groups, "paper", way, OURS, LRU) for way in ("paced", "closed"))
    if paced is not None and counted is not None:
        for q in (50, 99):
            ratio = paced[0].ms(READS, q / 100) / paced[1].ms(READS, q / 100)
            theirs = 1 / PUBLISHED_LRU[f"p{q}"]
            rows.append(["LRU", f"p{q}, times LRU's", f"{theirs:.2f}", f"{ratio:.2f}"])
        tokens = counted[0].tokens() / counted[1].tokens()
        rows.append(
            ["LRU", "prompt tokens, times LRU's", f"{PUBLISHED_LRU['tokens']:.2f}", f"{tokens:.3f}"]
        )
    return Table("The paper's table (arXiv 2603.04443), and ours", headings, rows)


def checked(groups: Groups, console: Console) -> int:
    """Print what a quick run must show; return 1 if any of it does not hold.

    All are counts, which do not depend on how fast the machine is.  LRU is the
    control: what it does not show either would show nothing.
    """
    wrong = 0
    for says, holds in quick_checks(groups):
        console.print(f"{'ok' if holds else 'NOT'}  {says}", markup=False, highlight=False)
        wrong += not holds
    return int(wrong > 0)


def quick_checks(groups: Groups) -> Iterator[tuple[str, bool]]:
    """Yield what a quick run must show, and whether it does."""
    for name in groups:
        pair = of(groups, name, "closed", OURS, EXACT)
        if pair is None:
            continue
        ours, exact = pair
        gap = ours.recall() - exact.recall()
        yield f"{name}: recall {gap:+.4f} of an exhaustive search's, at least −0.02", gap >= -0.02
        most, budget = ours.scanned()[3], BY_NAME[OURS].settings(ours.rows[0]["share"]).budget.total
        yield f"{name}: scanned {most:.0f}, at most {budget}", most <= budget
    for name, more in (("aged", 0.3), ("phases", 0.15)):
        pair = of(groups, name, "closed", OURS, LRU)
        if pair is not None:
            hot, lru = (one.hot_recall(over_days=FORTNIGHT) for one in pair)
            says = f"{name}: {hot:.3f} of old facts in hot, LRU {lru:.3f}, at least {more} more"
            yield says, hot - lru >= more
    pair = of(groups, "poisoned", "closed", OURS, LRU)
    if pair is not None:
        hot, lru = pair[0].watched_hot(), pair[1].watched_hot()
        yield f"poisoned: hot in {hot:.3f} of late finds, LRU in {lru:.3f}", hot == 0 < lru


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the tables and the verdicts."""
    groups = grouped(rows)
    for table in tables(groups):
        shown = RichTable(title=table.title)
        for place, heading in enumerate(table.headings):
            shown.add_column(heading, justify="right" if place else "left", overflow="fold")
        for cells in table.rows:
            shown.add_row(*cells)
        console.print(shown)
    for asked, found, holds in verdicts(groups):
        said = f"{'reached' if holds else 'NOT reached'}: {asked}: {found}"
        console.print(said, markup=False, highlight=False)
    console.print(about(rows), markup=False, highlight=False)


def markdown(rows: Sequence[Row]) -> str:
    """Return the tables and verdicts as Markdown."""
    groups, out = grouped(rows), []
    for table in tables(groups):
        out += [
            f"**{table.title}**",
            "",
            pipes(table.headings),
            pipes(["---"] * len(table.headings)),
        ]
        out += [*(pipes(cells) for cells in table.rows), ""]
    headings = ("asked", "found", "")
    out += [pipes(headings), pipes(["---"] * 3)]
    out += [
        pipes([v.asked, v.found, "reached" if v.holds else "NOT reached"]) for v in verdicts(groups)
    ]
    return "\n".join([*out, "", f"Measured: {about(rows)}."])


def about(rows: Sequence[Row]) -> str:
    """Say where, when and with what the rows were measured."""
    place, loads = rows[-1]["machine"], [row["load_1m"] for row in rows]
    revision = f"{str(place['git'])[:10]}{' with changes' if place['git_is_dirty'] else ''}"
    return (
        f"run {rows[-1]['run']}, revision {revision}; {place['cpu']}, {place['cores']} cores, "
        f"load {min(loads)}–{max(loads)}; python {place['python']}, numpy {place['numpy']}, "
        f"apsw {place['apsw']}, usearch {place['usearch']}"
    )


def main(
    file: RawRows,
    run: WhichRun = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print it as Markdown.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--pictures", metavar="FOLDER", help="Draw PNG files there.")
    ] = None,
) -> None:
    """Print the tables of a run, and draw its pictures."""
    rows = read(file, run)
    if not rows:
        raise typer.BadParameter(f"no rows of {'any run' if run is None else run} in {file}")
    if folder is not None:
        for path in pictures.draw(grouped(rows), folder):
            typer.echo(path, err=True)
    if as_markdown:
        typer.echo(markdown(rows))
    else:
        show(rows, Console(width=None if sys.stdout.isatty() else WIDTH))


if __name__ == "__main__":
    typer.run(main)
