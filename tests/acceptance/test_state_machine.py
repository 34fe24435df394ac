"""The memory over a SQLite file behaves as the memory over dictionaries does, whatever is asked.

A random walk does the same to both and compares what they answer.  Both run the same service, so
what a comparison can't see is checked against a plain count kept here: what was added and not
forgotten is listed, an exhaustive search finds exactly what is visible, what was forgotten or has
expired shows nowhere, and no namespace shows another's.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amv.embedders.hashing import Hashing
from amv.errors import AmvError
from amv.memory.item import Claim, Item, Namespace, Status
from amv.memory.ports import Event, Floats, Store
from amv.memory.results import SearchResult
from amv.memory.service import MemoryService
from amv.memory.settings import CellSettings, MemorySettings
from amv.memory.tiers import Tier
from amv.stores.memory import MemoryStore
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.codec import decode_vectors, encode_vectors
from amv.testing import FakeClock

T = TypeVar("T")

NAMES: tuple[Namespace, ...] = (("a",), ("a", "b"), ("a/b",))
WORDS = (
    *("rome", "oslo", "lima", "walks", "swims", "sings", "green"),
    *("amber", "indigo", "tea", "salt", "rice", "seven", "nine"),
)
SUBJECTS = ("ada",)
ATTRIBUTES = ("city", "diet")
VALUES: tuple[str | int, ...] = ("rome", "oslo", 7)
DAY_S = 86_400.0
EVERYTHING = 256

SMALL = MemorySettings(
    hot_max=8,
    probation_max=2,
    cells=CellSettings(
        from_vectors=20, drain_at=4, target=4, split_above=8, probes_warm=3, probes_cold=64
    ),
)


class SixWords(Hashing):
    """An embedder that reads six words at a time, so that a line has several passages.

    Its vectors are as precise as a file keeps them: both memories compute with
    the same bits, and no tie between items is decided by a rounding error.
    """

    def embed(self, texts: Sequence[str]) -> Floats:
        return decode_vectors(encode_vectors(super().embed(texts)))

    def passages(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"(\S+\s*){1,6}", text)]


EMBEDDER = SixWords(dimension=16)


class Silent:
    """A store as seen by someone who only looks: what it shows is not noted as exposed."""

    def __init__(self, store: Store) -> None:
        self.read = store.read
        self.write = store.write
        self.fold = store.fold
        self.erase = store.erase
        self.unfolded = store.unfolded
        self.size_bytes = store.size_bytes
        self.check = store.check
        self.close = store.close

    def log(self, events: Sequence[Event]) -> None:
        """Drop the events."""


class Side:
    """One store, a memory on it that is worked with, and another one that watches it."""

    def __init__(self, store: Store, clock: FakeClock, ids: "count[int]") -> None:
        self.store = store
        self._clock = clock
        self._ids = ids
        self.renew()

    def renew(self) -> None:
        """Begin with empty caches, as a new process does."""
        self.memory, self.watcher = self.fresh(self.store), self.fresh(Silent(self.store))

    def fresh(self, store: Store) -> MemoryService:
        return MemoryService(
            store, EMBEDDER, SMALL, clock=self._clock, new_id=lambda: f"new{next(self._ids):04}"
        )


@dataclass
class Kept:
    """What this test itself remembers of one item."""

    canaries: list[str]
    expires_s: float | None = None


@dataclass
class Told:
    """What a call came to: its answer, or the error it raised."""

    answer: Any = None
    error: tuple[str, str] | None = field(default=None)


def told(call: Callable[[], object]) -> Told:
    try:
        return Told(call())
    except AmvError as error:
        return Told(error=(type(error).__name__, str(error)))


def close_to(one: float, other: float) -> bool:
    return math.isclose(one, other, abs_tol=1e-5)


def assert_same_hits(one: SearchResult, other: SearchResult) -> None:
    """Compare two results; items of all but equal rank may stand in either order."""
    assert one.complete == other.complete
    assert one.cold_probed == other.cold_probed
    assert len(one.hits) == len(other.hits)
    for mine, theirs in zip(one.hits, other.hits, strict=True):
        assert close_to(mine.rank, theirs.rank)
    known = {hit.item.id: hit for hit in other.hits}
    last = one.hits[-1].rank if one.hits else 0.0
    for hit in one.hits:
        if hit.item.id not in known:
            assert close_to(hit.rank, last)
            continue
        assert hit.item == known[hit.item.id].item
        assert close_to(hit.similarity, known[hit.item.id].similarity)
        assert close_to(hit.lexical, known[hit.item.id].lexical)


def is_visible(item: Item, at_s: float, now_s: float) -> bool:
    """Say independently of the memory whether a search as of *at_s* may show an item."""
    begun = item.valid_from.timestamp() <= at_s
    over = item.valid_until is not None and item.valid_until.timestamp() <= at_s
    believed = item.status is Status.LIVE or (item.status is Status.SUPERSEDED and at_s < now_s)
    return begun and not over and believed


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
long_texts = st.lists(st.sampled_from(WORDS), min_size=10, max_size=40).map(" ".join)
picks = st.integers(0, 10_000)
names = st.sampled_from((*NAMES, NAMES[0], NAMES[0]))
"""One of them more often, so that things meet there."""
claims = st.builds(
    Claim, st.sampled_from(SUBJECTS), st.sampled_from(ATTRIBUTES), st.sampled_from(VALUES)
)
offsets_s = st.sampled_from([60.0, DAY_S, 40 * DAY_S])
metadata = st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 3), "tag": st.sampled_from("xy")}
)
CONDITIONS: tuple[dict[str, object], ...] = (
    {"n": 1},
    {"n": {"gte": 2}},
    {"or": [{"tag": "x"}, {"n": {"lt": 1}}]},
    {"not": {"tag": {"in": ["y"]}}},
)


def plain_fit(condition: Mapping[str, object], data: Mapping[str, Any]) -> bool:
    """Say independently of the memory whether metadata fit one of `CONDITIONS`."""
    n, tag = data.get("n"), data.get("tag")
    match condition:
        case {"n": 1}:
            return n == 1
        case {"n": _}:
            return n is not None and n >= 2
        case {"or": _}:
            return tag == "x" or (n is not None and n < 1)
        case _:
            return tag != "y"


class SameMemories(RuleBasedStateMachine):
    """Do the same to both memories."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "amv.db"
        self.clock = FakeClock()
        self.file = Side(SqliteStore.open(self.path, synchronous="NORMAL"), self.clock, count(1))
        self.model = Side(MemoryStore(), self.clock, count(1))
        self.kept: dict[tuple[Namespace, str], Kept] = {}
        self.gone_ids: set[str] = set()
        self.forgotten_ids: set[str] = set()
        self.gone_words: set[str] = set()
        self.canaries = count(1)
        self.turns = count()
        self.touched: set[Namespace] = set()

    def teardown(self) -> None:
        self.touched = set(NAMES)
        try:
            self.they_agree()
            self.move_elsewhere(vectors=True, into_file=False)
        finally:
            self.file.store.close()
            self.model.store.close()
            self.folder.cleanup()

    # What is done to both

    def both(self, call: Callable[[MemoryService], object]) -> Told:
        """Do something with both memories; they answer or refuse alike."""
        mine, theirs = told(lambda: call(self.file.memory)), told(lambda: call(self.model.memory))
        assert mine.error == theirs.error
        if isinstance(mine.answer, SearchResult):
            assert_same_hits(mine.answer, theirs.answer)
        else:
            assert mine.answer == theirs.answer
        return mine

    def with_canary(self, content: str) -> tuple[str, str]:
        canary = f"zq{next(self.canaries):05}zq"
        return f"{content} {canary}", canary

    def picked(self, pick: int) -> tuple[Namespace, str]:
        found = list(self.kept)[pick % len(self.kept)]
        self.touched.add(found[0])
        return found

    def note(self, item: Item, canary: str | None = None) -> None:
        """Remember that an item was added."""
        kept = self.kept.setdefault((item.namespace, item.id), Kept([]))
        kept.expires_s = None if item.expires_at is None else item.expires_at.timestamp()
        if canary is not None:
            kept.canaries.append(canary)

    def lose(self, key: tuple[Namespace, str], *, has_expired: bool = False) -> None:
        """Remember that an item was forgotten, or has expired."""
        self.gone_words.update(self.kept.pop(key).canaries)
        if key[1].startswith("new"):
            self.gone_ids.add(key[1])
            if not has_expired:
                self.forgotten_ids.add(key[1])

    def drop_expired(self) -> None:
        now_s = self.clock()
        for key, kept in list(self.kept.items()):
            if kept.expires_s is not None and kept.expires_s <= now_s:
                self.lose(key, has_expired=True)

    # Adding

    @initialize(fill=st.integers(0, 24))
    def begin(self, fill: int) -> None:
        if fill:
            self.add_many(NAMES[0], [WORDS[i % 5] for i in range(fill)])

    @rule(
        name=names,
        content=texts | long_texts,
        item_id=st.none() | st.sampled_from(["given1", "given2"]),
        claim=st.none() | claims | claims,
        trust=st.sampled_from([None, 0.1, 0.5, 0.9]),
        data=metadata,
        starts=st.none() | offsets_s | offsets_s.map(lambda s: -s),
        ends=st.none() | offsets_s,
        expires=st.none() | offsets_s,
        pinned=st.sampled_from([False, False, False, True]),
        context=st.sampled_from(["", "", "said at tea"]),
        vector=st.none() | st.integers(0, 15),
    )
    def add(
        self,
        name: Namespace,
        content: str,
        item_id: str | None,
        claim: Claim | None,
        trust: float | None,
        data: dict[str, object],
        starts: float | None,
        ends: float | None,
        expires: float | None,
        pinned: bool,
        context: str,
        vector: int | None,
    ) -> None:
        content, canary = self.with_canary(content)
        now_s = self.clock()
        begins_s = now_s + (starts or 0.0)
        self.touched.add(name)
        done = self.both(
            lambda memory: memory.add(
                content,
                namespace=name,
                id=item_id,
                claim=claim,
                source_trust=trust,
                source=None if trust is None else "someone",
                metadata=data,
                valid_from=None if starts is None else begins_s,
                valid_until=None if ends is None else begins_s + ends,
                expires_at=None if expires is None else now_s + expires,
                pinned=pinned,
                context=context,
                vector=None if vector is None else [float(i == vector) for i in range(16)],
            )
        )
        if done.error is None:
            self.note(done.answer, canary)

    @rule(value=st.sampled_from(VALUES), trust=st.sampled_from([0.2, 0.5, 0.8]))
    def claim(self, value: str | int, trust: float) -> None:
        """Say where Ada lives, so that claims meet often."""
        content, canary = self.with_canary(f"ada is in {value}")
        self.touched.add(NAMES[0])
        done = self.both(
            lambda memory: memory.add(
                content,
                namespace=NAMES[0],
                claim=Claim("ada", "city", value),
                source_trust=trust,
            )
        )
        self.note(done.answer, canary)

    @rule(name=names, contents=st.lists(texts, min_size=5, max_size=12))
    def add_many(self, name: Namespace, contents: list[str]) -> None:
        pairs = [self.with_canary(content) for content in contents]
        self.touched.add(name)
        items = [
            {"content": content, "namespace": name, "metadata": {"n": i % 4, "tag": "xyz"[i % 3]}}
            for i, (content, _) in enumerate(pairs)
        ]
        done = self.both(lambda memory: memory.add_many(items))
        for item, (_, canary) in zip(done.answer, pairs, strict=True):
            self.note(item, canary)

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def add_again(self, pick: int) -> None:
        """The same id and content again is no error, and no second item."""
        name, item_id = self.picked(pick)
        old = told(lambda: self.model.memory.get(item_id, namespace=name)).answer
        if old is not None:
            self.both(
                lambda memory: memory.add(
                    old.content,
                    namespace=name,
                    id=item_id,
                    claim=old.claim,
                    metadata=dict(old.metadata),
                )
            )

    # Changing

    @precondition(lambda self: self.kept)
    @rule(
        pick=picks,
        content=st.none() | texts | long_texts,
        changes=st.fixed_dictionaries(
            {},
            optional={
                "context": st.sampled_from(["", "heard over rice"]),
                "metadata": metadata,
                "source_trust": st.sampled_from([0.2, 0.8]),
            },
        ),
        ends=st.none() | offsets_s,
        expires=st.none() | offsets_s,
    )
    def update(
        self,
        pick: int,
        content: str | None,
        changes: dict[str, object],
        ends: float | None,
        expires: float | None,
    ) -> None:
        name, item_id = self.picked(pick)
        canary: str | None = None
        changes = dict(changes)
        if content is not None:
            changes["content"], canary = self.with_canary(content)
        if ends is not None:
            changes["valid_until"] = self.clock() + ends
        if expires is not None:
            changes["expires_at"] = self.clock() + expires
        done = self.both(lambda memory: memory.update(item_id, namespace=name, **changes))
        if done.error is None:
            self.note(done.answer, canary)

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def confirm(self, pick: int) -> None:
        name, item_id = self.picked(pick)
        self.both(lambda memory: memory.confirm(item_id, namespace=name))

    @precondition(lambda self: self.kept)
    @rule(pick=picks, value=st.none() | st.sampled_from(VALUES))
    def refute(self, pick: int, value: str | int | None) -> None:
        name, item_id = self.picked(pick)
        done = self.both(lambda memory: memory.refute(item_id, value, namespace=name))
        if done.error is None:
            self.note(done.answer)

    @precondition(lambda self: self.kept)
    @rule(pick=picks, pinned=st.booleans())
    def pin(self, pick: int, pinned: bool) -> None:
        name, item_id = self.picked(pick)
        self.both(lambda memory: memory.pin(item_id, pinned, namespace=name))

    # Asking

    @rule(
        name=names,
        text=st.none() | texts,
        vector=st.none() | st.integers(0, 15),
        k=st.sampled_from([1, 3, 10, EVERYTHING]),
        condition=st.none() | st.sampled_from(CONDITIONS),
        ago=st.none() | offsets_s,
        cold=st.sampled_from([None, True, False]),
    )
    def search(
        self,
        name: Namespace,
        text: str | None,
        vector: int | None,
        k: int,
        condition: dict[str, object] | None,
        ago: float | None,
        cold: bool | None,
    ) -> None:
        done = self.both(
            lambda memory: memory.search(
                text,
                namespace=name,
                k=k,
                vector=None if vector is None else [float(i == vector) for i in range(16)],
                filter=condition,
                as_of=None if ago is None else self.clock() - ago,
                cold=cold,
            )
        )
        if done.error is not None:
            return
        assert done.answer.scanned.total <= SMALL.budget.total
        for hit in done.answer.hits:
            assert hit.item.namespace == name
            assert condition is None or plain_fit(condition, hit.item.metadata)

    @rule(name=names, text=texts, tokens=st.sampled_from([10, 60, 800]))
    def context(self, name: Namespace, text: str, tokens: int) -> None:
        self.touched.add(name)
        self.both(lambda memory: memory.context(text, namespace=name, token_budget=tokens))

    @precondition(lambda self: self.kept)
    @rule(pick=picks, again=picks, contributed=st.booleans(), negative=st.booleans())
    def reinforce(self, pick: int, again: int, contributed: bool, negative: bool) -> None:
        (name, one), (_, other) = self.picked(pick), self.picked(again)
        self.both(
            lambda memory: memory.reinforce(
                [one, other, "absent"], contributed=contributed, negative=negative, namespace=name
            )
        )

    @rule(name=names, number=st.integers(3, 14), times=st.integers(1, 3))
    def use_many(self, name: Namespace, number: int, times: int) -> None:
        """Make more items worth hot than fit there."""
        own = [item_id for ns, item_id in self.kept if ns == name][-number:]
        for _ in range(times):
            self.both(lambda memory: memory.reinforce(own, contributed=True, namespace=name))
        self.touched.add(name)
        self.both(lambda memory: memory.flush())

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def history(self, pick: int) -> None:
        name, item_id = self.picked(pick)
        self.both(lambda memory: memory.history(item_id, namespace=name))
        self.both(lambda memory: memory.get(item_id))

    # Time

    @rule(seconds=st.sampled_from([0.25, 60.0, DAY_S, 20 * DAY_S, 90 * DAY_S]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.touched.update(NAMES)
        self.drop_expired()

    @rule()
    def flush(self) -> None:
        self.touched.update(NAMES)
        self.both(lambda memory: memory.flush())

    @rule(name=st.none() | names)
    def sweep(self, name: Namespace | None) -> None:
        """A dry run says what the real one does; another one right after has nothing to do."""
        self.touched.update(NAMES)
        dry = self.both(lambda memory: memory.sweep(namespace=name, dry_run=True)).answer
        real = self.both(lambda memory: memory.sweep(namespace=name)).answer
        again = self.both(lambda memory: memory.sweep(namespace=name, dry_run=True)).answer

        assert replace(dry, dry_run=False) == real
        assert again.moves == ()

    # Forgetting

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def forget(self, pick: int) -> None:
        self.forget_one(*self.picked(pick))

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def forget_one_of_a_chain(self, pick: int) -> None:
        """Forget something that superseded or was superseded."""
        chain = [
            (name, item.id)
            for name in NAMES
            for item in self.model.memory.list(namespace=name, status=None, limit=1000).items
            if item.supersedes or item.superseded_by
        ]
        if chain:
            name, item_id = chain[pick % len(chain)]
            self.touched.add(name)
            self.forget_one(name, item_id)

    def forget_one(self, name: Namespace, item_id: str) -> None:
        done = self.both(lambda memory: _receipt(memory.forget(item_id, namespace=name)))

        assert done.answer == ((item_id,), name, True)
        words = self.kept[name, item_id].canaries
        self.lose((name, item_id))
        self.assert_not_in_files(words)

    @rule(name=names)
    def forget_namespace(self, name: Namespace) -> None:
        own = [key for key in self.kept if key[0] == name]
        done = self.both(lambda memory: _receipt(memory.forget_namespace(name)))
        self.touched.add(name)
        if done.error is None:
            assert done.answer[2]
            assert {item_id for _, item_id in own} <= set(done.answer[0])
        words = [word for key in own for word in self.kept[key].canaries]
        for key in own:
            self.lose(key)
        self.assert_not_in_files(words)

    def assert_not_in_files(self, words: Sequence[str]) -> None:
        """See that no byte of what was forgotten is left in any file."""
        for path in self.path.parent.iterdir():
            data = path.read_bytes()
            assert not [word for word in words if word.encode() in data]

    # Moving

    @rule(vectors=st.sampled_from([True, True, False]), into_file=st.booleans())
    def move_elsewhere(self, vectors: bool, into_file: bool) -> None:
        """What is exported and restored elsewhere is exported from there alike."""
        mine = list(self.file.memory.export_items(vectors=vectors))
        theirs = list(self.model.memory.export_items(vectors=vectors))
        for one, other in zip(mine, theirs, strict=True):
            assert one == other
        with TemporaryDirectory() as folder:
            store: Store = (
                SqliteStore.open(Path(folder) / "b.db", synchronous="NORMAL")
                if into_file
                else MemoryStore()
            )
            with closing(store):
                self.assert_restored(store, mine, vectors=vectors)
        written = json.dumps(mine)
        assert not [word for word in self.gone_words if word in written]

    def assert_restored(
        self, store: Store, exported: list[dict[str, object]], *, vectors: bool
    ) -> None:
        copy = Side(store, self.clock, count(1)).memory
        lines = [json.loads(json.dumps(data)) for data in exported]
        report = copy.restore(lines)
        assert (report.added, report.present) == (len(lines), 0)
        assert list(copy.export_items(vectors=vectors)) == exported
        assert store.check() == []
        for name in NAMES:
            listed, restored = (
                memory.list(namespace=name, status=None, limit=1000).items
                for memory in (self.model.memory, copy)
            )
            assert listed == restored
            for item in listed[-5:]:
                before = self.model.memory.history(item.id, namespace=name)
                assert copy.history(item.id, namespace=name) == before
        for name in NAMES if vectors else ():
            # What has expired is not exported, yet counts in the word statistics until a sweep.
            here, there = (
                {hit.item.id: hit for hit in self.exhaustive(memory, name).hits}
                for memory in (self.model.watcher, copy)
            )
            assert here.keys() == there.keys()
            for item_id, hit in here.items():
                assert hit.item == there[item_id].item
                assert close_to(hit.similarity, there[item_id].similarity)
        assert copy.restore(lines).present == len(lines)

    @rule()
    def reopen(self) -> None:
        self.file.memory.close()
        self.model.memory.flush()
        self.file.store = SqliteStore.open(self.path, synchronous="NORMAL")
        for side in (self.file, self.model):
            side.renew()
        self.touched.update(NAMES)

    @rule(name=names)
    def rebuild_index(self, name: Namespace) -> None:
        self.both(lambda memory: memory.rebuild_index(name))
        self.touched.add(name)

    # What holds after every step

    def exhaustive(self, memory: MemoryService, name: Namespace) -> SearchResult:
        return memory.search("rome tea", namespace=name, k=EVERYTHING, cold=True)

    @invariant()
    def they_agree(self) -> None:
        touched, self.touched = self.touched, set()
        for name in sorted(touched):
            self.they_agree_on(name)
        if touched:
            assert self.file.store.check() == []
            assert self.model.store.check() == []

    def they_agree_on(self, name: Namespace) -> None:
        listed = self.both(
            lambda memory: memory.list(namespace=name, status=None, limit=1000)
        ).answer.items
        assert {item.id for item in listed} == {i for ns, i in self.kept if ns == name}
        assert {item.namespace for item in listed} <= {name}
        self.assert_nothing_gone(listed)
        self.assert_search_is_exhaustive(name, listed)
        stats = self.both(lambda memory: replace(memory.stats(name), store_bytes=0)).answer
        assert stats.tiers[Tier.HOT] <= SMALL.hot_max
        assert stats.pinned <= SMALL.hot_max // 2
        for subject in SUBJECTS:
            for attribute in ATTRIBUTES:
                self.assert_claim_is_right(name, subject, attribute, listed)

    def assert_nothing_gone(self, items: Sequence[Item]) -> None:
        assert not self.gone_ids & {item.id for item in items}
        # What expired is linked to until it is swept; what was forgotten is not, at once.
        links = {link for item in items for link in (item.supersedes, item.superseded_by)}
        assert not self.forgotten_ids & links
        written = " ".join(f"{item.content} {item.context}" for item in items)
        assert not [word for word in self.gone_words if word in written]

    def assert_search_is_exhaustive(self, name: Namespace, listed: Sequence[Item]) -> None:
        """A search for everything finds just what is visible, through caches that followed."""
        now_s = self.clock()
        mine = self.exhaustive(self.file.watcher, name)
        theirs = self.exhaustive(self.model.watcher, name)
        assert_same_hits(mine, theirs)
        visible = {item.id: item for item in listed if is_visible(item, now_s, now_s)}
        assert {hit.item.id for hit in mine.hits} == set(visible)
        assert all(hit.item == visible[hit.item.id] for hit in mine.hits)
        assert mine.complete
        condition = CONDITIONS[next(self.turns) % len(CONDITIONS)]
        fitting = {
            item_id for item_id, item in visible.items() if plain_fit(condition, item.metadata)
        }
        for side in (self.file, self.model):
            filtered = side.watcher.search("tea", namespace=name, k=EVERYTHING, filter=condition)
            assert {hit.item.id for hit in filtered.hits} == fitting
        past_s = now_s - DAY_S
        past = self.file.watcher.search("rome", namespace=name, k=EVERYTHING, as_of=past_s)
        visible = {item.id: item for item in listed if is_visible(item, past_s, now_s)}
        if past.complete:
            assert {hit.item.id for hit in past.hits} == set(visible)

    def assert_claim_is_right(
        self, name: Namespace, subject: str, attribute: str, listed: Sequence[Item]
    ) -> None:
        now_s = self.clock()
        found = self.both(lambda memory: memory.find_claim(name, subject, attribute)).answer
        said = [
            item
            for item in listed
            if item.claim is not None
            and item.claim.key == (subject, attribute)
            and is_visible(item, now_s, now_s)
        ]
        best = max(((i.source_trust, i.valid_from) for i in said), default=None)
        assert best == (None if found is None else (found.source_trust, found.valid_from))


def _receipt(receipt: Any) -> tuple[object, ...]:
    return receipt.item_ids, receipt.namespace, receipt.erased


TestSameMemories = SameMemories.TestCase
TestSameMemories.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
