"""Latency of searches through the gateway, by how much is stored.

    python -m bench.latency                        # 10^3 to 10^6 items in one namespace,
                                                   # 10^6 over 5,000, and hot sets
    python -m bench.latency --sizes 1000,10000 --seconds 5

A gateway in a process of its own, a load generator in another; both on one
machine, which needs two cores for that.  Vectors are given.  Each search is
timed from when it was to be sent, at a fixed rate of arrivals.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.request import Request, urlopen

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import amv
from amv.memory.ports import Floats
from bench import datasets, machine
from bench.store_rows import Sink, now, read

SEED = 1
EMBEDDER = "hashing:384"
BATCH = 4096
QUERIES = 500
_ADDRESS = re.compile(r"http://[\w.:]+")


@dataclass(frozen=True, slots=True)
class Server:
    """A running gateway."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        """Return the processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Return the memory it holds now."""
        return self._status("VmRSS")

    def rss_peak_bytes(self) -> int:
        """Return the most memory it has held."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise LookupError(name)


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of the load generator measured; arrays have one entry a reply.

    *lines* says which line of the bodies was sent, *due_s* when it was to be, counted
    from the first.
    """

    lines: np.ndarray[tuple[int], np.dtype[np.int32]]
    due_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    took_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    statuses: np.ndarray[tuple[int], np.dtype[np.int16]]
    totals: np.ndarray[tuple[int], np.dtype[np.int32]]
    unanswered: int

    def row(self) -> dict[str, object]:
        """Return the raw figures, times in microseconds."""
        kinds, counts = np.unique(self.statuses, return_counts=True)
        return {
            "took_us": np.rint(self.took_s * 1e6).astype(int).tolist(),
            "statuses": dict(zip(map(str, kinds.tolist()), counts.tolist(), strict=True)),
            "scanned_most": int(self.totals.max(initial=-1)),
            "unanswered": self.unanswered,
        }


@contextmanager
def serving(command: list[str], environment: Mapping[str, str]) -> Iterator[Server]:
    """Run a server that says its address on stderr."""
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=machine.ROOT,
        env={**os.environ, **environment, "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        found = _ADDRESS.search(told)
        if found is None:
            raise RuntimeError(f"the server did not start: {told}{process.stderr.read()}")
        yield Server(found[0], process.pid)
    finally:
        process.terminate()
        process.wait(60)
        if process.stderr is not None:
            process.stderr.close()


def gateway(db: Path) -> list[str]:
    """Return the command that serves a file."""
    return [sys.executable, "-m", "amv", "--db", str(db), "serve", "--port", "0"]


def load(
    server: Server,
    bodies: Path,
    *,
    rate: float,
    seconds: float,
    connections: int = 64,
    path: str = "/v1/search",
) -> Load:
    """Send searches and return how they fared."""
    with tempfile.TemporaryDirectory(prefix="amv-load-") as folder:
        out = Path(folder) / "out.npz"
        given = [server.address, bodies, path, rate, seconds, connections, SEED, out]
        subprocess.run(
            [sys.executable, "-m", "bench.http_load", *map(str, given)],
            check=True,
            cwd=machine.ROOT,
        )
        found = np.load(out)
        arrays = {name: found[name] for name in ("lines", "due_s", "took_s", "statuses", "totals")}
        return Load(**arrays, unanswered=int(found["unanswered"]))


def fill(db: Path, vectors: Floats, contents: list[str], namespaces: int) -> float:
    """Add items, spread over namespaces in order; return how long that took."""
    began_s = time.perf_counter()
    settings = amv.Settings(upkeep_interval_s=None)
    with amv.Memory.open(str(db), embedder=EMBEDDER, settings=settings) as memory:
        for start in range(0, len(vectors), BATCH):
            memory.add_many(
                {
                    "content": contents[i],
                    "namespace": (f"n{i * namespaces // len(vectors)}",),
                    "vector": vectors[i],
                }
                for i in range(start, min(len(vectors), start + BATCH))
            )
    return time.perf_counter() - began_s


def write_bodies(
    path: Path, queries: Floats, namespaces: int, count: int, *, as_base64: bool = False
) -> None:
    """Write *count* search bodies, each of a query in a random namespace."""
    rng = np.random.default_rng(SEED)
    which = rng.integers(0, namespaces, count).tolist()
    with path.open("wb") as file:
        for place, name in enumerate(which):
            query = queries[place % len(queries)]
            # As bytes they become base64.
            vector = query.astype("<f4").tobytes() if as_base64 else query.tolist()
            body = {"namespace": [f"n{name}"], "vector": vector, "k": 10}
            file.write(msgspec.json.encode(body) + b"\n")


def measure_size(
    size: int, namespaces: int, sink: Sink, *, rate: float, seconds: float, say: Console
) -> None:
    """Measure searches at one size."""
    dataset = datasets.make("clusters", size, SEED)
    with tempfile.TemporaryDirectory(prefix="amv-bench-") as folder:
        db, bodies = Path(folder) / "amv.db", Path(folder) / "bodies"
        added_s = fill(db, dataset.vectors, dataset.contents, namespaces)
        say.print(f"{size:,} items in {namespaces:,} namespaces: added in {added_s:.0f} s")
        write_bodies(bodies, dataset.queries[:QUERIES], namespaces, max(QUERIES, namespaces))
        about = {"items": size, "namespaces": namespaces, "rate": rate}
        with serving(gateway(db), {}) as server:
            idle_bytes = server.rss_bytes()
            load(server, bodies, rate=rate / 2, seconds=max(5.0, seconds / 2))
            cpu_s = server.cpu_s()
            found = load(server, bodies, rate=rate, seconds=seconds)
            sink.add(
                "search",
                **about,
                **found.row(),
                added_s=added_s,
                cpu_s=server.cpu_s() - cpu_s,
                idle_rss_bytes=idle_bytes,
                rss_bytes=server.rss_bytes(),
                rss_peak_bytes=server.rss_peak_bytes(),
                disk_bytes=sum(p.stat().st_size for p in Path(folder).glob("amv.db*")),
            )


def measure_hot(
    namespaces: int, sink: Sink, *, seconds: float, cache_mb: int, say: Console
) -> None:
    """Measure processor time a search on resident hot sets, beside an echo of the same size."""
    rng = np.random.default_rng(SEED)
    size = namespaces * 1024
    texts = datasets.made_up_sentences(4096, SEED)
    centre = rng.standard_normal((namespaces, 1, datasets.DIMENSION), dtype=np.float32)
    noise = rng.standard_normal((1, 1024, datasets.DIMENSION), dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="amv-bench-") as folder:
        db, bodies = Path(folder) / "amv.db", Path(folder) / "bodies"
        vectors = (centre + noise).reshape(size, datasets.DIMENSION)
        contents = [f"{texts[i % len(texts)]} {i}" for i in range(size)]
        added_s = fill(db, vectors, contents, namespaces)
        say.print(f"{namespaces:,} hot sets of 1,024: added in {added_s:.0f} s")
        queries = rng.standard_normal((QUERIES, datasets.DIMENSION), dtype=np.float32)
        forms = {"": bodies, " base64": Path(folder) / "base64"}
        for form, own in forms.items():
            write_bodies(own, queries, namespaces, 8 * namespaces, as_base64=bool(form))
        about = {"namespaces": namespaces, "items": size}
        with serving(gateway(db), {"AMV_CACHE_MB": str(cache_mb)}) as server:
            # Every hot set is loaded, and most rows are read once.
            load(server, bodies, rate=0, seconds=max(20.0, namespaces / 20), connections=4)
            for form, own in forms.items():
                fold(server)
                cpu_s = server.cpu_s()
                found = load(server, own, rate=0, seconds=seconds, connections=8)
                fold(server)
                spent_s = server.cpu_s() - cpu_s
                rss_bytes = server.rss_bytes()
                sink.add(f"hot{form}", **about, **found.row(), cpu_s=spent_s, rss_bytes=rss_bytes)
        with serving([sys.executable, "-m", "bench.http_echo"], {}) as server:
            load(server, bodies, rate=0, seconds=2.0, connections=8, path="/echo")
            for form, own in forms.items():
                cpu_s = server.cpu_s()
                found = load(server, own, rate=0, seconds=seconds, connections=8, path="/echo")
                sink.add(f"echo{form}", **about, **found.row(), cpu_s=server.cpu_s() - cpu_s)


def fold(server: Server) -> None:
    """Have all value events folded that were logged so far."""
    headers = {"Content-Type": "application/json"}
    asked = Request(f"{server.address}/v1/sweep", b'{"dry_run":true}', headers, method="POST")
    with urlopen(asked, timeout=60) as reply:
        reply.read()


def show(path: Path, console: Console) -> None:
    """Print the table of the last run in a file of rows."""
    rows = read(path)
    table = Table("items", "namespaces", "rate/s", "p50 ms", "p95", "p99", "p99.9", "scanned ≤")
    for name in ("CPU µs", "RSS MB", "idle MB", "not 200"):
        table.add_column(name)
    for row in rows:
        took_ms = np.asarray(row["took_us"]) / 1e3
        answered = sum(row["statuses"].values())
        cells = [f"{np.quantile(took_ms, q):.2f}" for q in (0.5, 0.95, 0.99, 0.999)]
        table.add_row(
            f"{row['items']:,} {row['measure']}",
            f"{row['namespaces']:,}",
            f"{row['rate']:,.0f}" if row.get("rate") else f"closed: {_throughput(row):,.0f}",
            *cells,
            str(row["scanned_most"]),
            f"{row['cpu_s'] / answered * 1e6:.0f}",
            _mb(row.get("rss_bytes")),
            _mb(row.get("idle_rss_bytes")),
            str(answered - row["statuses"].get("200", 0) + row["unanswered"]),
        )
    console.print(table)


def _throughput(row: Mapping[str, object]) -> float:
    """Return replies a second of processor time of a closed loop."""
    statuses, cpu_s = row["statuses"], row["cpu_s"]
    assert isinstance(statuses, dict)
    assert isinstance(cpu_s, float)
    return float(sum(statuses.values())) / cpu_s


def _mb(count: object) -> str:
    return f"{count / 1e6:.0f}" if isinstance(count, int) else ""


def main(
    sizes: Annotated[str, typer.Option(metavar="N,...", help="Items in one namespace.")] = (
        "1000,10000,100000,1000000"
    ),
    spread: Annotated[
        int, typer.Option(metavar="N", help="Items over 5,000 namespaces; 0: none.")
    ] = 1_000_000,
    hot: Annotated[int, typer.Option(metavar="N", help="Resident hot sets; 0: none.")] = 1000,
    rate: Annotated[float, typer.Option(metavar="N", help="Searches a second.")] = 100.0,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long each load lasts.")] = 30.0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure searches through the gateway and print the table."""
    path = out or machine.RESULTS / f"latency-{now()[:8]}.jsonl"
    sink = Sink(path=path).naming(seed=SEED)
    console = Console(width=None if sys.stdout.isatty() else 160)
    for size in (int(text) for text in sizes.split(",") if text):
        measure_size(size, 1, sink, rate=rate, seconds=seconds, say=console)
    if spread:
        measure_size(spread, 5000, sink, rate=rate, seconds=seconds, say=console)
    if hot:
        # A hot set takes 2 MB of vectors, and codes of a quarter of that.
        measure_hot(hot, sink, seconds=seconds, cache_mb=64 + 3 * hot, say=console)
    show(path, console)
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
