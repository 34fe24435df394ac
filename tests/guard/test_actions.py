"""What identifies an action."""

import math
from enum import Enum
from typing import Any

import pytest

from amv.errors import InvalidInput
from amv.guard.actions import Action, canonical, equal


def digest(arguments: dict[str, Any], **fields: Any) -> str:
    return Action(tool="pay", arguments=arguments, **fields).digest()


def test_a_number_is_not_its_text() -> None:
    """A permit for 5 must not pay "5", which a tool may read otherwise."""
    assert digest({"amount": 5}) != digest({"amount": "5"})
    assert digest({"amount": 1}) != digest({"amount": True})


def test_absent_is_not_null() -> None:
    assert digest({"to": "bob"}) != digest({"to": "bob", "note": None})


def test_the_order_of_keys_does_not_matter() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})


def test_everything_that_identifies_an_action_is_in_its_digest() -> None:
    action = Action(tool="pay", arguments={"to": "bob"})
    others = [
        Action(tool="pays", arguments={"to": "bob"}),
        Action(tool="pay", arguments={"to": "bob"}, namespace=("a",)),
        Action(tool="pay", arguments={"to": "bob"}, principal="key"),
    ]

    assert len({action.digest(), *(one.digest() for one in others)}) == 4
    assert action.digest() == Action(tool="pay", arguments={"to": "bob"}, session="x").digest()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool": ""}, "the name of a tool"),
        ({"tool": " "}, "the name of a tool"),
        ({"tool": 5}, "the name of a tool"),
        ({"tool": "x" * 257}, "the name of a tool"),
        ({"tool": "pay", "arguments": [1]}, "must be a mapping"),
        ({"tool": "pay", "session": 5}, "session must be a string"),
        ({"tool": "pay", "principal": None}, "principal must be a string"),
        ({"tool": "pay", "arguments": {"a": math.nan}}, "must be JSON"),
        ({"tool": "pay", "arguments": {"a": {1, 2}}}, "must be JSON"),
        ({"tool": "pay", "arguments": {1: 2}}, "must be JSON"),
        ({"tool": "pay", "arguments": {"a": "\ud800"}}, "must be JSON"),
        ({"tool": "pay", "arguments": {"a": 2**60}}, "must be JSON"),
        ({"tool": "pay", "arguments": {"a": "x" * (1 << 20)}}, "more than 1048576 bytes"),
    ],
)
def test_what_is_no_action_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Action(**fields)


def test_the_argument_that_is_no_json_is_named() -> None:
    with pytest.raises(InvalidInput, match="the argument 'b' must be JSON"):
        Action("pay", {"a": 1, "b": {1, 2}, "c": "x"})


def test_arguments_too_deep_to_write_down_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="must be JSON"):
        canonical(deep, "it")


class _Status(str, Enum):  # noqa: UP042  It is of those that are not shown as their text.
    OPEN = "open"


class _Number(int, Enum):
    FIVE = 5


class _Share(float):
    def __repr__(self) -> str:
        return "1.0"


@pytest.mark.parametrize(
    ("odd", "plain"), [(_Status.OPEN, "open"), (_Number.FIVE, 5), (_Share(0.5), 0.5), (True, True)]
)
def test_text_and_numbers_of_other_types_are_held_as_what_they_are(
    odd: object, plain: object
) -> None:
    """Else a claim would be filled with `_Status.OPEN`, and the digest made of "open"."""
    held = Action("pay", {"x": odd, "more": [{"x": odd}]}).arguments

    assert held == {"x": plain, "more": [{"x": plain}]}
    assert type(held["x"]) is type(held["more"][0]["x"]) is type(plain)
    assert digest({"x": odd}) == digest({"x": plain})


def test_values_are_compared_as_typed_json() -> None:
    assert equal({"a": [1, None]}, {"a": [1.0, None]})
    assert not equal(5, "5")
    assert not equal(True, 1)


def test_an_action_is_written_as_a_call() -> None:
    """The tool and its arguments come first, as in the call that is guarded."""
    assert Action("pay", {"to": "x"}) == Action(tool="pay", arguments={"to": "x"})
    assert Action("pay").arguments == {}
