"""Where the demonstration prints, keeps its time and counts what did not hold."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 100
DAY_S = 86_400.0


@dataclass(slots=True)
class Clock:
    """The demonstration's own clock: it stands still until it is told how far to go."""

    now_s: float = datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        """Return unix seconds, as `Memory.open` wants them."""
        return self.now_s

    @property
    def date(self) -> str:
        """The day it is."""
        return f"{datetime.fromtimestamp(self.now_s, tz=UTC):%d %B}"

    def advance(self, days: float) -> None:
        """Let time pass."""
        self.now_s += days * DAY_S


@dataclass(slots=True)
class Stage:
    """A console, the moments at which steps began, and the checks so far."""

    console: Console
    checks: int = 0
    failed: int = 0
    began_s: list[float] = field(default_factory=list)

    def step(self, title: str) -> None:
        """Begin a step."""
        self.began_s.append(time.perf_counter())
        self.console.print()
        self.console.rule(f"[bold]{len(self.began_s)}. {title}", align="left", style="cyan")

    def say(self, text: str, style: str = "") -> None:
        """Print text just as it is."""
        self.console.print(Text(text, style=style))

    def line(self, text: str, style: str = "") -> None:
        """Print text cut to the width, a line a line."""
        width = self.console.width
        for one in text.split("\n"):
            self.say(one if len(one) <= width else f"{one[: width - 3]}...", style)

    def show(self, table: Table) -> None:
        """Print a table, set off from the text."""
        self.console.print()
        self.console.print(table)
        self.console.print()

    def check(self, claim: str, holds: bool) -> None:
        """Print whether what must hold does."""
        self.checks += 1
        self.failed += not holds
        line = Table.grid()
        line.add_row(
            Text("    ok  ", "green") if holds else Text("FAILED  ", "bold red"), Text(claim)
        )
        self.console.print(line)

    def finish(self) -> int:
        """Print what the steps took and whether all held; return the exit code."""
        ends = [*self.began_s[1:], time.perf_counter()]
        took = [end - began for began, end in zip(self.began_s, ends, strict=True)]
        self.console.print()
        self.console.rule("[bold]In all", align="left", style="cyan")
        parts = " + ".join(f"{step_s:.1f}" for step_s in took)
        self.say(f"The steps took {parts} = {sum(took):.1f} seconds.")
        self.say(
            f"{self.checks - self.failed} of {self.checks} checks passed.",
            "bold red" if self.failed else "bold green",
        )
        return 1 if self.failed else 0


def open_stage() -> Stage:
    """Return a stage as wide as the terminal; 100 columns where there is none."""
    console = Console(highlight=False)
    return Stage(console if console.is_terminal else Console(highlight=False, width=WIDTH))


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table; the columns in *right* hold numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        made.add_column(name, justify=justify, no_wrap=True, min_width=len(name))
    return made
