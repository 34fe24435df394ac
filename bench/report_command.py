"""What the commands share that make the tables of a run again from its raw rows."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.store_rows import Row, read

RawRows = Annotated[Path, typer.Argument(help="The raw rows.")]
WhichRun = Annotated[
    str | None, typer.Option(metavar="ID", help="Which run; the last one if not given.")
]


def report_command(
    markdown: Callable[[Sequence[Row]], str],
    show: Callable[[Sequence[Row], Console], None],
    width: int,
) -> Callable[..., None]:
    """Return a command that prints a run as *markdown* or *show* makes it of its rows."""

    def main(
        file: RawRows,
        run: WhichRun = None,
        as_markdown: Annotated[
            bool, typer.Option("--markdown", help="Print it as Markdown.")
        ] = False,
    ) -> None:
        """Print the tables of a run."""
        rows = read(file, run)
        if not rows:
            raise typer.BadParameter(f"no rows of {'any run' if run is None else run} in {file}")
        if as_markdown:
            typer.echo(markdown(rows))
        else:
            show(rows, Console(width=None if sys.stdout.isatty() else width))

    return main


def as_markdown(table: Sequence[Sequence[str]]) -> str:
    """Return a table, its headings first, as Markdown."""
    heading, *body = table
    return "\n".join(map(pipes, [heading, ["---"] * len(heading), *body]))


def as_printed(table: Sequence[Sequence[str]]) -> Table:
    """Return a table, its headings first, as a console prints it."""
    heading, *body = table
    printed = Table(*heading)
    for cells in body:
        printed.add_row(*cells)
    return printed


def pipes(cells: Iterable[str]) -> str:
    """Return cells as a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
