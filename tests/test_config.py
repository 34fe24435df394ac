"""Settings: checked once, and read from the environment here only."""

import math
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from amv.config import (
    LOG_LEVELS,
    Settings,
    calibration_from_environment,
    from_environment,
    policy_from_environment,
)
from amv.errors import ConfigError
from amv.memory.settings import MemorySettings


def test_without_a_variable_everything_is_at_its_default() -> None:
    assert from_environment({"HOME": "/root"}) == Settings()
    assert Settings().memory == MemorySettings()


def test_each_variable_sets_what_it_is_named_for() -> None:
    environ = {"AMV_DB": "/tmp/x.db", "AMV_EMBEDDER": "hashing:64", "AMV_LOG_LEVEL": "DEBUG"}

    assert from_environment(environ) == Settings(
        db="/tmp/x.db", embedder="hashing:64", log_level="DEBUG"
    )


def test_without_a_mapping_the_environment_of_the_process_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AMV_DB", "from-the-process.db")

    assert from_environment().db == "from-the-process.db"
    assert from_environment({}).db == "amv.db"


def test_an_empty_variable_counts_as_not_set() -> None:
    """As a shell script leaves it that exports what it was given."""
    assert from_environment({"AMV_DB": "", "AMV_EMBEDDER": "", "AMV_LOG_LEVEL": ""}) == Settings()


@pytest.mark.parametrize("level", [*LOG_LEVELS, *map(str.lower, LOG_LEVELS), "Info"])
def test_the_log_level_is_taken_in_any_case(level: str) -> None:
    assert from_environment({"AMV_LOG_LEVEL": level}).log_level == level.upper()


def test_a_variable_that_can_not_be_used_is_named() -> None:
    """Who set it looks for the variable, not for a field."""
    with pytest.raises(ConfigError, match=r"^AMV_LOG_LEVEL .*DEBUG, INFO.*got 'loud'$"):
        from_environment({"AMV_LOG_LEVEL": "loud"})
    with pytest.raises(ConfigError, match=r"^AMV_CACHE_MB must be a whole number from 0 .*'-1'$"):
        from_environment({"AMV_CACHE_MB": "-1"})


@pytest.mark.parametrize(
    ("field", "value", "needed"),
    [
        ("log_level", "info", "one of DEBUG, INFO, WARNING, ERROR"),
        ("synchronous", "OFF", "FULL or NORMAL"),
        ("synchronous", "full", "FULL or NORMAL"),
        ("synchronous", True, "FULL or NORMAL"),
        ("upkeep_interval_s", "5", "upkeep_interval_s must be a number or None"),
        ("upkeep_interval_s", True, "upkeep_interval_s must be a number or None"),
        ("embedder", 5, "embedder must be a string or None"),
        ("db", None, "db must be a string"),
        ("log_level", 10, "log_level must be a string"),
        ("memory", 5, "memory must be of type MemorySettings"),
        ("upkeep_interval_s", 0.0, "positive"),
        ("upkeep_interval_s", -1.0, "positive"),
        ("upkeep_interval_s", math.nan, "positive"),
        ("upkeep_interval_s", math.inf, "positive"),
        ("upkeep_interval_s", 2 * threading.TIMEOUT_MAX, "positive"),
        ("db", "", "file name"),
    ],
)
def test_a_setting_that_can_not_be_used_says_what_was_needed_and_what_came(
    field: str, value: Any, needed: str
) -> None:
    """At once, and not when a thread that waits for infinity fails."""
    with pytest.raises(ConfigError, match=needed) as caught:
        Settings(**{field: value})

    assert repr(value) in str(caught.value) or value == ""


@pytest.mark.parametrize("interval_s", [None, 0.001, threading.TIMEOUT_MAX])
def test_an_interval_that_can_be_waited_for_is_taken(interval_s: float | None) -> None:
    assert Settings(upkeep_interval_s=interval_s).upkeep_interval_s == interval_s


def test_settings_can_not_be_changed_under_a_running_memory() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().db = "other.db"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "read"),
    [("AMV_POLICY", policy_from_environment), ("AMV_CALIBRATION", calibration_from_environment)],
)
def test_the_files_of_the_gate_are_named_or_there_is_none(
    name: str, read: Callable[[dict[str, str]], str | None]
) -> None:
    assert read({}) is None
    assert read({name: ""}) is None
    assert read({name: "x.yaml"}) == "x.yaml"
