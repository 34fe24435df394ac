"""Filters: which items a search may return, by their metadata.

Metadata is JSON; a filter is JSON too:

    {"city": "Rome"}                      equal (a list matches if any element does)
    {"age": {"gt": 3, "lte": 9}}          eq ne gt gte lt lte in; all must hold
    {"tag": {"in": ["a", "b"]}}
    {"address.city": "Rome"}              into nested objects
    {"and": [...]}, {"or": [...]}, {"not": {...}}     several keys mean and

Metadata is flattened to *entries* (path, kind, value), and a filter looks at
nothing else.  So a store can keep the entries as rows of an index and answer
the same filter with the same result, and no key or text of a caller ever
becomes part of a statement: both are compared as data.

Kinds never mix: numbers compare with numbers, strings with strings (by code
point), booleans and null only for equality.  `ne` is the negation of `eq`, so
it also matches where the field is absent, and parses to just that.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from amv.checks import shown
from amv.errors import InvalidInput
from amv.memory.item import check_text

MAX_FILTER_DEPTH = 16
MAX_FILTER_NODES = 256
MAX_METADATA_DEPTH = 8
MAX_METADATA_BYTES = 65_536
MAX_INTEGER = 2**53  # beyond it, neighbouring integers are the same float

Scalar = str | float | bool | None
Kind = Literal["n", "s", "b", "z"]
Entry = tuple[str, Kind, Scalar]
Op = Literal["eq", "gt", "gte", "lt", "lte", "in"]


@dataclass(frozen=True, slots=True)
class Compare:
    """Some entry at *path* stands in relation *op* to *value* (for `in`: is one of them)."""

    path: str
    op: Op
    value: Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class And:
    """Every part matches; without parts, everything does."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some part matches."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not match."""

    part: "Node"


Node = Compare | And | Or | Not


def parse(filter: Mapping[str, object]) -> Node:
    """Return the filter as a tree; an empty one matches everything.

    Raises:
        InvalidInput: for anything but the forms above, more than 16 levels or
            more than 256 nodes (a value inside `in` counts as one).
    """
    if isinstance(filter, Mapping) and not filter:
        return And(())
    return _Parser().node(filter, depth=1)


def matches(node: Node, metadata: Mapping[str, object]) -> bool:
    """Tell whether an item with this (checked) metadata passes the filter."""
    return matches_entries(node, entries(metadata))


def matches_entries(node: Node, entries: Sequence[Entry]) -> bool:
    """Tell whether an item with these entries passes the filter."""
    if isinstance(node, Compare):
        return any(path == node.path and _holds(node, kind, value) for path, kind, value in entries)
    if isinstance(node, And):
        return all(matches_entries(part, entries) for part in node.parts)
    if isinstance(node, Or):
        return any(matches_entries(part, entries) for part in node.parts)
    return not matches_entries(node.part, entries)


def needs_scan(node: Node) -> bool:
    """Tell whether the filter passes items that carry none of its paths.

    Then an index over the entries cannot list the items that pass.
    """
    return matches_entries(node, ())


def entries(metadata: Mapping[str, object]) -> list[Entry]:
    """Return the entries of (checked) metadata, each once, in order of appearance.

    Nested objects give dotted paths, lists one entry an element, also an
    element inside an object inside a list; an empty list or object gives none.
    A key that contains dots gives the same path as the objects it looks like.

    >>> entries({"tags": ["a", "a", 1], "home": {"city": "Rome", "zip": None}})
    [('tags', 's', 'a'), ('tags', 'n', 1.0), ('home.city', 's', 'Rome'), ('home.zip', 'z', None)]
    """
    flat = (entry for key, value in metadata.items() for entry in _flat(key, value))
    return list(dict.fromkeys(flat))


def check_metadata(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of *metadata* made of JSON types only.

    Raises:
        InvalidInput: for other types or keys, a number that is not finite or an
            integer beyond ±2^53, a NUL or lone surrogate in a string, more than
            8 levels, or more than 64 KiB as JSON.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"need metadata as a mapping, got {shown(metadata)}")
    if not metadata:
        return {}
    copy = _Copier().mapping(metadata, depth=1)
    size = len(json.dumps(copy, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(f"need metadata of at most {MAX_METADATA_BYTES} bytes, got {size}")
    return copy


# ---------------------------------------------------------------- matching


_ORDER: dict[str, Callable[[float, float], bool]] = {
    "gt": lambda left, right: left > right,
    "gte": lambda left, right: left >= right,
    "lt": lambda left, right: left < right,
    "lte": lambda left, right: left <= right,
}


def _holds(node: Compare, kind: Kind, value: Scalar) -> bool:
    if isinstance(node.value, tuple):
        return any(kind == _kind(one) and value == one for one in node.value)
    if kind != _kind(node.value):
        return False
    if node.op == "eq":
        return value == node.value
    # The parser lets only numbers and strings through to here.
    return _ORDER[node.op](value, node.value)  # type: ignore[arg-type]


def _kind(value: Scalar) -> Kind:
    if value is None:
        return "z"
    if isinstance(value, bool):
        return "b"
    return "s" if isinstance(value, str) else "n"


def _flat(path: str, value: object) -> Iterator[Entry]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for element in value:
            yield from _flat(path, element)
    elif value is None or isinstance(value, bool | str):
        yield path, _kind(value), value
    else:
        assert isinstance(value, int | float)
        yield path, "n", float(value)


# ---------------------------------------------------------------- parsing


_OPERATORS = "eq, ne, gt, gte, lt, lte, in"


class _Parser:
    """Builds the tree and counts what it is made of."""

    def __init__(self) -> None:
        self.nodes = 0

    def node(self, form: object, *, depth: int) -> Node:
        if not isinstance(form, Mapping) or not form:
            raise InvalidInput(f"need a filter as a non-empty mapping, got {shown(form)}")
        if depth > MAX_FILTER_DEPTH:
            raise InvalidInput(f"need a filter of at most {MAX_FILTER_DEPTH} levels, got more")
        parts = tuple(self._field(key, value, depth) for key, value in form.items())
        return parts[0] if len(parts) == 1 else self._counted(And(parts))

    def _field(self, key: object, value: object, depth: int) -> Node:
        path = _text(key, "a filter key")
        if path == "not":
            return self._counted(Not(self.node(value, depth=depth + 1)))
        if path in ("and", "or"):
            if not isinstance(value, list | tuple) or not value:
                raise InvalidInput(f"need a list of filters under {path!r}, got {shown(value)}")
            parts = tuple(self.node(part, depth=depth + 1) for part in value)
            return self._counted(And(parts) if path == "and" else Or(parts))
        if not isinstance(value, Mapping):
            return self._compare(path, "eq", value)
        if not value:
            raise InvalidInput(
                f"need an operator for {shown(path)}, got {{}}; use one of {_OPERATORS}"
            )
        compared = tuple(self._compare(path, op, operand) for op, operand in value.items())
        return compared[0] if len(compared) == 1 else self._counted(And(compared))

    def _compare(self, path: str, op: object, operand: object) -> Node:
        where = shown(path)
        if op == "eq":
            return self._counted(Compare(path, "eq", _scalar(operand, where)))
        if op == "ne":
            return self._counted(Not(self._counted(Compare(path, "eq", _scalar(operand, where)))))
        if op == "in":
            if not isinstance(operand, list | tuple) or not operand:
                raise InvalidInput(f"need a list of values for {where} in, got {shown(operand)}")
            self._count(len(operand))
            return self._counted(Compare(path, "in", tuple(_scalar(one, where) for one in operand)))
        if op in ("gt", "gte", "lt", "lte"):
            bound = _scalar(operand, where)
            if bound is None or isinstance(bound, bool):
                raise InvalidInput(f"need a number or text for {where} {op}, got {shown(operand)}")
            return self._counted(Compare(path, op, bound))
        raise InvalidInput(f"need one of {_OPERATORS} for {where}, got {shown(op)}")

    def _counted(self, node: Node) -> Node:
        self._count(1)
        return node

    def _count(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_FILTER_NODES:
            raise InvalidInput(f"need a filter of at most {MAX_FILTER_NODES} nodes, got more")


# ---------------------------------------------------------------- checking


class _Copier:
    """Copies metadata; counts values as it goes, so that no nesting costs more than the limit."""

    def __init__(self) -> None:
        self.values = 0

    def mapping(self, value: Mapping[str, object], depth: int) -> dict[str, object]:
        self._count(depth)
        copy: dict[str, object] = {}
        for key, inner in value.items():
            name = _text(key, "a metadata key")
            copy[name] = self._value(inner, name, depth)
        return copy

    def _value(self, value: object, name: str, depth: int) -> object:
        if isinstance(value, Mapping):
            return self.mapping(value, depth + 1)
        if isinstance(value, list | tuple):
            self._count(depth + 1)
            return [self._value(one, name, depth + 1) for one in value]
        self._count(depth)
        return _json_scalar(value, f"metadata {shown(name)}")

    def _count(self, depth: int) -> None:
        if depth > MAX_METADATA_DEPTH:
            raise InvalidInput(f"need metadata of at most {MAX_METADATA_DEPTH} levels, got more")
        self.values += 1
        if self.values > MAX_METADATA_BYTES:
            raise InvalidInput(f"need metadata of at most {MAX_METADATA_BYTES} bytes, got more")


def _scalar(value: object, where: str) -> Scalar:
    """Return *value* as it is compared: numbers as floats."""
    checked = _json_scalar(value, where)
    return float(checked) if isinstance(checked, int) and not isinstance(checked, bool) else checked


def _json_scalar(value: object, where: str) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        if -MAX_INTEGER <= value <= MAX_INTEGER:
            return int(value)
        raise InvalidInput(
            f"need an integer within ±2^53 or a string for {where}, got a larger one"
        )
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise InvalidInput(
        f"need a string, finite number, boolean or null for {where}, got {shown(value)}"
    )


def _text(value: object, what: str) -> str:
    """Return *value* as a plain string that every store can keep."""
    return str(check_text(value, what, MAX_METADATA_BYTES, blank_is_fine=True))
