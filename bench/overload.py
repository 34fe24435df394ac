"""What the gateway does when more is asked of it than it can do.

    python -m bench.overload [--namespaces 100] [--seconds 60]

Searches in resident hot sets, and some adds, arrive at a growing rate until the
gateway no longer keeps up: the knee is the last rate at which it did.  Then
twice as many arrive, and after that half as many.  At the end the gateway is
killed, and every add it acknowledged is looked for in the file.
"""

import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import amv
from amv.memory.ports import Floats
from bench import datasets, machine
from bench.latency import EMBEDDER, SEED, Load, Server, fill, gateway, load, serving
from bench.store_rows import Sink, now, read

HOT = 1024
LATE_S = 0.05
"""The knee is the last rate at which 99 of 100 requests are answered within this time."""

USEFUL_S = 1.0
"""An answer that comes later than this does not count as one."""

CONNECTIONS = 512
_FIRST_RATE = 200.0
_STEP = 1.2
_STEP_S = 6.0
_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Served:
    """How one load fared."""

    rate: float
    goodput: float
    served_p50_ms: float
    served_p99_ms: float
    shed_share: float
    shed_p99_ms: float
    calm_after_s: float
    unanswered: int

    @classmethod
    def of(cls, found: Load, rate: float, seconds: float) -> "Served":
        """Sum up a load of *rate* requests a second."""
        is_served = (found.statuses == 200) | (found.statuses == 201)
        is_useful = is_served & (found.took_s <= USEFUL_S)
        is_bad = ~is_served | (found.took_s > LATE_S)
        # A second is calm if 99 of 100 of its requests were served in time.
        second = np.floor(found.due_s).astype(int)
        share = np.bincount(second, is_bad) / np.maximum(np.bincount(second), 1)
        restless = np.flatnonzero(share > 0.01)
        return cls(
            rate=rate,
            goodput=float(is_useful.sum() / seconds),
            served_p50_ms=_quantile_ms(found.took_s[is_served], 0.5),
            served_p99_ms=_quantile_ms(found.took_s[is_served], 0.99),
            shed_share=float((~is_served).mean()),
            shed_p99_ms=_quantile_ms(found.took_s[~is_served], 0.99),
            calm_after_s=float(restless[-1] + 1) if len(restless) else 0.0,
            unanswered=found.unanswered,
        )

    @property
    def keeps_up(self) -> bool:
        """Whether the gateway served what was asked of it, in time."""
        return self.goodput >= 0.98 * self.rate and self.served_p99_ms <= 1e3 * LATE_S


def _quantile_ms(took_s: np.ndarray[tuple[int], np.dtype[np.float64]], q: float) -> float:
    return float(np.quantile(took_s, q) * 1e3) if len(took_s) else 0.0


def write_bodies(path: Path, queries: Floats, namespaces: int, adds: float) -> list[str | None]:
    """Write searches, and a share of *adds* with ids of their own; return the id each line adds."""
    rng = np.random.default_rng(SEED)
    which = rng.integers(0, namespaces, _LINES).tolist()
    is_add = rng.random(_LINES) < adds
    ids: list[str | None] = []
    with path.open("wb") as file:
        for n, name in enumerate(which):
            namespace, vector = [f"n{name}"], queries[n % len(queries)].tolist()
            if is_add[n]:
                ids.append(f"w{n}")
                item = {
                    "id": f"w{n}",
                    "content": f"written under load {n}",
                    "namespace": namespace,
                    "vector": vector,
                }
                file.write(b"/v1/items " + msgspec.json.encode(item) + b"\n")
            else:
                ids.append(None)
                search = {"namespace": namespace, "vector": vector, "k": 10}
                file.write(b"/v1/search " + msgspec.json.encode(search) + b"\n")
    return ids


class Loads:
    """All loads of one run, and which adds were acknowledged in them."""

    def __init__(
        self, server: Server, bodies: Path, ids: list[str | None], sink: Sink, say: Console
    ) -> None:
        self._server = server
        self._bodies = bodies
        self._ids = ids
        self._sink = sink
        self._say = say
        self.acked: set[str] = set()

    def at(self, name: str, rate: float, seconds: float) -> Served:
        """Load the gateway for some seconds."""
        cpu_s = self._server.cpu_s()
        found = load(
            self._server, self._bodies, rate=rate, seconds=seconds, connections=CONNECTIONS
        )
        spent_s = self._server.cpu_s() - cpu_s
        is_acked = (found.statuses == 200) | (found.statuses == 201)
        lines = np.unique(found.lines[is_acked]).tolist()
        self.acked |= {item_id for n in lines if (item_id := self._ids[n]) is not None}
        served = Served.of(found, rate, seconds)
        self._sink.add(
            "load",
            phase=name,
            seconds=seconds,
            cpu_s=spent_s,
            **asdict(served),
        )
        self._say.print(
            f"{name}: {rate:,.0f}/s asked, {served.goodput:,.0f}/s served, "
            f"p99 {served.served_p99_ms:.1f} ms"
        )
        return served


def find_knee(loads: Loads) -> float:
    """Return the last rate, of ever higher ones, at which the gateway keeps up."""
    rate, knee = _FIRST_RATE, 0.0
    while loads.at("rising", rate, _STEP_S).keeps_up:
        knee, rate = rate, rate * _STEP
    if not knee:
        raise RuntimeError(f"the gateway does not keep up with {_FIRST_RATE:.0f} requests a second")
    return knee


def missing(db: Path, acked: set[str]) -> list[str]:
    """Return which acknowledged items are not in a file."""
    settings = amv.Settings(upkeep_interval_s=None)
    with amv.Memory.open(str(db), embedder=EMBEDDER, settings=settings) as memory:
        there: set[str] = set()
        for name in memory.namespaces():
            cursor = None
            while True:
                page = memory.list(namespace=name, cursor=cursor, limit=1000)
                there |= {item.id for item in page.items}
                cursor = page.cursor
                if cursor is None:
                    break
        return sorted(acked - there)


def show(path: Path, console: Console) -> None:
    """Print the table of the last run in a file of rows."""
    table = Table("load", "asked/s", "served/s", "of knee", "p50 ms", "p99 ms")
    for name in ("shed", "shed p99 ms", "calm after s", "unanswered"):
        table.add_column(name)
    rows = read(path)
    knee = next((row["goodput"] for row in rows if row.get("phase") == "knee"), None)
    for row in rows:
        if row["measure"] == "writes":
            console.print(f"{row['acked']:,} adds acknowledged, {len(row['missing'])} missing")
            continue
        table.add_row(
            row["phase"],
            f"{row['rate']:,.0f}",
            f"{row['goodput']:,.0f}",
            f"{row['goodput'] / knee:.2f}" if knee else "",
            f"{row['served_p50_ms']:.1f}",
            f"{row['served_p99_ms']:.1f}",
            f"{row['shed_share']:.0%}",
            f"{row['shed_p99_ms']:.1f}",
            f"{row['calm_after_s']:.0f}",
            str(row["unanswered"]),
        )
    console.print(table)


def main(
    namespaces: Annotated[int, typer.Option(metavar="N", help="Hot sets of 1,024 items.")] = 100,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="How long twice the knee lasts.")
    ] = 60,
    adds: Annotated[float, typer.Option(metavar="SHARE", help="Adds among the requests.")] = 0.02,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Find the knee of the arrival rate, go to twice that, and print the table."""
    path = out or machine.RESULTS / f"overload-{now()[:8]}.jsonl"
    console = Console(width=None if sys.stdout.isatty() else 140)
    sink = Sink(path=path).naming(seed=SEED, namespaces=namespaces, adds=adds)
    dataset = datasets.make("clusters", namespaces * HOT, SEED)
    with tempfile.TemporaryDirectory(prefix="amv-bench-") as folder:
        db, bodies = Path(folder) / "amv.db", Path(folder) / "bodies"
        fill(db, dataset.vectors, dataset.contents, namespaces)
        ids = write_bodies(bodies, dataset.queries, namespaces, adds)
        with serving(gateway(db), {"AMV_CACHE_MB": str(64 + 3 * namespaces)}) as server:
            load(server, bodies, rate=0, seconds=10.0, connections=4)
            loads = Loads(server, bodies, ids, sink, console)
            knee = find_knee(loads)
            time.sleep(1.0)
            loads.at("knee", knee, 10.0)
            loads.at("twice the knee", 2 * knee, seconds)
            loads.at("half the knee", knee / 2, 15.0)
            os.kill(server.pid, signal.SIGKILL)
        sink.add("writes", acked=len(loads.acked), missing=missing(db, loads.acked))
    show(path, console)
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
