"""A run of `amv` in a folder of its own, in this process or in a real one."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amv.cli import main

SRC = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Run:
    """How a run ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        """The objects on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """The error object on the last line of stderr."""
        return json.loads(self.err.splitlines()[-1])["error"]


class Cli:
    """Runs commands on `amv.db` in *folder*, unless told of another file."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.folder = folder
        self._capsys = capsys
        self._patch = patch

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Run:
        """Run in this process."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        code = main(arguments)
        said = self._capsys.readouterr()
        return Run(code, said.out, said.err)

    def start(
        self, *arguments: str, environ: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process of its own, with pipes to it."""
        return subprocess.Popen(
            [sys.executable, "-m", "amv", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(SRC)} | (environ or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def amv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    """An `amv` in an empty folder, with the embedder that needs no model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMV_EMBEDDER", "hashing")
    monkeypatch.delenv("AMV_DB", raising=False)
    monkeypatch.delenv("AMV_LOG_LEVEL", raising=False)
    level = logging.getLogger("amv").level
    yield Cli(tmp_path, capsys, monkeypatch)
    logging.getLogger("amv").setLevel(level)
