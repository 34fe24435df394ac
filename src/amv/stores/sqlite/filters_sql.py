"""Filters over the index of metadata entries.

A filter is answered in two steps.  The *driver*, a set of index ranges chosen
so that every item that passes is in one of them, names candidates; then each
candidate's metadata is put to `filters.matches`, the definition itself, unless
the driver is already exact.  So the index decides what is read, and never what
is true.

Where parts must all hold, the driver is the part with the fewest entries,
counted up to a limit.  A filter that passes items without any of its fields
(`not`, `ne`) is driven by the live, unexpired items of the namespace, newest
first.  At most VISITED_MAX candidates are looked at: beyond that, fewer keys
come back than there may be.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from amv.memory.filters import And, Compare, Node, Or, Scalar, matches, needs_scan
from amv.stores.sqlite.damage import damaged
from amv.stores.sqlite.rows import LIVE, metadata_of

Execute = Callable[..., Any]
Range = tuple[str, tuple[Any, ...]]

#: How many candidates one filter may look at.
VISITED_MAX = 65_536

#: Counting further than this doesn't help to choose.
_COUNTED_MAX = 1024

_LIVE_LASTING = f"""SELECT key FROM item
    WHERE ns_id = ? AND status = {LIVE} AND expires_s IS NULL ORDER BY key"""
_LIVE_EXPIRING = f"SELECT key FROM item WHERE ns_id = ? AND status = {LIVE} AND expires_s > ?"
_SCAN_LASTING = f"""SELECT key, metadata FROM item
    WHERE ns_id = ? AND status = {LIVE} AND expires_s IS NULL ORDER BY key DESC"""
_SCAN_EXPIRING = f"""SELECT key, metadata FROM item
    WHERE ns_id = ? AND status = {LIVE} AND expires_s > ?"""
_CANDIDATES = f"""SELECT i.key, i.metadata FROM entry e CROSS JOIN item i ON i.key = e.key
    WHERE i.status = {LIVE} AND (i.expires_s IS NULL OR i.expires_s > ?)
        AND e.ns_id = ? AND e.path = ? AND e.kind = ? AND """
_COUNT = """SELECT count(*) FROM (SELECT 1 FROM entry e
    WHERE e.ns_id = ? AND e.path = ? AND e.kind = ? AND """

_RELATIONS = {
    "eq": "e.value = ?",
    "gt": "e.value > ?",
    "gte": "e.value >= ?",
    "lt": "e.value < ?",
    "lte": "e.value <= ?",
}


def stored(kind: str, value: Scalar) -> Any:
    """Return an entry's value as the index keeps it; null is no value a key may hold."""
    if value is None:
        return 0
    return int(value) if kind == "b" else value


def live_keys(execute: Execute, ns_id: int, now_s: float, limit: int) -> list[int]:
    """Return keys of at most *limit* live, unexpired items, ascending."""
    lasting = execute(_LIVE_LASTING + " LIMIT ?", (ns_id, limit)).fetchall()
    expiring = execute(_LIVE_EXPIRING + " LIMIT ?", (ns_id, now_s, limit)).fetchall()
    return sorted(key for (key,) in lasting + expiring)[:limit]


def matching_keys(execute: Execute, ns_id: int, node: Node, now_s: float, limit: int) -> list[int]:
    """Return keys of at most *limit* live, unexpired items that pass *node*, ascending."""
    ranges = None if needs_scan(node) else _driver(execute, ns_id, node, now_s)
    if ranges is None:
        candidates = _scanned(execute, ns_id, now_s)
    else:
        candidates = _listed(execute, ns_id, ranges, now_s)
    # A union of ranges is exact for a comparison, and for an `or` of comparisons.
    is_exact = ranges is not None and _is_union(node)
    found: set[int] = set()
    if limit <= 0:
        return []
    try:
        for key, text in islice(candidates, VISITED_MAX):
            if key in found:
                continue
            if is_exact or matches(node, {} if text is None else metadata_of(text)):
                found.add(key)
                if len(found) == limit:
                    break
    except UnicodeDecodeError as error:
        raise damaged("the metadata of an item") from error
    return sorted(found)


def _scanned(execute: Execute, ns_id: int, now_s: float) -> Iterator[tuple[int, str | None]]:
    return chain(
        execute(_SCAN_LASTING, (ns_id,)),
        _later(execute, _SCAN_EXPIRING, (ns_id, now_s)),
    )


def _listed(
    execute: Execute, ns_id: int, ranges: list[Range], now_s: float
) -> Iterator[tuple[int, str | None]]:
    return chain.from_iterable(
        _later(execute, _CANDIDATES + relation, (now_s, ns_id, *params))
        for relation, params in ranges
    )


def _later(execute: Execute, statement: str, params: tuple[Any, ...]) -> Iterator[Any]:
    """Run a statement once its first row is asked for."""
    yield from execute(statement, params)


# ---------------------------------------------------------------- the driver


def _driver(execute: Execute, ns_id: int, node: Node, now_s: float) -> list[Range] | None:
    """Return ranges that hold every item that passes *node*; None to scan instead."""
    ranges, count = _cheapest(execute, ns_id, node)
    if ranges is not None and count >= _COUNTED_MAX:
        live = len(live_keys(execute, ns_id, now_s, _COUNTED_MAX))
        if live < _COUNTED_MAX:
            return None
    return ranges


def _cheapest(execute: Execute, ns_id: int, node: Node) -> tuple[list[Range] | None, int]:
    if isinstance(node, Compare):
        ranges = _ranges(node)
        return ranges, sum(_count(execute, ns_id, one) for one in ranges)
    if isinstance(node, Or):
        parts = [_cheapest(execute, ns_id, part) for part in node.parts]
        if any(ranges is None for ranges, _ in parts):
            return None, 0
        united = [one for ranges, _ in parts for one in ranges or ()]
        return united, sum(count for _, count in parts)
    if isinstance(node, And):
        parts = [_cheapest(execute, ns_id, part) for part in node.parts]
        usable = [(count, ranges) for ranges, count in parts if ranges is not None]
        if usable:
            count, chosen = min(usable, key=lambda one: one[0])
            return chosen, count
    return None, 0


def _ranges(node: Compare) -> list[Range]:
    values = node.value if isinstance(node.value, tuple) else (node.value,)
    op = "eq" if node.op == "in" else node.op
    found = []
    for value in dict.fromkeys((_kind(value), value) for value in values):
        kind, plain = value
        found.append((_RELATIONS[op], (node.path, kind, stored(kind, plain))))
    return found


def _count(execute: Execute, ns_id: int, one: Range) -> int:
    relation, params = one
    statement = f"{_COUNT}{relation} LIMIT {_COUNTED_MAX})"
    return int(execute(statement, (ns_id, *params)).fetchone()[0])


def _kind(value: Scalar) -> str:
    if value is None:
        return "z"
    if isinstance(value, bool):
        return "b"
    return "s" if isinstance(value, str) else "n"


def _is_union(node: Node) -> bool:
    if isinstance(node, Or):
        return all(_is_union(part) for part in node.parts)
    return isinstance(node, Compare)
