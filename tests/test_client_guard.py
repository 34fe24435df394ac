"""The gate's half of the client: what the gate says, and nothing done twice by itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.client import Client, Refused
from amv.client.guarding import GuardClient
from amv.client.sending import TRIES
from amv.errors import Conflict, InvalidInput, ItemNotFound, PermitRefused
from amv.guard.certificate import Certificate
from amv.server.access import Level
from tests.server.conftest import Running, running
from tests.test_client import BUSY, DROPPED, scripted

NS = ("alice",)
ACTION = amv.Action(tool="cancel_order", arguments={"order_id": "W1"}, namespace=NS)
REFUND = amv.Action(tool="refund", arguments={"order_id": "W1"}, namespace=NS)
METHODS = {name for name in vars(GuardClient) if not name.startswith("_")}

READS: dict[str, Callable[[Client], Any]] = {
    "decision": lambda c: c.decision("x"),
    "decisions": lambda c: c.decisions(),
    "rank": lambda c: c.rank([ACTION]),
    "certificate": lambda c: c.certificate(),
    "approvals": lambda c: c.approvals(),
}
ONCE: dict[str, Callable[[Client], Any]] = {
    "decide": lambda c: c.decide(ACTION),
    "evidence": lambda c: c.evidence("x", "order_status", "pending"),
    "redeem": lambda c: c.redeem("x", ACTION),
    "dispatched": lambda c: c.dispatched("x"),
    "settle": lambda c: c.settle("x", "FAILED"),
    "label": lambda c: c.label("x", {"status": True}),
    "approve": lambda c: c.approve("x", by="Eve"),
    "reject": lambda c: c.reject("x", by="Eve"),
}
ALL = READS | ONCE


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "served.db") as found:
        found.memory.add(
            "order W1 is pending",
            namespace=NS,
            claim=amv.Claim("order/W1", "status", "pending"),
            source="desk",
            source_trust=0.9,
        )
        yield found


@pytest.fixture
def client(served: Running) -> Iterator[Client]:
    with Client(served.url) as found:
        yield found


def test_a_decision_is_the_same_here_and_there(served: Running, client: Client) -> None:
    here = client.decide(ACTION, run_checks=False)
    there = served.guard.get(here.id)

    assert here.check is not None
    assert (here.check.verifier, here.check.premises) == ("order_status", ("status",))
    for name in ("verdict", "reason", "risk", "harm", "premises", "voi", "namespace", "digest"):
        assert getattr(here, name) == getattr(there, name), name
    assert client.decision(here.id) == there
    assert client.decisions() == [there]
    assert client.decisions(after=here.id) == []


def test_alternatives_are_ranked_alike_here_and_there(served: Running, client: Client) -> None:
    """The same words, the same order; nothing is written down."""
    here = client.rank([REFUND, amv.Action("unheard_of", namespace=NS), ACTION])

    assert [decision.tool for decision in here] == ["cancel_order", "refund", "unheard_of"]
    assert here[0].expected_loss < here[1].expected_loss
    there = served.guard.rank([REFUND, ACTION])
    assert [one.expected_loss for one in there] == [one.expected_loss for one in here[:2]]
    assert here[0].check == there[0].check
    assert client.rank([]) == client.decisions() == []


def test_decisions_are_found_by_session_and_verdict(client: Client) -> None:
    one = client.decide(amv.Action("refund", {"order_id": "W1"}, namespace=NS, session="s1"))
    client.decide(REFUND)
    other = client.decide(ACTION, run_checks=False)

    assert [found.id for found in client.decisions(session="s1")] == [one.id]
    assert [found.id for found in client.decisions(verdict="VERIFY")] == [other.id]
    assert client.decisions(session="s1", verdict="VERIFY") == []


def test_a_suggestion_comes_along(served: Running, client: Client) -> None:
    client.search("order", namespace=NS)
    action = amv.Action("cancel_order", {"order_id": "W1", "as_of": " Pending"}, namespace=NS)

    (hint,) = client.decide(action, run_checks=False).suggestions

    assert (hint.argument, hint.match, hint.is_required) == ("as_of", "normalised", True)
    assert hint.claim == "order/W1/status"
    assert served.memory.get(hint.item_id).claim is not None


def test_an_action_goes_ahead_once(client: Client) -> None:
    decision = client.evidence(
        client.decide(ACTION, run_checks=False).id, "order_status", "pending"
    )
    assert decision.permit is not None
    done = client.redeem(decision.permit.token, ACTION)
    client.dispatched(done)
    client.settle(done, "SUCCEEDED")

    with pytest.raises(PermitRefused):
        client.redeem(decision.permit.token, ACTION)
    with pytest.raises(Conflict):
        client.settle(done, "FAILED")


def test_what_is_not_found_refutes(client: Client) -> None:
    decision = client.decide(ACTION, run_checks=False)
    told = client.evidence(decision.id, "order_status", amv.NOT_FOUND)

    assert told.premises[0].after > told.premises[0].before


def test_a_person_is_asked(client: Client) -> None:
    asked = client.decide(REFUND, run_checks=False).approval_id

    assert [row.approval_id for row in client.approvals("pending")] == [asked]
    assert client.approvals(after=asked) == []
    assert client.approve(asked, by="Eve").decided_by == "Eve"
    assert client.decide(REFUND, run_checks=False, approval_id=asked).verdict == "PROCEED"
    with pytest.raises(Conflict):
        client.reject(asked, by="Eve")


def test_what_was_true_is_told(served: Running, client: Client) -> None:
    decision = client.decide(ACTION, run_checks=False)
    client.label(decision.id, {"status": True}, weight=3.0, by="Eve")

    (told,) = served.guard.labels()
    assert (told.is_violated, told.weight) == (True, 3.0)


def test_the_certificate_is_told(served: Running, client: Client) -> None:
    assert client.certificate().state == "none"
    served.guard.adopt(Certificate(epsilon=0.05, delta=0.1, threshold=0.3), served.guard.ground)

    found = client.certificate()

    assert (found.state, found.threshold, found.executed) == ("in_force", 0.3, 0)
    assert client.decide(ACTION, run_checks=False).certificate == "in_force"


def test_a_key_means_its_own_namespace(served: Running) -> None:
    key = served.key(NS, Level.WRITE)
    bare = amv.Action(tool="cancel_order", arguments={"order_id": "W1"})
    with Client(served.url, key=key) as client:
        assert client.decide(bare, run_checks=False).namespace == NS
        asked = client.decide(REFUND, run_checks=False).approval_id
        with pytest.raises(Refused):
            client.approve(asked, by="me")
        with pytest.raises(Refused):
            client.label(client.decide(bare, run_checks=False).id, {"status": False})


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.decide("cancel_order"),
        lambda c: c.decide(amv.Action(tool="x", namespace=NS, principal="eve")),
        lambda c: c.evidence("", "v", 1),
        lambda c: c.evidence(c.decide(ACTION, run_checks=False).id, "other", 1),
        lambda c: c.decisions(limit=0),
        lambda c: c.decisions(verdict="MAYBE"),
        lambda c: c.rank("cancel_order"),
        lambda c: c.rank([ACTION, amv.Action("refund", namespace=("bob",))]),
        lambda c: c.rank([ACTION, amv.Action("refund", namespace=NS, session="s")]),
        lambda c: c.rank([ACTION] * 257),
        lambda c: c.approvals("strange"),
        lambda c: c.approvals(limit=0),
        lambda c: c.label(5, {"status": True}),
        lambda c: c.label("x", ["status"]),
        lambda c: c.label(c.decide(ACTION, run_checks=False).id, {}),
        lambda c: c.label(c.decide(ACTION, run_checks=False).id, {"status": 1}),
        lambda c: c.settle(5, "FAILED"),
        lambda c: c.settle("x", "STRANGE"),
    ],
)
def test_bad_input_is_refused(client: Client, call: Callable[[Client], Any]) -> None:
    with pytest.raises(InvalidInput):
        call(client)


def test_what_is_not_there_is_told(client: Client) -> None:
    for call in (
        lambda: client.decision("x/.."),
        lambda: client.approvals(after="none"),
        lambda: client.evidence("none", "order_status", 1),
        lambda: client.settle("none", "FAILED"),
        lambda: client.label("none", {"status": True}),
        lambda: client.approve("none", by="Eve"),
    ):
        with pytest.raises(ItemNotFound):
            call()


def test_every_method_is_of_one_of_two_sorts() -> None:
    assert set(ALL) == METHODS


@pytest.mark.parametrize("name", ALL)
def test_a_dropped_connection_is_tried_again_for_reading_only(name: str) -> None:
    with scripted(DROPPED) as (server, client, _):
        error = amv.StoreUnavailable if name in READS else amv.OutcomeUnknown
        with pytest.raises(error):
            ALL[name](client)

        assert len(server.requests) == (TRIES if name in READS else 1)


@pytest.mark.parametrize("name", ALL)
def test_what_was_not_begun_is_tried_again(name: str) -> None:
    with scripted(BUSY) as (server, client, _):
        with pytest.raises(amv.StoreUnavailable, match="as scripted"):
            ALL[name](client)

        assert len(server.requests) == TRIES
