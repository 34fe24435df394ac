"""docs/reference/http.md names every route, parameter, field, code and metric, and no other."""

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import amv
from amv.server import api, replies, wire
from amv.server.metrics import Metrics
from amv.server.routes import ROUTES
from tests.test_docs import OPEN_PATHS, ROOT

PAGE = (ROOT / "docs" / "reference" / "http.md").read_text("utf-8")
SERVER = Path(api.__file__).parent
HEADING = re.compile(r"^### `([A-Z]+ /\S*)`$", re.MULTILINE)
BY_NAME = {f"{route.method} {route.path}": route for route in ROUTES}


def section(heading: str) -> str:
    """Return what stands below a heading, up to the next of its level or above."""
    level = heading.partition(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}$\n(.*?)(?=^#{{1,{len(level)}}} |\Z)",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
    assert found, f"docs/reference/http.md has no heading {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of every table whose first cell is code."""
    lines = re.findall(r"^\| (.*`.*) \|$", text, re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def structs(kind: Any) -> set[type[msgspec.Struct]]:
    """Return all structs that a type is made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return {kind}.union(*(structs(field.type) for field in fields))
    return set().union(*(structs(part) for part in get_args(kind)))


def names(*kinds: type[msgspec.Struct]) -> set[str]:
    return {name for kind in kinds for name in kind.__struct_fields__}


def test_every_route_is_there_and_no_other() -> None:
    assert sorted(HEADING.findall(PAGE)) == sorted(
        [*BY_NAME, *(f"GET {path}" for path in OPEN_PATHS)]
    )


@pytest.mark.parametrize("name", BY_NAME)
def test_every_parameter_of_a_route_is_there_and_no_other(name: str) -> None:
    route, given = BY_NAME[name], set()
    for what, where, _ in rows(section(f"### `{name}`")):
        given |= {(where, parameter) for parameter in code(what)}
    bodies = [kind for kind in structs(route.takes) if kind is not wire.ClaimWire]

    assert given == {
        *(("path", part) for part in re.findall(r"{(\w+)}", route.path)),
        *(("query", parameter) for parameter in route.query),
        *(("body", field) for field in names(*bodies)),
    }


@pytest.mark.parametrize("name", BY_NAME)
def test_a_route_says_its_level_its_status_and_what_it_needs(name: str) -> None:
    route, text = BY_NAME[name], section(f"### `{name}`")
    needed = {c for row in rows(text) if row[-1].endswith("; needed") for c in code(row[0])}
    fields = [f for kind in structs(route.takes) for f in msgspec.structs.fields(kind)]
    bodies = {field.name for field in fields if field.required} - names(wire.ClaimWire)

    assert f"Level `{route.level.name.lower()}`" in text
    assert f"Replies {route.status}" in text
    assert needed == {*route.needs_query, *bodies}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_field_of_a_reply_is_there(name: str) -> None:
    """Those of an item are told once, in a section of its own."""
    text = section(f"### `{name}`")
    kinds = structs(BY_NAME[name].gives)
    if wire.ItemOut in kinds:
        assert "[item](#item)" in text
        kinds -= {wire.ItemOut, wire.ClaimWire}

    assert names(*kinds - {wire.ClaimWire}) - set(code(text)) == set()


def test_every_field_of_an_item_is_there_and_no_other() -> None:
    told = [name for row in rows(section("## Item")) for name in code(row[0])]

    assert sorted(told) == sorted(names(wire.ItemOut))


def test_every_error_code_is_there_with_its_status_and_no_other() -> None:
    told = {(int(row[0]), *code(row[1])) for row in rows(section("## Errors"))}
    mapped = {(status, name) for _, status, name in replies._ERRORS}
    sources = "".join(path.read_text("utf-8") for path in SERVER.glob("*.py"))
    written = set(re.findall(r'\btold\([^"\n]*, "(\w+)"', sources))

    assert mapped <= told
    assert {name for _, name in told - mapped} == written


def test_every_header_is_there_and_no_other() -> None:
    told = {code(row[0])[0].lower() for row in rows(section("## Headers"))}
    sources = "".join(path.read_text("utf-8") for path in SERVER.glob("*.py"))
    known = set(re.findall(r'\bb"([a-z]+(?:-[a-z]+)+)"', sources)) | {"authorization"}

    assert told == known - {"content-length", "transfer-encoding"}


def test_every_metric_is_there_and_no_other() -> None:
    told = {name for row in rows(section("### `GET /metrics`")) for name in code(row[0])}
    with amv.Guard.open(":memory:", policy={"version": 1}, embedder="hashing") as guard:
        exposed = Metrics(guard.memory, guard).exposition().decode()

    families = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(exposed)
        # Beside each counter stands when it was begun.
        if not family.name.endswith("_created")
    }
    assert told == families


def test_limits_are_as_they_are() -> None:
    server = amv.config.ServerSettings()

    assert f"up to {api.ITEMS_MAX:,}" in section("### `POST /v1/items`")
    assert f"{server.body_bytes_max >> 20} MiB" in PAGE
    assert f"{server.per_key_max} requests under way" in PAGE
    assert f"{server.timeout_s:.0f} seconds at most" in PAGE
