"""Schemathesis over the OpenAPI document: the gateway does what the document says, and no more."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ensure_resource_availability,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    use_after_free,
)

from amv.memory.results import ForgetReceipt
from amv.server import openapi, replies
from amv.server.access import ANYONE, Gatekeeper
from tests.server.cases import CONTENT, add_item
from tests.server.conftest import DOCUMENT, WAIT_S, Running, check_documented, running

FEW = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    use_after_free,
    ignored_auth,
    ensure_resource_availability,
]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    with running(tmp_path_factory.mktemp("document") / "served.db") as found:
        add_item(found.http(), ["a"])
        yield found, found.key()


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [
    (path, method, mode)
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    for mode in schemathesis.GenerationMode
    # It takes nothing that could be wrong.
    if (path, mode) != ("/health", schemathesis.GenerationMode.NEGATIVE)
]


def test_the_errors_that_are_documented_are_those_there_are() -> None:
    """Those of `replies`, and what routing itself answers.

    That a route sends no others is checked of every reply to a test (`check_documented`).
    """
    assert openapi._ERRORS.keys() == {status for _, status, _ in replies._ERRORS} | {405}


@pytest.mark.parametrize(
    ("method", "url", "status", "is_documented"),
    [
        ("GET", "/v1/items/a%2Fb?namespace=x", 404, True),
        ("PUT", "/v1/items", 405, True),
        ("DELETE", "/health", 405, True),
        ("GET", "/v1/items/a", 418, False),
        ("PUT", "/v1/items/a/pin", 501, False),
        ("GET", "/health", 404, False),
    ],
)
def test_control_a_status_that_is_not_documented_is_found(
    method: str, url: str, status: int, is_documented: bool
) -> None:
    asked = httpx.Request(method, f"http://127.0.0.1{url}")
    reply = httpx.Response(status, request=asked)

    if is_documented:
        check_documented(reply)
    else:
        with pytest.raises(AssertionError, match="undocumented"):
            check_documented(reply)


def check_one(
    served: Running, key: str, path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    """Send an operation a few requests and check every reply."""
    operation = SCHEMA[path][method.upper()]

    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def conforms(case: Any) -> None:
        case.call_and_validate(
            base_url=served.url,
            headers={"Authorization": f"Bearer {key}"},
            checks=CHECKS,
            timeout=WAIT_S,
        )

    conforms()


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_every_operation_is_as_documented(
    locked: tuple[Running, str], path: str, method: str, mode: schemathesis.GenerationMode
) -> None:
    check_one(*locked, path, method, mode)


def run_sequences(machine: Callable[[], Any], most: int, steps: int, tries: int = 20) -> None:
    """Run a state machine, another from the start if what it drew can't be drawn once more.

    What a sequence draws depends on replies, and these hold ids, which are random: where
    Hypothesis comes to the same choices with other ids it gives up, whatever the checks say.
    Each gets a schema of its own, as a schema learns from the replies to whoever used it before.
    """
    few = settings(FEW, max_examples=most, stateful_step_count=steps)
    for left in reversed(range(tries)):
        try:
            machine().run(settings=few)
        except FlakyStrategyDefinition:
            if not left:
                raise
        else:
            return


def check_sequences(served: Running, most: int = 60, steps: int = 8) -> set[tuple[str, int]]:
    """Call in sequence, following the links from an item that was added; return what came."""
    key = served.key()
    seen: set[tuple[str, int]] = set()
    forgotten: set[object] = set()

    def machine() -> Any:
        schema = schemathesis.openapi.from_dict(DOCUMENT).include(path_regex="^/v1/items")

        class Sequences(schema.as_state_machine()):  # type: ignore[misc]
            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                return {
                    "base_url": served.url,
                    "headers": {"Authorization": f"Bearer {key}"},
                    "timeout": WAIT_S,
                }

            def before_call(self, case: Any) -> None:
                if case.operation.label == "POST /v1/items":
                    # What is made up seldom is an item that can be kept.
                    case.body = {"content": CONTENT, "namespace": ["a"]}
                super().before_call(case)

            def validate_response(self, response: Any, case: Any, **how: Any) -> None:
                how.pop("additional_checks", None)
                label, item_id = case.operation.label, case.path_parameters.get("id")
                seen.add((label, response.status_code))
                if label.startswith("GET") and item_id in forgotten:
                    seen.add((f"{label}, forgotten", response.status_code))
                if label == "DELETE /v1/items/{id}" and response.status_code == 200:
                    forgotten.add(item_id)
                case.validate_response(
                    response, checks=CHECKS, transport_kwargs=how, recorder=self.recorder
                )

        return Sequences

    run_sequences(machine, most, steps)
    return seen


def test_items_are_there_once_added_and_gone_once_forgotten(served: Running) -> None:
    seen: set[tuple[str, int]] = set()
    due = {
        ("POST /v1/items", 201),
        ("DELETE /v1/items/{id}", 200),
        ("GET /v1/items/{id}", 200),
        ("GET /v1/items/{id}, forgotten", 404),
    }
    # Which sequences come up depends on the ids that were given, so in some rounds none reads
    # an item after it was forgotten.
    for steps in range(8, 40):
        seen |= check_sequences(served, steps=steps)
        if due <= seen:
            break

    assert due <= seen


def test_control_an_item_that_outlives_its_forgetting_is_found(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that can not fail prove nothing: here, and below, they must."""

    def pretend(item_id: str, **_: object) -> ForgetReceipt:
        served.memory.get(item_id)
        return ForgetReceipt(item_ids=(item_id,), namespace=("a",), erase=lambda: True)

    monkeypatch.setattr(served.memory, "forget", pretend)

    with pytest.raises(FailureGroup, match="previously deleted"):
        # It ends with the first sequence in which an item is read after it was forgotten.
        check_sequences(served, most=600)


def test_control_a_key_that_is_not_looked_at_is_found(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gatekeeper, "principal", lambda *_: ANYONE)
    how = ("/v1/namespaces", "get", schemathesis.GenerationMode.POSITIVE)

    with pytest.raises(FailureGroup, match="without authentication"):
        check_one(served, served.key(), *how)
