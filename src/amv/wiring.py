"""Wiring: settings become a running memory here, and nowhere else."""

import gc
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from amv import embedders
from amv.checks import shown
from amv.closing import Closing
from amv.config import Settings
from amv.embedders.absent import Absent
from amv.errors import AmvError, ConfigError, InvalidInput, StoreUnavailable
from amv.memory.intake import Intake, Request
from amv.memory.item import ID_ALPHABET, Item, check_text
from amv.memory.lookup import (
    EMBEDDER_META,
    check_methods,
    check_opening,
    embedder_mark,
    marked,
)
from amv.memory.ports import Embedder, Store, Writer
from amv.memory.reembed import Progress
from amv.memory.reembed import reembed as reembedding
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from amv.stores.sqlite import SqliteStore

IN_PROCESS = ":memory:"
PATH_BYTES_MAX = 4096
UPKEEP_SHARE = 0.05
"""How much of the time upkeep may take, as far as it need not wait longer than UPKEEP_LONGEST_S."""

UPKEEP_LONGEST_S = 60.0
COLLECTED_BELOW = 256
"""Batches of fewer items are too short for the collector to be noticed."""

_log = logging.getLogger("amv")


class Memory(MemoryService, Closing):
    """A memory in one file, or in this process only.

    Use it as a context manager, or call `close`.
    """

    _upkeep: "Upkeep | None" = None
    _made: Embedder | None = None

    @classmethod
    def open(
        cls,
        path: str = IN_PROCESS,
        *,
        embedder: str | Embedder | None = None,
        settings: Settings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Open the memory in the file *path*, which is created if absent.

        ":memory:" keeps it in this process only.  *embedder* is "minilm",
        "static", "hashing", "remote:MODEL" (asked at the endpoint `settings.remote`) or
        an object with `id`, `dimension`, `embed` and `passages` (see `Embedder`);
        None stands for the one the file was made with, and for minilm in a new
        one.  *clock* returns unix seconds.

        Raises EmbedderError if a remote embedder has to be asked what its
        dimension is and can't be, DimensionMismatch if the file holds another embedder's vectors,
        SchemaMismatch if it is no AMV database or a newer one's,
        StoreUnavailable if it can't be opened.
        """
        _check_opening(path, settings, clock)
        settings = settings or Settings()
        chosen = embedder if embedder is not None else settings.embedder
        # An unknown name is refused before a file is made for it.
        is_name = isinstance(chosen, str)
        model = embedders.load(chosen, settings.remote) if isinstance(chosen, str) else chosen
        if model is not None and not os.path.exists(path):
            embedder_mark(model)
            check_methods(model)
        store = open_store(path, settings)
        try:
            is_made = model is None or is_name
            model = own_embedder(store, settings) if model is None else model
            adopt_embedder(store, model)
        except BaseException:
            store.close()
            raise
        clock = clock or time.time
        memory = cls(store, model, settings.memory, clock=clock, new_id=new_id, warn=_warn)
        memory._made = model if is_made else None
        is_read_only = isinstance(store, SqliteStore) and store.is_read_only
        if settings.upkeep_interval_s is not None and not is_read_only:
            memory._upkeep = Upkeep(memory, settings.upkeep_interval_s)
        return memory

    def _add_chunk(self, requests: Sequence[Request]) -> list[Item]:
        with uncollected(len(requests)):
            return super()._add_chunk(requests)

    def close(self) -> None:
        """Stop upkeep, fold what is logged and release the store; may be called twice."""
        if self._upkeep is not None:
            self._upkeep.stop()
            self._upkeep = None
        try:
            super().close()
        finally:
            _let_go(self._made)


def _let_go(embedder: object) -> None:
    """Close an embedder that nobody else has, if it has anything to close."""
    if isinstance(embedder, Closing):
        embedder.close()


def open_to_look_after(path: str, settings: Settings) -> Memory:
    """Open the memory in the file *path* without its embedder.

    So whoever has not the object that embeds can check, count, sweep and export it;
    what embeds raises EmbedderError.
    """
    store = open_store(path, settings)
    try:
        model = embedder_stand_in(store)
    except BaseException:
        store.close()
        raise
    return Memory(store, model, settings.memory, clock=time.time, new_id=new_id, warn=_warn)


def check_add(fields: Mapping[str, object], settings: Settings) -> None:
    """Raise what `Memory.add` would raise of these fields, before a file is made for them."""
    Intake(Absent("", 1), settings.memory, new_id).check(fields, time.time())


def _warn(what: str, error: AmvError) -> None:
    _log.warning("%s: %s", what, error)


@contextmanager
def uncollected(count: int) -> Iterator[None]:
    """Keep Python's collector of cycles from running while *count* items are added.

    A batch of thousands makes tens of thousands of objects that all live until
    it is written, and no cycle.  The collector would go through them, and all
    others there are, several times: a fifteenth of the time such a batch takes.
    """
    if count < COLLECTED_BELOW or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Upkeep:
    """A thread that folds value events and sweeps, until it is stopped.

    It holds no reference that would keep a memory nobody uses any more alive.
    """

    def __init__(self, memory: MemoryService, interval_s: float) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=_keep_up,
            args=(weakref.ref(memory), self._stopped, interval_s),
            name="amv-upkeep",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Let the round under way finish, then stop."""
        self._stopped.set()
        self._thread.join()


def _keep_up(
    memory: "weakref.ref[MemoryService]", stopped: threading.Event, interval_s: float
) -> None:
    wait_s = interval_s
    while not stopped.wait(wait_s):
        alive = memory()
        if alive is None:
            return
        began_s = time.monotonic()
        try:
            alive.maintain()
        except AmvError:
            # The events stay in the log; the next round tries again.
            _log.warning("upkeep failed and will be tried again", exc_info=True)
        wait_s = rest_s(interval_s, time.monotonic() - began_s)
        del alive


def rest_s(interval_s: float, took_s: float) -> float:
    """Return how long upkeep waits after a round that took some seconds.

    Longer after a long one: where many items are used, most are used again
    soon, and all that happened to one until the next round is written at once.

    >>> rest_s(5.0, 0.1), rest_s(5.0, 1.0), rest_s(5.0, 100.0)
    (5.0, 19.0, 60.0)
    """
    rest = took_s * (1.0 - UPKEEP_SHARE) / UPKEEP_SHARE
    return max(interval_s, min(UPKEEP_LONGEST_S, round(rest, 3)))


def _check_opening(path: object, settings: object, clock: object) -> None:
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput(f"need the path of a file, or {IN_PROCESS!r}, got {shown(path)}")
    check_text(os.fspath(path), "the path of a file", PATH_BYTES_MAX)
    if not isinstance(settings, Settings | None):
        raise InvalidInput(f"settings must be an amv.Settings or None, got {shown(settings)}")
    if clock is not None and not callable(clock):
        raise InvalidInput(f"clock must be a function without arguments, got {shown(clock)}")


def open_store(path: str, settings: Settings) -> Store:
    """Return the store behind *path*."""
    if path == IN_PROCESS:
        return MemoryStore()
    try:
        return SqliteStore.open(path, synchronous=settings.synchronous)
    except OSError as error:
        raise StoreUnavailable(f"can't open {shown(path)}: {error.strerror}") from error


def reembed(path: str, settings: Settings, to: str, progress: Progress) -> int:
    """Give every item of the file *path* vectors of the embedder called *to*.

    Can be stopped and run again; searches with the old embedder go on until
    the new vectors take over.  Returns how many items were embedded.
    """
    if not os.path.exists(path):
        raise ConfigError(f"there is no database {path!r} to give new vectors to")
    store = open_store(path, settings)
    try:
        with store.read() as reader:
            if reader.meta(EMBEDDER_META) is None:
                raise ConfigError(f"{path!r} holds no vectors yet; open it with embedder {to!r}")
        model = embedders.load(to, settings.remote)
        try:
            _tell_dimension(store, model)
            return reembedding(store, model, settings.memory, time.time(), progress)
        finally:
            _let_go(model)
    finally:
        store.close()


def own_embedder(store: Store, settings: Settings) -> Embedder:
    """Return the embedder whose vectors a store holds; the default one if it holds none yet."""
    mark = _mark_of(store)
    if mark is None:
        return embedders.load("minilm")
    known = marked(mark)
    name = known and embedders.name_of(known[0])
    if name is None:
        raise ConfigError(
            f"this store holds vectors of embedder {mark}, which is none of AMV's own; "
            "pass that embedder's object to Memory.open"
        )
    return embedders.load(name, settings.remote)


def embedder_stand_in(store: Store) -> Embedder:
    """Return what has the name and dimension of a store's embedder, and embeds nothing."""
    mark = _mark_of(store)
    if mark is None:
        return embedders.load("minilm")
    # Of a damaged mark, reading any vector says that they are of another dimension.
    return Absent(*(marked(mark) or (mark, 1)))


def _mark_of(store: Store) -> str | None:
    with store.read() as reader:
        return reader.meta(EMBEDDER_META)


def adopt_embedder(store: Store, embedder: Embedder) -> None:
    """Write down whose vectors a new store will hold; raise if it holds another's."""
    _tell_dimension(store, embedder)
    # One that has to be asked for its dimension is asked here, in no transaction.
    embedder_mark(embedder)
    with store.read() as reader:
        check_opening(reader, embedder)
        known = reader.meta(EMBEDDER_META) is not None
    if not known:
        mark = embedder_mark(embedder)

        def work(tx: Writer) -> None:
            check_opening(tx, embedder)
            tx.set_meta(EMBEDDER_META, mark)

        store.write(work)


def _tell_dimension(store: Store, embedder: Embedder) -> None:
    """Have a remote embedder hold to the dimension that a store has of it, and not ask."""
    known = marked(_mark_of(store) or "")
    if known is None or not known[0].startswith(embedders.REMOTE):
        return
    from amv.embedders.remote import RemoteEmbedder

    if isinstance(embedder, RemoteEmbedder) and embedder.id == known[0]:
        embedder.expect(known[1])


_PAIRS = [first + second for first in ID_ALPHABET for second in ID_ALPHABET]
"""What ten bits of an id are written as."""


def new_id() -> str:
    """Return a fresh item id of 20 characters; ids sort by the millisecond they were made in."""
    number = (time.time_ns() // 1_000_000 << 55) | secrets.randbits(55)
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(90, -1, -10)])
