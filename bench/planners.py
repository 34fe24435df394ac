"""How good plans are, and how fast decisions.

    python -m bench.planners                     # everything: about ten minutes
    python -m bench.planners --instances 200 --decisions 100 --seconds 2

Regret is what following a planner loses more than the best plan does, as a
share of that, over random decisions; each is drawn from a seed of its own, so
that any can be looked at again.  Whole decisions are made in this process over
an SQLite file with four premises whose verifiers answer at once; those over
HTTP by a gateway in a process of its own, with the load in another.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import typer
import yaml
from rich.console import Console
from rich.table import Table

import amv
from amv.guard.ahead import default, lookahead
from amv.guard.plan import Problem, exact, myopic, policy_value
from bench import machine
from bench.latency import gateway, load, serving
from bench.planner_cases import instance, mixed, sized, wide
from bench.store_rows import Row, Sink, now, read

SEED = 1
SIZES = ((1, 1), (4, 4), (8, 8), (12, 4))
CLIENTS = 16
ORDERS = 2_000
PARTS = ("status", "owner", "total", "address")
NAMESPACE = ("bench",)
_EMBEDDER = "hashing:64"


def policy_of(parts: Sequence[str]) -> dict[str, Any]:
    """Return a policy in which an action rests on parts of an order, each with its verifier."""
    return {
        "version": 1,
        "verifiers": {f"read_{part}": {"cost": 0.02, "sensitivity": 0.99} for part in parts},
        "actions": {
            "cancel": {
                "loss": {"wrong": 120.0, "abstain": 5.0, "repair": 1.0},
                "rests_on": {
                    part: {"claim": f"order/{{order_id}}/{part}", "verify_with": [f"read_{part}"]}
                    for part in parts
                },
            }
        },
    }


def remember(memory: amv.Memory, orders: int, parts: Sequence[str]) -> None:
    """Fill a memory with what is known of orders."""
    memory.add_many(
        [
            {
                "content": f"The {part} of order {number} is known.",
                "namespace": list(NAMESPACE),
                "claim": amv.Claim(f"order/{number}", part, f"{part} {number}"),
            }
            for number in range(orders)
            for part in parts
        ]
    )


DRAWN: Mapping[str, Callable[[np.random.Generator], Problem]] = {
    "usual": instance,
    "wide": wide,
    "mixed": mixed,
}
"""Sorts of decisions, as `bench.planner_cases` draws them; the targets are those of the first."""


def regret(count: int, sink: Sink, sort: str = "usual") -> None:
    """Measure what look-ahead and myopic planning lose more than the exact plan."""
    drawn: list[dict[str, float]] = []
    for number in range(count):
        problem = DRAWN[sort](np.random.default_rng([SEED, number]))
        best = exact(problem).expected_loss
        drawn.append(
            {
                "premises": len(problem.thetas),
                "verifiers": len(problem.checks),
                "best": best,
                "lookahead": policy_value(problem, lookahead),
                "myopic": policy_value(problem, myopic),
            }
        )
    sink.add(
        "regret",
        sort=sort,
        seeds=[[SEED, number] for number in range(count)],
        **{name: [one[name] for one in drawn] for name in drawn[0]},
    )


def planning(repeats: int, sink: Sink) -> None:
    """Time the default planner, each time on another decision of the size."""
    for n, m in SIZES:
        drawn = [sized(np.random.default_rng([SEED, k, n, m]), n, m) for k in range(repeats)]
        default(drawn[0])
        took_s, planners = [], Counter[str]()
        for problem in drawn:
            began_s = time.perf_counter()
            plan = default(problem)
            took_s.append(time.perf_counter() - began_s)
            planners[plan.planner] += 1
        sink.add("planning", premises=n, verifiers=m, planners=dict(planners), took_us=_us(took_s))


def deciding(decisions: int, sink: Sink) -> None:
    """Time whole decisions of four premises; all claims hold, and each is checked that pays.

    After each, one page is written to the same disk and synced, by which a slow disk is known.
    """
    with (
        tempfile.TemporaryDirectory(prefix="amv-bench-") as folder,
        (Path(folder) / "beside").open("wb", buffering=0) as beside,
    ):
        path = str(Path(folder) / "amv.db")
        settings = amv.Settings(upkeep_interval_s=None)
        with amv.Guard.open(
            path, policy=policy_of(PARTS), embedder=_EMBEDDER, settings=settings
        ) as guard:
            remember(guard.memory, decisions, PARTS)
            for part in PARTS:
                guard.verifier(f"read_{part}")(_reader(part))
            took_s, synced_s, verdicts = [], [], Counter[str]()
            for number in range(decisions):
                action = amv.Action(
                    tool="cancel", arguments={"order_id": number}, namespace=NAMESPACE
                )
                began_s = time.perf_counter()
                decision = guard.decide(action)
                took_s.append(time.perf_counter() - began_s)
                verdicts[decision.verdict] += 1
                began_s = time.perf_counter()
                beside.write(bytes(4096))
                os.fsync(beside.fileno())
                synced_s.append(time.perf_counter() - began_s)
    sink.add(
        "deciding",
        premises=len(PARTS),
        verdicts=dict(verdicts),
        took_us=_us(took_s),
        synced_us=_us(synced_s),
    )


def _reader(part: str) -> Callable[[int], str]:
    def read_part(order_id: int) -> str:
        return f"{part} {order_id}"

    return read_part


def serving_decisions(seconds: float, sink: Sink) -> None:
    """Count decisions of one premise that a gateway makes, each durable before it is answered."""
    part = PARTS[:1]
    with tempfile.TemporaryDirectory(prefix="amv-bench-") as name:
        folder = Path(name)
        db, policy, bodies = folder / "amv.db", folder / "policy.yaml", folder / "bodies"
        policy.write_text(yaml.safe_dump(policy_of(part)), "utf-8")
        settings = amv.Settings(upkeep_interval_s=None)
        with amv.Memory.open(str(db), embedder=_EMBEDDER, settings=settings) as memory:
            remember(memory, ORDERS, part)
        with bodies.open("wb") as file:
            for number in range(ORDERS):
                body = {
                    "tool": "cancel",
                    "arguments": {"order_id": number},
                    "namespace": list(NAMESPACE),
                    "run_checks": False,
                }
                file.write(msgspec.json.encode(body) + b"\n")
        with serving(gateway(db), {"AMV_POLICY": str(policy)}) as server:
            before_s = server.cpu_s()
            done = load(
                server,
                bodies,
                rate=0,
                seconds=seconds,
                connections=CLIENTS,
                path="/v1/guard/decide",
            )
            cpu_s = server.cpu_s() - before_s
    sink.add(
        "serving",
        premises=1,
        clients=CLIENTS,
        seconds=float(done.due_s.max() + done.took_s[-1]),
        cpu_s=cpu_s,
        **done.row(),
    )


def _us(took_s: Sequence[float]) -> list[int]:
    found: list[int] = np.rint(np.asarray(took_s) * 1e6).astype(int).tolist()
    return found


class Figure(NamedTuple):
    """One line of the table; *target* None where nothing is asked."""

    what: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the target is met; where there is none, it is."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


_TARGETS_MS: Mapping[tuple[int, int], float] = {(1, 1): 0.3, (4, 4): 2.0, (8, 8): 30.0}


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Return the lines of the table, by the rows of one run."""
    found: list[Figure] = []
    for row in rows:
        if row["measure"] == "regret":
            found += _regrets(row)
        elif row["measure"] == "planning":
            n, m = row["premises"], row["verifiers"]
            (planner,) = row["planners"]
            what = f"planning, {n}/{m}, {planner}, median"
            found.append(Figure(what, _quantile_ms(row, 0.5), "ms", _TARGETS_MS.get((n, m))))
        elif row["measure"] == "deciding":
            for q, name, target in ((0.5, "median", 5.0), (0.99, "p99", 20.0)):
                what = f"whole decision, {row['premises']} premises, {name}"
                found.append(Figure(what, _quantile_ms(row, q), "ms", target))
                what = f"  one fsync beside these, {name}"
                found.append(Figure(what, float(np.quantile(row["synced_us"], q)) / 1e3, "ms"))
        else:
            rate = row["statuses"].get("200", 0) / row["seconds"]
            what = f"decisions over HTTP, {row['clients']} clients, durable"
            found.append(Figure(what, rate, "/s", 1_000.0, at_least=True))
            found.append(Figure("  p99 of these", _quantile_ms(row, 0.99), "ms"))
    return found


def _regrets(row: Row) -> list[Figure]:
    best = np.asarray(row["best"])
    found = []
    sort = row.get("sort", "usual")
    asked = (1.0, 5.0, 10.0) if sort == "usual" else (None, None, None)
    for planner, targets in (("lookahead", asked), ("myopic", (None, None, None))):
        shares = 100.0 * (np.asarray(row[planner]) - best) / best
        values = (shares.mean(), np.quantile(shares, 0.99), shares.max())
        for name, value, target in zip(("mean", "p99", "worst"), values, targets, strict=True):
            what = f"regret of {planner}, {len(best):,} {sort} decisions, {name}"
            found.append(Figure(what, float(value), "%", target))
    return found


def _quantile_ms(row: Row, q: float) -> float:
    return float(np.quantile(row["took_us"], q)) / 1e3


def table(found: Sequence[Figure]) -> Table:
    """Return figures as a table."""
    table = Table("figure", "measured", "target", "")
    for one in found:
        sign = "≥" if one.at_least else "≤"
        table.add_row(
            one.what,
            f"{one.value:,.3g} {one.unit}" if one.value < 1000 else f"{one.value:,.0f} {one.unit}",
            "" if one.target is None else f"{sign} {one.target:g} {one.unit}",
            "" if one.target is None else "pass" if one.is_met else "[red]FAIL[/red]",
        )
    return table


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table of a run."""
    console.print(table(figures(rows)))


def run(sink: Sink, *, instances: int, repeats: int, decisions: int, seconds: float) -> None:
    """Take every measure."""
    sink = sink.naming(seed=SEED)
    planning(repeats, sink)
    deciding(decisions, sink)
    serving_decisions(seconds, sink)
    for sort in DRAWN:
        regret(instances, sink, sort)


def main(
    instances: Annotated[int, typer.Option(metavar="N", help="Decisions to plan.")] = 2_000,
    repeats: Annotated[int, typer.Option(metavar="N", help="Timed plans of each size.")] = 200,
    decisions: Annotated[int, typer.Option(metavar="N", help="Timed whole decisions.")] = 1_000,
    seconds: Annotated[float, typer.Option(metavar="S", help="How long the load lasts.")] = 10.0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure planners and decisions, and print the table."""
    path = out or machine.RESULTS / f"planners-{now()[:8]}.jsonl"
    run(
        Sink(path=path),
        instances=instances,
        repeats=repeats,
        decisions=decisions,
        seconds=seconds,
    )
    console = Console(width=None if sys.stdout.isatty() else 120)
    show(read(path), console)
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
