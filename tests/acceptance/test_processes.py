"""Several processes on one file: nothing is lost, and none sees what another has forgotten.

Every process here is a real one; what a process keeps in RAM is its own, and
must follow what the others do.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import pytest

from tests.acceptance.remote import Remote, opened, scored, text_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amv.db"


@pytest.fixture
def others(path: Path) -> Iterator[list[Remote]]:
    """Return four other processes, which start and open the file at their first call."""
    with ExitStack() as stack:
        yield [stack.enter_context(Remote(path)) for _ in range(4)]


def ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:03}x" for number in range(count)]


def test_a_new_file_can_be_opened_and_closed_by_all_at_once(
    others: list[Remote], path: Path
) -> None:
    """One makes the schema, the last to close removes the log; none is in another's way."""
    for other in others:
        other.open()

    for turn in range(8):
        new = path.with_name(f"new{turn}.db")
        adding = [
            other.begin("add_and_close", str(new), f"item{number}")
            for number, other in enumerate(others)
        ]
        for answer in adding:
            answer()

        with opened(new) as memory:
            there = {item.id for item in memory.list(namespace=("alice",)).items}
            assert there == {"item0", "item1", "item2", "item3"}
            assert memory.check() == []


def test_concurrent_adds_lose_nothing(others: list[Remote], path: Path) -> None:
    """To one namespace and to their own, one by one and in bulk."""
    added: dict[str, str] = {}
    answers = []
    for n, other in enumerate(others):
        own, shared, bulk = ids(f"own{n}", 20), ids(f"shared{n}", 20), ids(f"bulk{n}", 40)
        added |= dict.fromkeys(own, f"ns{n}") | dict.fromkeys([*shared, *bulk], "all")
        answers.append(other.begin("add_each", own, f"ns{n}"))
        answers.append(other.begin("add_each", shared, "all"))
        answers.append(other.begin("add_together", bulk, "all"))
    for answer in answers:
        answer()

    with opened(path) as memory:
        there = {
            item.id: item.namespace[0]
            for ns in memory.namespaces()
            for item in memory.list(namespace=ns, limit=1000).items
        }
        assert there == added
        assert memory.check() == []
    assert all(
        other.search(text_of(item_id), added[item_id], k=1) == [f"{item_id}: {text_of(item_id)}"]
        for other in others[:2]
        for item_id in list(added)[::9]
    )


def test_each_sees_what_another_did_at_its_next_search(others: list[Remote]) -> None:
    """Searching first, so that what is in RAM is out of date and has to follow."""
    writer, *readers = others
    writer.add_each(ids("old", 30), "alice")

    for item_id in ids("new", 8):
        for reader in readers:
            assert reader.search(item_id, "alice", k=3)[0].startswith("old")
        writer.add(item_id, "alice")
        for reader in readers:
            assert reader.search(item_id, "alice", k=3)[0] == f"{item_id}: {text_of(item_id)}"
        writer.update(item_id, content=f"{item_id} stayed in bed")
        for reader in readers:
            assert reader.search(item_id, "alice", k=1) == [f"{item_id}: {item_id} stayed in bed"]
        writer.forget(item_id)
        for reader in readers:
            found = reader.search(f"{item_id} stayed in bed", "alice", k=40)
            assert found
            assert not any(item_id in hit for hit in found)
        writer, readers = readers[0], [*readers[1:], writer]


def test_nothing_is_found_by_a_search_that_began_after_it_was_forgotten(
    others: list[Remote], path: Path
) -> None:
    forgetter, *watchers = others
    gone = ids("gone", 40)
    forgetter.add_together([*gone, *ids("stays", 60)], "alice")
    for watcher in watchers:
        watcher.search("market", "alice")

    watching = [watcher.begin("watch", gone, "alice", 1.5) for watcher in watchers]
    returned = forgetter.forget_each(gone, 0.02)
    seen = [one for answer in watching for one in answer()]

    late = [
        item_id
        for began_s, _, found in seen
        for item_id in found
        if item_id in returned and began_s > returned[item_id]
    ]
    assert late == []
    # The control: before, they were found, and the searches were many.
    assert {item_id for *_, found in seen for item_id in found} & set(gone)
    assert len(seen) > 100
    with opened(path) as memory:
        assert memory.check() == []


def test_a_namespace_forgotten_and_begun_anew_shows_only_the_new(others: list[Remote]) -> None:
    one, two, *_ = others
    one.add_each(ids("old", 10), "alice")
    assert len(two.search("market", "alice", k=20)) == 10

    assert one.forget_namespace("alice") == 10
    assert two.search("market", "alice", k=20) == []
    one.add("new", "alice")

    assert two.search("market", "alice", k=20) == [f"new: {text_of('new')}"]


def test_a_claim_supersedes_that_of_another_process(others: list[Remote], path: Path) -> None:
    one, two, *_ = others
    one.add("rome", "alice", claim=("alice", "city", "Rome"))
    assert two.search("rome", "alice", k=5)
    two.add("oslo", "alice", claim=("alice", "city", "Oslo"))

    assert [hit[:5] for hit in one.search("went to market", "alice", k=5)] == ["oslo:"]
    with opened(path) as memory:
        current = memory.find_claim(("alice",), "alice", "city")
        assert current is not None
        assert (current.id, current.supersedes) == ("oslo", "rome")


def test_of_claims_made_at_once_exactly_one_holds(others: list[Remote], path: Path) -> None:
    answers = [o.begin("claim_each", ids(f"city{n}", 15), "alice") for n, o in enumerate(others)]
    for answer in answers:
        answer()

    with opened(path) as memory:
        everything = memory.list(namespace=("alice",), status=None, limit=1000).items
        live = [item for item in everything if item.status == "live"]
        current = memory.find_claim(("alice",), "alice", "city")
        assert len(everything) == 60
        assert current is not None
        assert [item.id for item in live] == [current.id]
        assert memory.check() == []


def test_one_puts_items_into_cells_while_others_search_and_add(
    others: list[Remote], path: Path
) -> None:
    drainer, adder, *searchers = others
    base, more, some = ids("base", 60), ids("more", 240), ids("some", 40)
    drainer.add_together(base, "alice")

    watching = [searcher.begin("watch", base, "alice", 1.5) for searcher in searchers]
    adding = adder.begin("add_each", some, "alice")
    for start in range(0, 240, 20):
        drainer.add_together(more[start : start + 20], "alice")
    adding()
    seen = [one for answer in watching for one in answer()]

    # What they searched for was there all the time.
    assert [item_id for _, item_id, found in seen if item_id not in found] == []
    assert {item_id for _, item_id, _ in seen} == set(base)
    with opened(path) as memory:
        stats = memory.stats(("alice",))
        assert stats.cells > 20
        assert stats.live == 340
        assert memory.check() == []
    for searcher in searchers:
        for item_id in [*base, *more, *some][::7]:
            assert searcher.search(text_of(item_id), "alice", k=1, cold=True)[0].startswith(item_id)


def test_value_events_are_counted_once_whoever_folds_them(others: list[Remote], path: Path) -> None:
    """All log, and all fold at once: their own logs, and what they take for orphaned."""
    items = ids("item", 3)
    others[0].add_each(items, "alice")

    answers = [other.begin("reinforce", items, 60, flush_every=7) for other in others]
    with opened(path) as memory:
        for _ in range(10):
            memory.flush()
            time.sleep(0.02)
        for answer in answers:
            answer()
        for other in others:
            other.close()
        memory.flush()

        assert [memory.get(item_id).contributed_count for item_id in items] == [240] * 3
        assert memory.flush() == 0
    assert not list(path.parent.glob("*.events-*"))


def test_the_events_of_a_killed_process_are_counted_by_another(
    others: list[Remote], path: Path
) -> None:
    killed, other, *_ = others
    other.add("item", "alice")
    killed.reinforce(["item"], 10)
    time.sleep(0.5)
    killed.kill()
    assert len(list(path.parent.glob("*.events-*"))) == 1

    assert other.flush() == 10
    assert other.flush() == 0

    with opened(path) as memory:
        assert memory.get("item").contributed_count == 10
    assert not list(path.parent.glob("*.events-*"))


def test_the_log_of_a_living_process_is_left_to_it(others: list[Remote], path: Path) -> None:
    living, other, *_ = others
    other.add("item", "alice")
    living.reinforce(["item"], 10)
    time.sleep(0.5)

    assert other.flush() == 0
    assert living.flush() == 10


def test_a_killed_writer_blocks_nobody(others: list[Remote], path: Path) -> None:
    """Its lock goes with it, and half a transaction is none."""
    killed, other, *_ = others
    other.add("first", "alice")
    killed.begin("add_together", ids("half", 3000), "alice")
    time.sleep(0.15)
    killed.kill()

    began_s = time.monotonic()
    other.add("second", "alice")

    assert time.monotonic() - began_s < 5.0
    with opened(path) as memory:
        live = memory.stats(("alice",)).live
        assert live - 2 in (0, 1000, 2000, 3000)
        assert memory.check() == []


def test_a_reader_puts_off_that_bytes_are_gone_and_the_receipt_says_so(path: Path) -> None:
    """Forgetting itself waits for nobody."""
    with opened(path) as memory, closing(apsw.Connection(str(path))) as reader:
        memory.add("the canary zqxjkv sings", namespace=("alice",), id="canary")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM item").get == 1

        receipt = memory.forget("canary")

        while_read = receipt.erased
        found = memory.search("canary", namespace=("alice",)).hits
        reader.execute("COMMIT")
        assert (while_read, found) == (False, ())
        assert receipt.erased
    assert not any(b"zqxjkv" in file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.parametrize("seed", range(3))
def test_what_a_process_keeps_in_ram_is_what_is_in_the_file(
    others: list[Remote], path: Path, seed: int
) -> None:
    """After whatever the others did, it answers as one that has just opened the file."""
    chance = random.Random(seed)
    living: dict[str, str] = {}

    def text() -> str:
        return " ".join(f"word{chance.randrange(150)}" for _ in range(8))

    for number in range(60):
        writer, reader = chance.sample(others[:3], 2)
        what = chance.random()
        if what < 0.4 or len(living) < 5:
            new = {i: text() for i in ids(f"n{number}i", chance.choice([1, 1, 5, 30]))}
            writer.add_texts(new, "alice")
            living |= new
        elif what < 0.6:
            item_id = chance.choice(list(living))
            writer.forget(item_id)
            del living[item_id]
        elif what < 0.75:
            item_id = chance.choice(list(living))
            living[item_id] = text()
            writer.update(item_id, living[item_id])
        elif what < 0.85:
            writer.pin(chance.choice(list(living)), chance.random() < 0.5)
        else:
            writer.reinforce(chance.sample(list(living), 3), 5)
            writer.flush()
            writer.sweep()
        query = chance.choice([text(), chance.choice(list(living.values()))])
        answer = reader.scored(query, "alice", 6)
        with opened(path) as memory:
            fresh = scored(memory, query, "alice", 6)

        assert [score for *_, score in answer] == [score for *_, score in fresh], number
        assert [living[item_id] for item_id, *_ in answer] == [said for _, said, _ in answer]
