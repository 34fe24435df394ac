"""Schemathesis as one tenant beside another: what belongs to others can't be told from nothing.

Which check covers what:

- `ignored_auth` (`test_document.py`): no operation that wants a key answers without one, or with
  a wrong one.
- `use_after_free`, `ensure_resource_availability` (`test_document.py`): what was forgotten is
  gone, what was added is there.
- `object_level_authorization` (here): an item that one tenant has added, read by another tenant.
  It is sent for reads only, and looks for the item in the reply.
- `nothing_is_told` (here): every operation that names an item or a namespace, reads and writes,
  sound and broken: for one that is another tenant's the reply has, byte for byte, status, content
  type and body of that for one that is not there.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import given
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import object_level_authorization

from amv.memory.item import Namespace
from amv.server import api
from amv.server.access import Level
from tests.server.cases import CONTENT, add_item
from tests.server.conftest import DOCUMENT, WAIT_S, Running, running
from tests.server.test_document import FEW, SCHEMA, run_sequences

TENANT, OTHER = ("tenant",), ("otherwise",)
THEIRS, NOBODYS = "theirs", "nobody"
"""Two ids as long as one another; only the first is there, and another tenant's."""
NAMED_ANEW = {THEIRS: NOBODYS, OTHER[0]: "elsewhere"}

Check = Callable[[Any, Any, Any], bool | None]


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway whose memory holds an item of another tenant."""
    with running(tmp_path_factory.mktemp("tenants") / "served.db") as found:
        add_item(found.http(), list(OTHER), THEIRS)
        found.key()
        yield found


def look_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the gateway: an id alone then means whoever's item has it."""

    def namespace(call: api.Call, _given: object) -> Namespace | None:
        return None if call.body is None else call.principal.prefix

    monkeypatch.setattr(api.Call, "namespace", namespace)


# ---------------------------------------------------------------- by schemathesis itself


def user(served: Running, name: Namespace) -> dict[str, Any]:
    header = {"name": "Authorization", "value": f"Bearer {served.key(name, Level.WRITE)}"}
    return {"name": name[0], "fixedHeaders": [header]}


def read_by_others(
    served: Running, folder: Path, most: int = 20, steps: int = 6
) -> set[tuple[str, int]]:
    """Add and read items as one tenant, each read again as another; return what came."""
    users = folder / "users.json"
    users.write_text(json.dumps({"auth": [user(served, name) for name in (TENANT, OTHER)]}))
    wfc = {"path": str(users), "user": TENANT[0], "peers": [TENANT[0], OTHER[0]]}
    config = schemathesis.Config.from_dict({"auth": {"wfc": wfc}})
    seen: set[tuple[str, int]] = set()

    def machine() -> Any:
        whole = schemathesis.openapi.from_dict(DOCUMENT, config=config)
        schema = whole.include(path_regex="^/v1/items")

        class Sequences(schema.as_state_machine()):  # type: ignore[misc]
            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                return {"base_url": served.url, "timeout": WAIT_S}

            def before_call(self, case: Any) -> None:
                if case.operation.label == "POST /v1/items":
                    case.body = {"content": CONTENT}
                case.query.pop("namespace", None)
                super().before_call(case)

            def validate_response(self, response: Any, case: Any, **how: Any) -> None:
                how.pop("additional_checks", None)
                seen.add((case.operation.label, response.status_code))
                case.validate_response(
                    response,
                    checks=[object_level_authorization],
                    transport_kwargs=how,
                    recorder=self.recorder,
                )

        return Sequences

    run_sequences(machine, most, steps)
    return seen


def test_an_item_is_read_by_its_tenant_only(served: Running, tmp_path: Path) -> None:
    seen: set[tuple[str, int]] = set()
    due = {("POST /v1/items", 201), ("GET /v1/items/{id}", 200)}
    # Which sequences come up depends on the ids that were given.
    for steps in range(6, 30):
        seen |= read_by_others(served, tmp_path, steps=steps)
        if due <= seen:
            break

    assert due <= seen


def test_control_an_item_that_all_can_read_is_found(
    served: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_everywhere(monkeypatch)

    with pytest.raises(FailureGroup, match="received the"):
        # It ends with the first item that is read.
        read_by_others(served, tmp_path, most=600)


# ---------------------------------------------------------------- by a check of our own

OPERATIONS = [
    (path, method, mode)
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    for mode in schemathesis.GenerationMode
    if "{" in path
]


def nothing_is_told(served: Running, key: str) -> Check:
    """Return the check, by which each request is sent again: about others' things, and no one's."""

    def reply(case: Any, path: dict[str, str], query: dict[str, Any]) -> tuple[int, str, str]:
        asked = case.derive(query=query)
        asked.path_parameters = path
        headers = {"Authorization": f"Bearer {key}"}
        found = asked.call(base_url=served.url, headers=headers, timeout=WAIT_S)
        return found.status_code, found.headers["content-type"][0], found.content.decode()

    def named_anew(text: str) -> str:
        for theirs, nobodys in NAMED_ANEW.items():
            text = text.replace(theirs, nobodys)
        return text

    def check(_context: Any, _response: Any, case: Any) -> bool | None:
        given = {} if not isinstance(case.query, dict) else case.query
        bare = {name: value for name, value in given.items() if name != "namespace"}
        for query in (given, bare, {**bare, "namespace": OTHER[0]}):
            theirs = {"id": THEIRS, "ns": OTHER[0]}
            paths = {name: theirs[name] for name in ("id", "ns") if f"{{{name}}}" in case.path}
            status, kind, text = reply(case, paths, query)
            namespace = query.get("namespace")
            anew = {**query, "namespace": NAMED_ANEW[OTHER[0]]} if namespace == OTHER[0] else query
            nobodys = {name: named_anew(value) for name, value in paths.items()}
            if (status, kind, named_anew(text)) != reply(case, nobodys, anew):
                raise AssertionError(f"{case.operation.label} tells of others: {status} {text}")
        return None

    return check


def told_of_others(
    served: Running, path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    key = served.key(TENANT)

    @FEW
    @given(case=SCHEMA[path][method.upper()].as_strategy(generation_mode=mode))
    def conforms(case: Any) -> None:
        case.call_and_validate(
            base_url=served.url,
            headers={"Authorization": f"Bearer {key}"},
            checks=[nothing_is_told(served, key)],
            timeout=WAIT_S,
        )

    conforms()


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_what_is_of_others_is_as_if_it_were_not_there(
    beside: Running, path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    admin = beside.http(beside.key())
    query = {"namespace": OTHER[0]}
    before = admin.get(f"/v1/items/{THEIRS}", params=query).json()

    told_of_others(beside, path, method, mode)

    assert admin.get(f"/v1/items/{THEIRS}", params=query).json() == before


def test_control_a_gateway_that_tells_of_others_is_found_out(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_item(served.http(), list(OTHER), THEIRS)
    look_everywhere(monkeypatch)

    with pytest.raises(FailureGroup, match="tells of others: 200"):
        told_of_others(served, "/v1/items/{id}", "get", schemathesis.GenerationMode.POSITIVE)
