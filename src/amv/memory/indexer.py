"""Keeping the indexes of namespaces whole; they are derived data, which costs time only.

Nothing here may say that a write failed which is durable: where an index can't
be brought up to date, what waits outside the cells is found there, and the next
write or search tries again.
"""

from amv.errors import DimensionMismatch, StoreClosed, StoreError
from amv.memory import indexing, upkeep
from amv.memory.hot import IndexDamaged, View, Views
from amv.memory.item import Namespace
from amv.memory.ports import NamespaceRow, Store, Writer
from amv.memory.settings import MemorySettings
from amv.memory.upkeep import Warn


class Indexer:
    """What puts vectors into cells, makes damaged indexes anew and saves them at the end."""

    def __init__(self, store: Store, views: Views, settings: MemorySettings, warn: Warn) -> None:
        self._store = store
        self._views = views
        self._settings = settings
        self._warn = warn
        self._drained: frozenset[Namespace] = frozenset()

    def put_away(self, ns: NamespaceRow, now_s: float) -> bool:
        """Put what waits into cells, if too many do; return whether any were."""
        try:
            try:
                return self._put_away(ns, now_s)
            except IndexDamaged:
                anew = self._made_anew(ns.name, now_s)
                return anew is not None and self._put_away(anew, now_s)
        except StoreClosed:
            return False
        except (StoreError, DimensionMismatch) as error:
            self._warn("new items wait outside the cells, and are put into them later", error)
            return False

    def _put_away(self, ns: NamespaceRow, now_s: float) -> bool:
        view = self._views.of(ns.name)
        # One thread at a time: others would find the same cells for the same vectors.
        with view.indexing:
            drained = indexing.drain_all(self._store, view, ns, self._settings, now_s)
        if drained:
            self._drained |= {ns.name}
        self._views.trim(ns.name)
        return drained > 0

    def put_away_waiting(self, name: Namespace, now_s: float) -> bool:
        """Do what `put_away` does, unless another thread is at it.

        After an upgrade, or where a process ended while it did so, nobody else may.
        """
        with self._store.read() as reader:
            ns = reader.namespace(name)
        is_at_it = self._views.of(name).indexing.locked()
        return ns is not None and not is_at_it and self.put_away(ns, now_s)

    def make_anew(self, name: Namespace, now_s: float) -> None:
        """Make the indexes of a namespace anew."""
        ns = self._made_anew(name, now_s)
        if ns is not None:
            self.put_away(ns, now_s)

    def _made_anew(self, name: Namespace, now_s: float) -> NamespaceRow | None:
        def work(tx: Writer) -> NamespaceRow | None:
            ns = tx.namespace(name)
            return ns and upkeep.rebuild(tx, ns.ns_id, self._settings, now_s)

        self._views.drop(name)
        return self._store.write(work)

    def save_all(self, now_s: float) -> None:
        """Save the centroid indexes this process has changed, so that the next one loads them."""
        for name in self._drained:
            view = self._views.peek(name)
            if view is not None:
                self._save(view, name, now_s)

    def _save(self, view: View, name: Namespace, now_s: float) -> None:
        try:
            indexing.save_index(self._store, view, name, self._settings, now_s, is_last=True)
        except (StoreError, DimensionMismatch) as error:
            self._warn("the index is not saved, and is made anew when it is next used", error)
