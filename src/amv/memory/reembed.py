"""Changing the embedder of a store, in a way that can be stopped at any point.

New vectors are staged beside the old ones, a page of items at a time, while
searches go on with the old.  When every item has its new vectors they take
over in one transaction, together with the name of the new embedder; whoever
still has the store open with the old one is told so at its next call.
Stopping before that loses nothing: what is staged stays, and the next run goes
on from there.
"""

from collections.abc import Callable

import numpy as np

from amv.errors import Conflict
from amv.memory import indexing, upkeep
from amv.memory.hot import View
from amv.memory.intake import Intake
from amv.memory.lookup import EMBEDDER_META, embedder_mark
from amv.memory.ports import (
    PASSAGES_MAX,
    RETIRED,
    Embedder,
    Reader,
    Store,
    Vectors,
    Writer,
    owners,
)
from amv.memory.settings import MemorySettings

STAGE_META = "reembedding"
PAGE = 256

Progress = Callable[[int, int], None]
"""Called with how many items are staged, and how many there are."""


def reembed(
    store: Store,
    embedder: Embedder,
    settings: MemorySettings,
    now_s: float,
    progress: Progress = lambda done, total: None,
) -> int:
    """Give every item of a store vectors of *embedder*; return how many items that were."""
    mark = embedder_mark(embedder)
    with store.read() as reader:
        if reader.meta(EMBEDDER_META) == mark:
            return 0
    intake = Intake(embedder, settings, new_id=lambda: "")
    store.write(lambda tx: _begin(tx, mark))
    staged = 0
    while True:
        staged += _stage_all(store, intake, mark, progress)
        if store.write(lambda tx: _take_over(tx, mark, settings, now_s)):
            break
    with store.read() as reader:
        namespaces = reader.namespaces()
    for ns in namespaces:
        view = View(embedder.dimension, settings.budget.hot)
        indexing.drain_all(store, view, ns, settings, now_s)
    return staged


def _begin(tx: Writer, mark: str) -> None:
    """Start staging for *mark*, or go on with it; what was staged for another is dropped."""
    if tx.meta(STAGE_META) != mark:
        tx.clear_stage()
        tx.set_meta(STAGE_META, mark)


def _stage_all(store: Store, intake: Intake, mark: str, progress: Progress) -> int:
    """Stage vectors of every item that has none staged; return how many those were."""
    with store.read() as reader:
        total = len(reader.unstaged_keys(0, -1))
    after_key = done = 0
    while True:
        with store.read() as reader:
            keys = reader.unstaged_keys(after_key, PAGE)
            contents = {key: row.content for key, row in reader.rows(keys).items()}
        if not keys:
            return done
        vectors = dict(zip(contents, intake.vectors_of(list(contents.values())), strict=True))
        store.write(lambda tx, c=contents, v=vectors: _stage(tx, mark, c, v))  # type: ignore[misc]
        after_key = keys[-1]
        done += len(keys)
        progress(done, total)


def _stage(tx: Writer, mark: str, contents: dict[int, str], vectors: dict[int, Vectors]) -> None:
    """Stage the vectors of items whose content is still the one that was embedded.

    One that was refuted since has none any more, and must not get some again.
    """
    _check_mark(tx, mark)
    indexed = set(owners(tx.vector_ids(list(contents))).tolist())
    for key, row in tx.rows(list(contents)).items():
        if row.content == contents[key] and key in indexed:
            own = vectors[key]
            tx.stage_vectors(Vectors(own.ids + key * PASSAGES_MAX, own.matrix))


def _check_mark(reader: Reader, mark: str) -> None:
    if reader.meta(STAGE_META) != mark:
        raise Conflict(f"another change of embedder has begun, to {reader.meta(STAGE_META)}")


def _take_over(tx: Writer, mark: str, settings: MemorySettings, now_s: float) -> bool:
    """Put the staged vectors in the place of the old ones; False if some item has none yet."""
    _check_mark(tx, mark)
    if tx.unstaged_keys(0, 1):
        return False
    for ns in tx.namespaces():
        after_key = 0
        while rows := tx.page(ns.ns_id, source=None, after_key=after_key, limit=PAGE):
            after_key = rows[-1].key
            keys = [row.key for row in rows]
            old, new = tx.vector_ids(keys), tx.staged(tx.staged_ids(keys))
            retired = {
                i // PASSAGES_MAX for i, c in tx.placements(old).items() if c.cell_id == RETIRED
            }
            tx.drop_vectors(old)
            tx.add_vectors(ns.ns_id, new)
            aside = [i for i in new.ids.tolist() if i // PASSAGES_MAX in retired]
            tx.retire_vectors(np.asarray(aside, dtype=np.int64))
        upkeep.rebuild(tx, ns.ns_id, settings, now_s)
    tx.clear_stage()
    tx.set_meta(STAGE_META, None)
    tx.set_meta(EMBEDDER_META, mark)
    return True
