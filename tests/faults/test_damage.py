"""A damaged file leads to a clear error or to right answers, and never into another namespace.

Indexes are derived data: damaged or missing, they are passed over or made anew.
A log that was cut off or overwritten ends where its checksums do, so that what
is read is a state that once was.
"""

import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

import amv
from amv.embedders.hashing import Hashing
from amv.stores.sqlite.migrate import add_functions, migrations
from tests.faults.workloads import ALICE, BOB, SMALL_CELLS, Workload, adds, numbered, opened

WORKLOAD = Workload(
    steps=lambda memory, folder: iter(()),
    settings=replace(SMALL_CELLS, hot_max=16, probation_max=4),
)
ITEMS = numbered("alice", 90)


def said(item_id: str) -> str:
    """Return a text of its own words: which item is found must not hang on ties."""
    chance = random.Random(item_id)
    words = " ".join(f"w{chance.randrange(400)}" for _ in range(8))
    return f"{item_id[:5]} {item_id} says {words}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a closed file with two namespaces, most of whose items are in cells."""
    path = tmp_path / "amv.db"
    with opened(path, WORKLOAD) as memory:
        for owner, ids in ((ALICE, ITEMS), (BOB, numbered("bobby", 90))):
            for start in range(0, 90, 15):
                memory.add_many(
                    {
                        "content": said(item_id),
                        "namespace": owner,
                        "id": item_id,
                        "metadata": {"owner": owner[0]},
                        "claim": amv.Claim(owner[0], item_id, True),
                    }
                    for item_id in ids[start : start + 15]
                )
        assert memory.stats(ALICE).cells > 10
    return path


def read_by_every_path(memory: amv.Memory) -> Iterator[amv.Item]:
    """Yield what can be read of Alice's items."""
    for item_id in ITEMS[::11]:
        for how in ({"cold": True}, {"filter": {"owner": "alice"}}, {"vector": vector(item_id)}):
            hits = memory.search(said(item_id), namespace=ALICE, **how).hits
            yield from (hit.item for hit in hits)
        yield memory.get(item_id, namespace=ALICE)
        if claimed := memory.find_claim(ALICE, "alice", item_id):
            yield claimed
    yield from memory.list(namespace=ALICE, status=None, limit=1000).items


def vector(item_id: str) -> object:
    return Hashing().embed([said(item_id)])[0]


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Return *data* with a few bits flipped, a block overwritten, or its end cut off."""
    damaged = bytearray(data)
    kind = chance.randrange(4)
    place = chance.randrange(len(data))
    if kind == 0:
        return data[:place]
    if kind == 1:
        block = min(chance.choice([16, 512, 8192]), len(data) - place)
        damaged[place : place + block] = chance.randbytes(block)
        return bytes(damaged)
    for _ in range(chance.choice([1, 4, 40])):
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def test_a_damaged_file_never_shows_another_namespace(path: Path, tmp_path: Path) -> None:
    """What comes instead is an error, or what could be read of one's own."""
    data, outcomes = path.read_bytes(), {"error": 0, "read": 0}

    for seed in range(60):
        folder = tmp_path / f"damaged{seed}"
        folder.mkdir()
        (folder / "amv.db").write_bytes(flipped(data, random.Random(seed)))
        try:
            with opened(folder / "amv.db", WORKLOAD) as memory:
                for item in read_by_every_path(memory):
                    assert item.namespace == ALICE
                    assert "bobby" not in item.content
                memory.add("alice adds", namespace=ALICE)
            outcomes["read"] += 1
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - which errors may come is tested below
            outcomes["error"] += 1
        shutil.rmtree(folder)

    # Both happen, so that both have been looked at.
    assert min(outcomes.values()) > 10


@pytest.mark.parametrize("length", [0.0001, 0.01, 0.3, 0.9], ids=lambda share: f"{share:.2%}")
def test_a_file_cut_short_is_not_taken_for_a_sound_one(path: Path, length: float) -> None:
    """It is refused, or else only what is sound is read and a check tells that the rest is not."""
    data = path.read_bytes()
    path.write_bytes(data[: int(length * len(data))])
    wrong = ["an error of the store"]

    with suppress(amv.StoreError), opened(path, WORKLOAD) as memory:
        assert all(item.namespace == ALICE for item in read_by_every_path(memory))
        wrong = memory.check()

    assert wrong


def test_a_damaged_page_is_an_error_of_the_store_with_its_cause(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 8192):
        data[page * 8192 : page * 8192 + 16] = b"\xff" * 16
    path.write_bytes(data)

    with pytest.raises(amv.StoreError) as caught:
        opened(path, WORKLOAD)

    assert caught.value.__cause__ is not None


# ---------------------------------------------------------------- derived data


def execute(path: Path, statement: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)
        assert connection.total_changes() > 0


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM cell_snapshot",
        "UPDATE cell_snapshot SET data = zeroblob(length(data))",
        "UPDATE cell_snapshot SET data = substr(data, 1, 100)",
        "UPDATE cell_snapshot SET data = x''",
        "DELETE FROM cell",
        "DELETE FROM cell WHERE cell_id % 2 = 0",
        "UPDATE placement SET cell_id = 0",
        "DELETE FROM change",
        "UPDATE namespace SET version = 1",
    ],
)
def test_an_index_missing_stale_or_damaged_costs_no_answer(path: Path, damage: str) -> None:
    with opened(path, WORKLOAD) as memory:
        before = found(memory)

    execute(path, damage)

    with opened(path, WORKLOAD) as memory:
        assert found(memory) == before


def found(memory: amv.Memory) -> list[str]:
    """Return what is found by vector alone, of items that are warm."""
    return [
        memory.search(vector=vector(item_id), namespace=ALICE, k=1, cold=True).hits[0].item.id
        for item_id in ITEMS[:60:3]
    ]


def test_an_index_that_leads_into_another_namespace_shows_nothing_of_it(path: Path) -> None:
    """Postings and vectors that were swapped are as good as none."""
    with closing(apsw.Connection(str(path))) as connection:
        alice, bob = (
            connection.execute("SELECT min(key) FROM item WHERE id LIKE ?", (like,)).get
            for like in ("alice%", "bobby%")
        )
        connection.execute("UPDATE term SET base = base + ?", (bob - alice,))
        connection.execute("UPDATE placement SET ns_id = 3 - ns_id")
        connection.execute("UPDATE cell SET ns_id = 3 - ns_id")
        connection.execute("DELETE FROM cell_snapshot")

    with opened(path, WORKLOAD) as memory:
        for item_id in (*ITEMS[::11], *numbered("bobby", 90)[::11]):
            for query in (said(item_id), item_id):
                hits = memory.search(query, namespace=ALICE, cold=True).hits
                assert all(hit.item.namespace == ALICE for hit in hits)
                assert not any("bobby" in hit.item.content for hit in hits)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE item SET metadata = '{'",
        "UPDATE term SET tail = x'0000'",
        "UPDATE cell_part SET data = x'00'",
        "UPDATE vector_data SET data = x'00'",
        "UPDATE vector_data SET data = substr(data, 1, 100) WHERE id / 4096 % 2",
        "UPDATE cell_part SET data = substr(data, 9)",
        "UPDATE cell SET centroid = x'00'; DELETE FROM cell_snapshot",
        "UPDATE posting SET data = substr(data, 1, 3); UPDATE term SET tail = x'00'",
        "UPDATE item SET claim_value = 'tru'",
        "UPDATE item SET content = CAST(x'ff' AS TEXT)",
        "UPDATE item SET metadata = CAST(x'ff' AS TEXT)",
        "UPDATE item SET metadata = '[1]'",
        "UPDATE item SET status = -1",
        "UPDATE item_state SET tier = 9",
        "UPDATE change SET payload = x'c1'",
    ],
)
def test_what_can_not_be_decoded_is_an_error_of_the_store(path: Path, damage: str) -> None:
    execute(path, damage)

    with opened(path, WORKLOAD) as memory:
        with suppress(amv.StoreError):
            list(read_by_every_path(memory))
        assert memory.check()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE cell_part SET data = x'00'",
        "UPDATE cell_part SET data = CAST(data || x'00' AS BLOB)",
        "UPDATE cell_part SET data = CAST(data || zeroblob(members) AS BLOB)",
        "UPDATE cell_part SET data = substr(data, 1, length(data) - members)",
        "UPDATE cell_part SET members = members + 1",
        "UPDATE cell_part SET members = 0",
        "UPDATE cell_part SET members = -members",
        "UPDATE cell_part SET members = 1 << 62",
        "UPDATE cell_part SET data = CAST(data || zeroblob(members) AS BLOB) WHERE id / 256 % 2",
    ],
)
def test_a_cell_that_can_not_be_read_is_an_error_of_the_search_that_needs_it(
    path: Path, damage: str
) -> None:
    """Never one of numpy's, and never a similarity to half of a code; the check names it."""
    execute(path, damage)

    with opened(path, WORKLOAD) as memory:
        with pytest.raises(amv.StoreError, match="amv doctor"):
            memory.search(vector=vector(ITEMS[0]), namespace=ALICE, cold=True)
        assert any("parts of cells" in line for line in memory.check())


# ---------------------------------------------------------------- the write-ahead log


@pytest.fixture
def crashed(tmp_path: Path) -> tuple[Path, list[str]]:
    """Return a file as a crash leaves it, and the items added since its log began, in order."""
    path, added = tmp_path / "live" / "amv.db", numbered("late", 12)
    path.parent.mkdir()
    with opened(path, WORKLOAD) as memory:
        adds("early").run(memory)
    with opened(path, WORKLOAD) as memory:
        for item_id in added:
            adds(item_id).run(memory)
        shutil.copytree(path.parent, tmp_path / "crashed")
    return tmp_path / "crashed" / "amv.db", added


def test_a_damaged_log_ends_at_the_damage(crashed: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Its frames carry checksums, so what is read is what once was, as a whole."""
    path, added = crashed
    log = path.with_name("amv.db-wal").read_bytes()
    kept = set()

    for seed in range(40):
        folder = tmp_path / f"damaged{seed}"
        folder.mkdir()
        shutil.copy(path, folder)
        (folder / "amv.db-wal").write_bytes(flipped(log, random.Random(seed)))
        with opened(folder / "amv.db", WORKLOAD) as memory:
            there = [item.id for item in memory.list(namespace=ALICE).items]
            assert there == ["early", *added][: len(there)]
            assert memory.check() == []
        kept.add(len(there))

    assert len(kept) > 5


def test_without_its_log_a_file_is_as_it_was_before_it(crashed: tuple[Path, list[str]]) -> None:
    path, _ = crashed
    path.with_name("amv.db-wal").unlink()

    with opened(path, WORKLOAD) as memory:
        assert [item.id for item in memory.list(namespace=ALICE).items] == ["early"]
        assert memory.check() == []


# ---------------------------------------------------------------- logs of events


def record(ns_id: int, key: int, kind: int, at_s: float) -> bytes:
    """Return an event as `amv.stores.sqlite.events` keeps it."""
    body = struct.pack("<QQdB3x", ns_id, key, at_s, kind)
    return body + struct.pack("<I", zlib.crc32(body))


def test_garbage_in_a_log_of_events_is_passed_over(path: Path) -> None:
    """Of what a crash or another program left there, what is whole is counted once."""
    with closing(apsw.Connection(str(path))) as connection:
        key, ns_id = connection.execute("SELECT key, ns_id FROM item WHERE id = ?", (ITEMS[0],)).get
    at_s = 1_700_000_000.0
    good, chance = record(ns_id, key, 2, at_s), random.Random(1)
    wrong_sum = good[:-1] + bytes([good[-1] ^ 1])
    logs = {
        "1-aaaa": good + chance.randbytes(32) + good,
        "2-bbbb": wrong_sum + bytes(320) + good + good[:17],
        "3-cccc": chance.randbytes(1001),
        "4-dddd": b"",
        "5-eeee": record(ns_id, 10**9, 2, at_s) + record(10**9, key, 2, at_s) + good,
        "6-ffff": record(ns_id, key, 77, at_s) + record(3 - ns_id, key, 2, at_s),
    }
    for name, data in logs.items():
        path.with_name(f"amv.db.events-{name}").write_bytes(data)

    with opened(path, WORKLOAD) as memory:
        memory.flush()

        assert memory.get(ITEMS[0]).contributed_count == 4
        assert memory.flush() == 0
        assert memory.check() == []
    assert [file.name for file in path.parent.iterdir() if file.is_file()] == ["amv.db"]


# ---------------------------------------------------------------- values of another kind

BATCH = ("placement", "cell", "cell_part", "item", "item_state", "namespace", "term", "posting")
"""Tables whose columns are spoilt one by one."""


def columns() -> list[tuple[str, str]]:
    with closing(apsw.Connection(":memory:")) as connection:
        add_functions(connection)
        for script in migrations().values():
            connection.execute(script)
        return [
            (table, column)
            for table in (
                *BATCH,
                "entry",
                "history",
                "change",
                "vector_data",
                "meta",
                "cell_snapshot",
            )
            for _, column, *_, place_in_key in connection.execute(f"PRAGMA table_info({table})")
            # SQLite itself looks after keys.
            if not place_in_key
        ]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give a file in which every table of the memory has rows."""
    path = tmp_path_factory.mktemp("sound") / "amv.db"
    with opened(path, WORKLOAD) as memory:
        for name in (("a",), ("b",)):
            # So many that postings of one word fill a chunk.
            things = [f"thing{i} kind{i % 5} alike" for i in range(84)]
            memory.add_many({"content": t, "namespace": name, "metadata": {"n": 1}} for t in things)
            for city in ("Oslo", "Rome"):
                claim = amv.Claim("x", "city", city)
                memory.add(f"lives in {city}", namespace=name, claim=claim, id=f"{name[0]}{city}")
    return path.read_bytes()


def spoil(path: Path, table: str, column: str, value: bytes | None) -> None:
    """Put *value*, as text, where the schema forbids it."""
    with closing(apsw.Connection(str(path))) as connection:
        kept = connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql ="
            " replace(replace(sql, ' NOT NULL', ''), ') STRICT', ')') WHERE type = 'table'"
        )
    with closing(apsw.Connection(str(path))) as connection:
        # Where values are unique, one row gets it.
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = CAST(? AS TEXT)", (value,))
        assert connection.changes() > 0
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("UPDATE sqlite_schema SET sql = ?2 WHERE name = ?1", kept)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.parametrize(("table", "column"), columns())
@pytest.mark.parametrize("value", [None, b"\xa8 no text", b"text"], ids=["null", "garbage", "text"])
def test_a_value_of_another_kind_is_told_of_and_ends_nothing(
    sound: bytes, tmp_path: Path, table: str, column: str, value: bytes | None
) -> None:
    """Damage can put anything anywhere; each call works, or raises an error of AMV's own."""
    path, name = tmp_path / "amv.db", ("a",)
    path.write_bytes(sound)
    spoil(path, table, column, value)

    with suppress(amv.AmvError), opened(path, WORKLOAD) as memory:
        calls: list[Callable[[], object]] = [
            memory.check,
            lambda: memory.search("thing7 kind2", namespace=name, cold=True),
            lambda: memory.search("Oslo", namespace=name, filter={"n": 1}, as_of=1.0),
            lambda: memory.list(namespace=name),
            lambda: memory.history("aRome"),
            lambda: memory.stats(),
            lambda: memory.add("new thing7", namespace=name, claim=amv.Claim("x", "city", "Bonn")),
            lambda: memory.add_many({"content": f"n{i}", "namespace": name} for i in range(30)),
            lambda: memory.update("aRome", content="other words"),
            memory.sweep,
            lambda: memory.context("thing", namespace=name),
            lambda: list(memory.export_items(vectors=True)),
            lambda: memory.forget("aRome"),
            lambda: memory.rebuild_index(name),
            lambda: memory.search("thing7", namespace=name),
            memory.unindexed,
            memory.check,
            lambda: memory.forget_namespace(("b",)),
        ]
        for call in calls:
            with suppress(amv.AmvError):
                call()
