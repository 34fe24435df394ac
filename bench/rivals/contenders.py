"""Who takes part, and the environment each of them runs in."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import machine

PINS = machine.ROOT / "requirements" / "rivals"
ENVIRONMENTS = machine.CACHE / "rivals"

_LOCAL = {
    # One thread each where a library lets one say so.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Nothing is reported to anybody, and nothing is downloaded.
    "ANONYMIZED_TELEMETRY": "False",
    "MEM0_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One that takes part: what it is called, and which module below here runs it.

    *pins* names its file in requirements/rivals; without one it runs with what
    AMV itself is developed with.  With *store_each* the two workloads want
    items kept differently, and each gets a process and a store of its own.
    *variant* tells its module which of several ways to keep them.
    """

    name: str
    module: str
    pins: str | None = None
    variant: str = ""
    store_each: bool = False


ENTRIES = (
    Entry(name="AMV", module="bench.rivals.amv", store_each=True),
    Entry(name="numpy", module="bench.rivals.by_hand"),
    Entry(name="faiss HNSW", module="bench.rivals.faiss", pins="faiss", store_each=True),
    Entry(name="sqlite-vec", module="bench.rivals.sqlite_vec", pins="sqlite_vec"),
    Entry(name="LanceDB", module="bench.rivals.lancedb", pins="lancedb"),
    Entry(name="LanceDB index", module="bench.rivals.lancedb", pins="lancedb", variant="index"),
    Entry(name="Chroma", module="bench.rivals.chroma", pins="chroma"),
    Entry(name="LangGraph", module="bench.rivals.langgraph", pins="langgraph"),
    Entry(name="mem0", module="bench.rivals.mem0", pins="mem0"),
)


class NotInstalled(Exception):
    """An environment could not be made."""


def python_of(entry: Entry) -> Path:
    """Return the interpreter to run an entry with; make its environment if it is not there."""
    if entry.pins is None:
        return Path(sys.executable)
    pins, folder = PINS / f"{entry.pins}.txt", ENVIRONMENTS / entry.pins
    python, stamp = folder / "bin" / "python", folder / "pins"
    wanted = f"{sys.version}\n{hashlib.sha256(pins.read_bytes()).hexdigest()}"
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "install", "--require-hashes", "-r", str(pins)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"not installed: {last_line(done.stderr)}")
    stamp.write_text(wanted, "utf-8")
    return python


def environment(entry: Entry, home: Path) -> Mapping[str, str]:
    """Return the environment variables an entry runs with; *home* is a folder it may write to."""
    own = dict(os.environ)
    if entry.pins is not None:
        # Its own packages and no others.
        own.pop("PYTHONPATH", None)
    return {**own, **_LOCAL, "HOME": str(home), "MEM0_DIR": str(home / "mem0")}


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was said"
