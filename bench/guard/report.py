"""The report of a run: tables as Markdown and CSV, pictures as PNG, all from its raw rows.

python -m bench.guard.report bench/results/guard-20261201.jsonl.gz --out report/
"""

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.guard.arms import ABLATIONS, ALL, ARMS, DEFAULT, HEADLINE, SETTINGS
from bench.guard.families import FAMILIES, RELEVANT, UNCHANGED, UNSEEN
from bench.guard.measures import Interval, Result, Run, columns_of, compared
from bench.guard.targets import Target, matched, percent, prices, targets
from bench.report_command import RawRows, WhichRun, pipes
from bench.store_rows import Row, read

Lines = list[Sequence[str]]

HEAD = (
    "policy", "harmful, %", "of executed, %", "executed, %", "right ones, %", "doable, %",
    "failed, %", "repairs, %", "checks", "cost", "loss", "loss′",
)  # fmt: skip

NOTES = """
*harmful*: executions whose change is not the one meant, of all instances, with 95 %.
*right ones*: of the actions that were right as they were, how many went ahead rightly.
*doable*: of all that could be done rightly, if need be with another argument, how many were.
*failed*: its tool refused the call.  *loss*: θ·harmful + κ·(abstained or failed) + ρ·repairs
+ cost; *loss′* charges κ for abstaining only where executing was right.
No language model takes part: an agent does as the policy says.  The published runs had one.
"""

PUBLISHED = (
    ("harmful executions, phone-like", "0.00 % of an unknown denominator", "harmful"),
    ("harmful executions, office-like", "7.89 %", "harmful"),
    ("coverage", "44.17 %, denominator unknown; at odds with 66.67 % harmful", "executed"),
    ("cost below a static policy, phone-like", "33.9 %", "cost"),
    ("cost below a static policy, office-like", "21.3 %", "cost"),
)


def _cells(result: Result) -> list[str]:
    figures = result.figures()
    shares = (
        "harmful_of_executed", "executed", "covered", "covered_of_doable", "failed", "repaired"
    )  # fmt: skip
    sums = ("calls", "cost", "loss", "loss_where_right")
    return [
        ALL[result.arm].says,
        _range(figures["harmful"]),
        *(f"{100 * figures[name].value:.1f}" for name in shares),
        *(f"{figures[name].value:.3f}" for name in sums),
    ]


def _range(figure: Interval) -> str:
    return f"{100 * figure.value:.2f} ({100 * figure.low:.2f}–{100 * figure.high:.2f})"


def policies(run: Run, world: str, arms: Iterable[str]) -> Lines:
    """Return the table of policies at the headline's prices."""
    each = [run.of(world, arm, HEADLINE) for arm in arms]
    return [HEAD, *(_cells(one) for one in each if one is not None)]


def losses(run: Run, world: str) -> Lines:
    """Return the total loss of every policy at every price, by how much ours is lower."""
    settings = [one for one in SETTINGS if run.of(world, DEFAULT, one) is not None]
    found: Lines = [("policy", *map(prices, settings))]
    for arm in ARMS:
        cells = [arm.says]
        for setting in settings:
            ours, one = run.of(world, DEFAULT, setting), run.of(world, arm.name, setting)
            if one is None or ours is None:
                cells.append("")
                continue
            less = compared(one.loss, ours.loss, one.cases)
            own = f"{one.loss.mean():.3f}"
            is_ours = arm.name == DEFAULT
            cells.append(own if is_ours else f"{own} ({less.low:+.3f} to {less.high:+.3f})")
        found.append(cells)
    return found


def by_family(run: Run, world: str) -> Lines:
    """Return what the default did, by how the world had changed."""
    result = run.of(world, DEFAULT, HEADLINE)
    head = ("family", "instances", "harmful, %", "executed, %", "repairs, %", "checks", "loss")
    if result is None:
        return [head]
    found: Lines = [head]
    for name in (UNCHANGED, RELEVANT, *FAMILIES):
        mine = result.cases.families == name
        if not mine.any():
            continue
        ratio = result.cases.ratio
        found.append(
            [
                f"{name} (unseen)" if name in UNSEEN else name,
                str(int(mine.sum())),
                _range(ratio(result.harmful & mine, mine)),
                f"{100 * result.executed[mine].mean():.1f}",
                f"{100 * result.repairs[mine].mean():.1f}",
                f"{result.calls[mine].mean():.2f}",
                f"{result.loss[mine].mean():.3f}",
            ]
        )
    return found


def unseen(run: Run, world: str) -> Lines:
    """Return harm on families that calibration saw, and on those it did not."""
    found: Lines = [("policy", "seen: harmful, %", "unseen: harmful, %", "unseen: executed, %")]
    for arm in ARMS:
        result = run.of(world, arm.name, HEADLINE)
        if result is None:
            continue
        seen = result.cases.is_seen
        ratio = result.cases.ratio
        found.append(
            [
                arm.says,
                _range(ratio(result.harmful & seen, seen)),
                _range(ratio(result.harmful & ~seen, ~seen)),
                f"{100 * result.executed[~seen].mean():.1f}",
            ]
        )
    return found


def published(run: Run) -> Lines:
    """Return the published ratios beside ours, with what can be compared."""
    found: Lines = [("what", "published", "here", "can it be compared?")]
    for what, said, kind in PUBLISHED:
        world = "office" if "office" in what else "phone"
        ours = run.of(world, DEFAULT, HEADLINE)
        if ours is None:
            continue
        if kind == "cost":
            parts = []
            for arm in ("verify_once", "verify_all", "unanimous", "static_threshold"):
                other = run.of(world, arm, HEADLINE)
                if other is not None:
                    below = 100 * (1 - ours.cost.sum() / other.cost.sum())
                    parts.append(f"{below:.1f} % below {ALL[arm].says}")
            here, how = "; ".join(parts), "in kind; their static policy is not told in full"
        elif kind == "harmful":
            here = percent(ours.cases.ratio(ours.harmful))
            how = "in kind: other instances, and a language model took part"
        else:
            here = f"{percent(ours.cases.ratio(ours.executed), 1)} of all, "
            here += f"{percent(ours.covered, 1)} of those that were right"
            how = "no"
        found.append((what, said, here, how))
    return found


def target_lines(found: Iterable[Target]) -> Lines:
    """Return targets as a table."""
    rows = [(t.what, t.measured, t.wanted, "met" if t.is_met else "**missed**") for t in found]
    return [("target", "measured", "wanted", ""), *rows]


def sections(run: Run) -> list[tuple[str, Lines]]:
    """Return every table of a report, by its title."""
    found: list[tuple[str, Lines]] = []
    for world in run.cases:
        count, right = len(run.cases[world]), 100 * run.cases[world].is_right.mean()
        harmful = 100 * run.cases[world].is_harmful.mean()
        title = f"{world}: {count:,} instances, {right:.1f} % right as remembered, "
        title += f"{harmful:.1f} % harmful; {prices(HEADLINE)}, ε {HEADLINE.epsilon:g}"
        found.append((title, policies(run, world, [arm.name for arm in ARMS])))
        if run.of(world, ABLATIONS[0].name, HEADLINE) is not None:
            names = [DEFAULT, *(arm.name for arm in ABLATIONS)]
            found.append((f"{world}: ablations", policies(run, world, names)))
        found.append((f"{world}: families held out of calibration", unseen(run, world)))
        found.append((f"{world}: the default, by family", by_family(run, world)))
        if len({key[2] for key in run.results if key[0] == world}) > 1:
            title = f"{world}: total loss, and by how much it is above the default's"
            found.append((title, losses(run, world)))
        ours = run.of(world, DEFAULT, HEADLINE)
        step = None if ours is None else matched(run, world, ours)
        if step is not None:
            title = f"{world}: one step with reference coefficients, at ε = "
            found.append((title + f"{step.setting.epsilon:g}", [HEAD, _cells(step)]))
    found += [("stress", stress_lines(run.extra["stress"]))] if "stress" in run.extra else []
    if "timelines" in run.extra:
        found.append(("timelines of facts (StateBench)", timeline_lines(run.extra["timelines"])))
    found.append(("published ratios", published(run)))
    found.append(("targets", target_lines(targets(run))))
    return found


def stress_lines(rows: Sequence[Row]) -> Lines:
    """Return what came of each stress."""
    head = (
        "stress", "policy", "harmful, %", "of executed, %", "executed, %", "checks", "more"
    )  # fmt: skip
    return [head, *(row["cells"] for row in rows)]


def timeline_lines(rows: Sequence[Row]) -> Lines:
    """Return what came of timelines."""
    return [("timelines", "what", "count"), *(cells for row in rows for cells in row["cells"])]


def markdown(run: Run) -> str:
    """Return the report as Markdown."""
    parts = [_made_of(run), NOTES.strip()]
    for title, lines in sections(run):
        rule = pipes(["---"] * len(lines[0]))
        table = [pipes(lines[0]), rule, *(pipes(line) for line in lines[1:])]
        parts.append(f"## {title}\n\n" + "\n".join(table))
    return "\n\n".join(parts) + "\n"


def _made_of(run: Run) -> str:
    about = run.about
    cpu = about["machine"]
    return (
        f"# Does the gate help?\n\nRun {about['run']}, revision {str(cpu['git'])[:10]}, "
        f"Python {cpu['python']}, {cpu['cpu']}, {cpu['cores']} cores.  Instances: "
        + ", ".join(f"{world} {digest[:12]}" for world, digest in run.digests.items())
        + "."
    )


def table_csv(run: Run) -> str:
    """Return every figure of every policy at every price, with its bounds, as CSV."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for (world, arm, setting), result in run.results.items():
        row = {"world": world, "policy": arm, "setting": setting} | columns_of(result.figures())
        if writer is None:
            writer = csv.DictWriter(out, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    return out.getvalue()


def show(run: Run, console: Console) -> None:
    """Print the tables."""
    for title, lines in sections(run):
        table = Table(*lines[0], title=title, title_justify="left")
        for line in lines[1:]:
            table.add_row(*(cell.replace("**", "") for cell in line))
        console.print(table)


def write(run: Run, folder: Path) -> list[Path]:
    """Write the report into *folder*."""
    from bench.guard import pictures

    folder.mkdir(parents=True, exist_ok=True)
    made = {"report.md": markdown(run), "figures.csv": table_csv(run)}
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")
    return [*(folder / name for name in made), *pictures.draw(run, folder)]


def main(
    file: RawRows,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write Markdown, CSV and PNG there.")
    ] = None,
    run: WhichRun = None,
) -> None:
    """Print the tables of a run, or write its report."""
    rows = read(file, run)
    if not any(row["measure"] == "cases" for row in rows):
        raise typer.BadParameter(f"no rows of the gate's bench in {file}")
    found = Run(rows)
    if out is None:
        show(found, Console(width=None if sys.stdout.isatty() else 180))
        return
    for path in write(found, out):
        typer.echo(str(path))


if __name__ == "__main__":
    typer.run(main)
