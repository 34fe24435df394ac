"""Search: the best live items for a query, within a counted budget.

    R(q) = HOT (exact) ∪ WARM cells ∪ lexical probe ∪ COLD cells (if needed)

Every distance and posting is counted where it is paid for, and no part takes
more than its share (`Budget`).  Cells hold warm and cold items side by side,
since a tier move rewrites no vector: the warm part looks at the nearest cells,
the cold part goes on to the next ones.  A namespace small enough has no cells;
its vectors are all scanned.

Candidates are then walked in order of rank: rows are read, what expired or
does not fit the filter is passed over, and the best are scored again in full
precision, until k are found or everything scored has been looked at.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from amv.memory import lexical
from amv.memory.card import Card, values_of
from amv.memory.cells import code_similarities, rotate
from amv.memory.edit import indexed_text, model_of
from amv.memory.filters import matches
from amv.memory.hot import View
from amv.memory.ports import PASSAGES_MAX, Floats, Ids, NamespaceRow, Reader, Vectors, owners
from amv.memory.query import Match, Outcome, Query
from amv.memory.ranking import fuse
from amv.memory.resident import run_resident
from amv.memory.results import Scanned
from amv.memory.settings import MemorySettings

LOOKED_THROUGH = 32
"""In how many of the best items terms are counted that too many hold to read their postings."""

LEXICAL_VECTORS = 64
"""How many items found only by their words are scored against the query's vector."""

HEAD = 512
"""Of what was scored, this many (and 8 k) are looked through first."""


@dataclass(slots=True)
class _Scan:
    """The state of one search: what was scored so far, and what that cost."""

    reader: Reader
    view: View
    row: NamespaceRow
    query: Query
    settings: MemorySettings
    ids: list[Ids] = field(default_factory=list)
    similarities: list[Floats] = field(default_factory=list)
    by_code: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    hot: int = 0
    warm: int = 0
    cold: int = 0
    postings: int = 0
    cold_probed: bool = False
    everything_scored: bool = False
    passed_waiting: bool = False
    reasons: list[str] = field(default_factory=list)
    lexical_keys: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    lexical_scores: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    read_weight: float = 0.0
    unread: dict[str, float] = field(default_factory=dict)

    @property
    def rerank_reserve(self) -> int:
        """Distances kept back for scoring the best candidates again in full precision."""
        return self.settings.rerank_for(self.query.k)

    @property
    def room_to_rescore(self) -> int:
        """Distances left for that: the reserve, and what else was not needed."""
        return self.settings.budget.warm - self.warm

    def values_of(self, cards: list[Card]) -> list[float]:
        model = model_of(self.row, self.settings.value_model)
        return values_of(cards, self.query.now_s, model)

    def note(self, ids: Ids, similarities: Floats) -> None:
        self.ids.append(ids)
        self.similarities.append(similarities)


def run(
    reader: Reader,
    view: View,
    row: NamespaceRow,
    query: Query,
    settings: MemorySettings,
) -> Outcome:
    """Run *query* against one namespace; the caller holds the view's lock."""
    if view.is_whole and not query.terms and query.node is None and query.at_s >= query.now_s:
        outcome = run_resident(reader, view, row, query, settings)
        if outcome is not None:
            return outcome
    scan = _Scan(reader, view, row, query, settings)
    exact = _selected_keys(scan)
    _lexical(scan, exact)
    if exact is not None:
        _score_keys(scan, exact)
        scan.everything_scored = True
    else:
        _hot(scan)
        _cells(scan)
    if query.at_s < query.now_s:
        _past(scan)
    found = _walk(scan)
    if len(found) < query.k and not scan.everything_scored and _score_the_rest(scan):
        found = _walk(scan)
    short = len(found) < query.k and not scan.everything_scored
    if short and not scan.reasons:
        scan.reasons.append("the candidate budget ended before k live items were found")
    scanned = Scanned(hot=scan.hot, warm=scan.warm, cold=scan.cold, postings=scan.postings)
    reason = "; ".join(scan.reasons)
    return Outcome(found[: query.k], scanned, reason, scan.cold_probed, scan.passed_waiting)


def _selected_keys(scan: _Scan) -> list[int] | None:
    """Return the keys a filter leaves, if they are few enough to be scored one by one."""
    query = scan.query
    if query.node is None or query.at_s < query.now_s:
        return None
    room = scan.settings.budget.warm - scan.rerank_reserve
    keys = scan.reader.matching(scan.row.ns_id, query.node, query.now_s, room + 1)
    return keys if len(keys) <= room else None


def _score_keys(scan: _Scan, keys: list[int]) -> None:
    """Score all vectors of *keys* exactly, within what is left of the warm and cold shares."""
    if not keys:
        return
    budget = scan.settings.budget
    wanted = scan.reader.vector_ids(keys)
    room_warm = max(0, budget.warm - scan.warm - scan.rerank_reserve)
    room_cold = max(0, budget.cold - scan.cold)
    if len(wanted) > room_warm + room_cold:
        scan.reasons.append("the items selected have more passages than the budget allows")
        wanted = wanted[: room_warm + room_cold]
    vectors = scan.reader.vectors(wanted)
    scan.note(vectors.ids, dots(vectors, scan.query.vector))
    scan.warm += min(len(vectors.ids), room_warm)
    scan.cold += max(0, len(vectors.ids) - room_warm)


def _hot(scan: _Scan) -> None:
    hot = scan.view.hot
    similarities = hot.scan(scan.query.vector, scan.settings.budget.hot)
    scan.note(hot.ids[: len(similarities)].copy(), similarities)
    scan.hot += len(similarities)


def _cells(scan: _Scan) -> None:
    """Score what is in no cell, then the nearest cells, then, if need be, the next ones."""
    query, view, budget = scan.query, scan.view, scan.settings.budget
    room = budget.warm - scan.rerank_reserve
    # More than the share wait only while a bulk add is being put into cells.
    free_hot = budget.hot - scan.hot if view.index is None else 0
    similarities = view.pending.scan(query.vector, free_hot + room + budget.cold)
    scanned = len(similarities)
    scan.note(view.pending.ids[:scanned].copy(), similarities)
    scan.hot += min(scanned, free_hot)
    scan.warm += min(max(0, scanned - free_hot), room)
    scan.cold += max(0, scanned - free_hot - room)
    if scanned < len(view.pending):
        scan.passed_waiting = True
        scan.reasons.append("new items are still being indexed")
        return
    if view.index is None or not len(view.index):
        scan.everything_scored = True
        return
    cells = scan.settings.cells
    probes = cells.probes_cold if query.cold else cells.probes_warm
    rotated = rotate(query.vector)
    room = budget.warm - scan.rerank_reserve - scan.warm
    spare = budget.cold - scan.cold if query.cold else 0
    probe = view.index.probe(rotated, probes, room + spare)
    scan.warm += min(probe.distances, room)
    scan.cold += max(0, probe.distances - room)
    room = budget.warm - scan.rerank_reserve - scan.warm
    rest, used = _score_cells(scan, rotated, probe.cell_ids, room)
    scan.warm += used
    scored = len(probe.cell_ids) - len(rest)
    if query.cold or (query.cold is None and _is_poor(scan)):
        scan.cold_probed = True
        # What a probe costs grows a little slower than the number of cells it finds.
        room = budget.cold - scan.cold
        affordable = len(probe.cell_ids) * room // max(1, probe.distances)
        if not query.cold and affordable > len(probe.cell_ids):
            further = view.index.probe(rotated, min(affordable, cells.probes_cold), room)
            scan.cold += further.distances
            done = set(probe.cell_ids[:scored].tolist())
            rest = np.asarray([i for i in further.cell_ids.tolist() if i not in done], np.int64)
        left, used = _score_cells(scan, rotated, rest, budget.cold - scan.cold)
        scan.cold += used
        scored += len(rest) - len(left)
    scan.everything_scored = scored == len(view.index)


def _score_cells(scan: _Scan, rotated: Floats, cell_ids: Ids, room: int) -> tuple[Ids, int]:
    """Score whole cells, nearest first, while they fit; return the cells left, and the count.

    A vector that stands in several of the cells is scored once.
    """
    chosen = scan.view.members(scan.reader, cell_ids)
    if not chosen:
        return cell_ids, 0
    ids = np.concatenate([members.ids for members in chosen])
    # Not a stable sort, which would be several times slower: the first of equals is looked for.
    order = np.argsort(ids)
    starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
    is_new = np.zeros(len(ids), dtype=bool)
    is_new[np.minimum.reduceat(order, starts)] = True
    if len(scan.by_code):
        is_new &= ~np.isin(ids, scan.by_code)
    ends = np.cumsum([len(members.ids) for members in chosen])
    new_until = np.concatenate([[0], np.cumsum(is_new)])[ends]
    taken = int(np.searchsorted(new_until, room, side="right"))
    if not taken:
        return cell_ids, 0
    scored = np.flatnonzero(is_new[: ends[taken - 1]])
    codes = np.concatenate([members.codes for members in chosen[:taken]])
    scan.note(ids[scored], code_similarities(rotated, codes[scored]))
    scan.by_code = np.concatenate([scan.by_code, ids[scored]])
    return cell_ids[taken:], len(scored)


def dots(vectors: Vectors, query: Floats) -> Floats:
    """Return the dot product of *query*, of shape (d,), with each vector."""
    if not len(vectors.ids):
        return np.zeros(0, dtype=np.float32)
    similarities: Floats = vectors.matrix @ query
    return similarities


def _is_poor(scan: _Scan) -> bool:
    best = max((float(s.max()) for s in scan.similarities if len(s)), default=-1.0)
    return best < scan.settings.cold_below


def _past(scan: _Scan) -> None:
    """Add what was superseded since the moment asked for."""
    room = max(0, scan.settings.budget.cold - scan.cold)
    keys = scan.reader.past_keys(scan.row.ns_id, scan.query.at_s, room + 1)
    if len(keys) > room:
        scan.reasons.append("more superseded items were valid then than the budget allows")
    _score_keys(scan, keys[:room])
    if keys[:room] and scan.query.terms:
        _past_words(scan)


def _past_words(scan: _Scan) -> None:
    """Match words of the most similar superseded items: they are in no lexical index any more."""
    ids, similarities = scan.ids[-1], scan.similarities[-1]
    best = owners(ids[np.argsort(-similarities)]).tolist()
    rows = scan.reader.rows(list(dict.fromkeys(best))[:LEXICAL_VECTORS])
    frequencies = scan.reader.frequencies(scan.row.ns_id, scan.query.terms)
    counts = {
        key: lexical.term_counts(indexed_text(row.content, row.context))
        for key, row in rows.items()
    }
    parts = []
    for term in scan.query.terms:
        found = [(key, n[term], length) for key, (n, length) in counts.items() if term in n]
        postings = np.asarray(found, dtype=lexical.POSTING)
        parts.append((max(frequencies.get(term, 0), len(found)), postings))
    live = max(scan.row.live, len(rows))
    mean_length = max(1.0, sum(length for _, length in counts.values()) / len(rows))
    keys, scores = lexical.bm25(parts, live, mean_length)
    scan.lexical_keys = np.concatenate([scan.lexical_keys, keys])
    scan.lexical_scores = np.concatenate([scan.lexical_scores, scores])


def _lexical(scan: _Scan, allowed: list[int] | None) -> None:
    """Read postings, rarest terms first, until their share is spent."""
    query, row = scan.query, scan.row
    if not query.terms or not row.live:
        return
    frequencies = scan.reader.frequencies(row.ns_id, query.terms)
    room = scan.settings.budget.postings - LEXICAL_VECTORS
    parts = []
    plan = lexical.read_plan(frequencies, room)
    plan = plan[: lexical.whole_terms(plan, frequencies)]
    for term, count in plan:
        postings = scan.reader.postings(row.ns_id, term, count)
        scan.postings += len(postings)
        parts.append((frequencies[term], postings))
    keys, scores = lexical.bm25(parts, row.live, row.length / row.live)
    if allowed is not None:
        kept = np.isin(keys, np.asarray(allowed, dtype=np.int64))
        keys, scores = keys[kept], scores[kept]
    scan.lexical_keys, scan.lexical_scores = keys, scores
    weights = {term: lexical.idf(count, row.live) for term, count in frequencies.items()}
    scan.read_weight = sum(weights.pop(term) for term, _ in plan)
    scan.unread = weights
    # The best of them are also scored by vector, wherever they are kept.
    place = {key: n for n, key in enumerate(keys[:LEXICAL_VECTORS].tolist())}
    ids = scan.reader.vector_ids(list(place)).tolist()
    best = sorted(ids, key=lambda i: place[i // PASSAGES_MAX])[:LEXICAL_VECTORS]
    vectors = scan.reader.vectors(np.asarray(best, dtype=np.int64))
    scan.note(vectors.ids, dots(vectors, query.vector))
    scan.postings += len(vectors.ids)


def _score_the_rest(scan: _Scan) -> bool:
    """Score every live item, if they are few: expired ones must not crowd them out."""
    if scan.query.at_s < scan.query.now_s:
        return False
    room = max(0, scan.settings.budget.cold - scan.cold)
    keys = scan.reader.matching(scan.row.ns_id, scan.query.node, scan.query.now_s, room + 1)
    if len(keys) > room:
        return False
    _score_keys(scan, keys)
    scan.everything_scored = not scan.reasons
    return True


class _Candidates(NamedTuple):
    """Every item scored: key, id of its most similar vector (-1: none), both scores.

    *others* are the vectors of further passages, which by their codes are less similar.
    """

    keys: Ids
    vector_ids: Ids
    similarities: Floats
    lexical: Floats
    others: Ids


def _candidates(scan: _Scan, most: int | None) -> _Candidates:
    """Return what was scored, one entry an item.

    With *most*, only of that many best vectors, and of all that share a word with the query.
    """
    ids = np.concatenate([*scan.ids, np.zeros(0, dtype=np.int64)])
    similarities = np.concatenate([*scan.similarities, np.zeros(0, dtype=np.float32)])
    if most is not None and len(ids) > most:
        wanted = np.isin(owners(ids), scan.lexical_keys)
        wanted[np.argpartition(-similarities, most)[:most]] = True
        ids, similarities = ids[wanted], similarities[wanted]
    keys = owners(ids)
    order = np.lexsort((-similarities, keys))
    ids, keys, similarities = ids[order], keys[order], similarities[order]
    best = np.ones(len(keys), dtype=bool)
    best[1:] = keys[1:] != keys[:-1]
    others = ids[~best]
    ids, keys, similarities = ids[best], keys[best], similarities[best]
    only_words = scan.lexical_keys[~np.isin(scan.lexical_keys, keys)]
    keys = np.concatenate([keys, only_words])
    ids = np.concatenate([ids, np.full(len(only_words), -1, dtype=np.int64)])
    similarities = np.concatenate([similarities, np.zeros(len(only_words), dtype=np.float32)])
    scores = np.zeros(len(keys), dtype=np.float32)
    if len(scan.lexical_keys):
        order = np.argsort(scan.lexical_keys)
        known = scan.lexical_keys[order]
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        scores = np.where(known[places] == keys, scan.lexical_scores[order][places], scores)
    rough, scores = similarities.astype(np.float32), scores.astype(np.float32)
    return _Candidates(keys, ids, rough, scores, others)


def _in_order(rough: Floats, head: int) -> Ids:
    """Return places by descending rank; sorts the *head* best first, as few need the rest."""
    if len(rough) <= 2 * head:
        return np.argsort(-rough, kind="stable")
    apart = np.argpartition(-rough, head)
    first, rest = apart[:head], apart[head:]
    return np.concatenate(
        [first[np.argsort(-rough[first], kind="stable")], rest[np.argsort(-rough[rest])]]
    )


def _walk(scan: _Scan) -> list[Match]:
    """Return what may be shown, best first.

    Looks through the best candidates only, and through all of them where too
    few of those may be shown.
    """
    head = HEAD + 8 * scan.query.k
    found = _candidates(scan, head)
    kept, cards = _shown(scan, found)
    if len(kept) < scan.query.k and sum(map(len, scan.ids)) > head:
        found = _candidates(scan, None)
        kept, cards = _shown(scan, found)
    places = np.asarray(kept, dtype=np.int64)
    keys = found.keys[places]
    chosen = [cards[key] for key in keys.tolist()]
    vector_ids = found.vector_ids[places]
    exact = _rescored(scan, vector_ids, found.similarities[places])
    exact = _by_other_passages(scan, vector_ids, exact, found.others)
    values = scan.values_of(chosen)
    worth = np.asarray(values, dtype=np.float32)
    words = _completed(scan, found.lexical[places], chosen)
    ranks = fuse(exact, words, worth, scan.settings.weights)
    return [
        Match(chosen[i], float(exact[i]), float(words[i]), float(ranks[i]), values[i])
        for i in np.lexsort((-keys, -ranks)).tolist()
    ]


def _completed(scan: _Scan, scores: Floats, cards: list[Card]) -> Floats:
    """Add to the word matches of what is left the terms whose postings were not read.

    Superseded items, of which a search of the past finds some, have all terms already.
    """
    if not scan.unread or scan.query.at_s < scan.query.now_s:
        return scores
    rows = [card.row for card in cards[:LOOKED_THROUGH]]
    texts = [indexed_text(row.content, row.context) for row in rows]
    mean_length = scan.row.length / scan.row.live
    return lexical.completed(scores, scan.read_weight, scan.unread, texts, mean_length)


def _shown(scan: _Scan, found: _Candidates) -> tuple[list[int], dict[int, Card]]:
    """Walk candidates by rank; return the places of those that may be shown, and the cards read.

    More than k, since exact similarities and values may still reorder them; not
    more than can be scored again, as rough similarities may not compete with exact ones.
    """
    query = scan.query
    zeros = np.zeros(len(found.keys), dtype=np.float32)
    rough = fuse(found.similarities, found.lexical, zeros, scan.settings.weights)
    pool = max(query.k + 16, scan.rerank_reserve)
    order = _in_order(rough, 4 * pool)
    kept: list[int] = []
    cards: dict[int, Card] = {}
    for start in range(0, len(order), pool):
        chunk = order[start : start + pool]
        cards |= scan.view.cards(scan.reader, found.keys[chunk].tolist())
        kept += [p for p in chunk.tolist() if _may_be_shown(cards.get(int(found.keys[p])), query)]
        if len(kept) >= pool:
            break
    return kept[: min(pool, max(query.k, scan.room_to_rescore))], cards


def _may_be_shown(card: Card | None, query: Query) -> bool:
    if card is None or not card.is_visible(query.at_s, query.now_s):
        return False
    return query.node is None or matches(query.node, card.row.metadata)


def _rescored(scan: _Scan, vector_ids: Ids, rough: Floats) -> Floats:
    """Replace similarities taken from codes by exact ones, as far as the warm share goes."""
    todo = np.flatnonzero(vector_ids >= 0)[: scan.room_to_rescore]
    scan.warm += len(todo)
    exact = rough.copy()
    for block in (scan.view.pending, scan.view.hot):
        places = block.places(vector_ids[todo])
        here = places >= 0
        exact[todo[here]] = block.exact(places[here], scan.query.vector)
        todo = todo[~here]
    vectors = scan.reader.vectors(np.sort(vector_ids[todo]))
    if len(vectors.ids):
        places = np.minimum(np.searchsorted(vectors.ids, vector_ids[todo]), len(vectors.ids) - 1)
        known = vectors.ids[places] == vector_ids[todo]
        exact[todo[known]] = dots(vectors, scan.query.vector)[places[known]]
    return exact


def _by_other_passages(scan: _Scan, done: Ids, exact: Floats, others: Ids) -> Floats:
    """Raise similarities of items to those of passages that only their codes put second.

    *done* are the vectors behind *exact*, by rank.  As far as the warm share goes.
    """
    others = np.unique(others[np.isin(owners(others), owners(done))])
    # What is hot has been scored exactly, and may have been met in a cell once more.
    others = others[np.isin(others, scan.by_code) & ~np.isin(others, done)]
    if not len(others):
        return exact
    keys = owners(done)
    order = np.argsort(keys, kind="stable")
    places = order[np.searchsorted(keys[order], owners(others))]
    by_rank = np.argsort(places, kind="stable")[: scan.room_to_rescore]
    others, places = others[by_rank], places[by_rank]
    lowest = np.full(len(others), -1.0, dtype=np.float32)
    raised = exact.copy()
    np.maximum.at(raised, places, _rescored(scan, others, lowest))
    return raised
