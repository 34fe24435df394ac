"""Raw rows of the store benchmark: one JSON object a line, written as soon as it is measured.

A run that is stopped keeps what it measured so far, and a table can be made
again, or in another way, without measuring again.  A file whose name ends in .gz
is gzipped, a member a row.
"""

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from bench import machine

Row = Mapping[str, Any]


def now() -> str:
    """Return the UTC time to the second, fit for a file's name."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def default_path() -> Path:
    """Return where today's rows go."""
    return machine.RESULTS / f"store-{now()[:8]}.jsonl"


def place() -> dict[str, object]:
    """Return machine and versions; also what tells OpenBLAS which kernels to use."""
    openblas = {k: v for k, v in sorted(os.environ.items()) if k.startswith("OPENBLAS_")}
    return {**machine.describe(), "sqlite": apsw.sqlite_lib_version(), "openblas": openblas}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the rows of one run go; *about* is what they have in common."""

    path: Path
    about: Mapping[str, object] = field(default_factory=lambda: {"run": now(), "machine": place()})

    def naming(self, **about: object) -> "Sink":
        """Return a sink whose rows also say *about*."""
        return Sink(path=self.path, about={**self.about, **about})

    def add(self, measure: str, **figures: object) -> None:
        """Append one row."""
        row = {"measure": measure, **figures, "load_1m": machine.load_1m(), **self.about}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        with self.path.open("ab") as file:
            file.write(gzip.compress(line, mtime=0) if self.path.suffix == ".gz" else line)


def read(path: Path, run: str | None = None) -> list[Row]:
    """Return the rows of a run, by default of the last one in the file."""
    rows = every(path)
    wanted = run or max((row["run"] for row in rows), default=None)
    return [row for row in rows if row["run"] == wanted]


def every(path: Path) -> list[Row]:
    """Return the rows of all runs."""
    data = path.read_bytes()
    lines = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in lines.splitlines()]
