"""Injecting faults with strace, and judging what they left behind."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import amv
from tests.faults.child import reach
from tests.faults.workloads import (
    START_S,
    WORKLOADS,
    Delta,
    Workload,
    World,
    adds,
    changed,
    opened,
    world_of,
)

ROOT = Path(__file__).parents[2]
SOURCES = Path(amv.__file__).parents[1]

PATIENCE_S = 60.0
"""How long a child may say nothing before it counts as hanging."""

FOUND_MAX = 24
"""Of many changed items, so many are searched for."""

_ALIASES = {"unlink": ("unlink", "unlinkat")}
_NAMES = {"unlinkat": "unlink"}
"""Calls that have another name on some machines, and are made by whichever there is."""


@cache
def why_not() -> str:
    """Return why strace can't inject faults here; empty if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=fsync:signal=KILL", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"strace may not trace: {tried.stderr.strip()}"


def needs_strace(promise: str) -> pytest.MarkDecorator:
    """Skip where no fault can be injected, naming the promise that stays untested."""
    reason = why_not()
    return pytest.mark.skipif(bool(reason), reason=f"{reason}; not tested: {promise}")


def environment() -> dict[str, str]:
    """Return what a child needs to import the package and these tests."""
    path = os.pathsep.join([str(ROOT), str(SOURCES)])
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


@dataclass(slots=True)
class Run:
    """What one child said before it ended."""

    said: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int = 0
    trail: list[tuple[int, str]] = field(default_factory=list)
    """Every call it made, after the thread that made it, those that only take aim included."""
    injected: int = 0
    """How many of them were made to fail."""

    @property
    def calls(self) -> Counter[str]:
        """How many calls of each sort it made."""
        return Counter(call for _, call in self.trail)

    @property
    def was_killed(self) -> bool:
        return self.exit_code == -9

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Errors of AMV that the child met."""
        return [line for line in self.said if "failed" in line]

    @property
    def crash(self) -> str:
        """The traceback of anything else."""
        return next((str(line["crash"]) for line in self.said if "crash" in line), "")


def possible_worlds(before: World, said: Iterable[dict[str, Any]]) -> list[World]:
    """Return the states that a file may be in, given what was announced and acknowledged."""
    acknowledged = before
    under_way: dict[int, Sequence[Delta]] = {}
    for line in said:
        if "begin" in line:
            under_way[line["who"]] = line["begin"]
        for part in under_way.pop(line["who"], ()) if "done" in line else ():
            acknowledged = changed(acknowledged, part)
    worlds = []
    for counts in product(*(range(len(parts) + 1) for parts in under_way.values())):
        world = acknowledged
        for count, parts in zip(counts, under_way.values(), strict=True):
            for part in parts[:count]:
                world = changed(world, part)
        worlds.append(world)
    return worlds


class Child:
    """A process under strace that runs workloads, in forks that meet one fault each."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log
        self._unread = b""

    def run(self, workload: str, path: Path, call: str = "", nth: int = 0, **how: Any) -> Run:
        """Run a workload whose *nth* call of a sort meets the fault; 0: none does."""
        job = {"workload": workload, "path": str(path), "call": call, "nth": nth, **how}
        return self.do(job, lambda line: None)

    def do(self, job: dict[str, Any], hear: Callable[[dict[str, Any]], object]) -> Run:
        """Run a job, and have *hear* called with each line it says."""
        call, nth = job["call"], job["nth"]
        assert nth <= reach(call), f"more than {reach(call)} calls of {call}: {job}"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        run, start = Run(), self._log.stat().st_size if self._log.exists() else 0
        while "end" not in (line := json.loads(self._line())):
            run.said.append(line)
            hear(line)
        run.exit_code = line["end"]
        self._read_log(run, start)
        return run

    def _read_log(self, run: Run, start: int) -> None:
        with self._log.open("rb") as log:
            log.seek(start)
            for line in log.read().decode("utf-8", errors="replace").splitlines():
                thread, _, rest = line.partition(" ")
                name, bracket, _ = rest.lstrip().partition("(")
                if bracket and name.isalnum():
                    run.trail.append((int(thread), _NAMES.get(name, name)))
                run.injected += line.endswith("(INJECTED)")

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
            assert ready, f"the child has said nothing for {PATIENCE_S} s"
            data = os.read(descriptor, 1 << 16)
            assert data, "the process that serves jobs has died"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line


@contextmanager
def injecting(
    fault: str,
    calls: Sequence[str],
    folder: Path,
    *,
    lasting: bool = False,
    module: str = "tests.faults.child",
) -> Iterator[Child]:
    """Start a child in which *fault*, as strace names it, strikes one of *calls*.

    A *lasting* one strikes all calls of that sort from then on.  *module* is what it runs.
    """
    log = folder / "strace.log"
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", "signal=none"]
    names = {name: call for call in calls for name in _ALIASES.get(call, (call,))}
    command += ["-e", "trace=" + ",".join(f"?{name}" for name in names)]
    for name, call in names.items():
        when = f"{reach(call)}+" if lasting else f"{reach(call)}"
        command += ["-e", f"inject=?{name}:{fault}:when={when}"]
    command += [sys.executable, "-m", module]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield Child(process, log)
        finally:
            assert process.stdin is not None
            # Without jobs the child ends, and strace with it.
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)


# ---------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class Scene:
    """A prepared file, from which any number of runs start, and what is in it."""

    name: str
    folder: Path
    world: World

    @property
    def workload(self) -> Workload:
        return WORKLOADS[self.name]

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """Lend a copy of the file, in a folder of its own."""
        folder = self.folder.with_name(f"{self.folder.name}-copy")
        shutil.copytree(self.folder, folder)
        try:
            yield folder / "amv.db"
        finally:
            shutil.rmtree(folder)


def prepared(name: str, folder: Path) -> Scene:
    """Make, in a new folder, the file that a workload starts from."""
    workload, path = WORKLOADS[name], folder / "amv.db"
    folder.mkdir()
    if workload.prepare is None:
        return Scene(name, folder, {})
    with opened(path, workload, at_s=START_S) as memory:
        workload.prepare(memory, folder)
    with opened(path, workload) as memory:
        return Scene(name, folder, world_of(memory))


def problems(
    scene: Scene, said: Iterable[dict[str, Any]], path: Path, *, counts_are_exact: bool = True
) -> list[str]:
    """Return what is wrong with a file, told from what was announced and acknowledged.

    Where counts are not exact, a part of the events under way may be counted.
    """
    worlds = possible_worlds(scene.world, said)
    try:
        wrong = list(scene.workload.check_bytes(worlds, path.parent))
        return wrong + list(_problems(scene, worlds, path, counts_are_exact))
    except amv.AmvError as error:
        return [f"{type(error).__name__}: {error}"]


def _problems(
    scene: Scene, worlds: list[World], path: Path, counts_are_exact: bool
) -> Iterator[str]:
    with opened(path, scene.workload) as memory:
        # What was logged of a flush that was cut off belongs to its outcome.
        memory.flush()
        world = seen = world_of(memory)
        if not counts_are_exact:
            world = _rounded(world, worlds)
        if world not in worlds:
            yield from _differences(world, worlds)
        yield from memory.check()
        yield from _misfound(memory, scene.world, seen)
        yield from scene.workload.check(memory, path.parent)
    with opened(path, scene.workload) as memory:
        adds("afterwards").run(memory)
        yield from memory.check()
    with opened(path, scene.workload) as memory:
        added = world_of(memory)
        if "afterwards" not in added:
            yield "an item added after the file was opened again is not there"
        yield from _misfound(memory, {}, {"afterwards": added["afterwards"]})


def _rounded(world: World, worlds: list[World]) -> World:
    """Return *world* with counts that lie between those of two worlds taken for the lower."""
    rounded = dict(world)
    for item_id, fact in world.items():
        counts = sorted(w[item_id].contributed for w in worlds if item_id in w)
        if counts and counts[0] <= fact.contributed <= counts[-1]:
            rounded[item_id] = fact._replace(contributed=counts[0])
    return rounded


def _differences(world: World, worlds: list[World]) -> Iterator[str]:
    yield f"the items together are in none of {len(worlds)} states they may be in"
    for item_id in sorted(world.keys() | worlds[0].keys()):
        allowed = {other.get(item_id) for other in worlds}
        if world.get(item_id) not in allowed:
            yield f"{item_id} is {world.get(item_id)}, which should be one of {allowed}"


def _misfound(memory: amv.Memory, before: World, now: World) -> Iterator[str]:
    """Yield which of the items that changed are not found, or found though they should not."""
    new = [item_id for item_id, fact in now.items() if before.get(item_id) != fact]
    for item_id in new[:: max(1, len(new) // FOUND_MAX)]:
        fact = now[item_id]
        word = fact.content.split()[0]
        hits = memory.search(word, namespace=tuple(fact.namespace.split("/")), k=3).hits
        is_found = item_id in [hit.item.id for hit in hits]
        if is_found != (fact.status == "live"):
            yield f"{item_id}, which is {fact.status}, was found by {word!r}: {is_found}"
    for item_id in before.keys() - now.keys():
        fact = before[item_id]
        hits = memory.search(fact.content, namespace=tuple(fact.namespace.split("/")), k=3).hits
        if item_id in [hit.item.id for hit in hits]:
            yield f"{item_id} was forgotten and is found"


def spread(count: int, most: int) -> list[int]:
    """Return up to *most* of the numbers 1 to *count*, evenly spread, both ends among them.

    >>> spread(3, 5), spread(100, 4)
    ([1, 2, 3], [1, 34, 67, 100])
    """
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})
