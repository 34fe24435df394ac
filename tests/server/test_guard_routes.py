"""The gate's routes over a real socket: sound input, each sort of bad one, and whose is whose."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import fields

from amv.guard.certificate import Certificate
from amv.guard.policy import parse
from amv.memory.item import Namespace
from amv.server import api
from amv.server.access import Level
from amv.server.guarding import GUARD_ROUTES
from amv.server.metrics import Metrics
from tests.guard import gates
from tests.server.cases import name_of, problem, told
from tests.server.conftest import POLICY, Running, running

Asked = dict[str, Any]

ORDER = {"order_id": "W1"}
TENANT: Namespace = ("tenant",)
_numbers = count()


@pytest.fixture
def http(module_served: Running) -> httpx.Client:
    return module_served.http()


@pytest.fixture
def own() -> list[str]:
    return [f"n{next(_numbers)}"]


def remember(http: httpx.Client, namespace: list[str], status: str = "pending") -> None:
    """Add the claim that actions rest on, from a source that is trusted."""
    body = {
        "content": f"order W1 is {status}",
        "namespace": namespace,
        "claim": {"subject": "order/W1", "attribute": "status", "value": status},
        "source": "desk",
        "source_trust": 0.9,
    }
    assert http.post("/v1/items", json=body).status_code == 201


def decide(http: httpx.Client, namespace: list[str] | None, **fields: Any) -> dict[str, Any]:
    body = {"tool": "cancel_order", "arguments": ORDER, "run_checks": False, **fields}
    if namespace is not None:
        body["namespace"] = namespace
    reply = http.post("/v1/guard/decide", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def tell(http: httpx.Client, decision_id: str, value: Any = "pending", **more: Any) -> Any:
    body = {"verifier": "order_status", "value": value, **more}
    return http.post(f"/v1/guard/decisions/{decision_id}/evidence", json=body)


def granted(http: httpx.Client, namespace: list[str]) -> dict[str, Any]:
    """Return a decision with a permit."""
    decision: dict[str, Any] = tell(http, decide(http, namespace)["id"]).json()
    assert decision["verdict"] == "PROCEED", decision
    return decision


def redeem(
    http: httpx.Client,
    decision: dict[str, Any],
    namespace: list[str] | None,
    tool: str = "cancel_order",
) -> Any:
    body = {"permit": decision["permit"]["token"], "tool": tool, "arguments": ORDER}
    if namespace is not None:
        body["namespace"] = namespace
    return http.post("/v1/guard/redeem", json=body)


def settle(http: httpx.Client, decision_id: str, outcome: str) -> Any:
    return http.post(f"/v1/guard/decisions/{decision_id}/settle", json={"outcome": outcome})


def reserved(http: httpx.Client, namespace: list[str]) -> str:
    """Return the id of a decision whose permit was redeemed."""
    decision = granted(http, namespace)
    assert redeem(http, decision, namespace).status_code == 200
    return str(decision["id"])


def asked_person(http: httpx.Client, namespace: list[str]) -> str:
    """Return the id of a request to a person."""
    decision = decide(http, namespace, tool="refund")
    assert decision["verdict"] == "ABSTAIN", decision
    return str(decision["approval_id"])


def _posted(path: str, **body: Any) -> Asked:
    return {"method": "POST", "url": path, "json": body}


def _permit(http: httpx.Client, own: list[str]) -> Asked:
    token = granted(http, own)["permit"]["token"]
    what = {"permit": token, "tool": "cancel_order", "arguments": ORDER, "namespace": own}
    return _posted("/v1/guard/redeem", **what)


SOUND: dict[str, Callable[[httpx.Client, list[str]], Asked]] = {
    "POST /v1/guard/decide": lambda _, own: _posted(
        "/v1/guard/decide", tool="cancel_order", arguments=ORDER, namespace=own
    ),
    "POST /v1/guard/rank": lambda _, own: _posted(
        "/v1/guard/rank",
        alternatives=[{"tool": "cancel_order", "arguments": ORDER}],
        namespace=own,
    ),
    "GET /v1/guard/decisions": lambda _, own: {"method": "GET", "url": "/v1/guard/decisions"},
    "GET /v1/guard/decisions/{id}": lambda http, own: {
        "method": "GET",
        "url": f"/v1/guard/decisions/{decide(http, own)['id']}",
    },
    "POST /v1/guard/decisions/{id}/evidence": lambda http, own: _posted(
        f"/v1/guard/decisions/{decide(http, own)['id']}/evidence",
        verifier="order_status",
        value="pending",
    ),
    "POST /v1/guard/redeem": _permit,
    "POST /v1/guard/decisions/{id}/settle": lambda http, own: _posted(
        f"/v1/guard/decisions/{reserved(http, own)}/settle", outcome="DISPATCHED"
    ),
    "POST /v1/guard/decisions/{id}/label": lambda http, own: _posted(
        f"/v1/guard/decisions/{decide(http, own)['id']}/label", violated={"status": True}, by="Eve"
    ),
    "GET /v1/guard/certificate": lambda _, own: {
        "method": "GET",
        "url": "/v1/guard/certificate",
    },
    "GET /v1/approvals": lambda _, own: {"method": "GET", "url": "/v1/approvals"},
    "POST /v1/approvals/{id}/approve": lambda http, own: _posted(
        f"/v1/approvals/{asked_person(http, own)}/approve", by="Eve"
    ),
    "POST /v1/approvals/{id}/reject": lambda http, own: _posted(
        f"/v1/approvals/{asked_person(http, own)}/reject", by="Eve"
    ),
}
"""Makes a sound request of each route, in a namespace that holds the claim."""

every = pytest.mark.parametrize("route", GUARD_ROUTES, ids=name_of)
bodies = pytest.mark.parametrize("route", [r for r in GUARD_ROUTES if r.takes], ids=name_of)
about_one = pytest.mark.parametrize(
    "route", [r for r in GUARD_ROUTES if "{id}" in r.path], ids=name_of
)


def sound(http: httpx.Client, own: list[str], route: api.Route) -> Asked:
    remember(http, own)
    return SOUND[name_of(route)](http, own)


def test_every_route_has_a_sound_request() -> None:
    assert {name_of(route) for route in GUARD_ROUTES} == set(SOUND)


@every
def test_a_sound_request_is_answered(http: httpx.Client, own: list[str], route: api.Route) -> None:
    reply = http.request(**sound(http, own, route))

    assert reply.status_code == 200, reply.text


@every
def test_without_a_policy_every_route_says_so(tmp_path: Path, route: api.Route) -> None:
    with running(tmp_path / "bare.db", policy=None) as bare, running(tmp_path / "x.db") as x:
        reply = bare.http().request(**sound(x.http(), ["a"], route))

    assert problem(reply) == (409, "conflict")
    assert "AMV_POLICY" in reply.json()["error"]["message"]


@bodies
@pytest.mark.parametrize(
    "content", [b"{", b"", b"\xff", b"[1]", b"null", b"[" * 9999, b'{"x": 1e999}', b"{} {}"]
)
def test_a_body_that_is_no_such_object_is_refused(
    http: httpx.Client, own: list[str], route: api.Route, content: bytes
) -> None:
    asked = {**sound(http, own, route), "json": None, "content": content}
    reply = http.request(**asked, headers={"content-type": "application/json"})

    assert problem(reply) == (400, "invalid_input")


@bodies
def test_a_field_that_is_unknown_or_of_another_type_is_refused(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    asked = sound(http, own, route)
    wrong: list[Asked] = [{**asked["json"], "surprise": 1}]
    wrong += [{**asked["json"], name: 1} for name in asked["json"] if name != "value"]
    wrong += [{n: v for n, v in asked["json"].items() if n != name} for name in needed(route)]

    for body in wrong:
        assert problem(http.request(**{**asked, "json": body}))[0] == 400, body


def needed(route: api.Route) -> list[str]:
    return [field.name for field in fields(route.takes) if field.required]


@every
def test_an_unknown_query_parameter_is_refused(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    asked = sound(http, own, route)

    assert problem(http.request(**asked, params={"surprise": "1"})) == (400, "invalid_input")


@about_one
def test_what_is_not_there_is_told(http: httpx.Client, own: list[str], route: api.Route) -> None:
    asked = sound(http, own, route)
    asked["url"] = route.path.replace("{id}", "gone")

    assert problem(http.request(**asked)) == (404, "not_found")


# ---------------------------------------------------------------- one decision, to its end


def test_a_client_with_verifiers_of_its_own_is_led_through(
    http: httpx.Client, own: list[str]
) -> None:
    remember(http, own)
    decision = decide(http, own)

    assert decision["verdict"] == "VERIFY"
    assert decision["permit"] is None
    assert decision["check"]["verifier"] == "order_status"
    assert decision["check"]["arguments"] == ORDER

    told = tell(http, decision["id"]).json()

    assert told["verdict"] == "PROCEED"
    assert told["id"] == decision["id"]
    assert redeem(http, told, own).json() == {"decision_id": told["id"], "state": "RESERVED"}
    assert settle(http, told["id"], "DISPATCHED").status_code == 200
    assert settle(http, told["id"], "SUCCEEDED").json()["state"] == "SUCCEEDED"
    assert http.get(f"/v1/guard/decisions/{told['id']}").json()["permit"] is None


def test_a_check_that_refutes_gives_the_value_to_repair_with(
    http: httpx.Client, own: list[str]
) -> None:
    remember(http, own)
    move = {"tool": "move_order", "arguments": {**ORDER, "status": "pending"}}
    told = tell(http, decide(http, own, **move)["id"], "delivered").json()

    assert (told["verdict"], told["values"]) == ("REPAIR", {"status": "delivered"})
    assert told["permit"] is None
    query = {"namespace": own[0], "subject": "order/W1", "attribute": "status"}
    claim = http.get("/v1/claims", params=query).json()["item"]["claim"]
    assert claim["value"] == "delivered"


@pytest.mark.parametrize("more", [{"value": None}, {"value": ""}, {"value": {}}])
def test_a_check_that_tells_nothing_lets_nothing_through(
    http: httpx.Client, own: list[str], more: Asked
) -> None:
    remember(http, own)

    assert tell(http, decide(http, own)["id"], **more).json()["verdict"] == "ABSTAIN"


def test_what_is_not_found_refutes(http: httpx.Client, own: list[str]) -> None:
    remember(http, own)

    told = tell(http, decide(http, own)["id"], None, not_found=True).json()

    assert told["verdict"] == "ABSTAIN"
    assert told["premises"][0]["after"] > told["premises"][0]["before"]


def test_evidence_that_nobody_asked_for_is_refused(http: httpx.Client, own: list[str]) -> None:
    remember(http, own)
    first, done = decide(http, own), granted(http, own)

    assert problem(tell(http, first["id"], verifier="other")) == (400, "invalid_input")
    assert problem(tell(http, done["id"])) == (400, "invalid_input")
    assert decide(http, own, tool="unknown")["code"] == "unknown_tool"
    assert problem(tell(http, decide(http, own, tool="read_order")["id"]))[0] == 400


def test_evidence_under_another_policy_is_a_conflict(served: Running) -> None:
    """What the check was asked for, and what errors cost, may be something else by now."""
    http = served.http()
    remember(http, ["a"])
    decision = decide(http, ["a"])
    served.guard._policy = parse({**POLICY, "verifiers": {"order_status": {"cost": 0.03}}})

    assert problem(tell(http, decision["id"])) == (409, "conflict")


def test_evidence_for_a_decision_whose_words_are_forgotten_is_a_conflict(served: Running) -> None:
    http = served.http()
    remember(http, ["a"])
    decision = decide(http, ["a"])
    assert http.delete("/v1/namespaces/a").status_code == 200

    assert problem(tell(http, decision["id"])) == (409, "conflict")


def test_a_permit_of_another_policy_is_refused(served: Running) -> None:
    """What errors cost, and whether the action is guarded at all, may be something else by now."""
    http = served.http()
    remember(http, ["a"])
    decision = granted(http, ["a"])
    served.guard._policy = parse({"version": 1})

    assert problem(redeem(http, decision, ["a"])) == (409, "policy_changed")
    served.guard._policy = parse(POLICY)
    assert redeem(http, decision, ["a"]).status_code == 200


def test_what_is_remembered_otherwise_by_then_lets_nothing_go_ahead(served: Running) -> None:
    """Between asking and evidence, and between the permit and the call."""
    http = served.http()
    remember(http, ["a"])
    late, decision = decide(http, ["a"]), granted(http, ["a"])
    remember(http, ["a"], "delivered")

    assert problem(redeem(http, decision, ["a"])) == (409, "memory_changed")
    told_late = tell(http, late["id"]).json()
    assert (told_late["verdict"], told_late["code"]) == ("ABSTAIN", "memory_changed")
    assert told_late["permit"] is None
    assert http.get(f"/v1/guard/decisions/{late['id']}").json()["code"] == "memory_changed"


def test_a_permit_is_good_once_for_its_own_action_and_for_a_while(
    served: Running, own: list[str]
) -> None:
    http = served.http()
    remember(http, own)
    decision = granted(http, own)
    token = decision["permit"]["token"]
    changes: tuple[Asked, ...] = (
        {"arguments": {"order_id": 1}},
        {"arguments": {**ORDER, "reason": None}},
        {"arguments": {}},
        {"tool": "refund"},
        {"permit": "made up"},
        {"namespace": [*own, "sub"]},
    )
    for wrong in changes:
        body = {"permit": token, "tool": "cancel_order", "arguments": ORDER, "namespace": own}
        reply = http.post("/v1/guard/redeem", json={**body, **wrong})
        assert problem(reply) == (409, "permit_refused"), wrong

    served.clock.advance(3600)
    assert problem(redeem(http, decision, own)) == (409, "permit_refused")
    anew = granted(http, own)
    assert redeem(http, anew, own).status_code == 200
    assert problem(redeem(http, anew, own)) == (409, "permit_refused")
    assert decide(http, own)["verdict"] != "PROCEED"


def test_an_action_is_settled_in_order(http: httpx.Client, own: list[str]) -> None:
    remember(http, own)
    decision = granted(http, own)

    assert problem(settle(http, decision["id"], "SUCCEEDED")) == (409, "conflict")
    assert redeem(http, decision, own).status_code == 200
    assert problem(settle(http, decision["id"], "SUCCEEDED")) == (409, "conflict")
    assert settle(http, decision["id"], "DISPATCHED").status_code == 200
    assert settle(http, decision["id"], "UNKNOWN").status_code == 200
    assert problem(settle(http, decision["id"], "RESERVED"))[0] == 400
    assert settle(http, decision["id"], "FAILED").status_code == 200
    assert problem(settle(http, decide(http, own)["id"], "FAILED")) == (404, "not_found")


def test_what_was_true_can_be_told(served: Running, own: list[str]) -> None:
    http = served.http()
    remember(http, own)
    decision = decide(http, own)
    path = f"/v1/guard/decisions/{decision['id']}/label"

    for so in (True, False):
        told = http.post(path, json={"violated": {"status": so}, "weight": 4, "by": "Eve"})
        assert told.json() == {
            "decision_id": decision["id"],
            "violated": {"status": so},
            "weight": 4.0,
        }

    (label,) = served.guard.labels()
    assert (label.is_violated, label.weight, label.source) == (False, 4.0, "told")
    assert "says Eve" in served.guard.explain(decision["id"])
    assert served.guard.replay() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"violated": {}},
        {"violated": {"owner": True}},
        {"violated": {"status": 1}},
        {"violated": {"status": None}},
        {"violated": ["status"]},
        {"weight": 0.5},
        {"weight": 1e9},
        {"weight": "1"},
        {"by": "x" * 300},
        {"by": None},
    ],
)
def test_what_is_no_truth_is_refused(served: Running, own: list[str], wrong: Asked) -> None:
    http = served.http()
    remember(http, own)
    decision = decide(http, own)
    before = served.guard.last_hash()
    body = {"violated": {"status": True}, **wrong}

    reply = http.post(f"/v1/guard/decisions/{decision['id']}/label", json=body)

    assert problem(reply) == (400, "invalid_input")
    assert served.guard.last_hash() == before


def test_the_certificate_is_told_and_counted(served: Running, own: list[str]) -> None:
    http = served.http()
    remember(http, own)

    def state_now() -> tuple[str, set[str]]:
        served.gateway.metrics = Metrics(served.memory, served.guard)
        lines = http.get("/metrics").text.splitlines()
        told = {x for x in lines if x.startswith("amv_certificate") and not x.endswith(" 0.0")}
        return http.get("/v1/guard/certificate").json()["state"], told

    assert state_now() == ("none", {'amv_certificate{state="none"} 1.0'})
    found = Certificate(epsilon=0.05, delta=0.1, threshold=0.3)
    standing = served.guard.adopt(found, served.guard.ground, by="ann")
    assert state_now() == ("in_force", {'amv_certificate{state="in_force"} 1.0'})
    decision = decide(http, own)
    assert decision["certificate"] == "in_force"
    done = tell(http, decision["id"]).json()
    assert done["verdict"] == "PROCEED"
    path = f"/v1/guard/decisions/{decision['id']}/label"
    assert http.post(path, json={"violated": {"status": True}}).status_code == 200

    told = http.get("/v1/guard/certificate").json()

    assert (told["id"], told["by"], told["threshold"]) == (standing.id, "ann", 0.3)
    assert (told["executed"], told["harmed"], told["withdrawn_at"]) == (1, 1, None)
    assert 1.0 < told["evidence"] < told["withdrawn_from"] == 1000.0
    assert "amv_certificate_harmed 1.0" in state_now()[1]
    served.guard._policy = parse({**POLICY, "verifiers": {"order_status": {"cost": 0.03}}})
    assert state_now()[0] == "stale"
    served.guard._policy = parse(POLICY)
    for _ in range(20):
        # Each is told again and again, and counts once.
        assert http.post(path, json={"violated": {"status": True}}).status_code == 200
    assert state_now()[0] == "in_force"
    served.guard.drop_certificate()
    assert state_now()[0] == "none"


def test_a_person_can_let_an_action_go_ahead_once(http: httpx.Client, own: list[str]) -> None:
    remember(http, own)
    approval = asked_person(http, own)

    def again() -> dict[str, Any]:
        return decide(http, own, tool="refund", approval_id=approval)

    assert again()["code"] == "not_approved"
    reply = http.post(f"/v1/approvals/{approval}/approve", json={"by": "Eve"}).json()
    assert (reply["state"], reply["decided_by"]) == ("approved", "Eve")
    assert problem(http.post(f"/v1/approvals/{approval}/reject", json={"by": "Eve"}))[0] == 409
    assert decide(http, own, approval_id=approval)["code"] != "approved"
    allowed = again()
    assert (allowed["verdict"], allowed["code"]) == ("PROCEED", "approved")
    assert redeem(http, allowed, own, tool="refund").status_code == 200
    assert again()["code"] == "not_approved"


def test_approvals_are_listed_by_state(http: httpx.Client, own: list[str]) -> None:
    remember(http, own)
    approval = asked_person(http, own)
    http.post(f"/v1/approvals/{approval}/reject", json={"by": "Eve"})

    def ids(**query: str) -> list[str]:
        return [a["id"] for a in http.get("/v1/approvals", params=query).json()["approvals"]]

    assert approval in ids()
    assert approval in ids(state="rejected")
    assert approval not in ids(state="pending")
    assert problem(http.get("/v1/approvals", params={"state": "x"})) == (400, "invalid_input")


def test_decisions_are_listed_page_by_page(served: Running) -> None:
    http = served.http()
    remember(http, ["a"])
    made = [decide(http, ["a"])["id"] for _ in range(3)]

    first = http.get("/v1/guard/decisions", params={"limit": 2}).json()
    query = {"limit": 2, "cursor": first["cursor"]}
    rest = http.get("/v1/guard/decisions", params=query).json()

    assert [d["id"] for d in [*first["decisions"], *rest["decisions"]]] == made
    assert rest["cursor"] is None


def test_requests_are_listed_page_by_page(served: Running) -> None:
    http = served.http()
    made = []
    for number in range(3):
        remember(http, [f"a{number}"])
        made.append(asked_person(http, [f"a{number}"]))
        served.clock.advance(1.0)

    first = http.get("/v1/approvals", params={"limit": 2, "state": "pending"}).json()
    query = {"limit": 2, "cursor": first["cursor"], "state": "pending"}
    rest = http.get("/v1/approvals", params=query).json()

    assert [a["id"] for a in [*first["approvals"], *rest["approvals"]]] == made
    assert (first["cursor"], rest["cursor"]) == (made[1], None)
    assert problem(http.get("/v1/approvals", params={"cursor": "none"})) == (404, "not_found")


@pytest.mark.parametrize("path", ["/v1/guard/decisions", "/v1/approvals"])
@pytest.mark.parametrize("limit", ["0", "-1", "x", "", "1001", "٣"])
def test_a_limit_that_is_none_is_refused(http: httpx.Client, path: str, limit: str) -> None:
    assert problem(http.get(path, params={"limit": limit})) == (400, "invalid_input")


@every
def test_every_route_is_counted_under_its_own_name(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    asked = sound(http, own, route)
    labels = f'method="{route.method}",route="{route.path}",status="200"'

    def count_now() -> float:
        lines = http.get("/metrics").text.splitlines()
        found = [x for x in lines if x.startswith(f"amv_http_requests_total{{{labels}}}")]
        return float(found[0].split()[-1]) if found else 0.0

    before = count_now()
    assert http.request(**asked).status_code == 200
    assert count_now() == before + 1


# ---------------------------------------------------------------- tenants


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("locked") / "served.db") as found:
        found.key()
        yield found


def test_an_action_in_anothers_namespace_is_refused(locked: Running) -> None:
    http = locked.http(locked.key(TENANT))
    for namespace in (["other"], ["nobody"], ["tenant2"]):
        for path in ("decide", "redeem"):
            body = {"tool": "cancel_order", "arguments": ORDER, "namespace": namespace}
            body |= {"permit": "x"} if path == "redeem" else {}
            assert problem(http.post(f"/v1/guard/{path}", json=body)) == (403, "forbidden")


def swapped(reply: httpx.Response, one: str, other: str) -> tuple[Any, ...]:
    """Return all of a reply, with one id in place of another as long."""
    status, headers, content = told(reply)
    return status, headers, content.replace(one.encode(), other.encode())


@about_one
def test_what_is_of_others_is_as_if_it_were_not_there(locked: Running, route: api.Route) -> None:
    admin, other = locked.http(locked.key()), [f"o{next(_numbers)}"]
    http = locked.http(locked.key(TENANT))
    asked = sound(admin, other, route)
    theirs = next(part for part in asked["url"].split("/") if len(part) >= 20)
    nobodys = "0" * len(theirs)
    for body in (asked.get("json"), None if "json" not in asked else {"x": 1}):
        more: Asked = {} if body is None else {"json": body}
        there = http.request(asked["method"], asked["url"], **more)
        absent = http.request(asked["method"], asked["url"].replace(theirs, nobodys), **more)

        assert there.status_code in (400, 404)
        assert swapped(there, theirs, nobodys) == told(absent)
    # Nobody approves what was asked with the same key.
    another = locked.http(locked.key())
    assert another.request(**asked).status_code == 200


def test_what_a_key_asked_about_is_for_that_key_to_go_on_with(locked: Running) -> None:
    """Another of the namespace could let it go ahead, or say that its call was never made."""
    token = locked.key(TENANT, Level.WRITE)
    own, other = locked.http(token), locked.http(locked.key(TENANT, Level.WRITE))
    admin = locked.http(locked.key(TENANT))
    remember(admin, list(TENANT))
    name = list(TENANT)
    asked = decide(own, name)
    assert problem(tell(other, asked["id"])) == (403, "forbidden")
    decision = tell(own, asked["id"]).json()
    assert problem(redeem(other, decision, name)) == (409, "permit_refused")
    assert redeem(own, decision, name).status_code == 200

    for outcome in ("DISPATCHED", "SUCCEEDED", "FAILED", "UNKNOWN"):
        assert problem(settle(other, decision["id"], outcome)) == (403, "forbidden")
    assert settle(own, decision["id"], "DISPATCHED").status_code == 200
    assert settle(admin, decision["id"], "UNKNOWN").status_code == 200
    # That it is its own is known also once the words are forgotten, to whoever reaches all.
    anyones = locked.http(locked.key((), Level.WRITE))
    remember(anyones, ["fleeting"])
    gone = reserved(anyones, ["fleeting"])
    assert admin.delete("/v1/namespaces/fleeting").status_code == 403
    locked.http(locked.key()).delete("/v1/namespaces/fleeting")
    strange = locked.http(locked.key((), Level.WRITE))
    assert problem(settle(strange, gone, "FAILED")) == (403, "forbidden")
    assert settle(anyones, gone, "FAILED").status_code == 200


def test_nobody_approves_what_they_asked_themselves(locked: Running) -> None:
    """The name that somebody gives is what they say; the key is what they have."""
    own, other = locked.key(), locked.key()
    asking, person, name = locked.http(own), locked.http(other), [f"o{next(_numbers)}"]
    remember(asking, name)
    request = asked_person(asking, name)

    refused = asking.post(f"/v1/approvals/{request}/approve", json={"by": "somebody else"})
    assert problem(refused) == (403, "forbidden")
    assert "with this very key" in refused.json()["error"]["message"]
    reply = person.post(f"/v1/approvals/{request}/approve", json={"by": "Eve"}).json()
    key_id = other.split("_")[1]
    assert (reply["decided_by"], reply["decided_key"]) == ("Eve", key_id)
    told_of = locked.guard.explain(reply["decision_id"])
    assert f"then a request to a person is approved by Eve, with the key {key_id}" in told_of
    # It may take its own request back.
    remember(asking, [*name, "2"])
    request = asked_person(asking, [*name, "2"])
    reply = asking.post(f"/v1/approvals/{request}/reject", json={"by": "Eve"}).json()
    assert (reply["state"], reply["decided_key"]) == ("rejected", own.split("_")[1])
    assert locked.guard.replay() == []


def test_a_permit_or_an_approval_of_others_is_as_if_it_were_not_there(locked: Running) -> None:
    admin, http = locked.http(locked.key()), locked.http(locked.key(TENANT))
    remember(admin, ["other"])
    remember(admin, list(TENANT))
    permit = granted(admin, ["other"])["permit"]["token"]
    approval = asked_person(admin, ["other"])
    admin.post(f"/v1/approvals/{approval}/approve", json={"by": "Eve"})

    what = {"tool": "cancel_order", "arguments": ORDER}
    theirs, nobodys = (
        http.post("/v1/guard/redeem", json={**what, "permit": token})
        for token in (permit, "x" * len(permit))
    )
    assert problem(theirs) == (409, "permit_refused")
    assert told(theirs) == told(nobodys)
    given = [decide(http, None, tool="refund", approval_id=one) for one in (approval, "x" * 26)]
    for one in given:
        del one["id"]
    assert given[0] == given[1]
    assert given[0]["code"] == "not_approved"


def test_the_certificate_is_told_to_none_who_does_not_reach_all(locked: Running) -> None:
    """It counts what others have done."""
    http = locked.http(locked.key(TENANT))

    assert problem(http.get("/v1/guard/certificate")) == (403, "forbidden")


def test_lists_hold_what_a_key_reaches_and_count_nothing_else(locked: Running) -> None:
    """Nor may a cursor count what others did in between."""
    admin, name = locked.http(locked.key()), (f"t{next(_numbers)}",)
    http = locked.http(locked.key(name))
    made = []
    for _ in range(3):
        asked_person(admin, ["other"])
        made.append(decide(http, None, tool="refund"))
    page = http.get("/v1/guard/decisions", params={"limit": 2}).json()
    query = {"limit": 2, "cursor": page["cursor"]}
    rest = http.get("/v1/guard/decisions", params=query).json()
    approvals = http.get("/v1/approvals").json()["approvals"]

    assert [d["id"] for d in page["decisions"] + rest["decisions"]] == [d["id"] for d in made]
    assert (page["cursor"], rest["cursor"]) == (made[1]["id"], None)
    assert {a["id"] for a in approvals} == {d["approval_id"] for d in made}
    for path in ("/v1/guard/decisions", "/v1/approvals"):
        theirs = admin.get(path, params={"limit": 1}).json()["cursor"]
        there, absent = (
            http.get(path, params={"cursor": cursor}) for cursor in (theirs, "0" * len(theirs))
        )
        assert problem(there) == (404, "not_found")
        assert swapped(there, theirs, "0" * len(theirs)) == told(absent)


@pytest.mark.parametrize("level", Level)
@every
def test_a_route_needs_the_level_it_says(locked: Running, route: api.Route, level: Level) -> None:
    admin = locked.http(locked.key())
    reply = locked.http(locked.key((), level)).request(
        **sound(admin, [f"l{next(_numbers)}"], route)
    )

    fitting = {200}
    if route.path == "/v1/guard/redeem":
        # A permit is for the key that it was given to.
        fitting = {409}
    elif route.path.endswith(("/evidence", "/settle")) and level < Level.ADMIN:
        # And so is what follows.
        fitting = {403}
    assert reply.status_code in (fitting if level >= route.level else {403})
    assert json.loads(reply.content)


def test_a_gateway_is_no_verifier(http: httpx.Client, own: list[str]) -> None:
    """What a memory says is no evidence for it, nor for another one: it is asked by no gate."""
    remember(http, own)
    (item,) = http.get("/v1/items", params={"namespace": "/".join(own)}).json()["items"]
    url = f"{http.base_url}/v1/items/{item['id']}"
    rule = {"url": url, "read": "$.claim.value", "cost": 0.02, "timeout_s": 20.0}
    assert http.get(url).json()["claim"]["value"] == "pending"
    with gates.opened(policy=gates.policy_of(verifiers={"order_status": rule})) as guard:
        gates.remember(guard)

        decision = guard.decide(gates.cancel())

    assert (decision.verdict, decision.code) == ("ABSTAIN", "unresolved")
    assert [(one.ended, one.problem) for one in decision.checks] == [
        ("refused", "the verifier reads AMV's own memory, so it is not independent")
    ]


@pytest.mark.parametrize("path", ["/v1/items", "/health", "/metrics", "/nowhere"])
def test_what_comes_from_a_verifier_is_refused_on_every_path(http: httpx.Client, path: str) -> None:
    reply = http.get(path, headers={"AMV-Verifier": "1"})

    assert problem(reply) == (403, "not_independent")
    assert reply.headers["amv-verifier"] == "refused"


def test_evidence_of_what_the_gateway_asks_itself_is_refused(tmp_path: Path) -> None:
    """Whoever asks for an action must not say in the gateway's place what the world shows."""
    url = {"url": "http://127.0.0.1:9/{order_id}", "cost": 0.02, "timeout_s": 5.0}
    policy = {**POLICY, "verifiers": {"order_status": url}}
    with running(tmp_path / "amv.db", policy=policy) as served:
        remember(served.http(), ["shop"])
        decision = decide(served.http(), ["shop"])

        assert (decision["verdict"], decision["check"]) == ("ABSTAIN", None)
        (check,) = decision["checks"]
        assert (check["ended"], check["found"]) == ("failed", {"status": "inconclusive"})
        assert "can't be reached" in check["problem"]
        assert problem(tell(served.http(), decision["id"])) == (400, "invalid_input")


@pytest.mark.parametrize("half", ["\\ud83d", "\\udc00", "\\ud83dx\\ude00", "\\ud83d\\ud83d"])
def test_half_of_a_surrogate_pair_is_told_as_what_it_is(http: httpx.Client, half: str) -> None:
    """And not that data is missing."""
    body = f'{{"tool": "cancel_order", "arguments": {{"order_id": "{half}"}}}}'
    told = http.post("/v1/guard/decide", content=body, headers={"content-type": "application/json"})

    assert told.status_code in (400, 422)
    assert "must not hold a lone surrogate" in told.text


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("decide", '{"tool": "cancel_order", "arguments": {"order_id": "W1", "order_id": "W2"}}'),
        (
            "decide",
            '{"tool": "cancel_order", "arguments": {"order_id": "W", "order_\\u0069d": 2}}',
        ),
        ("decide", '{"tool": "cancel_order", "tool": "look", "arguments": {"order_id": "W1"}}'),
        ("rank", '{"alternatives": [{"tool": "a", "arguments": {"x": [{"y": 1, "y": 1}]}}]}'),
        (
            "redeem",
            '{"permit": "x", "tool": "a", "arguments": {}, "arguments": {"order_id": 1}}',
        ),
        ("decisions/none/evidence", '{"verifier": "v", "value": "delivered", "value": "pending"}'),
    ],
)
def test_a_name_that_stands_twice_is_refused(http: httpx.Client, route: str, body: str) -> None:
    """Whoever makes the call might go by the one that nobody decided about."""
    kind = {"content-type": "application/json"}
    told = http.post(f"/v1/guard/{route}", content=body, headers=kind)

    assert problem(told) == (400, "invalid_input")
    assert "twice, and either might be meant" in told.text


def test_control_a_whole_surrogate_pair_is_a_text(http: httpx.Client, own: list[str]) -> None:
    assert decide(http, own, arguments={"order_id": "\U0001f600"})["verdict"] == "VERIFY"
