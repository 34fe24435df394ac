"""Opening, closing, and what runs by itself in between."""

import gc
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amv
from amv import wiring
from amv.embedders.hashing import Hashing
from amv.embedders.minilm import MiniLM
from amv.errors import (
    AmvError,
    ConfigError,
    Conflict,
    DimensionMismatch,
    EmbedderError,
    InvalidInput,
    SchemaMismatch,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from amv.memory.checked import Checked
from amv.memory.lookup import EMBEDDER_META
from amv.memory.ports import Embedder, Floats
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from amv.stores.sqlite import SqliteStore
from amv.testing import FakeClock
from amv.wiring import (
    COLLECTED_BELOW,
    Memory,
    adopt_embedder,
    new_id,
    open_store,
    reembed,
    uncollected,
)

NS = ("alice",)
QUIET = amv.Settings(upkeep_interval_s=None, synchronous="NORMAL")
BUSY = replace(QUIET, upkeep_interval_s=0.001)

DAY_S = 86_400.0
PATIENCE_S = 60.0
"""How long something may take that takes milliseconds; only a failing test waits so long."""


class Renamed(Hashing):
    """Another embedder of the same dimension."""

    @property
    def id(self) -> str:
        return f"renamed-{self.dimension}"


class Returning(Hashing):
    """An embedder that returns whatever it is told to, or raises it."""

    def __init__(self, answer: Any) -> None:
        super().__init__(dimension=8)
        self.answer = answer

    def embed(self, texts: Sequence[str]) -> Floats:
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Floats = self.answer
        return answer


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture(params=["file", "process"])
def memory(request: pytest.FixtureRequest, path: str) -> Iterator[Memory]:
    """Give an open memory, in a file and in this process."""
    where = path if request.param == "file" else ":memory:"
    with Memory.open(where, embedder="hashing", settings=QUIET) as opened:
        yield opened


# ---------------------------------------------------------------- opening


def test_without_a_path_it_is_kept_in_this_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Memory.open(embedder="hashing", settings=QUIET) as memory:
        memory.add("x", namespace=NS)

    assert list(tmp_path.iterdir()) == []


def test_a_file_keeps_what_was_added(path: str) -> None:
    with Memory.open(path, embedder="hashing", settings=QUIET) as memory:
        item = memory.add("x", namespace=NS)

    with Memory.open(path, settings=QUIET) as memory:
        assert memory.get(item.id).content == "x"


@pytest.mark.parametrize("name", ["", "bert", "hashing:", "hashing:4", "hashing:x", "HASHING"])
def test_an_unknown_embedder_is_refused_before_a_file_is_made(path: str, name: str) -> None:
    """A typing error must not leave a file behind that the next try takes for a memory."""
    with pytest.raises(InvalidInput, match="need a"):
        Memory.open(path, embedder=name, settings=QUIET)

    assert not Path(path).exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """It may be a typing error, so no folder is made for it."""
    with pytest.raises(ConfigError, match=r"no/such"):
        Memory.open(str(tmp_path / "no" / "such" / "a.db"), embedder="hashing", settings=QUIET)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(AmvError, match=tmp_path.name):
        Memory.open(str(tmp_path), embedder="hashing", settings=QUIET)

    assert list(tmp_path.iterdir()) == []


def test_a_file_of_something_else_is_left_alone(path: str) -> None:
    Path(path).write_text("dear diary")

    with pytest.raises(SchemaMismatch, match=r"agent\.db"):
        Memory.open(path, embedder="hashing", settings=QUIET)

    assert Path(path).read_text() == "dear diary"


def test_an_embedder_can_be_an_object(path: str) -> None:
    """What a file holds is known by the object's id, so no name is needed for it."""
    with Memory.open(path, embedder=Renamed(dimension=16), settings=QUIET) as memory:
        memory.add("one two", namespace=NS)
        assert memory.stats().embedder == "renamed-16"
        assert memory.search("one two", namespace=NS).hits[0].similarity > 0.99


def test_a_name_too_long_for_a_file_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="too long") as caught:
        Memory.open(str(tmp_path / ("x" * 300)), settings=QUIET)

    assert isinstance(caught.value.__cause__, OSError)


class Named:
    """Has what is looked at first, and nothing that embeds."""

    id, dimension = "named", 4


class NoPassages(Named):
    def embed(self, texts: Sequence[str]) -> Any:
        return np.ones((len(texts), 4), np.float32) / 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": None}, "need the path of a file, or ':memory:', got None"),
        ({"path": 5}, "need the path of a file"),
        ({"path": ""}, "the path of a file must hold more than white space"),
        ({"path": b"agent.db"}, "need the path of a file"),
        ({"path": "a\0b"}, "the path of a file must not hold a NUL"),
        ({"path": "\ud800"}, "the path of a file must be well-formed"),
        ({"path": "x" * 5000}, "the path of a file must take at most 4096 bytes"),
        ({"path": 10**5000}, "got an integer of 16610 bits"),
        ({"settings": {}}, "settings must be an amv.Settings or None, got {}"),
        ({"settings": amv.MemorySettings()}, "settings must be"),
        ({"settings": 10**5000}, "settings must be"),
        ({"clock": 5.0}, "clock must be a function without arguments, got 5.0"),
        ({"clock": 10**5000}, "clock must be"),
        ({"embedder": 5}, "need an embedder with an id and a dimension"),
        ({"embedder": 10**5000}, "need an embedder"),
        ({"embedder": Named()}, r"embed\(texts\) and passages\(text\), got .* without embed"),
        ({"embedder": NoPassages()}, "without passages"),
        ({"embedder": Hashing}, "need an embedder"),
        ({"embedder": ""}, "need an embedder that exists"),
        ({"embedder": "x" * 10_000}, "need an embedder that exists"),
    ],
)
def test_a_memory_is_opened_with_what_it_needs_or_not_at_all(
    path: str, arguments: dict[str, Any], told: str
) -> None:
    """Before a file is made."""
    with pytest.raises((InvalidInput, EmbedderError), match=told) as caught:
        Memory.open(**{"path": path, "settings": QUIET, **arguments})
    assert len(str(caught.value)) < 500
    assert not Path(path).exists()


def test_a_closed_memory_is_not_entered_again() -> None:
    memory = Memory.open(settings=QUIET, embedder="hashing")
    memory.close()

    with pytest.raises(StoreClosed), memory:
        pass


def test_the_embedder_of_the_settings_is_used_unless_another_is_given(path: str) -> None:
    settings = replace(QUIET, embedder="hashing:16")
    with Memory.open(settings=settings) as memory:
        assert memory.stats().embedder == "hashing-16"
    with Memory.open(embedder="hashing:32", settings=settings) as memory:
        assert memory.stats().embedder == "hashing-32"


def test_a_file_is_opened_with_the_embedder_it_was_made_with(path: str) -> None:
    """Otherwise everyone who opens it would have to be told which that was."""
    Memory.open(path, embedder="hashing:16", settings=QUIET).close()

    with Memory.open(path, settings=QUIET) as memory:
        assert memory.stats().embedder == "hashing-16"


def test_a_new_memory_has_minilm() -> None:
    """The model itself is loaded by the first text only."""
    with Memory.open(settings=QUIET) as memory:
        assert memory.stats().embedder == MiniLM().id


def test_a_file_of_an_embedder_that_only_its_owner_has_asks_for_it(path: str) -> None:
    Memory.open(path, embedder=Renamed(dimension=16), settings=QUIET).close()

    with pytest.raises(ConfigError, match=r"renamed-16 \(16 dimensions\).*pass that embedder"):
        Memory.open(path, settings=QUIET)
    Memory.open(path, embedder=Renamed(dimension=16), settings=QUIET).close()


def test_a_file_that_was_refused_is_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that tries again and again would run out of file descriptors."""
    store = MemoryStore()
    adopt_embedder(store, Hashing(dimension=16))
    monkeypatch.setattr(wiring, "open_store", lambda *_: store)

    with pytest.raises(DimensionMismatch):
        Memory.open(embedder="hashing:32", settings=QUIET)

    with pytest.raises(StoreClosed):
        store.check()


@pytest.mark.parametrize("embedder", [Hashing(dimension=32), Renamed(dimension=16)])
def test_another_embedder_is_refused_also_if_its_vectors_are_as_long(
    path: str, embedder: Embedder
) -> None:
    """Their dot products would mean nothing, and nobody would notice."""
    with Memory.open(path, embedder="hashing:16", settings=QUIET) as memory:
        memory.add("x", namespace=NS, id="x")

    with pytest.raises(DimensionMismatch, match=rf"hashing-16 .*{embedder.id}.*amv reembed"):
        Memory.open(path, embedder=embedder, settings=QUIET)

    with Memory.open(path, settings=QUIET) as memory:
        assert memory.get("x").content == "x"


@pytest.mark.parametrize("other", ["minilm", "hashing", "hashing:256"])
def test_the_static_embedder_mixes_with_no_other(path: str, other: str) -> None:
    """It is made of minilm and as long as hashing, and its vectors are neither's."""
    with Memory.open(path, embedder="static", settings=QUIET) as memory:
        memory.add("The cellar keys are in the blue drawer", namespace=NS, id="keys")

    with pytest.raises(DimensionMismatch, match=r"static-256-1 .*amv reembed"):
        Memory.open(path, embedder=other, settings=QUIET)

    with Memory.open(path, settings=QUIET) as memory:
        (hit,) = memory.search("basement", namespace=NS).hits
        assert (hit.item.id, memory.stats().embedder) == ("keys", "minilm-l6-v2-static-256-1")


def test_a_file_changes_over_to_the_static_embedder(path: str) -> None:
    with Memory.open(path, embedder="hashing", settings=QUIET) as memory:
        memory.add("The cellar keys are in the blue drawer", namespace=NS)

    assert reembed(path, QUIET, "static", lambda *call: None) == 1

    with Memory.open(path, settings=QUIET) as memory:
        assert memory.search("basement", namespace=NS).hits[0].similarity > 0.1


def test_two_that_open_a_new_file_at_once_agree_on_one_embedder(path: str) -> None:
    """Between looking and writing it down, another process may have been faster."""
    store = open_store(path, QUIET)
    late = SqliteStore.open(path)

    class Faster:
        """A store whose next write is preceded by another process's."""

        read = store.read

        @staticmethod
        def write(work: Callable[..., Any]) -> Any:
            adopt_embedder(late, Hashing(dimension=16))
            return store.write(work)

    with pytest.raises(DimensionMismatch, match="hashing-16"):
        adopt_embedder(Faster(), Hashing(dimension=32))  # type: ignore[arg-type]

    with store.read() as reader:
        assert reader.meta(EMBEDDER_META) == "hashing-16 (16 dimensions)"
    store.close()
    late.close()


def test_the_clock_that_was_passed_is_the_one_that_counts(path: str) -> None:
    clock = FakeClock(1000.0)
    with Memory.open(embedder="hashing", settings=QUIET, clock=clock) as memory:
        item = memory.add("x", namespace=NS, expires_at=1001)
        assert item.created_at.timestamp() == 1000.0
        clock.advance(1)
        with pytest.raises(amv.ItemNotFound):
            memory.get(item.id)


# ---------------------------------------------------------------- embedders that fail


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (EmbedderError("the model is gone"), "the model is gone"),
        (np.zeros((1, 8), np.float32), "length 1"),
        (np.full((1, 8), np.nan, np.float32), "length 1"),
        (np.full((1, 8), np.inf, np.float32), "length 1"),
        (np.full((1, 8), 3e38, np.float32), "length 1"),
        (np.eye(1, 9, dtype=np.float32), r"shape \(1, 8\), got \(1, 9\)"),
        (np.eye(2, 8, dtype=np.float32), r"shape \(1, 8\), got \(2, 8\)"),
        (np.eye(8, dtype=np.float32)[0], r"shape \(1, 8\), got \(8,\)"),
        (np.zeros((0, 8), np.float32), r"shape \(1, 8\), got \(0, 8\)"),
        ([["a"] * 8], "numbers only"),
        (None, "embedder"),
    ],
)
def test_an_embedder_that_fails_is_told_and_nothing_is_written(answer: Any, told: str) -> None:
    """Half a vector, kept, would be compared with all others for good."""
    good = np.eye(1, 8, dtype=np.float32)
    embedder = Returning(good)
    with Memory.open(embedder=embedder, settings=QUIET) as memory:
        memory.add("before", namespace=NS, id="x")
        before = list(memory.export_items())
        embedder.answer = answer

        for call in (
            lambda: memory.add("text", namespace=NS),
            lambda: memory.update("x", content="text"),
            lambda: memory.search("text", namespace=NS),
        ):
            with pytest.raises(EmbedderError, match=told):
                call()

        assert list(memory.export_items()) == before
        embedder.answer = good
        assert memory.search("text", namespace=NS).hits[0].item.id == "x"


def test_an_embedder_may_return_other_floats() -> None:
    """Lists and float64 are numbers as good as any."""
    embedder = Returning([[1.0] + [0.0] * 7])
    with Memory.open(embedder=embedder, settings=QUIET) as memory:
        memory.add("x", namespace=NS)
        embedder.answer = np.eye(1, 8, dtype=np.float64)

        assert memory.search("y", namespace=NS).hits[0].similarity == 1.0


# ---------------------------------------------------------------- closing


def calls(memory: Memory) -> dict[str, Callable[[], object]]:
    """Return a valid call of every public method but `open` and `close`."""
    return {
        "add": lambda: memory.add("x", namespace=NS),
        "add_many": lambda: memory.add_many([{"content": "x", "namespace": NS}]),
        "add_under": lambda: memory.add_under([({"content": "x", "namespace": NS}, None)]),
        "check": lambda: memory.check(),
        "confirm": lambda: memory.confirm("x"),
        "contradicting": lambda: memory.contradicting("x"),
        "activity": lambda: memory.activity(),
        "context": lambda: memory.context("x", namespace=NS),
        "export_items": lambda: list(memory.export_items()),
        "find": lambda: memory.find("x", namespace=NS),
        "find_claim": lambda: memory.find_claim(NS, "a", "b"),
        "claim_row": lambda: memory.claim_row(None, NS, "a", "b"),
        "flush": lambda: memory.flush(),
        "forget": lambda: memory.forget("x"),
        "forget_many": lambda: memory.forget_many(["x"], namespace=NS),
        "forget_namespace": lambda: memory.forget_namespace(NS),
        "get": lambda: memory.get("x"),
        "history": lambda: memory.history("x"),
        "list": lambda: memory.list(namespace=NS),
        "maintain": lambda: memory.maintain(),
        "namespaces": lambda: memory.namespaces(),
        "pin": lambda: memory.pin("x"),
        "rebuild_index": lambda: memory.rebuild_index(NS),
        "refute": lambda: memory.refute("x", 3),
        "reinforce": lambda: memory.reinforce(["x"]),
        "restore": lambda: memory.restore([]),
        "search": lambda: memory.search("x", namespace=NS),
        "stats": lambda: memory.stats(),
        "sweep": lambda: memory.sweep(),
        "telling": lambda: told(memory),
        "unindexed": lambda: memory.unindexed(),
        "update": lambda: memory.update("x", content="y"),
    }


def told(memory: Memory) -> None:
    """Tell the memory what a check found."""
    with memory.telling([Checked("x", holds=True)], namespace=NS) as tell:
        memory.store.write(tell)


def test_every_public_method_is_among_the_calls(memory: Memory) -> None:
    """So that a new one is tried after closing, too."""
    public = {name for name in dir(memory) if not name.startswith("_")}

    # The last three are about the object only: what a store kept is not in their answer.
    assert public == {*calls(memory), "open", "close", "store", "is_resident", "watch_reads"}


@pytest.mark.parametrize("where", ["file", ":memory:"])
def test_after_close_every_call_says_so(path: str, where: str) -> None:
    """And none of them opens the file again, or answers from a cache."""
    memory = Memory.open(path if where == "file" else where, embedder="hashing", settings=QUIET)
    memory.add("x", namespace=NS, id="x", claim=amv.Claim("a", "b", 1))
    memory.search("x", namespace=NS)
    memory.close()

    told = {}
    for name, call in calls(memory).items():
        try:
            call()
        except AmvError as error:
            told[name] = type(error)
    assert told == dict.fromkeys(calls(memory), StoreClosed)


def test_closing_twice_is_fine(memory: Memory) -> None:
    memory.close()

    memory.close()


def test_a_with_block_closes_and_lets_errors_through(path: str) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        Memory.open(path, embedder="hashing", settings=BUSY) as memory,
    ):
        raise ZeroDivisionError

    with pytest.raises(StoreClosed):
        memory.stats()


def test_closing_folds_what_was_logged(path: str) -> None:
    """What was learned in a short run would else wait for the next one's upkeep."""
    with Memory.open(path, embedder="hashing", settings=QUIET) as memory:
        memory.add("x", namespace=NS, id="x")
        memory.reinforce(["x"])

    with Memory.open(path, settings=QUIET) as memory:
        assert memory.get("x").contributed_count == 1


def test_closing_releases_the_store_though_folding_fails(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk must not leave a lock behind; the events wait, so that it is no error."""
    memory.add("x", namespace=NS, id="x")
    memory.reinforce(["x"])

    def failing(*_: object) -> int:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(memory._store, "fold", failing)
        memory.close()

    assert "could not be folded, and wait: the disk is full" in caplog.text
    with pytest.raises(StoreClosed):
        memory.namespaces()


def test_an_error_of_a_block_is_not_hidden_by_that_of_closing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads a traceback looks for what went wrong first; closing goes into a note."""

    def failing() -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(memory._store, "close", failing)

    with pytest.raises(StoreUnavailable, match="the disk is full"), memory:
        memory.add("x", namespace=NS)
    with pytest.raises(KeyError, match="own") as raised, memory:
        raise KeyError("the block's own")
    assert raised.value.__notes__ == ["closing failed, too: StoreUnavailable('the disk is full')"]


# ---------------------------------------------------------------- upkeep by itself


def upkeep_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "amv-upkeep"]


class Rounds:
    """Lets a test wait for rounds of upkeep, and make one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._changed = threading.Condition()
        self._done = 0
        self.error: Exception | None = None
        maintain = MemoryService.maintain

        def counted(memory: MemoryService) -> None:
            try:
                if self.error is not None:
                    raise self.error
                maintain(memory)
            finally:
                with self._changed:
                    self._done += 1
                    self._changed.notify_all()

        monkeypatch.setattr(MemoryService, "maintain", counted)

    def wait(self, rounds: int = 2) -> None:
        """Return after that many more rounds; by then one has begun and ended since the call."""
        with self._changed:
            until = self._done + rounds
            assert self._changed.wait_for(lambda: self._done >= until, PATIENCE_S)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(monkeypatch)


def test_upkeep_folds_and_sweeps_by_itself(path: str, rounds: Rounds) -> None:
    """Embedded use needs no cron job to keep the tiers true."""
    clock = FakeClock()
    settings = replace(BUSY, memory=amv.MemorySettings(hot_max=4, probation_max=0))
    with Memory.open(path, embedder="hashing", settings=settings, clock=clock) as memory:
        memory.add_many([{"content": f"n {n}", "namespace": NS, "id": f"i{n}"} for n in range(6)])
        for _ in range(3):
            memory.reinforce(["i0"])
        rounds.wait()

        assert memory.get("i0").contributed_count == 3
        assert memory.get("i0").tier is amv.Tier.HOT
        clock.advance(200 * DAY_S)
        rounds.wait()
        assert {item.tier for item in memory.list(namespace=NS).items} == {amv.Tier.COLD}


def test_upkeep_goes_on_after_an_error_and_tells_of_it(
    path: str, rounds: Rounds, caplog: pytest.LogCaptureFixture
) -> None:
    """The file may be locked for a moment; the events stay in their log till then."""
    with (
        caplog.at_level(logging.WARNING, "amv"),
        Memory.open(path, embedder="hashing", settings=BUSY) as memory,
    ):
        memory.add("x", namespace=NS, id="x")
        rounds.error = StoreError("locked")
        rounds.wait()
        rounds.error = None
        memory.reinforce(["x"])
        rounds.wait()
        assert memory.get("x").contributed_count == 1

    (first, *_) = caplog.records
    assert (first.name, first.levelname) == ("amv", "WARNING")
    assert "will be tried again" in first.getMessage()
    assert first.exc_info is not None
    assert isinstance(first.exc_info[1], StoreError)


def test_upkeep_stops_at_close(path: str, rounds: Rounds) -> None:
    memory = Memory.open(path, embedder="hashing", settings=BUSY)
    rounds.wait()
    assert len(upkeep_threads()) == 1

    memory.close()

    assert upkeep_threads() == []


def test_without_an_interval_there_is_no_thread(path: str) -> None:
    with Memory.open(path, embedder="hashing", settings=QUIET):
        assert upkeep_threads() == []


@pytest.mark.parametrize("where", ["file", ":memory:"])
def test_upkeep_does_not_keep_a_memory_alive_that_nobody_uses(
    path: str, where: str, rounds: Rounds
) -> None:
    """A program that opens one a request, and forgets to close it, must not grow."""
    memory = Memory.open(path if where == "file" else where, embedder="hashing", settings=BUSY)
    memory.add("x", namespace=NS)
    memory.search("x", namespace=NS)
    rounds.wait()
    (thread,) = upkeep_threads()
    watched = weakref.ref(memory)

    del memory
    gc.collect()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()
    gc.collect()
    assert watched() is None


# ---------------------------------------------------------------- changing the embedder of a file


def test_a_file_is_changed_over_by_name(path: str) -> None:
    with Memory.open(path, embedder="hashing:16", settings=QUIET) as memory:
        memory.add_many([{"content": f"n {n}", "namespace": NS} for n in range(5)])
    progress: list[tuple[int, int]] = []

    assert reembed(path, QUIET, "hashing:32", lambda *call: progress.append(call)) == 5

    assert progress == [(5, 5)]
    with Memory.open(path, settings=QUIET) as memory:
        assert memory.stats().embedder == "hashing-32"
        assert memory.search("n 3", namespace=NS).hits[0].item.content == "n 3"
    assert reembed(path, QUIET, "hashing:32", lambda *call: None) == 0


def test_a_file_without_vectors_has_nothing_to_change(path: str) -> None:
    """It is the first to open it who decides."""
    open_store(path, QUIET).close()

    with pytest.raises(ConfigError, match=r"no vectors yet; open it with embedder 'hashing'"):
        reembed(path, QUIET, "hashing", lambda *call: None)


def test_changing_over_to_an_unknown_embedder_leaves_the_file_as_it_is(path: str) -> None:
    with Memory.open(path, embedder="hashing:16", settings=QUIET) as memory:
        memory.add("x", namespace=NS)

    with pytest.raises(InvalidInput, match="'bert'"):
        reembed(path, QUIET, "bert", lambda *call: None)

    with Memory.open(path, settings=QUIET) as memory:
        assert memory.stats().embedder == "hashing-16"


# ---------------------------------------------------------------- ids


def test_ids_sort_by_the_millisecond_they_were_made_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that items made later stand later, without a clock of their own."""
    now_ns = 1_700_000_000_000_000_000
    ids = []
    for later_ms in (0, 1, 2, 40, 1000, 10**6, 10**12):
        monkeypatch.setattr(time, "time_ns", lambda ms=later_ms: now_ns + ms * 1_000_000)
        ids += sorted(new_id() for _ in range(20))

    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert {len(one) for one in ids} == {20}


def test_ids_are_unique_over_threads() -> None:
    """Two agents that add at once must not get one item for both."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [new_id() for _ in range(500)], range(16)))

    assert len({one for ids in made for one in ids}) == 8000


def test_an_id_survives_urls_file_names_and_json() -> None:
    one = new_id()

    assert one.isalnum()
    assert one == one.lower()
    assert json.loads(json.dumps(one)) == one


def test_a_store_in_this_process_is_chosen_by_its_name(path: str) -> None:
    assert isinstance(open_store(wiring.IN_PROCESS, QUIET), MemoryStore)


def test_reembed_of_a_mistyped_path_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "typo.db"

    with pytest.raises(ConfigError, match="no database"):
        reembed(str(path), QUIET, "hashing", lambda done, total: None)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("was_on", [True, False])
def test_a_bulk_add_is_not_gone_through_for_cycles(path: str, was_on: bool) -> None:
    """It makes none; afterwards the collector is as it was, also where the add fails."""
    runs: list[str] = []

    def note(phase: str, about: dict[str, int]) -> None:
        runs.append(phase)

    items = [{"content": f"number {n}", "namespace": ("a",), "id": f"i{n}"} for n in range(1000)]
    is_on = gc.isenabled()
    with Memory.open(path, embedder="hashing") as memory:
        try:
            gc.enable() if was_on else gc.disable()
            gc.callbacks.append(note)
            with uncollected(COLLECTED_BELOW):
                runs.clear()
                made = [[n] for n in range(10_000)]
                while_uncollected = list(runs)
            memory.add_many(items)
            with pytest.raises(Conflict):
                memory.add_many([*items[1:], {**items[0], "content": "another"}])

            assert gc.isenabled() == was_on
        finally:
            gc.callbacks.remove(note)
            gc.enable() if is_on else gc.disable()
    assert while_uncollected == []
    assert len(made) == 10_000


def test_a_small_add_leaves_the_collector_alone() -> None:
    with uncollected(COLLECTED_BELOW - 1):
        assert gc.isenabled()
    with uncollected(COLLECTED_BELOW):
        assert not gc.isenabled()
    assert gc.isenabled()
