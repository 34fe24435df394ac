"""The short way of a search: by vector alone, where all vectors of a namespace are in RAM.

Most searches of agents are such.  They find what the long way would find, or
say that it must be gone.
"""

import numpy as np

from amv.memory.edit import model_of
from amv.memory.facts import ENDS, values, worth
from amv.memory.hot import View
from amv.memory.ports import Floats, NamespaceRow, Reader
from amv.memory.query import Match, Outcome, Query
from amv.memory.ranking import fuse
from amv.memory.results import Scanned
from amv.memory.settings import MemorySettings


def run_resident(
    reader: Reader, view: View, row: NamespaceRow, query: Query, settings: MemorySettings
) -> Outcome | None:
    """Search a view that is whole; the caller holds its lock.

    None where that is not the whole story: among the best are several passages
    of one item, or items not valid yet or past their time, more vectors are
    equally similar than are looked at, or more wait than may be scanned.

    The scan has just emptied the processor's caches, so that each further step
    costs more than it looks: they are few.
    """
    block, k, budget = view.pending, query.k, settings.budget
    pool = max(k + 16, settings.rerank_for(k))
    n = len(block)
    scanned_hot = min(n, budget.hot)
    if n - scanned_hot + min(n, pool) > budget.warm:
        return None
    rough, off_by = block.rough(query.vector, n)
    if n > pool:
        best = (rough >= _least(rough, pool)).nonzero()[0]
        if len(best) > pool:
            return None
    else:
        best = np.arange(n)
    keys, are_different = view.keys_at(best)
    known = view.facts(reader, best, query.at_s)
    if known is None or not are_different:
        return None
    facts, all_shown = known
    if not all_shown:
        shown = facts[ENDS] > query.at_s
        rest = view.cards(reader, keys[~shown].tolist()).values()
        if n > pool or any(card.is_visible(query.at_s, query.now_s) for card in rest):
            return None
        best, keys, facts = best[shown], keys[shown], facts[:, shown]
    model, weights = model_of(row, settings.value_model), settings.weights
    worths = worth(facts, query.now_s, model)
    if len(best) > k:
        # Only what may be among the k best is read again: most of the rest is far behind.
        guesses = fuse(rough[best], 0.0, worths, weights)
        near = (guesses >= _least(guesses, k) - weights.vector * off_by).nonzero()[0]
        best, keys, worths = best[near], keys[near], worths[near]
        facts = facts.take(near, axis=1)
    exact = block.exact(best, query.vector)
    ranks = fuse(exact, 0.0, worths, weights)
    order = np.lexsort((-keys, -ranks))[:k]
    matches = [
        Match(card, similarity, 0.0, rank, value)
        for card, similarity, rank, value in zip(
            view.cards(reader, keys[order].tolist()).values(),
            exact[order].tolist(),
            ranks[order].tolist(),
            values(facts[:, order], query.now_s, model),
            strict=True,
        )
    ]
    scanned = Scanned(hot=scanned_hot, warm=n - scanned_hot + len(best))
    return Outcome(matches, scanned, "", cold_probed=False)


def _least(numbers: Floats, count: int) -> np.float32:
    """Return the least of the *count* largest numbers."""
    place = len(numbers) - count
    ordered = numbers.copy()
    ordered.partition(place)
    least: np.float32 = ordered[place]
    return least
