"""What a contender's process does: take in the items, search, and say what that took.

It imports the standard library and numpy and nothing else, as every contender
runs in an environment of its own.  Items reach a contender batch by batch from
files, so that what the process holds afterwards is the contender's.

An item's content ends with its place, as in ``some text [17]``, and a search
returns the contents of its hits.  So everybody has to store contents and fetch
them, and nobody needs a table of ids for the sake of the benchmark.
"""

import ctypes
import gc
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]

ALL, OWNER = "all", "owner"
"""The two workloads: searching everything, and searching what one owner has."""

SEARCHES_MIN = 20
WARM_UP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to measure; *folder* has the data, *work* is empty and for the contender."""

    folder: str
    work: str
    items: int
    owner_items: int
    workloads: list[str]
    variant: str = ""
    k: int = 10
    batch: int = 4096
    searches: int = 2000
    seconds: float = 15.0
    add_seconds: float = 900.0

    @property
    def owners(self) -> int:
        """How many owners there are; each has *owner_items* items, one after another."""
        return -(-self.items // self.owner_items)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some items: float32 unit vectors of shape (n, d), contents, and who owns each."""

    vectors: Floats
    contents: list[str]
    owners: list[int]

    def by_owner(self) -> Iterator[tuple[int, slice]]:
        """Yield each owner in it and where its items are."""
        edges = [0, *(np.flatnonzero(np.diff(self.owners)) + 1).tolist(), len(self.owners)]
        for start, stop in itertools.pairwise(edges):
            yield self.owners[start], slice(start, stop)


Search = Callable[[Floats, int], list[str]]
"""Takes a query of shape (d,) and an owner; returns contents, best first.

Under the workload ``all`` it leaves the owner unread.
"""


class Contender(Protocol):
    """A store that takes part."""

    def add(self, batch: Batch) -> None:
        """Add items with its own batch API, with whatever conversion that needs."""

    def finish(self) -> None:
        """Do what is left to do before searches: build an index, write what is not written."""

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield the ways of searching to be measured, by name."""

    def about(self) -> Mapping[str, object]:
        """Return settings worth knowing, such as the durability of an add."""

    def close(self) -> None:
        """Close what is open."""


class TooSlow(Exception):
    """Adding took longer than allowed."""


def place_of(content: str) -> int:
    """Return the place at the end of a content.

    >>> place_of("some text [17]")
    17
    """
    return int(content[content.rindex("[") + 1 : -1])


def run(open_contender: Callable[[Path, Task], Contender], packages: tuple[str, ...]) -> None:
    """Do the task whose file is the first argument, and write the result to the second."""
    task = Task(**json.loads(Path(sys.argv[1]).read_text("utf-8")))
    versions = {name: metadata.version(name) for name in packages}
    result: dict[str, Any] = {
        "versions": {"python": platform.python_version(), **versions},
        "rss_before_bytes": rss_bytes(),
    }
    contender = open_contender(Path(task.work), task)
    result["about"] = dict(contender.about())
    result["add"] = _fill(contender, task)
    result["rss_loaded_bytes"] = rss_bytes()
    result["searches"] = [
        {"workload": workload, "mode": mode, **_measure(search, task)}
        for workload in task.workloads
        for mode, search in contender.searches(workload)
    ]
    contender.close()
    result["disk_bytes"] = disk_bytes(Path(task.work))
    Path(sys.argv[2]).write_text(json.dumps(result), "utf-8")


def _fill(contender: Contender, task: Task) -> dict[str, object]:
    """Add all items; only the contender's own calls are timed."""
    wall_s = cpu_s = 0.0
    path = Path(task.folder)
    with (path / "contents").open(encoding="utf-8") as contents:
        for start in range(0, task.items, task.batch):
            # Mapped and copied anew each time: what was read leaves the process again.
            mapped = np.load(path / "vectors.npy", mmap_mode="r")
            vectors = np.array(mapped[start : start + task.batch])
            del mapped
            texts = [json.loads(next(contents)) for _ in range(len(vectors))]
            owners = [place // task.owner_items for place in range(start, start + len(vectors))]
            batch = Batch(vectors, texts, owners)
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            contender.add(batch)
            wall_s += time.perf_counter() - began_s
            cpu_s += time.process_time() - began_cpu_s
            added = start + len(vectors)
            if wall_s > task.add_seconds and added < task.items:
                raise TooSlow(f"added {added:,} of {task.items:,} items in {wall_s:.0f} s")
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    contender.finish()
    finish_s = time.perf_counter() - began_s
    cpu_s += time.process_time() - began_cpu_s
    return {"wall_s": wall_s + finish_s, "finish_s": finish_s, "cpu_s": cpu_s}


def _measure(search: Search, task: Task) -> dict[str, object]:
    """Search in a closed loop, warm: first every owner once, at least 50 searches."""
    queries = np.load(Path(task.folder) / "queries.npy")
    asked = np.load(Path(task.folder) / "asked.npy")
    began_s = time.perf_counter()
    for turn in range(max(50, task.owners)):
        search(queries[turn % len(queries)], turn % task.owners)
        if time.perf_counter() - began_s > WARM_UP_S:
            break
    gc.collect()
    took_ns: list[int] = []
    found: list[Places] = []
    cpu_s, began_s = 0.0, time.perf_counter()
    for query, owner in asked[: task.searches].tolist():
        vector = queries[query]
        start_cpu_s, start_ns = time.process_time(), time.perf_counter_ns()
        contents = search(vector, owner)
        took_ns.append(time.perf_counter_ns() - start_ns)
        cpu_s += time.process_time() - start_cpu_s
        found.append(np.array([place_of(content) for content in contents], dtype=np.int32))
        if len(found) >= SEARCHES_MIN and time.perf_counter() - began_s > task.seconds:
            break
    return {
        "took_us": [round(ns / 1000, 1 if ns < 100_000 else None) for ns in took_ns],
        "cpu_s": cpu_s,
        "found": [places.tolist() for places in found],
        "rss_bytes": rss_bytes(),
    }


def write_task(path: Path, task: Task) -> None:
    """Write what `run` reads."""
    path.write_text(json.dumps(asdict(task)), "utf-8")


def rss_bytes() -> int:
    """Return the memory of this process, after giving back what is free."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmRSS")


def disk_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
