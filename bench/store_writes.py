"""How fast items are added, and how many bytes they take.

Each rate stands beside a raw one from the same run: apsw inserting the content
and its float32 vector, nothing else, into one table at the same durability
(WAL, synchronous=FULL).  The ratio says what value, tiers, words and cells
cost, and it depends less on the disk and on who else uses the machine.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw

import amv
from bench.datasets import Dataset
from bench.store_given import NAMESPACE
from bench.store_memory import Subject
from bench.store_rows import Sink

BATCH = 4096
THREADS = 16
_RAW_SINGLES = 300


class RawTable:
    """The reference: a table of contents and vectors, and an insert."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS item "
            "(id INTEGER PRIMARY KEY, content TEXT NOT NULL, vector BLOB NOT NULL)"
        )

    def insert(self, rows: list[tuple[str, bytes]]) -> None:
        """Insert *rows* in one transaction."""
        with self._connection:
            self._connection.executemany("INSERT INTO item (content, vector) VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def raw_path(subject: Subject) -> Path:
    """Return the file of the reference."""
    return subject.path.parent / f"raw-{subject.path.name}"


def batches(subject: Subject, sink: Sink) -> list[str]:
    """Add the whole dataset in batches; return its ids, in its order."""
    dataset = subject.dataset
    raw = RawTable(raw_path(subject))
    start_s = time.perf_counter()
    for chunk in _chunks(len(dataset)):
        raw.insert([(dataset.contents[i], dataset.vectors[i].tobytes()) for i in chunk])
    raw_s = time.perf_counter() - start_s
    raw.close()
    ids: list[str] = []
    with subject.open() as memory:
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        for chunk in _chunks(len(dataset)):
            ids += [item.id for item in memory.add_many([_fields(dataset, i) for i in chunk])]
        amv_s = time.perf_counter() - start_s
        cpu_s = time.process_time() - start_cpu_s
    sink.add(
        "add_batches",
        items=len(dataset),
        batch=BATCH,
        amv_s=amv_s,
        amv_cpu_s=cpu_s,
        raw_s=raw_s,
    )
    return ids


def disk(subject: Subject, sink: Sink) -> None:
    """Note the bytes of the closed store beside those of what is in it."""
    dataset = subject.dataset
    sink.add(
        "disk",
        items=len(dataset),
        store_bytes=subject.disk_bytes(),
        content_bytes=dataset.content_bytes,
        vector_bytes=dataset.vectors.nbytes,
    )


def one_by_one(subject: Subject, sink: Sink, count: int) -> None:
    """Add *count* more items to the filled memory, each in a call of its own, from 16 threads.

    They are copies of stored items that say so, and are added after all
    searches, which therefore never meet them.
    """
    dataset = subject.dataset
    copies = [
        _fields(dataset, n % len(dataset))
        | {"content": f"{dataset.contents[n % len(dataset)]} (again, {n})"}
        for n in range(count)
    ]
    raw = RawTable(raw_path(subject))
    rows = [
        (str(fields["content"]), fields["vector"].tobytes()) for fields in copies[:_RAW_SINGLES]
    ]
    start_s = time.perf_counter()
    for row in rows:
        raw.insert([row])
    raw_s = time.perf_counter() - start_s
    raw.close()
    with subject.open() as memory, ThreadPoolExecutor(THREADS) as pool:

        def add(fields: dict[str, Any]) -> amv.Item:
            return memory.add(**fields)

        start_s = time.perf_counter()
        added = len(list(pool.map(add, copies)))
        amv_s = time.perf_counter() - start_s
    sink.add(
        "add_one_by_one",
        items=added,
        threads=THREADS,
        amv_s=amv_s,
        raw_items=len(rows),
        raw_s=raw_s,
    )


def _chunks(count: int) -> Iterator[range]:
    for start in range(0, count, BATCH):
        yield range(start, min(count, start + BATCH))


def _fields(dataset: Dataset, place: int) -> dict[str, Any]:
    return {
        "content": dataset.contents[place],
        "namespace": NAMESPACE,
        "vector": dataset.vectors[place],
    }
