"""How long `/health` takes to answer while the gateway works.

    python -m bench.health                        # 20,000 items, 15 s of each load
    python -m bench.health --items 2000 --seconds 5

A gateway in a process of its own, the load in another, and `/health` asked by
this one, every 20 ms.  Each answer is timed from when it was to be asked for,
so that one that is held up is seen to hold up those after it.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench import datasets, machine
from bench.latency import QUERIES, SEED, Server, fill, gateway, load, serving, write_bodies
from bench.store_rows import Row, Sink, now, read

EVERY_S = 0.02
BULK = 4096
BULKS = 4
SEARCHERS = 16
LOADS = ("idle", "searches", "bulk adds", "reembed")
TO = "hashing:256"
_START_S = 1.0
"""How long the load generator may take to begin, during which nothing is measured."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A served memory, and the requests that load it."""

    server: Server
    db: Path
    folder: Path
    seconds: float

    def searches(self) -> dict[str, object]:
        """Search from several connections, each at once again; return how many were answered."""
        path = self.folder / "searches"
        done = load(self.server, path, rate=0, seconds=self.seconds, connections=SEARCHERS)
        return {"searches": int((done.statuses == 200).sum()), "failed": _failed(done.statuses)}

    def bulk_adds(self) -> dict[str, object]:
        """Add arrays of items with vectors, one after another; return how many were added."""
        path = self.folder / "adds"
        done = load(
            self.server, path, rate=0, seconds=self.seconds, connections=1, path="/v1/items"
        )
        return {"arrays": int((done.statuses == 201).sum()), "failed": _failed(done.statuses)}

    def reembed(self) -> dict[str, object]:
        """Change over to another embedder, from a process of its own, as that is done."""
        began_s = time.perf_counter()
        command = [sys.executable, "-m", "amv", "--db", str(self.db), "reembed", TO]
        subprocess.run(command, check=True, cwd=machine.ROOT, capture_output=True)
        return {"reembed_s": time.perf_counter() - began_s, "failed": 0}

    def idle(self) -> dict[str, object]:
        """Do nothing."""
        time.sleep(self.seconds)
        return {"failed": 0}


def _failed(statuses: np.ndarray[tuple[int], np.dtype[np.int16]]) -> int:
    return int((statuses >= 300).sum())


def ask_until(is_over: Callable[[], bool], address: str) -> tuple[list[float], int]:
    """Ask for `/health` until *is_over*; return how long each answer took, and how many failed."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    took_s, failed, due_s = [], 0, time.perf_counter()
    while not is_over():
        time.sleep(max(0.0, due_s - time.perf_counter()))
        connection.request("GET", "/health")
        reply = connection.getresponse()
        reply.read()
        took_s.append(time.perf_counter() - due_s)
        failed += reply.status != 200
        due_s += EVERY_S
    connection.close()
    return took_s, failed


def measure(scene: Scene, name: str, sink: Sink) -> None:
    """Ask for `/health` while one load runs, and note how long that took."""
    work = getattr(scene, name.replace(" ", "_"))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        if name in ("searches", "bulk adds"):
            time.sleep(min(_START_S, scene.seconds / 4))
        took_s, failed = ask_until(done.done, scene.server.address)
        sink.add(
            "health",
            load=name,
            took_us=np.rint(np.asarray(took_s) * 1e6).astype(int).tolist(),
            not_200=failed,
            **done.result(),
        )


@contextmanager
def served(items: int, seconds: float, bulk: int) -> Iterator[Scene]:
    """Serve a memory of some items, and write the requests that will load it."""
    dataset = datasets.make("clusters", items + BULKS * bulk, SEED)
    with tempfile.TemporaryDirectory(prefix="amv-bench-") as name:
        folder = Path(name)
        db = folder / "amv.db"
        fill(db, dataset.vectors[:items], dataset.contents[:items], 1)
        write_bodies(folder / "searches", dataset.queries[:QUERIES], 1, QUERIES)
        with (folder / "adds").open("wb") as file:
            for start in range(items, items + BULKS * bulk, bulk):
                bodies = [
                    {
                        "content": dataset.contents[i],
                        "namespace": ["added"],
                        "vector": np.float64(dataset.vectors[i]).round(5).tolist(),
                    }
                    for i in range(start, start + bulk)
                ]
                file.write(msgspec.json.encode(bodies) + b"\n")
        with serving(gateway(db), {}) as server:
            yield Scene(server, db, folder, seconds)


def run(items: int, seconds: float, sink: Sink, bulk: int = BULK) -> None:
    """Measure under every load, one after another."""
    sink = sink.naming(seed=SEED, items=items, bulk=bulk, every_s=EVERY_S)
    with served(items, seconds, bulk) as scene:
        # The change of embedder comes last: the gateway then has the old one.
        for name in LOADS:
            measure(scene, name, sink)


def show(path: Path, console: Console) -> None:
    """Print the table of the last run in a file of rows."""
    table = Table(
        "while", "p50 ms", "p99", "max", "over 100 ms", "asked", "not 200", "done meanwhile"
    )
    for row in read(path):
        took_ms = np.asarray(row["took_us"]) / 1e3
        table.add_row(
            row["load"],
            *(f"{np.quantile(took_ms, q):.1f}" for q in (0.5, 0.99, 1.0)),
            str(int((took_ms > 100).sum())),
            f"{len(took_ms):,}",
            str(row["not_200"]),
            _work(row),
        )
    console.print(table)


def _work(row: Row) -> str:
    said = {
        "searches": "{searches:,} searches",
        "bulk adds": "{arrays:,} arrays of {bulk:,} items",
        "reembed": "{items:,} items and more in {reembed_s:.0f} s",
        "idle": "",
    }
    return said[str(row["load"])].format(**row)


def main(
    items: Annotated[int, typer.Option(metavar="N", help="Items in the memory.")] = 20_000,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long each load lasts.")] = 15.0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure how soon `/health` answers, and print the table."""
    path = out or machine.RESULTS / f"health-{now()[:8]}.jsonl"
    run(items, seconds, Sink(path=path))
    console = Console(width=None if sys.stdout.isatty() else 160)
    show(path, console)
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
