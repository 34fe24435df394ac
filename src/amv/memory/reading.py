"""The reading half of a memory: nothing here writes the store.

That items were exposed or contributed is appended to a log, and folded into
their values later.
"""

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from amv.checks import check_flag, several, shown
from amv.errors import InvalidInput, ItemNotFound
from amv.memory import contradiction, lookup
from amv.memory import search as searching
from amv.memory.card import card_of, values_of
from amv.memory.context import ContextEntry, estimate_tokens, pack
from amv.memory.edit import model_of
from amv.memory.hot import Reads, View, Views
from amv.memory.intake import Intake
from amv.memory.item import (
    NAME_CHARS_MAX,
    Item,
    Namespace,
    Row,
    Status,
    check_namespace,
    check_text,
    read_clock,
    utc,
)
from amv.memory.ports import RANK_MAX, Embedder, Event, NamespaceRow, Reader, Store
from amv.memory.query import Found, Outcome, Query
from amv.memory.results import (
    Context,
    HistoryEntry,
    Hit,
    Page,
    Scanned,
    SearchResult,
    Stats,
    decode_cursor,
    encode_cursor,
)
from amv.memory.settings import MemorySettings
from amv.memory.value import EventKind

CONTEXT_CANDIDATES = 48
"""How many hits `context` tries to pack."""

_NOTHING = Outcome([], Scanned(), "", cold_probed=False)


class MemoryReading:
    """What can be asked of a memory.

    Safe for use by several threads.  *clock* returns unix seconds, *new_id* a
    fresh item id.  Methods that take an item id also take *namespace*, needed
    only where several namespaces hold an item of that id.
    """

    _watchers: tuple[Callable[[Namespace, Sequence[str]], None], ...] = ()

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        settings: MemorySettings,
        *,
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._settings = settings
        # As precise as a datetime is: an item is found as of the created_at that it shows.
        self._clock: Callable[[], float] = lambda: read_clock(clock)
        self._intake = Intake(embedder, settings, new_id)
        self._reads = Reads()
        self._views = Views(
            lambda: View(
                embedder.dimension,
                settings.budget.hot,
                lambda reader: lookup.check_embedder(reader, embedder),
                self._reads,
            ),
            settings.cache_bytes,
        )

    @property
    def store(self) -> Store:
        """Where this memory is kept; for keys and maintenance, not for items."""
        return self._store

    def is_resident(self, namespace: Sequence[str]) -> bool:
        """Return whether a search by vector finds all of a namespace's vectors in RAM.

        It then neither waits for a disk nor for whoever is indexing.
        """
        view = self._views.peek(check_namespace(namespace))
        return view is not None and view.is_whole and not view.lock.locked()

    def get(self, item_id: str, *, namespace: Sequence[str] | None = None) -> Item:
        """Return an item of any status; raises ItemNotFound if it is absent or expired."""
        now_s = self._clock()
        with self._store.read() as reader:
            row, ns = lookup.find(reader, item_id, namespace, now_s)
            return self._item(row, ns, now_s)

    def list(
        self,
        *,
        namespace: Sequence[str],
        source: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        status: Status | None = Status.LIVE,
    ) -> Page:
        """Return items in the order they were added, expired ones left out.

        *status* None lists superseded and refuted ones too.
        """
        name, after_key, now_s = check_namespace(namespace), decode_cursor(cursor), self._clock()
        if source is not None:
            check_text(source, "source", NAME_CHARS_MAX)
        lookup.check_limit(limit)
        wanted = lookup.check_status(status)
        with self._store.read() as reader:
            ns = reader.namespace(name)
            if ns is None:
                return Page(items=(), cursor=None)
            rows, following = lookup.page(
                reader,
                ns,
                source=source,
                after_key=after_key,
                limit=limit,
                status=wanted,
                now_s=now_s,
            )
        return Page(
            items=tuple(self._items(rows, ns, now_s)),
            cursor=None if following is None else encode_cursor(following),
        )

    def find_claim(self, namespace: Sequence[str], subject: str, attribute: str) -> Item | None:
        """Return the item that says what *subject*'s *attribute* is now.

        Where several do, it is the one from the most trusted source and, among
        those, the newest.
        """
        name, now_s = check_namespace(namespace), self._clock()
        with self._store.read() as reader:
            row = self._claim_row(reader, name, subject, attribute, now_s)
            ns = None if row is None else reader.namespace(name)
            return None if row is None or ns is None else self._item(row, ns, now_s)

    def claim_row(
        self, reader: Reader | None, namespace: Sequence[str], subject: str, attribute: str
    ) -> Row | None:
        """Return what `find_claim` would find, as a store keeps it; in a snapshot, if given.

        As contradicted counts what another claim stands against, and no text of which that
        is guessed: anyone may write one.
        """
        name, now_s = check_namespace(namespace), self._clock()
        if reader is None:
            with self._store.read() as own:
                return self.claim_row(own, name, subject, attribute)
        row = self._claim_row(reader, name, subject, attribute, now_s)
        if row is None or not row.contradicted:
            return row
        rivals = contradiction.against(reader, row, now_s, guesses=False)
        return replace(row, contradicted=bool(rivals))

    def _claim_row(
        self, reader: Reader, name: Namespace, subject: str, attribute: str, now_s: float
    ) -> Row | None:
        check_text(subject, "claim subject", NAME_CHARS_MAX)
        check_text(attribute, "claim attribute", NAME_CHARS_MAX)
        return lookup.best_claim(reader, name, subject, attribute, now_s)

    def history(
        self, item_id: str, *, namespace: Sequence[str] | None = None
    ) -> builtins.list[HistoryEntry]:
        """Return what an item, and those it superseded or was superseded by, said; oldest first."""
        now_s = self._clock()
        with self._store.read() as reader:
            row, ns = lookup.find(reader, item_id, namespace, now_s)
            return lookup.history(reader, ns, row, now_s)

    def contradicting(
        self, item_id: str, *, namespace: Sequence[str] | None = None
    ) -> builtins.list[Item]:
        """Return the live items that an item flagged as `contradicted` seems to contradict.

        First those whose claim says otherwise, then texts, of which it is guessed.  Raises
        ItemNotFound if the item is absent or expired.
        """
        now_s = self._clock()
        with self._store.read() as reader:
            row, ns = lookup.find(reader, item_id, namespace, now_s)
            guesses = self._settings.flag_contradictions
            found = contradiction.against(reader, row, now_s, guesses=guesses)
            return self._items(found, ns, now_s)

    def _item(self, row: Row, ns: NamespaceRow, now_s: float) -> Item:
        return self._items([row], ns, now_s)[0]

    def _items(self, rows: Sequence[Row], ns: NamespaceRow, now_s: float) -> builtins.list[Item]:
        cards = [card_of(row) for row in rows]
        model = model_of(ns, self._settings.value_model)
        values = values_of(cards, now_s, model)
        return [card.item(ns.name, value) for card, value in zip(cards, values, strict=True)]

    def search(
        self,
        query: str | None = None,
        *,
        namespace: Sequence[str],
        k: int = 10,
        vector: object = None,
        filter: Mapping[str, object] | None = None,
        as_of: object = None,
        cold: bool | None = None,
    ) -> SearchResult:
        """Return the *k* best live items of a namespace for a query text, a vector, or both.

        *filter* is a condition on metadata (see `filters`); *as_of* a moment to
        search as of; *cold* True always goes on into cold cells, False never,
        None when the best match so far is poor.  A blank query without a vector
        finds nothing.
        """
        name, found = self.find(
            query,
            namespace=namespace,
            k=k,
            vector=vector,
            filter=filter,
            as_of=as_of,
            cold=cold,
        )
        return SearchResult(
            hits=tuple(
                Hit(m.card.item(name, m.value), m.similarity, m.lexical, m.rank)
                for m in found.matches
            ),
            scanned=found.scanned,
            complete=not found.reason,
            reason=found.reason,
            cold_probed=found.cold_probed,
        )

    def find(
        self,
        query: str | None = None,
        *,
        namespace: Sequence[str],
        k: int = 10,
        vector: object = None,
        filter: Mapping[str, object] | None = None,
        as_of: object = None,
        cold: bool | None = None,
    ) -> Found:
        """Do what `search` does; return cards, for whoever shows them in another form."""
        request = self._intake.check_query(
            query,
            k=k,
            vector=vector,
            filter=filter,
            as_of=as_of,
            cold=cold,
            now_s=self._clock(),
        )
        return self._run(check_namespace(namespace), request)

    def _run(self, name: Namespace, request: Query | None, *, is_shown: bool = True) -> Found:
        """Run a checked search; log its hits as exposed if they are shown to the caller."""
        outcome = self._look(name, request)
        if is_shown and request is not None and outcome.matches:
            exposed, now_s = EventKind.EXPOSED, request.now_s
            rows = [match.card.row for match in outcome.matches]
            self._store.log([Event(row.ns_id, row.key, exposed, now_s) for row in rows])
            if self._watchers:
                self._tell_read(name, [row.id for row in rows])
        return Found(name, outcome)

    def _look(self, name: Namespace, request: Query | None) -> Outcome:
        view = self._views.of(name)
        with view.lock, self._store.read() as reader:
            ns = reader.namespace(name)
            if ns is None:
                self._views.drop(name)  # nothing of a forgotten one stays in RAM
            if ns is None or request is None:
                return _NOTHING
            is_behind = view.ns_id != ns.ns_id or view.version != ns.version
            if is_behind:
                view.follow(reader, ns)
            out = searching.run(
                reader,
                view,
                ns,
                request,
                self._settings,
            )
        # Where all is in RAM, a search that had nothing to catch up on has loaded nothing.
        if is_behind or not view.is_whole:
            self._views.trim(name)
        return out

    def context(
        self,
        query: str,
        *,
        namespace: Sequence[str],
        token_budget: int = 800,
        filter: Mapping[str, object] | None = None,
        vector: object = None,
        count_tokens: Callable[[str], int] = estimate_tokens,
    ) -> Context:
        """Return the best items for a query as a block for a prompt, under a cap of tokens.

        The items in it count as exposed and as contributed, the best one most.
        *count_tokens* measures the block; the default needs no tokenizer and errs high.
        """
        is_whole = isinstance(token_budget, int) and not isinstance(token_budget, bool)
        if not (is_whole and token_budget >= 1):
            raise InvalidInput(
                f"token_budget must be a whole number of at least 1, got {shown(token_budget)}"
            )
        if not callable(count_tokens):
            raise InvalidInput(f"count_tokens must be a function, got {shown(count_tokens)}")
        request = self._intake.check_query(
            query,
            k=min(CONTEXT_CANDIDATES, self._settings.k_max),
            vector=vector,
            filter=filter,
            as_of=None,
            cold=None,
            now_s=self._clock(),
        )
        found = self._run(check_namespace(namespace), request, is_shown=False)
        entries = [
            ContextEntry(
                id=row.id,
                content=row.content,
                valid_from=utc(row.valid_from_s),
                contradicted=row.contradicted,
            )
            for row in (match.card.row for match in found.outcome.matches)
        ]
        packed = pack(entries, token_budget, count_tokens)
        used = (EventKind.EXPOSED, EventKind.CONTRIBUTED)
        self._note(packed.item_ids, used, namespace, is_ranked=True)
        self._tell_read(found.namespace, packed.item_ids)
        return Context(text=packed.text, item_ids=packed.item_ids, tokens=packed.tokens)

    def reinforce(
        self,
        item_ids: Iterable[str],
        *,
        contributed: bool = True,
        negative: bool = False,
        namespace: Sequence[str] | None = None,
    ) -> int:
        """Note that items were used (*contributed*), only seen, or misled (*negative*).

        Returns how many of them are there; ids of absent items are passed over.
        """
        contributes = check_flag(contributed, "contributed")
        kind = EventKind.CONTRIBUTED if contributes else EventKind.EXPOSED
        if check_flag(negative, "negative"):
            kind = EventKind.NEGATIVE
        return self._note(several(item_ids, "item_ids must be several ids"), (kind,), namespace)

    def watch_reads(self, watcher: Callable[[Namespace, Sequence[str]], None]) -> None:
        """Have *watcher* told which items each search and context shows; it must be quick."""
        self._watchers = (*self._watchers, watcher)

    def _tell_read(self, name: Namespace, item_ids: Sequence[str]) -> None:
        for watcher in self._watchers:
            watcher(name, item_ids)

    def _note(
        self,
        item_ids: Iterable[str],
        kinds: Sequence[EventKind],
        namespace: Sequence[str] | None,
        *,
        is_ranked: bool = False,
    ) -> int:
        """Log that each of *kinds* happened to items; return how many of these are there.

        *is_ranked*: they stand in a prompt in this order, best first.
        """
        now_s, rows = self._clock(), []
        with self._store.read() as reader:
            for place, item_id in enumerate(item_ids):
                rank = min(place, RANK_MAX) if is_ranked else 0
                try:
                    rows.append((rank, lookup.find(reader, item_id, namespace, now_s)[0]))
                except ItemNotFound:
                    continue
        self._store.log(
            [Event(row.ns_id, row.key, kind, now_s, rank) for rank, row in rows for kind in kinds]
        )
        return len(rows)

    def check(self) -> builtins.list[str]:
        """Return what is wrong with the stored data, in plain sentences; empty if it is sound."""
        return self._store.check()

    def stats(self, namespace: Sequence[str] | None = None) -> Stats:
        """Return totals of one namespace or of all."""
        with self._store.read() as reader:
            if namespace is None:
                rows = reader.namespaces()
            else:
                one = reader.namespace(check_namespace(namespace))
                rows = [] if one is None else [one]
            tiers = lookup.count_tiers(reader, rows)
        return Stats(
            namespaces=len(rows),
            live=sum(ns.live for ns in rows),
            tiers=tiers,
            pinned=sum(ns.pinned for ns in rows),
            vectors=sum(ns.vectors for ns in rows),
            pending=sum(ns.pending for ns in rows),
            cells=sum(ns.cells for ns in rows),
            store_bytes=self._store.size_bytes(),
            embedder=self._embedder.id,
            dimension=self._embedder.dimension,
        )

    def namespaces(self) -> builtins.list[Namespace]:
        """Return the names of all namespaces, in order."""
        with self._store.read() as reader:
            return [ns.name for ns in reader.namespaces()]
