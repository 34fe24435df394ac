"""The memory itself: the writing half, upon the reading one.

Writes return once they are durable.  Texts are checked and embedded before a
transaction begins.
"""

import builtins
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from amv.checks import check_flag, several
from amv.errors import ItemNotFound, StoreClosed, StoreError
from amv.memory import checked, indexing, life, lookup, transfer, upkeep
from amv.memory.checked import Checked
from amv.memory.edit import Edit
from amv.memory.hot import IndexDamaged
from amv.memory.indexer import Indexer
from amv.memory.intake import Request
from amv.memory.item import (
    Item,
    JsonScalar,
    Namespace,
    Row,
    check_id,
    check_interval,
    check_namespace,
)
from amv.memory.ports import (
    PASSAGES_MAX,
    Embedder,
    Event,
    NamespaceRow,
    Store,
    Vectors,
    Writer,
)
from amv.memory.query import Outcome, Query
from amv.memory.reading import MemoryReading
from amv.memory.results import Activity, ForgetReceipt, SweepReport
from amv.memory.settings import MemorySettings
from amv.memory.upkeep import Warn

ADD_CHUNK = 4096
"""How many items of a bulk add share a transaction."""

EXPORT_PAGE = 500


class MemoryService(MemoryReading):
    """The memory of one or many agents, each in its own namespace."""

    _folded = _swept = _moved = 0

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        settings: MemorySettings,
        *,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        warn: Warn = lambda what, error: None,
    ) -> None:
        """Run a memory over a store; *warn* is told what fails and costs time only."""
        super().__init__(store, embedder, settings, clock=clock, new_id=new_id)
        self._indexer = Indexer(store, self._views, settings, warn)
        self._warn = warn

    def _look(self, name: Namespace, request: Query | None) -> Outcome:
        """Search; what makes an index miss items is mended first, as it is derived data."""
        try:
            found = super()._look(name, request)
            if not (found.passed_waiting and self._indexer.put_away_waiting(name, self._clock())):
                return found
        except IndexDamaged:
            self.rebuild_index(name)
        return super()._look(name, request)

    # Adding

    def add(self, content: str, *, namespace: Sequence[str], **fields: Any) -> Item:
        """Remember *content*; return the item once it is durable.

        Fields: id, metadata, context (indexed by its words, not returned by a
        search), claim, source, source_trust (0..1), valid_from, valid_until,
        expires_at (datetimes, ISO 8601 or unix seconds), pinned, vector (of
        the store's embedder, shape (dimension,); the content is then not
        embedded).  Adding the same again under its *id* changes nothing, and
        returns the item that is there; so does, without one, what tells nothing new
        (see `amv.memory.repeats`).

        Raises InvalidInput on any field that can't be kept, Conflict if the item
        of that *id* differs in a field that is given.
        """
        return self.add_many([{"content": content, "namespace": namespace, **fields}])[0]

    def add_many(self, items: Iterable[Mapping[str, Any]]) -> builtins.list[Item]:
        """Remember many items, of one or several namespaces; keys are the arguments of `add`.

        All are checked before the first is written.  They become durable in
        chunks, in order; each chunk wholly or not at all.
        """
        each = several(items, "items must be several mappings of fields")
        return self.add_under((fields, None) for fields in each)

    def add_under(
        self, items: Iterable[tuple[Mapping[str, Any], str | None]]
    ) -> builtins.list[Item]:
        """Remember many items, each with an id made for it; see `add_many`.

        One that has an id of its own keeps it.  Another gets the one made for it, so that
        the same call again finds what the first one added.  It is no id of the caller's:
        what tells nothing new adds nothing, the first time and each time again.
        """
        now_s = self._clock()
        requests = [self._intake.check(fields, now_s, made_id) for fields, made_id in items]
        added: list[Item] = []
        if not requests:
            self._check_open()
        for start in range(0, len(requests), ADD_CHUNK):
            added += self._add_chunk(requests[start : start + ADD_CHUNK])
        return added

    def _add_chunk(self, requests: Sequence[Request]) -> builtins.list[Item]:
        now_s = self._clock()
        new = self._intake.embed(requests, now_s)
        places: dict[Namespace, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(request.namespace, []).append(place)

        def work(tx: Writer) -> tuple[dict[int, Row], list[NamespaceRow]]:
            rows: dict[int, Row] = {}
            closed = []
            for name, own in places.items():
                edit = self._edit(tx, name, now_s)
                rows.update(zip(own, life.add(edit, [new[i] for i in own]), strict=True))
                closed.append(edit.close())
            return rows, closed

        rows, closed = self._store.write(work)
        for ns in closed:
            self._indexer.put_away(ns, now_s)
        items: dict[int, Item] = {}
        for ns in closed:
            own = places[ns.name]
            items.update(zip(own, self._items([rows[i] for i in own], ns, now_s), strict=True))
        return [items[place] for place in range(len(requests))]

    def _edit(self, tx: Writer, namespace: Namespace, now_s: float) -> Edit:
        lookup.check_embedder(tx, self._embedder)
        return Edit.of(tx, namespace, self._settings, now_s)

    # Changing

    def update(
        self, item_id: str, *, namespace: Sequence[str] | None = None, **fields: Any
    ) -> Item:
        """Change content, context, metadata, source_trust, valid_until or expires_at.

        What the content was stays in the item's history.  Owner, created_at,
        source and claim can't change: a new claim is a new item, which
        supersedes this one.
        """
        now_s = self._clock()
        changes = self._intake.check_changes(fields, now_s)
        vectors = self._intake.vectors_of([changes["content"]])[0] if "content" in changes else None

        def work(edit: Edit, row: Row) -> Row:
            new = vectors
            if new is None and "context" in changes:
                ids = edit.tx.vector_ids([row.key])
                old = edit.tx.vectors(ids)
                new = Vectors(old.ids - row.key * PASSAGES_MAX, old.matrix)
            changed = replace(row, **changes)
            if "valid_until_s" in changes:
                check_interval(changed.valid_from_s, changed.valid_until_s)
            return life.change(edit, row, changed, new)

        return self._change(item_id, namespace, now_s, work)

    def _change(
        self,
        item_id: str,
        namespace: Sequence[str] | None,
        now_s: float,
        work: Callable[[Edit, Row], Row],
    ) -> Item:
        """Run *work* on one item in a transaction; return the item it leaves."""

        def in_tx(tx: Writer) -> tuple[Row, NamespaceRow]:
            row, ns = lookup.find(tx, item_id, namespace, now_s)
            edit = self._edit(tx, ns.name, now_s)
            changed = work(edit, row)
            return changed, edit.close()

        changed, ns = self._store.write(in_tx)
        self._indexer.put_away(ns, now_s)
        return self._item(changed, ns, now_s)

    def pin(
        self, item_id: str, pinned: bool = True, *, namespace: Sequence[str] | None = None
    ) -> Item:
        """Keep an item hot whatever its value, or stop doing so."""
        check_flag(pinned, "pinned")
        return self._change(
            item_id,
            namespace,
            self._clock(),
            lambda edit, row: life.set_pinned(edit, row, pinned=pinned),
        )

    def confirm(self, item_id: str, *, namespace: Sequence[str] | None = None) -> Item:
        """Note that a check found an item still true: verified now, and reinforced."""
        return self._change(item_id, namespace, self._clock(), life.confirm)

    def refute(
        self,
        item_id: str,
        value: JsonScalar = None,
        *,
        namespace: Sequence[str] | None = None,
    ) -> Item:
        """Note that a check found an item wrong; no search shows it again.

        With the *value* found instead, the item's claim is replaced by a new
        item that says so, which is returned; otherwise the refuted one is.
        """
        now_s = self._clock()
        if value is None:
            return self._change(item_id, namespace, now_s, lambda e, row: life.refute(e, row, None))
        with self._store.read() as reader:
            row, ns = lookup.find(reader, item_id, namespace, now_s)
        new = checked.successor(self._intake, row, ns, value, now_s)
        return self._change(item_id, ns.name, now_s, lambda e, old: checked.replaced(e, old, new))

    @contextmanager
    def telling(
        self, checks: Sequence[Checked], *, namespace: Sequence[str]
    ) -> Iterator[Callable[[Writer], builtins.list[str]]]:
        """Prepare what checks tell of items; give what notes it, within a transaction.

        Whoever has more to write down writes both at once.  What is given returns
        the ids of the items that say what was found; an item that is not live any
        more is passed over.  A value that no claim can hold refutes an item, and
        nothing takes its place.
        """
        name, now_s = check_namespace(namespace), self._clock()
        news = checked.successors(self._store, self._intake, checks, name, now_s)
        closed: list[NamespaceRow] = []

        def tell(tx: Writer) -> builtins.list[str]:
            if tx.namespace(name) is None:
                return []
            edit = self._edit(tx, name, now_s)
            found = [
                row.id
                for check, new in zip(checks, news, strict=True)
                if (row := checked.note(edit, check, new)) is not None
            ]
            closed.append(edit.close())
            return found

        yield tell
        for ns in closed[-1:]:
            self._indexer.put_away(ns, now_s)

    # Forgetting

    def forget(self, item_id: str, *, namespace: Sequence[str] | None = None) -> ForgetReceipt:
        """Delete an item for good; once this returns, no path leads to it."""
        with self._store.read() as reader:
            _, ns = lookup.find(reader, item_id, namespace, -math.inf)
        return self.forget_many([item_id], namespace=ns.name)

    def forget_many(self, item_ids: Iterable[str], *, namespace: Sequence[str]) -> ForgetReceipt:
        """Delete several items of a namespace for good, all of them or, if one is absent, none."""
        each = several(item_ids, "item_ids must be several ids")
        ids, name = tuple(dict.fromkeys(map(check_id, each))), check_namespace(namespace)

        def work(tx: Writer) -> None:
            rows = [lookup.find(tx, item_id, name, -math.inf)[0] for item_id in ids]
            if rows:
                edit = self._edit(tx, name, self._clock())
                life.delete(edit, rows)
                edit.close()

        self._store.write(work)
        return self._receipt(ids, name)

    def forget_namespace(self, namespace: Sequence[str]) -> ForgetReceipt:
        """Delete a namespace with everything in it, for good.

        Raises ItemNotFound if nothing was ever remembered in it, and writes nothing
        then.  What the gate keeps of actions in it goes all the same.
        """
        name = check_namespace(namespace)

        def work(tx: Writer) -> tuple[tuple[str, ...] | None, bool]:
            ns = tx.namespace(name)
            if ns is None:
                return None, tx.drop_beside(name)
            ids: list[str] = []
            after_key = 0
            while rows := tx.page(ns.ns_id, source=None, after_key=after_key, limit=1000):
                ids += [row.id for row in rows]
                after_key = rows[-1].key
            tx.drop_namespace(ns.ns_id)
            return tuple(ids), True

        ids, has_dropped = self._store.write(work)
        self._views.drop(name)
        receipt = self._receipt(ids or (), name) if has_dropped else None
        if ids is None or receipt is None:
            raise ItemNotFound(f"no namespace {name!r}")
        return receipt

    def _receipt(self, ids: tuple[str, ...], name: Namespace) -> ForgetReceipt:
        receipt = ForgetReceipt(item_ids=ids, namespace=name, erase=self._store.erase)
        # Another thread may have closed the memory meanwhile, which erases, too.
        with suppress(StoreClosed):
            _ = receipt.erased
        return receipt

    # Moving a memory elsewhere

    def export_items(
        self, *, namespace: Sequence[str] | None = None, vectors: bool = False
    ) -> Iterator[dict[str, object]]:
        """Yield every unexpired item as a JSON-safe object that `restore` takes back.

        Logged value events are folded first.  *vectors* adds the vectors; they
        are needed only where they did not come from the content.
        """
        check_flag(vectors, "vectors")
        self.flush()
        names = self.namespaces() if namespace is None else [check_namespace(namespace)]
        now_s, embedder = self._clock(), self._embedder if vectors else None
        for name in names:
            after_key: int | None = 0
            while after_key is not None:
                with self._store.read() as reader:
                    if embedder is not None:
                        lookup.check_embedder(reader, embedder)
                    ns = reader.namespace(name)
                    if ns is None:
                        break
                    rows, after_key = lookup.page(
                        reader,
                        ns,
                        source=None,
                        after_key=after_key,
                        limit=EXPORT_PAGE,
                        status=None,
                        now_s=now_s,
                    )
                    page = [transfer.exported(reader, ns, row, vectors_of=embedder) for row in rows]
                yield from page

    def restore(self, items: Iterable[Mapping[str, Any]]) -> transfer.RestoreReport:
        """Take back exported items exactly as they were, in chunks that are each whole.

        Items that are there already are passed over, so that an interrupted
        import can be run again.  Raises InvalidInput or Conflict; what came
        before the chunk with the faulty item is kept.
        """
        added = present = 0
        chunk: list[transfer.Restored] = []
        for item in several(items, "items must be several exported items"):
            chunk.append(
                transfer.parsed(
                    item, embedder=self._embedder, settings=self._settings, now_s=self._clock()
                )
            )
            if len(chunk) == ADD_CHUNK:
                report = self._restore_chunk(chunk)
                added, present = added + report.added, present + report.present
                chunk = []
        report = self._restore_chunk(chunk)
        return transfer.RestoreReport(added=added + report.added, present=present + report.present)

    def _restore_chunk(self, chunk: Sequence[transfer.Restored]) -> transfer.RestoreReport:
        now_s, size = self._clock(), len(chunk)
        with self._store.read() as reader:
            lookup.check_embedder(reader, self._embedder)
            # What is there is not embedded again, so that resuming an import is cheap.
            chunk = [item for item in chunk if not transfer.is_present(reader, item, now_s)]
        if not chunk:
            return transfer.RestoreReport(added=0, present=size)
        vectors = self._intake.restored_vectors(chunk)
        places: dict[Namespace, builtins.list[int]] = {}
        for place, item in enumerate(chunk):
            places.setdefault(item.namespace, []).append(place)

        def work(tx: Writer) -> tuple[int, builtins.list[NamespaceRow]]:
            added, closed = 0, []
            for name, own in places.items():
                edit = self._edit(tx, name, now_s)
                items, theirs = [chunk[i] for i in own], [vectors[i] for i in own]
                added += transfer.restore(edit, items, theirs).added
                closed.append(edit.close())
            return added, closed

        added, closed = self._store.write(work)
        for ns in closed:
            self._indexer.put_away(ns, now_s)
        return transfer.RestoreReport(added=added, present=size - added)

    # Upkeep

    def flush(self) -> int:
        """Fold all logged value events into the items; return how many."""
        folded = self._store.fold(self._apply_events)
        self._folded += folded
        return folded

    def _apply_events(self, tx: Writer, events: Sequence[Event]) -> None:
        upkeep.apply_events(tx, events, self._settings, self._clock())

    def maintain(self) -> None:
        """Fold value events and sweep what is due; meant to be called now and then."""
        self.flush()
        self.sweep()

    def sweep(
        self, *, namespace: Sequence[str] | None = None, dry_run: bool = False
    ) -> SweepReport:
        """Move the items that crossed a threshold, in the namespaces that are due.

        What has expired is deleted, and erased as `forget` does (see `erased` of the report).
        Logged value events are folded first, also on a dry run, so that it
        lists what a real run would do.
        """
        check_flag(dry_run, "dry_run")
        self.flush()
        now_s = self._clock()
        with self._store.read() as reader:
            due = reader.namespaces(due_s=now_s)
        if namespace is not None:
            name = check_namespace(namespace)
            due = [ns for ns in due if ns.name == name]
        report = upkeep.sweep_namespaces(
            self._store, due, self._settings, now_s, dry_run=dry_run, warn=self._warn
        )
        self._swept += report.visited
        self._moved += 0 if dry_run else len(report.moves)
        return report

    def activity(self) -> Activity:
        """Return what this memory has done since it was opened; for metrics."""
        reads = self._reads
        return Activity(
            cells_cached=reads.cells_cached,
            cells_read=reads.cells_read,
            rows_cached=reads.rows_cached,
            rows_read=reads.rows_read,
            namespaces_cached=len(self._views),
            swept=self._swept,
            moved=self._moved,
            folded=self._folded,
            unfolded=self._store.unfolded(),
        )

    def unindexed(self) -> builtins.list[Namespace]:
        """Return the namespaces of which more vectors than usual wait outside the cells.

        The next write puts them away, as does a search that may not scan them all.
        """
        with self._store.read() as reader:
            rows = reader.namespaces()
        return [ns.name for ns in rows if indexing.is_due(ns, self._settings.cells)]

    def rebuild_index(self, namespace: Sequence[str]) -> None:
        """Make the indexes of a namespace anew; they are derived from its items."""
        self._indexer.make_anew(check_namespace(namespace), self._clock())

    def _check_open(self) -> None:
        """Raise StoreClosed once the memory is closed."""
        with self._store.read():
            pass

    def close(self) -> None:
        """Fold what is logged and release the store; other calls then raise StoreClosed.

        What fails of that and loses nothing is told as a warning: events that can't be
        folded wait in their log, and an index that can't be saved is made anew.  Raises
        StoreError if events are lost that `reinforce` or `context` noted.
        """
        try:
            try:
                self.flush()
            except StoreClosed:
                return
            except StoreError as error:
                self._warn("value events could not be folded, and wait", error)
            self._indexer.save_all(self._clock())
        finally:
            self._store.close()
