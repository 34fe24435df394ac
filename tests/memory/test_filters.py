"""Filters over metadata."""

import json
import math
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.memory.filters import (
    MAX_INTEGER,
    And,
    Compare,
    Node,
    Not,
    Or,
    check_metadata,
    entries,
    matches,
    matches_entries,
    needs_scan,
    parse,
)

AWKWARD = ["a", "b", "a.b", "it's", '"', "%", "*", "' OR 1=1 --", "", "and", "ключ", "$[0]"]

keys = st.sampled_from(AWKWARD)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.5, -0.0, 1.0, 1e300]),
    st.sampled_from(["", "a", "b", "1", "true", "%", "é"]),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
metadata_ = st.dictionaries(keys, values, max_size=4)

paths = st.one_of(keys, st.builds("{}.{}".format, keys, keys)).filter(
    lambda path: path not in ("and", "or", "not")
)
bounds = st.one_of(st.integers(-2, 2), st.sampled_from([0.5, "", "a", "b"]))
fields = st.one_of(
    scalars,
    st.builds(lambda op, value: {op: value}, st.sampled_from(["eq", "ne"]), scalars),
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), bounds, min_size=1),
    st.builds(lambda some: {"in": some}, st.lists(scalars, min_size=1, max_size=3)),
)
filters: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(paths, fields, min_size=1, max_size=3),
    lambda inner: st.one_of(
        st.builds(lambda some: {"and": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda some: {"or": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda one: {"not": one}, inner),
    ),
    max_leaves=6,
)


# ---------------------------------------------------------------- an oracle
# Reads the JSON forms directly, walking into the metadata itself.


def reached(value: Any, path: str) -> list[Any]:
    """Return the scalars that *path* leads to, trying every key it may start with."""
    if isinstance(value, list):
        return [found for element in value for found in reached(element, path)]
    if not isinstance(value, dict):
        return []
    found = []
    for key, inner in value.items():
        if key == path:
            found += scalars_in(inner)
        if path.startswith(f"{key}."):
            found += reached(inner, path[len(key) + 1 :])
    return found


def scalars_in(value: Any) -> list[Any]:
    """Return the scalars a path ending here stands for: elements, but not of objects."""
    if isinstance(value, list):
        return [found for element in value for found in scalars_in(element)]
    return [] if isinstance(value, dict) else [value]


def holds(op: str, left: Any, right: Any) -> bool:
    """Compare two scalars of the caller's own types."""
    if op == "in":
        return any(holds("eq", left, one) for one in right)
    if isinstance(left, bool) or isinstance(right, bool):
        return op == "eq" and left is right
    if left is None or right is None:
        return op == "eq" and left is right
    if isinstance(left, str) != isinstance(right, str):
        return False
    ordered: dict[str, bool] = {"eq": left == right, "gt": left > right, "lt": left < right}
    ordered |= {"gte": not ordered["lt"], "lte": not ordered["gt"]}
    return ordered[op]


def passes(form: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """Evaluate a filter as it is written."""
    results = []
    for key, value in form.items():
        if key == "not":
            results.append(not passes(value, metadata))
        elif key in ("and", "or"):
            some = [passes(part, metadata) for part in value]
            results.append(all(some) if key == "and" else any(some))
        else:
            found = reached(metadata, key)
            for op, operand in (value if isinstance(value, dict) else {"eq": value}).items():
                if op == "ne":
                    results.append(not any(holds("eq", one, operand) for one in found))
                else:
                    results.append(any(holds(op, one, operand) for one in found))
    return all(results)


@given(form=filters, metadata=metadata_)
def test_entries_alone_answer_a_filter_as_the_metadata_would(
    form: dict[str, Any], metadata: dict[str, Any]
) -> None:
    """A store that indexes the entries finds what reading every item would find."""
    checked = check_metadata(metadata)

    assert matches(parse(form), checked) == passes(form, metadata)
    assert matches_entries(parse(form), entries(checked)) == passes(form, metadata)


@given(form=filters, metadata=metadata_)
def test_an_index_can_drive_what_needs_no_scan(
    form: dict[str, Any], metadata: dict[str, Any]
) -> None:
    """An item that passes such a filter has an entry at one of the filter's paths."""
    node = parse(form)
    kept = [entry for entry in entries(metadata) if entry[0] in paths_of(node)]

    assert matches_entries(node, kept) == matches(node, metadata)
    if not needs_scan(node) and matches(node, metadata):
        assert kept


def paths_of(node: Node) -> set[str]:
    """Return every path a filter looks at."""
    if isinstance(node, Compare):
        return {node.path}
    if isinstance(node, Not):
        return paths_of(node.part)
    return {path for part in node.parts for path in paths_of(part)}


# ---------------------------------------------------------------- by example


@pytest.mark.parametrize(
    ("form", "metadata", "expected"),
    [
        ({"city": "Rome"}, {"city": "Rome"}, True),
        ({"city": "Rome"}, {"city": "rome"}, False),
        ({"city": "Rome"}, {}, False),
        ({"city": "Rome"}, {"city": ["Oslo", "Rome"]}, True),
        ({"age": {"gt": 3, "lte": 9}}, {"age": 9}, True),
        ({"age": {"gt": 3, "lte": 9}}, {"age": 3}, False),
        ({"age": {"gt": 3}}, {"age": "9"}, False),
        ({"age": {"gt": 0}}, {"age": True}, False),
        ({"age": 1}, {"age": 1.0}, True),
        ({"age": 1}, {"age": True}, False),
        ({"on": True}, {"on": 1}, False),
        ({"tag": {"in": ["a", "b"]}}, {"tag": ["z", "b"]}, True),
        ({"tag": {"in": ["a", 1]}}, {"tag": True}, False),
        ({"x": None}, {"x": None}, True),
        ({"x": None}, {}, False),
        ({"x": {"ne": "a"}}, {}, True),
        ({"x": {"ne": "a"}}, {"x": ["b", "a"]}, False),
        ({"name": {"gte": "b"}}, {"name": "é"}, True),
        ({"address.city": "Rome"}, {"address": {"city": "Rome"}}, True),
        ({"address.city": "Rome"}, {"address.city": "Rome"}, True),
        ({"trips.city": "Rome"}, {"trips": [{"city": "Oslo"}, {"city": "Rome"}]}, True),
        ({"or": [{"a": 1}, {"b": 2}]}, {"b": 2}, True),
        ({"and": [{"a": 1}, {"b": 2}]}, {"b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"not": {"a": 1}}, {"a": 2}, True),
        ({"age": {"gt": 3, "lt": 2}}, {"age": [1, 4]}, True),
        ({}, {"a": 1}, True),
        ({"' OR 1=1 --": "x"}, {"a": "x"}, False),
        ({"%": "x"}, {"a": "x"}, False),
    ],
)
def test_filters_mean_what_the_docs_say(
    form: dict[str, Any], metadata: dict[str, Any], expected: bool
) -> None:
    """The examples of the reference, and the corners of each sentence in it."""
    assert matches(parse(form), check_metadata(metadata)) is expected


def test_a_filter_parses_to_a_small_tree() -> None:
    """Stores translate this tree; `ne` is not a form of its own in it."""
    assert parse({"a": {"gt": 1, "ne": 2}}) == And(
        (Compare("a", "gt", 1.0), Not(Compare("a", "eq", 2.0)))
    )
    assert parse({"or": [{"a": None}, {"b": {"in": ("x", 3)}}]}) == Or(
        (Compare("a", "eq", None), Compare("b", "in", ("x", 3.0)))
    )
    assert parse({}) == And(())


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({}, True),
        ({"a": 1}, False),
        ({"a": {"ne": 1}}, True),
        ({"a": {"ne": 1}, "b": 2}, False),
        ({"or": [{"a": 1}, {"not": {"b": 2}}]}, True),
        ({"not": {"not": {"a": 1}}}, False),
        ({"not": {"a": 1, "b": 2}}, True),
    ],
)
def test_only_negations_need_a_scan(form: dict[str, Any], expected: bool) -> None:
    """They pass items that the index over entries does not list."""
    assert needs_scan(parse(form)) is expected


def nested(depth: int) -> dict[str, Any]:
    """Return a filter of *depth* levels."""
    return {"a": 1} if depth == 1 else {"not": nested(depth - 1)}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"a": {"like": "x%"}}, "one of eq, ne, gt, gte, lt, lte, in for 'a', got 'like'"),
        ({"a": {1: 2}}, "one of eq"),
        ({"a": {}}, "operator for 'a'"),
        ({"a": {"in": []}}, "list of values for 'a' in, got \\[\\]"),
        ({"a": {"in": "abc"}}, "list of values for 'a' in, got 'abc'"),
        ({"a": {"in": [["x"]]}}, "got \\['x'\\]"),
        ({"a": ["x"]}, "string, finite number, boolean or null for 'a', got \\['x'\\]"),
        ({"a": {"gt": None}}, "number or text for 'a' gt, got None"),
        ({"a": {"lt": True}}, "number or text for 'a' lt, got True"),
        ({"a": {"gt": math.nan}}, "got nan"),
        ({"a": {"eq": math.inf}}, "got inf"),
        ({"a": {"ne": b"x"}}, "got b'x'"),
        ({"a": 2**53 + 1}, "integer within ±2\\^53"),
        ({"a": -(10**400)}, "integer within ±2\\^53"),
        ({"a\0": 1}, "NUL"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": "x" * 65_537}, "65536"),
        ({1: 2}, "filter key must be a string"),
        ({"and": []}, "list of filters under 'and', got \\[\\]"),
        ({"or": {"a": 1}}, "list of filters under 'or'"),
        ({"or": [{}]}, "non-empty mapping, got {}"),
        ({"not": []}, "non-empty mapping, got \\[\\]"),
        ([], "non-empty mapping, got \\[\\]"),
        ("a = 1", "non-empty mapping, got 'a = 1'"),
        (None, "non-empty mapping, got None"),
        (nested(17), "at most 16 levels"),
        ({"or": [{"a": i} for i in range(256)]}, "at most 256 nodes"),
        ({"a": {"in": list(range(256))}}, "at most 256 nodes"),
    ],
)
def test_a_wrong_filter_says_what_was_needed_and_what_came(form: Any, message: str) -> None:
    """A filter that was silently ignored would return another user's notion of everything."""
    with pytest.raises(InvalidInput, match=message):
        parse(form)


def test_filters_up_to_the_limits_are_taken() -> None:
    """The limits are those that the errors name."""
    assert not needs_scan(parse(nested(15)))
    assert parse({"or": [{"a": i} for i in range(255)]})
    assert parse(nested(16))
    assert parse({"a": {"in": list(range(255))}})


def test_a_filter_that_holds_itself_is_refused() -> None:
    """A few bytes of input must not run for ever."""
    form: dict[str, Any] = {}
    form["or"] = [form] * 1000

    with pytest.raises(InvalidInput, match="16 levels"):
        parse(form)


# ---------------------------------------------------------------- metadata


class _Colour(StrEnum):
    RED = "red"


class _Size(IntEnum):
    BIG = 3


class _ReadOnly(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        return {"a": 1}[key]

    def __iter__(self) -> Any:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


@given(metadata_)
def test_metadata_comes_back_as_it_went_in(metadata: dict[str, Any]) -> None:
    """What is JSON already is only copied, with its types."""
    checked = check_metadata(metadata)

    assert json.dumps(checked) == json.dumps(metadata)


def test_metadata_is_a_copy_in_plain_json_types() -> None:
    """Neither a later change by the caller nor a subclass of theirs gets in."""
    inner = ["x"]
    given_ = {"tags": inner, "t": (1, 2.5), "e": _Colour.RED, "n": _Size.BIG, "m": _ReadOnly()}
    checked = check_metadata(given_)
    inner.append("y")

    assert checked == {"tags": ["x"], "t": [1, 2.5], "e": "red", "n": 3, "m": {"a": 1}}
    assert type(checked["e"]) is str
    assert type(checked["n"]) is int


def deep(levels: int) -> dict[str, Any]:
    """Return metadata of this many levels, lists and objects alternating."""
    value: Any = 1
    for level in range(levels, 1, -1):
        value = [value] if level % 2 else {"a": value}
    return {"a": value}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([], "need metadata as a mapping, got \\[\\]"),
        ({1: "x"}, "metadata key must be a string"),
        ({"a": {2: "x"}}, "metadata key must be a string"),
        ({"a": math.nan}, "metadata 'a', got nan"),
        ({"a": [1, -math.inf]}, "metadata 'a', got -inf"),
        ({"a": MAX_INTEGER + 1}, "integer within ±2\\^53"),
        ({"a": -MAX_INTEGER - 1}, "integer within ±2\\^53"),
        ({"a": b"x"}, "got b'x'"),
        ({"a": {"x"}}, "got {'x'}"),
        ({"a": "x\0"}, "NUL"),
        ({"a\0": "x"}, "NUL"),
        ({"a": "\udfff"}, "surrogate"),
        (deep(9), "at most 8 levels"),
        (deep(10), "at most 8 levels"),
        ({"a": ["x" * 1000] * 66}, "at most 65536 bytes, got"),
        ({"a": "é" * 32_768}, "at most 65536 bytes"),
        ({"a": "x" * 65_529}, "at most 65536 bytes, got 65537"),
    ],
)
def test_metadata_that_cannot_be_kept_is_refused(metadata: Any, message: str) -> None:
    """Before anything is written, and with the key in the message."""
    with pytest.raises(InvalidInput, match=message):
        check_metadata(metadata)


def test_metadata_up_to_the_limits_is_taken() -> None:
    """The limits are those that the errors name."""
    assert check_metadata({"a": "x" * 65_528})
    assert check_metadata(deep(8))
    assert check_metadata({"a": [MAX_INTEGER, -MAX_INTEGER]})


def test_metadata_that_holds_itself_is_refused_at_once() -> None:
    """Eight levels of a thousand elements each would never end."""
    loop: list[Any] = []
    loop.extend([loop] * 1000)
    wide: Any = "x"
    for _ in range(7):
        wide = [wide] * 1000

    for value in (loop, wide):
        with pytest.raises(InvalidInput, match="at most"):
            check_metadata({"a": value})


def test_entries_are_flat_and_come_once() -> None:
    """They are the rows of a store's index: equal ones would be duplicates there."""
    assert entries({"a": [1, 1.0, True, "1", [2]], "b": {"c": {"d": None}}, "e": [], "f": {}}) == [
        ("a", "n", 1.0),
        ("a", "b", True),
        ("a", "s", "1"),
        ("a", "n", 2.0),
        ("b.c.d", "z", None),
    ]
