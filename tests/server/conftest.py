"""A real gateway on a real socket: in a thread of this process, or in a process of its own."""

import os
import queue
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import amv
from amv.config import ServerSettings
from amv.guard.policy import parse
from amv.memory.item import Namespace
from amv.server import openapi
from amv.server.access import Gatekeeper, Keys, Level, pepper_beside
from amv.server.app import VERSION, Gateway
from amv.server.routes import ROUTES
from amv.server.run import Listener
from amv.testing import FakeClock

SRC = Path(amv.__file__).parents[1]
WAIT_S = 20.0
EMBEDDER = "hashing:64"
POLICY: dict[str, Any] = {
    "version": 1,
    # Sure enough of what it reads that this may be put into a call.
    "verifiers": {
        "order_status": {
            "args": {"order_id": "$order_id"},
            "cost": 0.02,
            "sensitivity": 0.9999,
            "specificity": 0.9999,
        }
    },
    "actions": {
        "cancel_order": {
            "loss": {"wrong": 120, "abstain": 5},
            "rests_on": {
                "status": {
                    "claim": "order/{order_id}/status",
                    "require": "pending",
                    "verify_with": ["order_status"],
                }
            },
        },
        "move_order": {
            "loss": {"wrong": 120, "abstain": 5, "repair": 1},
            "rests_on": {
                "status": {
                    "claim": "order/{order_id}/status",
                    "require": {"argument": "status"},
                    "verify_with": ["order_status"],
                }
            },
        },
        # Nothing can verify it, so that a person is asked.
        "refund": {
            "preset": "payment",
            "rests_on": {"status": {"claim": "order/{order_id}/status", "require": "delivered"}},
        },
        "read_order": {"effect": "read"},
    },
}
_NO_TLS = ssl.create_default_context()

DOCUMENT = openapi.document(ROUTES, VERSION)
_PATHS = {path: re.compile(re.sub(r"{\w+}", "[^/]+", path)) for path in DOCUMENT["paths"]}


def check_documented(reply: httpx.Response) -> None:
    """Fail if a route of the document answers with a status that is not in the document."""
    method, asked = reply.request.method, reply.request.url.raw_path.partition(b"?")[0].decode()
    for path, pattern in _PATHS.items():
        if pattern.fullmatch(asked):
            operations = DOCUMENT["paths"][path]
            # What is said of a method that a path does not have is said with those it has.
            own = operations.get(method.lower())
            for operation in operations.values() if own is None else [own]:
                known = operation["responses"].keys()
                assert str(reply.status_code) in known, f"undocumented: {method} {path} {reply}"


def client_of(url: str, key: str | None = None) -> httpx.Client:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.Client(
        base_url=url,
        headers=headers,
        timeout=WAIT_S,
        trust_env=False,
        # Made once, as making one takes longer than most tests.
        verify=_NO_TLS,
        # So that every reply to any test is compared with the document.
        event_hooks={"response": [check_documented]},
    )


@dataclass
class Running:
    """A gateway that answers, with what stands behind it."""

    url: str
    path: Path
    memory: amv.Memory
    gateway: Gateway
    clock: FakeClock
    guard: amv.Guard
    _clients: dict[str | None, httpx.Client] = field(default_factory=dict)

    @property
    def keys(self) -> Keys:
        return Keys(self.memory.store, lambda: pepper_beside(str(self.path)))

    def key(self, namespace: Namespace = (), level: Level = Level.ADMIN) -> str:
        """Make a key, which the gateway knows of at once."""
        token, _ = self.keys.create(namespace, level, self.clock())
        self.forget_keys()
        return token

    def forget_keys(self) -> None:
        """Have the gateway read its keys anew, as it does by itself once a second."""
        keeper = self.gateway.keeper
        self.gateway.keeper = Gatekeeper(self.memory.store, keeper._pepper)

    def http(self, key: str | None = None) -> httpx.Client:
        """Return a client of HTTP that sends a key."""
        if key not in self._clients:
            self._clients[key] = client_of(self.url, key)
        return self._clients[key]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def running(
    path: Path, server: ServerSettings | None = None, *, policy: object = POLICY
) -> Iterator[Running]:
    """Serve the file *path* from a thread, at a clock that stands still."""
    server = server or ServerSettings(port=0)
    clock = FakeClock()
    settings = amv.Settings(upkeep_interval_s=None, synchronous="NORMAL")
    with amv.Memory.open(str(path), embedder=EMBEDDER, settings=settings, clock=clock) as memory:
        keeper = Gatekeeper(memory.store, lambda: pepper_beside(str(path)))
        guard = amv.Guard(parse(policy or POLICY), memory, clock=clock)
        gateway = Gateway(memory, keeper, server, guard if policy else None)
        said: queue.Queue[str] = queue.Queue()
        listener = Listener(gateway, server, said.put)
        thread = threading.Thread(target=listener.listen, name="gateway")
        thread.start()
        try:
            found = Running(said.get(timeout=WAIT_S), path, memory, gateway, clock, guard)
            yield found
            found.close()
        finally:
            listener.should_exit = True
            thread.join()
            gateway.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Running]:
    """A gateway without keys, over an empty memory."""
    with running(tmp_path / "served.db") as found:
        yield found


@pytest.fixture
def http(served: Running) -> httpx.Client:
    return served.http()


@pytest.fixture(scope="module")
def module_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway that the tests of a module share."""
    with running(tmp_path_factory.mktemp("module") / "served.db") as found:
        yield found


# ---------------------------------------------------------------- a process of its own


class Process:
    """`amv serve` as a user runs it; by another *program*, or *under* one, if given."""

    def __init__(
        self,
        path: Path,
        *arguments: str,
        environ: dict[str, str] | None = None,
        program: Sequence[str] = ("-m", "amv"),
        under: Sequence[str] = (),
    ) -> None:
        self.path = path
        command = [*under, sys.executable, *program, "--db", str(path), "serve", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, *arguments],
            env={
                **os.environ,
                "PYTHONPATH": str(SRC),
                "AMV_EMBEDDER": EMBEDDER,
                "OPENBLAS_NUM_THREADS": "1",
                **(environ or {}),
            },
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.said: list[str] = []
        self.url = ""
        assert self._process.stderr is not None
        for line in iter(self._process.stderr.readline, b""):
            self.said.append(line.decode())
            if found := re.search(r"at (http://\S+)", self.said[-1]):
                self.url = found[1]
                break

    def http(self) -> httpx.Client:
        return client_of(self.url)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        _, rest = self._process.communicate(timeout=WAIT_S)
        self.said += rest.decode().splitlines(keepends=True)
        return self._process.returncode

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=WAIT_S)


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers, by default of a file in an empty folder; none outlives the test."""
    started: list[Process] = []

    def begin(*arguments: str, path: Path | None = None, **how: Any) -> Process:
        started.append(Process(path or tmp_path / "served.db", *arguments, **how))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
