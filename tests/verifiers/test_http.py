"""Verifiers over HTTP, on a real socket: each reply that a check must not take for support."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.error import URLError

import pytest

import amv
from amv.guard.policy import VerifierRule
from amv.guard.ports import Finding
from amv.verifiers import Verifiers, reading
from amv.verifiers.reading import REPLY_BYTES_MAX
from tests.guard.gates import CANCEL, cancel, opened, policy_of, remember

RUNS = 20
"""Of each fault, with the real verifiers; thousands with fakes are in tests/guard."""

PENDING = json.dumps({"status": "pending"}).encode()

Reply = tuple[int, dict[str, str], bytes]

REPLIES: dict[str, Reply] = {
    "HTTP 500": (500, {}, PENDING),
    "HTTP 503": (503, {}, PENDING),
    "HTTP 401": (401, {}, PENDING),
    "HTTP 202": (202, {}, PENDING),
    "redirect 301": (301, {"location": "/healthy/x"}, PENDING),
    "redirect 307": (307, {"location": "/healthy/x"}, PENDING),
    "a key twice": (200, {}, b'{"status": "delivered", "status": "pending"}'),
    "empty": (200, {}, b""),
    "no content": (204, {}, b""),
    "truncated": (200, {}, PENDING[:-1]),
    "cut off": (200, {"content-length": "1000"}, PENDING),
    "wrong type": (200, {}, b'{"status": 5}'),
    "a list": (200, {}, b'["pending"]'),
    "null": (200, {}, b'{"status": null}'),
    "NaN": (200, {}, b'{"status": NaN}'),
    "infinite": (200, {}, b'{"status": Infinity}'),
    "minus infinite": (200, {}, b'{"status": -1e999}'),
    "no JSON": (200, {}, b"<html>pending</html>"),
    "no text": (200, {}, b"\xff\xfe\x00"),
    "deep": (200, {}, b"[" * 100_000),
    "a long number": (200, {}, b'{"status": ' + b"9" * 5000 + b"}"),
    "too long": (200, {}, b'{"status": "pending", "x": "' + b"x" * REPLY_BYTES_MAX + b'"}'),
    "not there": (404, {}, b""),
    "gone": (410, {}, b""),
    "hung": (0, {}, b""),
    "late": (0, {}, PENDING),
    "reset": (-1, {}, b""),
    "drip": (-2, {}, b""),
}


class Handler(BaseHTTPRequestHandler):
    """Answers by the first part of the path."""

    asked: list[str]
    over: threading.Event

    def do_GET(self) -> None:
        fault = self.path.split("/")[1].replace("%20", " ")
        self.asked.append(self.path)
        status, headers, body = REPLIES.get(fault, (200, {}, PENDING))
        if status == -1:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if status == 0:
            self.over.wait(1.0 if body else 20.0)
        if status == -2:
            self._drip()
            return
        self.send_response(status or 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _drip(self) -> None:
        """Send a byte now and then, so that no single wait for one is too long."""
        self.send_response(200)
        self.end_headers()
        for byte in PENDING:
            if self.over.wait(0.05):
                return
            self.wfile.write(bytes([byte]))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A server whose clients may hang up."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing: a client that waits no longer is what is tested."""


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[str, list[str]]]:
    """Give the address of a server, and the list of what it is asked for."""
    Handler.asked, Handler.over = [], threading.Event()
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", Handler.asked
        Handler.over.set()
        server.shutdown()
        thread.join()


def gate(url: str, timeout_s: float) -> amv.Guard:
    """Return a gate whose only verifier is at *url*."""
    rule = {"url": url, "read": "$.status", "cost": 0.02, "timeout_s": timeout_s}
    actions = {"cancel_order": {**CANCEL, "loss": {"wrong": 120.0, "abstain": 5.0}}}
    return opened(policy=policy_of(verifiers={"order_status": rule}, actions=actions))


@pytest.mark.parametrize("fault", REPLIES)
def test_no_faulty_reply_lets_an_action_proceed(
    world: tuple[str, list[str]], fault: str, record_property: Callable[[str, object], None]
) -> None:
    base, asked = world
    before, random = len(asked), Random(fault)
    is_slow = fault in ("hung", "late", "drip")
    count = 3 if is_slow else RUNS
    with gate(
        f"{base}/{fault.replace(' ', '%20')}/{{order_id}}", 0.1 if is_slow else 20.0
    ) as guard:
        for number in range(count):
            trust = random.uniform(0.8, 1.0)
            remember(guard, order_id=number, source_trust=trust)
            start_s = time.monotonic()

            decision = guard.decide(cancel(number))

            assert decision.verdict == "ABSTAIN", decision.says
            assert decision.permit is None
            assert time.monotonic() - start_s < 15.0
        assert guard.replay() == []
    record_property("faults_injected", len(asked) - before)
    # Each was asked once, and no redirect was followed.
    assert len(asked) - before == count


def test_control_a_healthy_reply_lets_each_proceed(world: tuple[str, list[str]]) -> None:
    with gate(f"{world[0]}/healthy/{{order_id}}", 20.0) as guard:
        for number in range(RUNS):
            remember(guard, order_id=number)
            assert guard.decide(cancel(number)).verdict == "PROCEED"


def test_nobody_listening_is_no_evidence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x"

        finding = Verifiers().run("v", VerifierRule(url=url, timeout_s=20.0), {}, worth=1.0)

    assert "can't be reached" in finding.problem


def test_arguments_are_escaped_in_the_address(world: tuple[str, list[str]]) -> None:
    """No argument leads to another address than the policy names."""
    base, asked = world
    rule = VerifierRule(url=f"{base}/healthy/{{a}}?b={{b}}", read="$.status", timeout_s=20.0)
    arguments = {"a": "..x?y#z/é", "b": "1&c=2"}

    assert Verifiers().run("v", rule, arguments, worth=1.0) == Finding("pending")
    assert asked[-1] == "/healthy/..x%3Fy%23z%2F%C3%A9?b=1%26c%3D2"
    assert "needs the argument 'b'" in Verifiers().run("v", rule, {"a": "x"}, worth=1.0).problem


@pytest.mark.parametrize(
    "odd",
    ["..", ".", "../..", "x/..", "x/../x", "x\\..", "..\\x", "./x", "", None, True, [], ["x"], {}],
)
def test_an_argument_that_leads_elsewhere_is_not_asked(
    world: tuple[str, list[str]], odd: object
) -> None:
    """A server that takes steps, even escaped, would answer for what the action is not about."""
    base, asked = world
    rule = VerifierRule(url=f"{base}/healthy/{{a}}/status", read="$.status", timeout_s=20.0)
    before = len(asked)

    finding = Verifiers().run("v", rule, {"a": odd}, worth=1.0)

    assert (finding.value, finding.fault, len(asked)) == (None, "not_asked", before)
    assert "the address " in finding.problem


def test_arguments_that_make_up_steps_together_are_not_asked(
    world: tuple[str, list[str]],
) -> None:
    rule = VerifierRule(url=f"{world[0]}/healthy/{{a}}{{b}}?c", read="$.status", timeout_s=20.0)

    assert Verifiers().run("v", rule, {"a": ".", "b": "."}, worth=1.0).fault == "not_asked"
    assert Verifiers().run("v", rule, {"a": "..", "b": 1.5}, worth=1.0) == Finding("pending")


def test_steps_of_the_policys_own_are_its_business(world: tuple[str, list[str]]) -> None:
    base, asked = world
    rule = VerifierRule(url=f"{base}/healthy/../{{a}}", timeout_s=20.0)

    Verifiers().run("v", rule, {"a": "healthy"}, worth=1.0)
    assert asked[-1] == "/healthy/../healthy"


def test_what_is_not_there_refutes(world: tuple[str, list[str]]) -> None:
    rule = VerifierRule(url=f"{world[0]}/gone/x", timeout_s=20.0)

    assert Verifiers().run("v", rule, {}, worth=1.0) == Finding(amv.NOT_FOUND)


def test_evidence_of_what_the_gate_asks_itself_is_refused(world: tuple[str, list[str]]) -> None:
    """Whoever wants an action must not be the one to say what the world shows."""
    base, asked = world
    with gate(f"{base}/healthy/{{order_id}}", 20.0) as guard:
        remember(guard)
        before = len(asked)
        decision = guard.decide(cancel(), run_checks=False)

        assert (decision.verdict, decision.check) == ("PROCEED", None)
        assert len(asked) == before + 1
        with pytest.raises(amv.InvalidInput, match="has an address, which the gate asks itself"):
            guard.evidence(decision.id, "order_status", "pending")


def test_a_check_may_be_left_to_the_client_by_the_policy(world: tuple[str, list[str]]) -> None:
    base, asked = world
    rule = {"url": f"{base}/healthy/x", "read": "$.status", "cost": 0.02, "by_client": True}
    with opened(policy=policy_of(verifiers={"order_status": rule})) as guard:
        remember(guard)
        before = len(asked)
        decision = guard.decide(cancel(), run_checks=False)
        assert decision.verdict == "VERIFY"

        assert guard.evidence(decision.id, "order_status", "pending").verdict == "PROCEED"
        assert len(asked) == before


def test_the_gate_goes_on_with_its_own_checks_after_those_of_a_client(
    world: tuple[str, list[str]],
) -> None:
    base, asked = world
    verifiers = {
        "told": {"cost": 0.01, "sensitivity": 0.8, "specificity": 0.8},
        "order_status": {
            "url": f"{base}/healthy/x",
            "read": "$.status",
            "cost": 0.5,
            "sensitivity": 0.999,
            "specificity": 0.999,
        },
    }
    status = {**CANCEL["rests_on"]["status"], "verify_with": ["told", "order_status"]}
    actions = {"cancel_order": {**CANCEL, "rests_on": {"status": status}}}
    with opened(policy=policy_of(verifiers=verifiers, actions=actions)) as guard:
        remember(guard, source_trust=0.5)
        before = len(asked)
        decision = guard.decide(cancel(), run_checks=False)
        assert decision.check is not None
        assert decision.check.verifier == "told"

        told = guard.evidence(decision.id, "told", "shipped")

        assert told.check is None
        assert len(asked) == before + 1
        assert guard.replay() == []


@pytest.mark.parametrize(
    ("fault", "ended"),
    [
        ("healthy", "answered"),
        ("null", "inconclusive"),
        ("hung", "timed_out"),
        ("reset", "failed"),
        ("no JSON", "failed"),
        ("not there", "answered"),
    ],
)
def test_how_a_reply_ended_is_told(world: tuple[str, list[str]], fault: str, ended: str) -> None:
    url = f"{world[0]}/{fault.replace(' ', '%20')}/x"
    with gate(url, 0.3 if ended == "timed_out" else 20.0) as guard:
        remember(guard)

        assert [one.ended for one in guard.decide(cancel()).checks] == [ended]


@pytest.mark.parametrize("error", [TimeoutError("late"), URLError(TimeoutError("late"))])
def test_a_server_that_is_late_has_timed_out(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own time-out may strike before that of the check."""

    def late(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(reading._opener, "open", late)

    finding = Verifiers().run("v", VerifierRule(url="http://shop.example"), {}, worth=1.0)

    assert finding.fault == "timed_out"
