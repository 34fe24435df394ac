"""Verifiers: read-only checks that ask the world, run so that nothing they do can hurt.

A verifier is a Python function, plain or async, or an HTTP GET.  Each runs in a
thread of its own under a deadline.  Whatever goes wrong with it (a time-out, an
exception, a reply that is no JSON, a number that is not finite) is a finding
that is no evidence, never one that supports an action; so is what a verifier
says that asked AMV's own memory.

Checks that are the same at the same time are made once.  A reading is used
again only while that is worth it: as its source changes every `fresh_s`
seconds or so, a reading of age a is outdated with a probability of a / fresh_s;
once that, times what a wrong action loses, is more than a new check costs, it
is worth nothing.
"""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from amv.checks import Verifying, shown, verifying
from amv.errors import InvalidInput
from amv.guard.actions import canonical, copied, held
from amv.guard.policy import VerifierRule
from amv.guard.ports import Finding
from amv.verifiers.independence import NOT_INDEPENDENT, follow_threads
from amv.verifiers.reading import Unreadable, called, fetched, read_at, taken_by
from amv.verifiers.workers import Workers

RUNNING_MAX = 64
"""Checks that may run at once; one that hangs counts until it ends."""

READINGS_MAX = 4096
"""Readings kept to be used again."""


class _Flight:
    """One check under way, and whoever waits for it."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.finding = Finding(None, "the check has not ended")
        self.at_s = 0.0


class Verifiers:
    """Runs the verifiers of one gate; a `Checker`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._functions: dict[str, Callable[..., Any]] = {}
        self._lock = threading.Lock()
        self._flights: dict[bytes, _Flight] = {}
        self._readings: dict[bytes, tuple[float, Finding]] = {}
        self._running = 0
        self._workers = Workers()

    def register(self, name: str, function: Callable[..., Any]) -> None:
        """Have the function *function* answer the checks called *name*."""
        if not callable(function):
            raise InvalidInput(f"verifier {name!r} must be a function, got {shown(function)}")
        follow_threads()
        with self._lock:
            self._functions[name] = function
            # What another function said, or will say, is not what this one says.
            self._flights.clear()
            self._readings.clear()

    def run(
        self, name: str, rule: VerifierRule, arguments: Mapping[str, Any], *, worth: float
    ) -> Finding:
        """Return what a verifier reads, within its deadline; never raises."""
        try:
            key = canonical([name, dict(arguments)], "the arguments of a verifier")
        except InvalidInput as error:
            return Finding(None, str(error), "not_asked")
        with self._lock:
            known = self._readings.get(key)
            if known is not None and self._clock() - known[0] <= lifetime_s(rule, worth):
                return known[1]
            flight = self._flights.get(key)
            if flight is None:
                if self._running >= RUNNING_MAX:
                    why = f"{self._running} checks are under way, and none ends"
                    return Finding(None, why, "not_asked")
                flight = self._flights[key] = _Flight()
                self._running += 1
                is_first = True
            else:
                is_first = False
        if is_first:
            try:
                self._workers.start(partial(self._fly, key, flight, name, rule, held(arguments)))
            except RuntimeError as error:
                failed = Finding(None, f"the check can't start: {error}", "not_asked")
                self._land(key, flight, rule, failed, 0.0)
        if not flight.ended.wait(rule.timeout_s):
            with self._lock:
                # Whoever comes later asks anew, rather than wait for one that hangs.
                if self._flights.get(key) is flight:
                    del self._flights[key]
            return Finding(None, f"no answer within {rule.timeout_s} s", "timed_out")
        return flight.finding

    def knows(self, name: str, rule: VerifierRule) -> bool:
        """Return whether a check has an address, or a function that answers it."""
        return rule.url is not None or (rule.tool or name) in self._functions

    def _fly(
        self, key: bytes, flight: _Flight, name: str, rule: VerifierRule, arguments: dict[str, Any]
    ) -> None:
        asked_s = self._clock()
        running = Verifying()
        verifying.set(running)
        finding = self._asked(name, rule, arguments)
        running.has_ended = True
        if running.has_read:
            finding = Finding(None, NOT_INDEPENDENT, "refused")
        self._land(key, flight, rule, finding, asked_s)

    def _land(
        self, key: bytes, flight: _Flight, rule: VerifierRule, finding: Finding, asked_s: float
    ) -> None:
        flight.finding = finding
        with self._lock:
            self._running -= 1
            if self._flights.get(key) is flight:
                del self._flights[key]
                # One that came too late is not kept: nobody knows what it is a reading of.
                if not flight.finding.problem and rule.fresh_s > 0.0:
                    self._readings[key] = (asked_s, flight.finding)
                    while len(self._readings) > READINGS_MAX:
                        del self._readings[next(iter(self._readings))]
        flight.ended.set()

    def _asked(self, name: str, rule: VerifierRule, arguments: dict[str, Any]) -> Finding:
        try:
            function = self._functions.get(rule.tool or name)
            if rule.url is not None:
                reply = fetched(rule.url, arguments, rule.timeout_s)
            elif function is not None:
                reply = called(function, arguments if rule.args else taken_by(function, arguments))
            else:
                why = f"nothing is registered as {rule.tool or name!r}"
                return Finding(None, why, "not_asked")
            # The function may still hold its reply, and change it.
            return Finding(copied(read_at(rule.read, reply)))
        except Unreadable as error:
            return Finding(None, str(error), error.fault)
        except BaseException as error:  # noqa: BLE001  A verifier may be anyone's code.
            return Finding(None, f"the verifier failed: {_said(error)}")


def _said(error: BaseException) -> str:
    """Return an exception as a message shows it; what shows it may be anyone's code, too."""
    try:
        return shown(error)
    except BaseException:  # noqa: BLE001  It is not this one that is to be told.
        return type(error).__name__


def lifetime_s(rule: VerifierRule, worth: float) -> float:
    """Return how long a reading may be used again where a wrong action loses *worth*.

    >>> rule = VerifierRule(cost=0.1, fresh_s=3600)
    >>> lifetime_s(rule, worth=10.0)
    36.0
    """
    if not worth > rule.cost:
        return rule.fresh_s
    return rule.fresh_s * rule.cost / worth
