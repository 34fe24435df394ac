"""Run workloads under policies and print the tables.

python -m bench.lifecycle                       # all of it, at full size: hours
python -m bench.lifecycle --share 0.05          # a twentieth of the requests, and of the limits
python -m bench.lifecycle --quick               # three workloads, four policies, small
python -m bench.lifecycle --workloads aged,phases --arms lru,amv-default --seeds 1
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import machine
from bench.lifecycle import report
from bench.lifecycle.arms import ARMS, BY_NAME, Arm
from bench.lifecycle.measures import factor, grouped
from bench.lifecycle.ops import Workload
from bench.lifecycle.real import NoConversations, conversations, real
from bench.lifecycle.run import Ids, Way, fill_file, run, vectors_of
from bench.lifecycle.scale import scale
from bench.lifecycle.workloads import WORKLOADS
from bench.store_rows import Sink, now, read

EXACT = "exact"
CLOSED, PACED, EMBEDDED = "closed", "paced", "embedded"
REAL_SHARE = 0.05
"""Of the limits, for conversations: hot then holds an eighth of one, as of the other workloads."""

PACED_ARMS = ("ttl", "ttl-hnsw", "lru", "amv-paper", "amv-default")
SCALE_ARMS = ("ttl", "ttl-hnsw", "lru", "amv-default")
EMBEDDED_SHARE = 0.02
UPKEEP_S = 5.0

QUICK_WORKLOADS, QUICK_SHARE = ("aged", "phases", "poisoned"), 0.03
QUICK_ARMS = ("exact", "lru", "amv-paper", "amv-default")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where rows go, and what is said meanwhile."""

    sink: Sink
    say: Console

    def measure(
        self,
        arm: Arm,
        workload: Workload,
        vectors: object,
        way: Way,
        name: str,
        exact: Ids | None = None,
        filled: Path | None = None,
    ) -> Ids:
        """Run one policy on one workload and write its row; return what its reads found."""
        row, ids = run(arm, workload, vectors, way, exact, filled)  # type: ignore[arg-type]
        wall_s = row["wall_s"]
        assert isinstance(wall_s, float)
        self.sink.add(
            "lifecycle",
            workload=workload.name,
            way=name,
            arm=arm.name,
            seed=workload.seed,
            share=way.share,
            rate=way.rate,
            factor=round(factor(workload.about, wall_s), 1),
            about=workload.about,
            **row,
        )
        self.say.print(f"{workload.name}, {arm.name}, {name}, seed {workload.seed}: {wall_s:.1f} s")
        return ids

    def counted(self, workload: Workload, arms: Sequence[Arm], share: float) -> None:
        """Run policies on a workload in a closed loop: for what they find, and how much they do."""
        vectors, exact = vectors_of(workload), None
        for arm in sorted(arms, key=lambda arm: arm.name != EXACT):
            ids = self.measure(arm, workload, vectors, Way(share=share), CLOSED, exact)
            exact = ids if arm.name == EXACT else exact

    def paced(self, share: float, rate: float, arms: Sequence[Arm]) -> None:
        """Run the paper's workload at a fixed rate, upkeep by the server itself: for latencies."""
        workload = WORKLOADS["paper"](1, share)
        workload.ops = [op for op in workload.ops if op.kind not in ("sweep", "stats")]
        vectors = vectors_of(workload)
        for arm in arms:
            way = Way(share=share, rate=rate, upkeep_interval_s=UPKEEP_S)
            self.measure(arm, workload, vectors, way, PACED)

    def embedded(self, share: float, arms: Sequence[Arm]) -> None:
        """Run the paper's workload with the default embedder in the path of every request."""
        workload = WORKLOADS["paper"](1, share)
        for arm in arms:
            self.measure(arm, workload, None, Way(share=share), EMBEDDED)

    def scaled(self, size: int, rate: float, requests: int, arms: Sequence[Arm]) -> None:
        """Run requests at a fixed rate on so many items, and then as fast as they are answered."""
        workload, vectors, fill = scale(size, requests, 1)
        for arm in arms:
            with tempfile.TemporaryDirectory(prefix="amv-lifecycle-") as folder:
                filled = Path(folder) / "amv.db"
                fill_file(arm, filled, workload, partial(fill, ttl_s=arm.ttl_s))
                for name, at in ((PACED, rate), (CLOSED, 0.0)):
                    way = Way(share=1.0, rate=at, upkeep_interval_s=UPKEEP_S)
                    self.measure(arm, workload, vectors, way, name, None, filled)


def named(names: str | None, known: Sequence[str], what: str) -> list[str]:
    """Return the names in a list of them; all that are known if none is given."""
    chosen = list(known) if names is None else [name for name in names.split(",") if name]
    if unknown := [name for name in chosen if name not in known]:
        raise typer.BadParameter(f"need {what} out of {', '.join(known)}, got {unknown}")
    return chosen


def main(
    workloads: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Which workloads; all if not given.")
    ] = None,
    arms: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Which policies; all if not given.")
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="N,...", help="Seeds.")] = "1,2,3",
    share: Annotated[
        float, typer.Option(metavar="S", help="Part of the full size, of requests and limits.")
    ] = 1.0,
    rate: Annotated[
        float, typer.Option(metavar="N", help="Requests a second where they are paced; 0: none.")
    ] = 60.0,
    paced_share: Annotated[
        float | None, typer.Option(metavar="S", help="The share of what is paced; as --share.")
    ] = None,
    sizes: Annotated[
        str, typer.Option(metavar="N,...", help="Items retained; empty: none.")
    ] = "10000,100000,1000000",
    requests: Annotated[
        int, typer.Option(metavar="N", help="Requests at each of these sizes.")
    ] = 6000,
    locomo: Annotated[
        Path | None, typer.Option(metavar="FILE", help="LoCoMo's conversations.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--conversations", metavar="N", help="At most so many of them.")
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="ID", help="A run to add to; else a new one.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small run that checks counts.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure policies and print the tables."""
    path = out or machine.RESULTS / f"lifecycle-{now()[:8]}.jsonl"
    console = Console(width=None if sys.stdout.isatty() else report.WIDTH)
    sink = Sink(path=path)
    bench = Bench(sink if into is None else sink.naming(run=into), console)
    if quick:
        run_quick(bench)
        raise SystemExit(report.checked(grouped(read(path, into)), console))
    chosen = [BY_NAME[n] for n in named(arms, list(BY_NAME), "policies")] if arms else list(ARMS)
    tables = named(workloads, [*WORKLOADS, "real"], "workloads")
    for seed in (int(text) for text in seeds.split(",") if text):
        for name in tables:
            if name in WORKLOADS:
                bench.counted(WORKLOADS[name](seed, share), chosen, share)
                continue
            try:
                bench.counted(real(seed, conversations(locomo), most=most), chosen, REAL_SHARE)
            except NoConversations as error:
                console.print(f"real: {error}", markup=False)
    by_name = {arm.name: arm for arm in chosen}
    if rate and "paper" in tables:
        own = [by_name[name] for name in PACED_ARMS if name in by_name]
        bench.paced(share if paced_share is None else paced_share, rate, own)
        embedded = [by_name[n] for n in ("ttl", "lru", "amv-default") if n in by_name]
        bench.embedded(min(share, EMBEDDED_SHARE), embedded)
    for size in (int(text) for text in sizes.split(",") if text):
        bench.scaled(size, rate, requests, [by_name[n] for n in SCALE_ARMS if n in by_name])
    report.show(read(path, into), console)
    console.print(f"raw rows: {path}")


def run_quick(
    bench: Bench,
    *,
    workloads: Sequence[str] = QUICK_WORKLOADS,
    share: float = QUICK_SHARE,
    arms: Sequence[str] = QUICK_ARMS,
) -> None:
    """Run a few policies on a few small workloads, one seed."""
    for name in workloads:
        bench.counted(WORKLOADS[name](1, share), [BY_NAME[arm] for arm in arms], share)


if __name__ == "__main__":
    typer.run(main)
