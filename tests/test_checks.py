"""Checks shared by all: a value of the wrong kind is told of, whatever it is."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import pytest

from amv.checks import check_fields, check_flag, several, shown
from amv.config import Settings
from amv.embedders.endpoint import Endpoint
from amv.errors import AmvError, ConfigError, InvalidInput
from amv.memory.ranking import RankWeights
from amv.memory.settings import Budget, CellSettings, MemorySettings
from amv.memory.tiers import Band
from amv.memory.value import PRESETS

HUGE = 10**5000
"""Python refuses to write it down, so a careless message about it is a ValueError."""

NAN, INF = float("nan"), float("inf")

WRONG: dict[Any, list[object]] = {
    int: ["5", None, 2.0, True, NAN, INF, HUGE, -HUGE, [5], 1 << 64],
    float: ["0.5", None, True, NAN, INF, -INF, HUGE, -HUGE, [0.5], 1j],
    bool: ["yes", "", None, 0, 1, HUGE],
    str: ["", 5, None, HUGE, b"amv.db"],
    str | None: [5, HUGE, b"minilm", True],
    float | None: ["5", True, NAN, INF, -INF, HUGE, 0.0],
    Endpoint | None: ["default", 5, HUGE, {}, Settings],
    Literal["FULL", "NORMAL"]: ["full", None, HUGE, ["FULL"]],
}

SETTINGS: list[Any] = [
    Budget(),
    CellSettings(),
    MemorySettings(),
    RankWeights(),
    Band(demote=0.2, promote=0.4),
    PRESETS["default"],
    Settings(),
]


def mistakes() -> Iterator[Any]:
    """Give each field of each settings object each value that it can't have."""
    for settings in SETTINGS:
        for field in fields(settings):
            for wrong in WRONG.get(field.type, ["default", None, 5, HUGE, {}, Settings]):
                name = f"{type(settings).__name__}.{field.name}-{shown(wrong)}"
                yield pytest.param(settings, field.name, wrong, id=name)


@pytest.mark.parametrize(("settings", "name", "wrong"), list(mistakes()))
def test_a_setting_of_the_wrong_kind_is_refused(settings: Any, name: str, wrong: object) -> None:
    """At once, and not where it is first compared or added; "no" is not a way to say no."""
    expected = ConfigError if isinstance(settings, Settings) else InvalidInput

    with pytest.raises(expected) as caught:
        replace(settings, **{name: wrong})
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: type(settings).__name__)
def test_settings_may_be_made_again_as_they_are(settings: Any) -> None:
    """What is refused above is refused for its value."""
    assert replace(settings) == settings


def test_a_whole_number_is_a_number() -> None:
    assert RankWeights(vector=1, lexical=0).vector == 1
    assert Settings(upkeep_interval_s=1).upkeep_interval_s == 1


@dataclass
class Sample:
    """One field of each kind."""

    count: int = 1
    share: float = 0.5
    flag: bool = False
    name: str | None = None
    mode: Literal["FULL", "NORMAL"] = "FULL"
    band: Band | None = None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("count", 2.5, "count must be a whole number of less than 64 bits, got 2.5"),
        ("count", HUGE, "less than 64 bits, got an integer of 16610 bits"),
        ("share", "0.5", "share must be a number, got '0.5'"),
        ("flag", "no", "flag must be True or False, got 'no'"),
        ("name", 5, "name must be a string or None, got 5"),
        ("mode", "OFF", "mode must be FULL or NORMAL, got 'OFF'"),
        ("band", (0.1, 0.2), "band must be of type Band or None, got (0.1, 0.2)"),
    ],
    ids=shown,
)
@pytest.mark.parametrize("error", [InvalidInput, ConfigError])
def test_the_error_says_what_was_needed_and_what_came(
    name: str, value: object, told: str, error: type[AmvError]
) -> None:
    check_fields(sample := Sample())
    setattr(sample, name, value)

    with pytest.raises(error) as caught:
        check_fields(sample, error)
    assert told in str(caught.value)


class Speechless:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    "value",
    [HUGE, -HUGE, [HUGE], {"a": {HUGE: (HUGE,)}}, "x" * 10_000, Speechless(), [[[[[]]]]], Band],
    ids=lambda value: type(value).__name__,
)
def test_anything_can_be_shown(value: object) -> None:
    """A message about bad input must not fail on the bad input."""
    assert 0 < len(shown(value)) < 200


def test_what_is_short_is_shown_whole() -> None:
    for value in ("soon", 5, 2.5, None, ["a", 1], {"a": 1}, 10**30):
        assert shown(value) == repr(value)


@pytest.mark.parametrize("flag", ["no", "", 0, 1, None, HUGE], ids=shown)
def test_only_a_bool_is_a_flag(flag: object) -> None:
    with pytest.raises(InvalidInput, match="quiet must be True or False, got"):
        check_flag(flag, "quiet")
    assert check_flag(True, "quiet")


def test_several_are_gone_through_once() -> None:
    """A generator too; what it raises itself is its own."""
    assert list(several(iter([1, 2]), "need numbers")) == [1, 2]
    assert list(several({"a": 1}, "need names")) == ["a"]


@pytest.mark.parametrize("values", [None, 5, HUGE, "text"], ids=shown)
def test_one_is_not_several(values: Any) -> None:
    with pytest.raises(InvalidInput, match="need numbers, got"):
        several(values, "need numbers")
