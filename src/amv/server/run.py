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
from amv.server.access import Gatekeeper, pepper_beside
from amv.server.app import Gateway
from amv.wiring import Memory

GRACE_S = 20
"""How long requests under way may take once the server was told to stop."""

SWITCH_S = 0.0005
"""For how long a thread may keep the interpreter while others wait for it.

A search lets go of it about ten times, in SQLite and numpy.  While events are
folded it would wait each time, by Python's own setting for 5 ms.
"""

GC_THRESHOLDS = (50_000, 20, 20)
"""How many objects are made between two looks for unreachable cycles, by generation.

Nearly nothing here is part of a cycle, while a look at what is cached, of many
namespaces, takes a good part of a second; by Python's own setting there would
be one every few thousand searches.
"""


def serve(
    settings: Settings, server: ServerSettings, ready: Callable[[str], None] = lambda address: None
) -> None:
    """Serve the memory that *settings* name until the process is told to stop.

    *ready* is called with the address once requests are answered.

    Raises ConfigError if the address is not a loopback one and no key was made,
    or can't be bound.
    """
    with Memory.open(settings.db, settings=settings) as memory:
        keeper = Gatekeeper(memory.store, lambda: pepper_beside(settings.db))
        check_bind(server, has_keys=keeper.has_keys())
        gateway = Gateway(memory, keeper, server)
        try:
            with process_tuned():
                Listener(gateway, server, ready).listen()
        finally:
            gateway.close()


@contextmanager
def process_tuned() -> Iterator[None]:
    """Have the interpreter serve many short requests rather than one long program."""
    switch_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        sys.setswitchinterval(switch_s)
        gc.set_threshold(*thresholds)


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
            gateway,
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
