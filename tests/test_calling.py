"""What of a call is its action's arguments, and which functions can be guarded at all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest

import amv
from amv.calling import KEPT_BYTES_MAX, Signature, json_part
from amv.guard.actions import held
from amv.guard.policy import parse
from tests.guard.gates import CANCEL, policy_of


class Shop:
    """Methods of each kind."""

    def cancel(self, order_id: str, note: str = "") -> str:
        return order_id

    @classmethod
    def of_class(cls, order_id: str) -> str:
        return order_id

    @staticmethod
    def of_nobody(order_id: str) -> str:
        return order_id


def plain(order_id: str, *more: int, note: str | None = None, **rest: Any) -> None:
    pass


def of_itself(self: str) -> None:
    """Takes an argument that has the name of an object and is none."""


def test_the_object_of_a_method_is_no_argument() -> None:
    shop = Shop()
    unbound = Signature("x", Shop.cancel)

    assert unbound.arguments((shop, "W1"), {}) == {"order_id": "W1", "note": ""}
    assert unbound.names == {"order_id", "note"}
    assert Signature("x", shop.cancel).arguments(("W1",), {}) == {"order_id": "W1", "note": ""}
    under_classmethod = Shop.__dict__["of_class"].__func__
    assert Signature("x", under_classmethod).arguments((Shop, "W1"), {}) == {"order_id": "W1"}
    assert Signature("x", Shop.of_nobody).arguments(("W1",), {}) == {"order_id": "W1"}
    assert Signature("x", of_itself).arguments(("W1",), {}) == {"self": "W1"}


def test_arguments_that_are_taken_by_any_name_have_their_own() -> None:
    call = Signature("x", plain)

    assert call.is_open
    assert call.arguments(("W1", 2, 3), {"user_id": "ann"}) == {
        "order_id": "W1",
        "more": (2, 3),
        "note": None,
        "user_id": "ann",
    }


def test_an_argument_that_is_named_twice_is_refused() -> None:
    def takes(order_id: str, /, **rest: Any) -> None: ...

    with pytest.raises(amv.InvalidInput, match="'order_id' twice"):
        Signature("x", takes).arguments(("W1",), {"order_id": "W2"})


def test_a_call_that_the_function_can_not_take_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        Signature("x", Shop.cancel).arguments((), {"order_id": "W1"})


@dataclass
class Order:
    order_id: str


@pytest.mark.parametrize(
    "hint",
    [
        *(bytes, set, frozenset[str], datetime, date, Decimal, Path, UUID, complex, Order),
        *(date | None, set[str] | bytes),
    ],
)
def test_what_says_that_it_takes_no_json_is_refused_when_it_is_decorated(hint: Any) -> None:
    """Each call of it would fail; that should not wait for the first one in production."""

    def takes(order_id: str, what: Any) -> None: ...

    takes.__annotations__["what"] = hint
    with pytest.raises(amv.InvalidInput, match=r"'what' as .*, which is no JSON"):
        Signature("x", takes)


class Status(StrEnum):
    OPEN = "open"


@pytest.mark.parametrize(
    "hint",
    [
        *(str, int, None, Any, object, dict[str, int], list, Sequence[str], Mapping[str, str]),
        *(Status, Literal["a"], str | date, "Any", "Unheard", tuple[int, ...]),
    ],
)
def test_what_may_be_json_is_guarded(hint: Any) -> None:
    def takes(what: Any, other=None) -> None: ...  # type: ignore[no-untyped-def]

    takes.__annotations__["what"] = hint
    assert Signature("x", takes).names == {"what", "other"}


def yields(order_id: str) -> Iterator[str]:
    yield order_id


@pytest.mark.parametrize("function", [yields, Order, 5, Shop()])
def test_what_does_not_act_when_it_is_called_is_refused(function: Any) -> None:
    with pytest.raises(amv.InvalidInput, match="must be a function, plain or async"):
        Signature("x", function)


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_the_decorator_above_another_one_says_where_it_belongs(kind: Any) -> None:
    with pytest.raises(amv.InvalidInput, match=f"stands below @{kind.__name__}"):
        Signature("x", kind(plain))


RULES: list[tuple[dict[str, Any], str]] = [
    ({"rests_on": {"status": {"claim": "order/{oder_id}/status"}}}, r"rests_on\.status\.claim"),
    (
        {"rests_on": {"s": {"claim": "order/{order_id}/user", "require": {"argument": "oder_id"}}}},
        r"rests_on\.s\.require",
    ),
    ({"idempotency": {"key": ["oder_id"]}}, r"idempotency\.key"),
    ({"budget": {"of": "b", "amount": {"argument": "oder_id"}}}, r"budget\.amount"),
]


@pytest.mark.parametrize(("fields", "where"), RULES)
def test_a_rule_that_names_an_argument_the_function_has_not_is_refused(
    fields: dict[str, Any], where: str
) -> None:
    """A slip in a template would make every call fail, or, in a key, be granted only once."""
    actions = {"cancel_order": {"loss": CANCEL["loss"], **fields}}
    policy = parse(policy_of(actions=actions, budgets={"b": {"limit": 1}}))

    with pytest.raises(amv.PolicyError, match=f"{where} names the argument 'oder_id'"):
        Signature("x", Shop.cancel).check("cancel_order", policy.actions["cancel_order"])
    Signature("x", plain).check("cancel_order", policy.actions["cancel_order"])


def test_of_arguments_that_are_no_json_the_others_are_kept() -> None:
    given = {"a": 1, "b": object(), "c": "x" * KEPT_BYTES_MAX, "d": None, "e": float("nan")}

    assert json_part(given) == {"a": 1, "d": None}


def test_what_is_held_is_changed_by_nobody() -> None:
    given: dict[str, Any] = {"a": [{"b": [1, (2, 3)]}], "c": "x"}

    kept = held(given)
    given["a"][0]["b"].append(4)

    assert kept == {"a": [{"b": [1, [2, 3]]}], "c": "x"}
    deep: list[Any] = []
    deep.append(deep)
    assert held({"a": deep})["a"] is deep
