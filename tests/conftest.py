"""What all tests share."""

import signal
from collections import Counter
from typing import Any

from hypothesis import settings

# A slow machine is no error: no test is timed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell script; then what tests start would ignore it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: Any) -> None:
    """Let somebody with more time have every fault injected, and not a share of them."""
    parser.addoption(
        "--every-fault", action="store_true", help="kill at every write, and not at a share of them"
    )


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Begin with the longest tests, so that no worker is left with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many runs and faults tests have counted (`record_property`)."""
    counted: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, number in report.user_properties:
            counted[report.nodeid.partition("[")[0], name] += number
    if counted:
        terminalreporter.section("counted")
    for (test, name), number in counted.items():
        terminalreporter.line(f"{number:>9,} {name}: {test}")
