"""A memory in another process, told what to do line by line; run as a module.

The parent's half is `Remote`: it sends calls and takes their answers, together
or apart, so that several processes can work at once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import amv

ROOT = Path(__file__).parents[2]
SOURCES = Path(amv.__file__).parents[1]

SMALL_CELLS = amv.CellSettings(from_vectors=48, drain_at=12, target=4, split_above=8)
"""So that few items already are put into cells, and cells are split."""


def text_of(item_id: str) -> str:
    """Return a content with a word, the id itself, that no other content has."""
    return f"{item_id} went to market with {item_id[::-1]} and came home"


def opened(path: Path | str) -> amv.Memory:
    """Open a memory as every process here does: with small cells, and nothing in the background."""
    memory = amv.MemorySettings(cells=SMALL_CELLS, hot_max=64, probation_max=16)
    settings = amv.Settings(upkeep_interval_s=None, memory=memory)
    return amv.Memory.open(str(path), embedder="hashing", settings=settings)


def scored(memory: amv.Memory, query: str, ns: str, k: int) -> list[list[Any]]:
    """Return id, content and similarity of what a search finds, cold cells included."""
    hits = memory.search(query, namespace=(ns,), k=k, cold=True).hits
    return [[hit.item.id, hit.item.content, round(hit.similarity, 3)] for hit in hits]


# ---------------------------------------------------------------- the other process


class Server:
    """What another process can be asked for; each answer can be written as JSON."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._memory: amv.Memory | None = None

    @property
    def memory(self) -> amv.Memory:
        if self._memory is None:
            self._memory = opened(self._path)
        return self._memory

    def open(self) -> None:
        _ = self.memory

    def add_and_close(self, path: str, item_id: str) -> None:
        """Do all of it with another file."""
        with opened(path) as memory:
            memory.add(text_of(item_id), namespace=("alice",), id=item_id)

    def add(self, item_id: str, ns: str, **fields: Any) -> str:
        if "claim" in fields:
            fields["claim"] = amv.Claim(*fields["claim"])
        fields.setdefault("content", text_of(item_id))
        return self.memory.add(namespace=(ns,), id=item_id, **fields).id

    def add_each(self, item_ids: list[str], ns: str) -> None:
        for item_id in item_ids:
            self.add(item_id, ns)

    def add_together(self, item_ids: list[str], ns: str) -> None:
        self.memory.add_many(
            {"content": text_of(item_id), "namespace": (ns,), "id": item_id} for item_id in item_ids
        )

    def claim_each(self, values: list[str], ns: str) -> None:
        for value in values:
            self.add(value, ns, claim=("alice", "city", value))

    def add_texts(self, texts: dict[str, str], ns: str) -> None:
        self.memory.add_many(
            {"content": text, "namespace": (ns,), "id": item_id} for item_id, text in texts.items()
        )

    def update(self, item_id: str, content: str) -> None:
        self.memory.update(item_id, content=content)

    def forget(self, item_id: str) -> bool:
        return self.memory.forget(item_id).erased

    def forget_each(self, item_ids: list[str], pause_s: float) -> dict[str, float]:
        """Forget one after the other; return when each call had returned."""
        returned = {}
        for item_id in item_ids:
            self.memory.forget(item_id)
            returned[item_id] = time.monotonic()
            time.sleep(pause_s)
        return returned

    def forget_namespace(self, ns: str) -> int:
        return self.memory.forget_namespace((ns,)).count

    def pin(self, item_id: str, pinned: bool) -> None:
        self.memory.pin(item_id, pinned)

    def search(self, query: str, ns: str, **how: Any) -> list[str]:
        hits = self.memory.search(query, namespace=(ns,), **how).hits
        return [f"{hit.item.id}: {hit.item.content}" for hit in hits]

    def scored(self, query: str, ns: str, k: int) -> list[list[Any]]:
        return scored(self.memory, query, ns, k)

    def watch(self, wanted: list[str], ns: str, for_s: float) -> list[tuple[float, str, list[str]]]:
        """Search for one item after the other; return when each began, for what, what it found.

        It goes on for *for_s*, and until each was searched for once.
        """
        seen: list[tuple[float, str, list[str]]] = []
        until_s = time.monotonic() + for_s
        while (now_s := time.monotonic()) < until_s or len(seen) < len(wanted):
            item_id = wanted[len(seen) % len(wanted)]
            hits = self.memory.search(text_of(item_id), namespace=(ns,), k=3).hits
            seen.append((now_s, item_id, [hit.item.id for hit in hits]))
        return seen

    def reinforce(self, item_ids: list[str], times: int, flush_every: int = 0) -> None:
        for number in range(1, times + 1):
            self.memory.reinforce(item_ids)
            if flush_every and number % flush_every == 0:
                self.memory.flush()

    def flush(self) -> int:
        return self.memory.flush()

    def sweep(self) -> int:
        return len(self.memory.sweep().moves)

    def close(self) -> None:
        self.memory.close()


def serve() -> None:
    """Answer every line of the input with one of the output."""
    server = Server(sys.argv[1])
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"answer": getattr(server, call["name"])(*call["args"], **call["how"])}
        except amv.AmvError as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


# ---------------------------------------------------------------- this process


class RemoteError(Exception):
    """The other process raised an error of AMV."""


class Remote:
    """Another process that has the file at *path* open; it starts with the first call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def _process(self) -> "subprocess.Popen[bytes]":
        if self._started is None:
            sources = os.pathsep.join([str(ROOT), str(SOURCES)])
            self._started = subprocess.Popen(
                [sys.executable, "-m", "tests.acceptance.remote", str(self._path)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": sources, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._started

    def begin(self, name: str, *args: object, **how: object) -> Callable[[], Any]:
        """Start a call; return what waits for its answer."""
        assert self._process.stdin is not None
        call = {"name": name, "args": args, "how": how}
        self._process.stdin.write(json.dumps(call).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the other process has died"
        answer = json.loads(line)
        if "error" in answer:
            raise RemoteError(answer["error"])
        return answer["answer"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a call that waits for its answer."""
        return lambda *args, **how: self.begin(name, *args, **how)()

    def kill(self) -> None:
        """End the process as a crash or `kill -9` would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._started is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


if __name__ == "__main__":
    serve()
