"""Sixteen threads on one memory: nothing is lost, nothing fails, and every count adds up."""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import amv
from tests.acceptance.remote import SMALL_CELLS, opened, text_of

THREADS = 16
ALICE = ("alice",)
SHARED = [f"shared{number}x" for number in range(5)]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[amv.Memory]:
    """Return a memory in a file, with cells, that folds and sweeps by itself as well."""
    settings = amv.Settings(
        upkeep_interval_s=0.05,
        memory=amv.MemorySettings(cells=SMALL_CELLS, hot_max=64, probation_max=16),
    )
    path = str(tmp_path / "amv.db")
    with amv.Memory.open(path, embedder="hashing", settings=settings) as memory:
        memory.add_many(
            {"content": text_of(item_id), "namespace": ALICE, "id": item_id} for item_id in SHARED
        )
        yield memory


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Switch threads as often as can be, so that what can interleave does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], object], count: int = THREADS) -> None:
    """Run *work* in threads that start at once; raise what any of them raised."""
    ready = threading.Barrier(count)

    def start(number: int) -> None:
        ready.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(start, number) for number in range(count)]:
            future.result()


class Owner:
    """One thread's own items, and what it did to those of all."""

    def __init__(self, memory: amv.Memory, number: int) -> None:
        self.there: dict[str, str] = {}
        self.gone: list[str] = []
        self.used: Counter[str] = Counter()
        self._memory = memory
        self._number = number
        self._count = 0
        self._chance = random.Random(number)

    def act(self, times: int) -> None:
        """Do so many things, each chosen at random."""
        for _ in range(times):
            self._chance.choice(self._acts())()

    def _acts(self) -> list[Callable[[], object]]:
        if self._chance.random() < 0.05:
            return [self._memory.sweep, self._memory.flush]
        acts: list[Callable[[], object]] = [
            self.add,
            self.add,
            self.add_several,
            self.search,
            self.use,
        ]
        if self.there:
            acts += [self.update, self.forget, self.search_own, self.look_up]
        return acts

    def add(self) -> None:
        item_id = self._new()
        self._memory.add(text_of(item_id), namespace=ALICE, id=item_id)
        self.there[item_id] = text_of(item_id)

    def add_several(self) -> None:
        new = {item_id: text_of(item_id) for item_id in (self._new() for _ in range(5))}
        self._memory.add_many(
            {"content": text, "namespace": ALICE, "id": item_id} for item_id, text in new.items()
        )
        self.there |= new

    def update(self) -> None:
        item_id = self._chance.choice(list(self.there))
        self.there[item_id] = f"{item_id} stayed in bed, {self._chance.random()}"
        self._memory.update(item_id, content=self.there[item_id])

    def forget(self) -> None:
        item_id = self._chance.choice(list(self.there))
        self._memory.forget(item_id)
        del self.there[item_id]
        self.gone.append(item_id)

    def use(self) -> None:
        items = self._chance.sample(SHARED, 2)
        assert self._memory.reinforce(items, namespace=ALICE) == 2
        self.used.update(items)

    def search(self) -> None:
        assert self._memory.search("who went to market", namespace=ALICE).hits

    def search_own(self) -> None:
        """What this thread has added is found at once, as it reads now."""
        item_id = self._chance.choice(list(self.there))
        hit = self._memory.search(self.there[item_id], namespace=ALICE, k=1, cold=True).hits[0]
        assert (hit.item.id, hit.item.content) == (item_id, self.there[item_id])

    def look_up(self) -> None:
        """What this thread has forgotten is not there; what others do may or may not be."""
        for item_id in self.gone[-1:]:
            with pytest.raises(amv.ItemNotFound):
                self._memory.get(item_id)
        assert len(self._memory.list(namespace=ALICE, limit=10).items) == 10

    def _new(self) -> str:
        self._count += 1
        return f"t{self._number:02}n{self._count:03}x"


def test_whatever_threads_do_at_once_adds_up(memory: amv.Memory) -> None:
    owners = [Owner(memory, number) for number in range(THREADS)]
    # So that there is something to look at from the start.
    for owner in owners:
        owner.add_several()

    together(lambda number: owners[number].act(40))

    memory.flush()
    there = {item_id: text for owner in owners for item_id, text in owner.there.items()}
    gone = [item_id for owner in owners for item_id in owner.gone]
    used = sum((owner.used for owner in owners), Counter[str]())
    listed = {item.id: item for item in memory.list(namespace=ALICE, limit=10_000).items}
    assert {i: item.content for i, item in listed.items() if i not in SHARED} == there
    assert {item_id: listed[item_id].contributed_count for item_id in SHARED} == used
    assert memory.check() == []
    stats = memory.stats(ALICE)
    assert (stats.live, stats.tiers[amv.Tier.HOT] <= 64) == (len(there) + len(SHARED), True)
    assert stats.cells > 10
    assert gone
    for item_id, text in there.items():
        assert memory.search(text, namespace=ALICE, k=1, cold=True).hits[0].item.id == item_id
    for item_id in gone:
        found = memory.search(text_of(item_id), namespace=ALICE, k=5).hits
        assert item_id not in [hit.item.id for hit in found]


def test_one_id_given_by_all_threads_is_one_item(memory: amv.Memory) -> None:
    """A retry after an unknown outcome is the same thing one after the other."""
    items: list[amv.Item] = []

    together(lambda _: items.append(memory.add("the same", namespace=ALICE, id="same")))

    assert len({item.id for item in items}) == 1
    assert memory.stats(ALICE).live == len(SHARED) + 1
    assert memory.check() == []


def test_of_one_id_with_different_contents_one_wins_and_the_rest_are_told(
    memory: amv.Memory,
) -> None:
    won: list[str] = []
    told: list[int] = []

    def add(number: int) -> None:
        try:
            won.append(memory.add(f"content {number}", namespace=ALICE, id="same").content)
        except amv.Conflict:
            told.append(number)

    together(add)

    assert len(won) == 1
    assert len(told) == THREADS - 1
    assert memory.get("same").content == won[0]


def test_of_claims_made_by_all_threads_exactly_one_holds(memory: amv.Memory) -> None:
    def claim(number: int) -> None:
        for turn in range(5):
            value = f"city{number}x{turn}"
            claim = amv.Claim("alice", "city", value)
            memory.add(text_of(value), namespace=ALICE, id=value, claim=claim)

    together(claim)

    current = memory.find_claim(ALICE, "alice", "city")
    live = [item for item in memory.list(namespace=ALICE, limit=1000).items if item.claim]
    assert current is not None
    assert [item.id for item in live] == [current.id]
    assert memory.check() == []


def test_an_item_forgotten_by_all_threads_is_forgotten_once(memory: amv.Memory) -> None:
    receipts: list[amv.ForgetReceipt] = []
    missed: list[int] = []

    def forget(number: int) -> None:
        try:
            receipts.append(memory.forget(SHARED[0]))
        except amv.ItemNotFound:
            missed.append(number)

    together(forget)

    assert [receipt.erased for receipt in receipts] == [True]
    assert len(missed) == THREADS - 1


def test_closing_lets_calls_under_way_finish_or_say_that_it_is_closed(tmp_path: Path) -> None:
    """And what has returned before is there when the file is opened again."""
    path = tmp_path / "closing.db"
    memory = opened(path)
    added: list[str] = []
    told: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            time.sleep(0.1)
            memory.close()
            return
        try:
            for turn in range(10_000):
                item_id = f"late{number}x{turn}"
                memory.add(text_of(item_id), namespace=ALICE, id=item_id)
                added.append(item_id)
                memory.search(item_id, namespace=ALICE)
        except amv.StoreClosed:
            told.append(number)

    together(work)

    assert len(told) == THREADS - 1
    assert added
    with opened(path) as reopened:
        there = {item.id for item in reopened.list(namespace=ALICE, limit=10_000).items}
        assert there >= set(added)
        assert reopened.check() == []
