"""The log of value events: in order, each exactly once, whoever dies when."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from amv.errors import StoreClosed, StoreError, StoreUnavailable
from amv.memory.ports import RANK_MAX, Event, Writer
from amv.memory.value import EventKind
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite import events as sqlite_events
from amv.stores.sqlite.events import BATCH_MAX, FLUSH_EVERY_S, RECORD_BYTES

LIVING = (
    "import sys, time; from amv.memory.ports import Event; from amv.memory.value import EventKind\n"
    "from amv.stores.sqlite import SqliteStore\n"
    "store = SqliteStore.open(sys.argv[1])\n"
    "store.log([Event(1, key, EventKind.EXPOSED, 0.5) for key in range(int(sys.argv[2]))])\n"
    "time.sleep(float(sys.argv[3]))\n"
)


class Crash(BaseException):
    """Stands for the process dying at this point."""


def event(number: int) -> Event:
    return Event(1, number, EventKind(number % 3 + 1), number + 0.25, number % (RANK_MAX + 1))


def logs(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.events-*"))


class Counted:
    """Applies events by adding to a number in the database, so that a repeat would show."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.batches: list[int] = []

    def __call__(self, writer: Writer, events: Sequence[Event]) -> None:
        self.seen.extend(events)
        self.batches.append(len(events))
        total = int(writer.meta("total") or 0) + len(events)
        writer.set_meta("total", str(total))


def total(store: SqliteStore) -> int:
    with store.read() as reader:
        return int(reader.meta("total") or 0)


def fold(store: SqliteStore) -> int:
    return store.fold(Counted())


def test_events_are_folded_once_in_order_in_bounded_batches(store: SqliteStore, path: Path) -> None:
    events = [event(i) for i in range(2 * BATCH_MAX + 10)]
    counted = Counted()
    store.log(events[:5])
    store.log(events[5:])

    assert store.fold(counted) == len(events)
    assert counted.seen == events
    assert max(counted.batches) <= BATCH_MAX
    assert store.fold(counted) == 0
    assert logs(path) == []


def test_a_batch_holds_the_events_of_few_namespaces(store: SqliteStore) -> None:
    """In the order of arrival each batch would write to every namespace in use."""
    events = [Event(1 + i % 8, i, EventKind.EXPOSED, float(i)) for i in range(2 * BATCH_MAX)]
    batches: list[Sequence[Event]] = []
    store.log(events)

    store.fold(lambda writer, some: batches.append(some))

    assert [{event.ns_id for event in batch} for batch in batches] == [{1, 2, 3, 4}, {5, 6, 7, 8}]
    assert [event for batch in batches for event in batch] == sorted(events, key=lambda e: e.ns_id)


@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5])
def test_a_fold_goes_on_where_it_failed(
    store: SqliteStore, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several windows, whose events come in another order than they were logged in."""
    monkeypatch.setattr(sqlite_events, "BATCH_MAX", 10)
    monkeypatch.setattr(sqlite_events, "WINDOW_MAX", 20)
    logged = [Event(1 + i * 7 % 5, i, EventKind.EXPOSED, float(i)) for i in range(47)]
    seen: list[list[Event]] = []

    def fails_once(writer: Writer, batch: Sequence[Event]) -> None:
        seen.append(list(batch))
        if len(seen) == failing:
            seen[-1] = []
            raise Crash

    store.log(logged)
    with pytest.raises(Crash):
        store.fold(fails_once)
    store.fold(fails_once)

    folded = [event for batch in seen for event in batch]
    assert sorted(folded) == sorted(logged)
    for ns_id in range(1, 6):
        mine = [event for event in folded if event.ns_id == ns_id]
        assert mine == [event for event in logged if event.ns_id == ns_id]


@pytest.mark.parametrize(("count", "is_synced"), [(BATCH_MAX, False), (BATCH_MAX + 1, True)])
def test_a_log_of_several_batches_is_on_the_disk_before_it_is_folded(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, count: int, is_synced: bool
) -> None:
    """How far it was folded says nothing of a log that lost its end."""
    synced: list[int] = []
    by_then: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store.log([event(i) for i in range(count)])

    store.fold(lambda writer, some: by_then.append(len(synced)))

    assert by_then[0] == int(is_synced)


def test_events_reach_the_log_soon_without_being_asked(store: SqliteStore, path: Path) -> None:
    """A crash loses what is not there yet, so it must not wait for the next event."""
    store.log([event(1), event(2)])

    deadline_s = time.monotonic() + 20 * FLUSH_EVERY_S
    while not logs(path) or logs(path)[0].stat().st_size < 2 * RECORD_BYTES:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_logging_writes_nothing_to_the_database(store: SqliteStore, path: Path) -> None:
    before = (
        [Path(f"{path}{ending}").stat().st_mtime_ns for ending in ("", "-wal")]
        if Path(f"{path}-wal").exists()
        else [path.stat().st_mtime_ns]
    )

    store.log([event(i) for i in range(5000)])
    time.sleep(2 * FLUSH_EVERY_S)

    files = [path, Path(f"{path}-wal")]
    assert [file.stat().st_mtime_ns for file in files if file.exists()] == before


def test_a_log_holds_numbers_only(store: SqliteStore, path: Path) -> None:
    """32 bytes an event, none of which are content."""
    store.log([event(1)])
    store.close()

    (log,) = logs(path)
    assert log.stat().st_size == RECORD_BYTES == 32


def test_events_of_a_closed_store_are_folded_by_the_next(path: Path) -> None:
    with closing(SqliteStore.open(path)) as store:
        store.log([event(i) for i in range(10)])
    with pytest.raises(StoreClosed):
        store.log([event(1)])

    with closing(SqliteStore.open(path)) as store:
        counted = Counted()
        assert store.fold(counted) == 10
        assert counted.seen == [event(i) for i in range(10)]
        assert logs(path) == []


def test_events_of_a_killed_process_are_folded_and_those_of_a_living_one_are_not(
    store: SqliteStore, path: Path
) -> None:
    """The lock tells them apart: it ends with its process, however that ends."""
    command = [sys.executable, "-c", LIVING, str(path), "7", "60"]
    process = subprocess.Popen(command)
    while not any(log.stat().st_size == 7 * RECORD_BYTES for log in logs(path)):
        assert process.poll() is None
        time.sleep(0.02)

    assert fold(store) == 0
    assert len(logs(path)) == 1

    process.send_signal(signal.SIGKILL)
    process.wait()

    assert fold(store) == 7
    assert total(store) == 7
    assert logs(path) == []


def orphan(path: Path, events: Sequence[Event]) -> Path:
    """Leave a log as a process does that is gone."""
    before = set(logs(path))
    with closing(SqliteStore.open(path)) as store:
        store.log(events)
    (log,) = set(logs(path)) - before
    return log


@pytest.mark.parametrize("torn_bytes", [1, 31])
def test_half_a_record_at_the_end_is_ignored(
    store: SqliteStore, path: Path, torn_bytes: int
) -> None:
    log = orphan(path, [event(i) for i in range(5)])
    os.truncate(log, 4 * RECORD_BYTES + torn_bytes)

    assert fold(store) == 4
    assert logs(path) == []


def test_a_damaged_record_is_skipped_and_counted(store: SqliteStore, path: Path) -> None:
    """Also one of zeros, which a power failure leaves."""
    log = orphan(path, [event(i) for i in range(5)])
    content = bytearray(log.read_bytes())
    content[RECORD_BYTES + 3] ^= 1
    content[3 * RECORD_BYTES : 4 * RECORD_BYTES] = bytes(RECORD_BYTES)
    log.write_bytes(content)

    counted = Counted()
    assert store.fold(counted) == 3
    assert counted.seen == [event(0), event(2), event(4)]
    assert store.corrupt_events == 2


def test_a_fold_that_fails_is_repeated_without_counting_twice(
    store: SqliteStore, path: Path
) -> None:
    """In the second batch: the first was committed, with its offset."""
    events = [event(i) for i in range(BATCH_MAX + 100)]
    counted = Counted()

    def fails_in_second_batch(writer: Writer, batch: Sequence[Event]) -> None:
        counted(writer, batch)
        if len(counted.batches) == 2:
            raise Crash

    store.log(events)
    with pytest.raises(Crash):
        store.fold(fails_in_second_batch)
    assert total(store) == BATCH_MAX

    assert fold(store) == 100
    assert total(store) == len(events)
    assert logs(path) == []


def test_a_crash_between_commit_and_removal_counts_nothing_twice(
    store: SqliteStore, path: Path
) -> None:
    """The file is still there, or back again, when the next process looks."""
    log = orphan(path, [event(i) for i in range(9)])
    content = log.read_bytes()
    assert fold(store) == 9
    log.write_bytes(content)

    with closing(SqliteStore.open(path)) as other:
        assert fold(other) == 0
        assert total(other) == 9
    assert logs(path) == []


def test_notes_about_logs_that_are_gone_do_not_pile_up(store: SqliteStore) -> None:
    for i in range(20):
        store.log([event(i)])
        fold(store)

    with store.read() as reader:
        count = reader.execute("SELECT count(*) FROM event_offset").get  # type: ignore[attr-defined]
    assert count <= 2


def test_two_processes_that_fold_at_once_count_everything_once(
    store: SqliteStore, path: Path
) -> None:
    for i in range(20):
        orphan(path, [event(i)] * 10)
    script = (
        "import sys; from amv.stores.sqlite import SqliteStore\n"
        "store = SqliteStore.open(sys.argv[1])\n"
        "def apply(w, events):\n"
        "    w.set_meta('total', str(int(w.meta('total') or 0) + len(events)))\n"
        "sys.stdin.read()\n"
        "print(store.fold(apply))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]

    folded = [int(process.communicate("")[0]) for process in processes]

    assert sum(folded) == 200
    assert total(store) == 200


def test_events_that_can_not_be_written_are_kept_for_later(store: SqliteStore, path: Path) -> None:
    """A full disk must not fail a search, and must not lose the log's alignment."""
    import resource

    store.log([event(0)])
    assert fold(store) == 1
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal_before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # In the middle of the fifth record.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * RECORD_BYTES + 5, unlimited[1]))
    try:
        store.log([event(i) for i in range(10)])
        with pytest.raises(StoreUnavailable, match="can't be written"):
            fold(store)
        store.log([event(i) for i in range(10, 20)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        signal.signal(signal.SIGXFSZ, signal_before)

    counted = Counted()
    assert store.fold(counted) == 20
    assert counted.seen == [event(i) for i in range(20)]


@pytest.mark.parametrize(
    ("kinds", "is_told"),
    [
        ([EventKind.EXPOSED] * 3, False),
        ([EventKind.EXPOSED, EventKind.CONTRIBUTED, EventKind.EXPOSED], True),
        ([EventKind.NEGATIVE] * 3, True),
    ],
)
def test_closing_tells_of_events_that_are_lost(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kinds: list[EventKind],
    is_told: bool,
) -> None:
    """What someone noted is an error; what a search noted by itself must not end a job."""
    store = SqliteStore.open(path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        store.log([Event(1, key, kind, 0.5) for key, kind in enumerate(kinds)])
        if is_told:
            with pytest.raises(StoreError, match=r"3 value events are lost: .*no space left") as at:
                store.close()
            assert isinstance(at.value.__cause__, OSError)
        else:
            store.close()
            assert "3 value events are lost" in caplog.text

    assert store.lost_events == 3
    SqliteStore.open(path).close()
