"""Running the gateway: a socket, uvicorn, and an end that loses nothing."""

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from amv.config import ServerSettings, Settings
from amv.errors import ConfigError
from amv.gate import Guard
from amv.loading import load_calibration, load_policy
from amv.server.access import Gatekeeper, pepper_beside
from amv.server.app import Gateway
from amv.server.tracing import traced
from amv.wiring import Memory

GRACE_S = 20
"""How long requests under way may take once the server was told to stop."""

COLLECT_AFTER = (5_000, 4, 50)
"""After how many new objects the youngest are gone through; how often until those before are."""

TURN_S = 0.0001
"""How long a thread keeps its turn while others wait for theirs."""


def serve(
    settings: Settings,
    server: ServerSettings,
    ready: Callable[[str], None] = lambda address: None,
    policy: str | None = None,
    calibration: str | None = None,
) -> None:
    """Serve the memory that *settings* name until the process is told to stop.

    *policy* is the file of the gate's policy; without one there is no gate.
    *calibration* is what `amv guard calibrate` has written.
    *ready* is called with the address once requests are answered.

    Raises ConfigError if the address is not a loopback one and no key was made,
    or can't be bound.
    """
    with Memory.open(settings.db, settings=settings) as memory:
        keeper = Gatekeeper(memory.store, lambda: pepper_beside(settings.db))
        check_bind(server, has_keys=keeper.has_keys())
        guard = None
        if policy is not None:
            learned = load_calibration(calibration)
            guard = Guard(load_policy(policy), memory, calibration=learned)
        gateway = Gateway(memory, keeper, server, guard)
        try:
            with short_pauses():
                Listener(gateway, server, ready).listen()
        finally:
            gateway.close()


@contextmanager
def short_pauses() -> Iterator[None]:
    """Keep short the moments in which no thread runs but one.

    Python's collector stops all while it goes through the objects there are.
    A bulk add makes so many that by default this happens several times while
    it runs, and finds nothing.  So what was made before is not gone through any
    more, and what is new less often and in small portions.

    And whichever thread has a turn keeps it for 5 ms by default; the event loop,
    which needs several turns for one reply, would wait that long for each.
    """
    collect_after, turn_s = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(turn_s)
        gc.set_threshold(*collect_after)
        gc.unfreeze()


def check_bind(server: ServerSettings, *, has_keys: bool) -> None:
    """Raise ConfigError if anyone could reach the memory without a key."""
    if not server.is_loopback and not has_keys:
        raise ConfigError(
            f"{server.host} can be reached from elsewhere, and no key was made yet: anyone could "
            "read and change this memory; make one with `amv keys create`, or serve on 127.0.0.1"
        )


class Listener(uvicorn.Server):
    """A gateway at its address: uvicorn, telling when it answers, and what kept it from that."""

    def __init__(
        self, gateway: Gateway, server: ServerSettings, ready: Callable[[str], None]
    ) -> None:
        config = uvicorn.Config(
            traced(gateway),
            host=server.host,
            port=server.port,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=2048,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._ready = ready

    def listen(self) -> None:
        """Answer requests until told to stop, and those under way then; raises ConfigError."""
        try:
            self.run()
        except SystemExit as error:
            where = f"{self.config.host}, port {self.config.port}"
            raise ConfigError(f"can't listen on {where}") from error

    async def startup(self, sockets: object = None) -> None:
        """Begin to listen, and say where."""
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM, and leave it at that.

        Uvicorn would send itself the signal again afterwards, which would end
        the process before the memory is closed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
