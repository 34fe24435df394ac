"""The gate's half of the client.

    decision = client.decide(amv.Action(tool="cancel_order", arguments={"order_id": "W1"}))
    if decision.check is not None:
        decision = client.evidence(decision.id, decision.check.verifier, read_status("W1"))
    if decision.permit is not None:
        done = client.redeem(decision.permit.token, action)
        client.dispatched(done)
        ...
        client.settle(done, "SUCCEEDED")

Nothing here but reading is tried again by itself once it may have arrived: a
decision counts, and a permit is good once.
"""

import builtins
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from amv.checks import several, shown
from amv.client.sending import Sender
from amv.errors import InvalidInput
from amv.guard.actions import Action
from amv.guard.decision import CheckRequest, CheckView, Decision, Permit, PremiseView
from amv.guard.ports import ApprovalRow
from amv.guard.state import NOT_FOUND
from amv.guard.suggest import Suggestion
from amv.server import wire_guard as wire


class GuardClient:
    """A gate behind a gateway; for whom an action is done is told by the key."""

    _sender: Sender

    def decide(
        self, action: Action, *, run_checks: bool = True, approval_id: str | None = None
    ) -> Decision:
        """Decide about an action; see `Guard.decide`.

        With *run_checks* false, the caller makes the checks that are asked for,
        and tells of them with `evidence`.
        """
        body = {**_action(action), "run_checks": run_checks}
        if approval_id is not None:
            body["approval_id"] = approval_id
        return _decision(self._sender.send("POST", "/v1/guard/decide", wire.DecisionOut, body=body))

    def rank(self, alternatives: Sequence[Action]) -> builtins.list[Decision]:
        """Return what would be decided about each of several actions now, the best first.

        All are of one namespace and one session; see `Guard.rank`.
        """
        bodies = [_action(one) for one in several(alternatives, "need several actions")]
        if len({(str(one.get("namespace")), one["session"]) for one in bodies}) > 1:
            raise InvalidInput("alternatives must be of one namespace and one session")
        body: dict[str, object] = {
            "alternatives": [{name: one[name] for name in ("tool", "arguments")} for one in bodies]
        }
        for one in bodies[:1]:
            body |= {name: one[name] for name in ("namespace", "session") if name in one}
        found = self._sender.send("POST", "/v1/guard/rank", wire.RankedOut, body=body, is_read=True)
        return [_decision(one) for one in found.decisions]

    def evidence(
        self, decision_id: str, verifier: str, value: object, *, approval_id: str | None = None
    ) -> Decision:
        """Tell what a verifier read, amv.NOT_FOUND if there is no such thing; decide on."""
        found = {"not_found": True} if value is NOT_FOUND else {"value": value}
        body = {"verifier": verifier, **found}
        if approval_id is not None:
            body["approval_id"] = approval_id
        path = _decision_path(decision_id, "/evidence")
        return _decision(self._sender.send("POST", path, wire.DecisionOut, body=body))

    def redeem(self, token: str, action: Action) -> str:
        """Reserve the one execution that a permit grants; return the decision to settle.

        Raises PermitRefused for a permit that is unknown, used, expired, of another
        action, or that rests on what is no longer so.
        """
        body = {**_action(action), "permit": token}
        return self._sender.send("POST", "/v1/guard/redeem", wire.LedgerOut, body=body).decision_id

    def dispatched(self, decision_id: str) -> None:
        """Note, before the call is made, that it is made now."""
        self.settle(decision_id, "DISPATCHED")

    def settle(self, decision_id: str, outcome: str) -> None:
        """Note what became of a call: SUCCEEDED, FAILED, or UNKNOWN where nobody can tell."""
        path = _decision_path(decision_id, "/settle")
        self._sender.send("POST", path, wire.LedgerOut, body={"outcome": outcome})

    def label(
        self, decision_id: str, violated: Mapping[str, bool], *, weight: float = 1.0, by: str = ""
    ) -> None:
        """Note what was true of a decision's premises; see `Guard.label`.  Needs an admin's key."""
        if not isinstance(violated, Mapping):
            raise InvalidInput(f"need what was true, by premise, got {shown(violated)}")
        path = _decision_path(decision_id, "/label")
        body = {"violated": dict(violated), "weight": weight, "by": by}
        self._sender.send("POST", path, wire.LabelOut, body=body)

    def certificate(self) -> wire.CertificateOut:
        """Return what decisions are screened by, and what became known since."""
        return self._sender.send("GET", "/v1/guard/certificate", wire.CertificateOut)

    def decision(self, decision_id: str) -> Decision:
        """Return a decision as it stands, without its permit; raises ItemNotFound."""
        return _decision(self._sender.send("GET", _decision_path(decision_id), wire.DecisionOut))

    def decisions(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        session: str | None = None,
        verdict: str | None = None,
    ) -> builtins.list[Decision]:
        """Return decisions, oldest first, made after the one with the id *after*.

        Only those of a *session* and with a *verdict*, if these are named.
        """
        asked = {"limit": str(limit), "cursor": after, "session": session, "verdict": verdict}
        query = {name: value for name, value in asked.items() if value is not None}
        found = self._sender.send("GET", "/v1/guard/decisions", wire.DecisionsOut, query=query)
        return [_decision(one) for one in found.decisions]

    def approvals(
        self, state: str | None = None, *, after: str | None = None, limit: int = 100
    ) -> builtins.list[ApprovalRow]:
        """Return requests to a person, oldest first, made after the one with the id *after*.

        Only those of a state, if it is named.
        """
        asked = {"limit": str(limit), "cursor": after, "state": state}
        query = {name: value for name, value in asked.items() if value is not None}
        found = self._sender.send("GET", "/v1/approvals", wire.ApprovalsOut, query=query)
        return [_approval(one) for one in found.approvals]

    def approve(self, approval_id: str, *, by: str) -> ApprovalRow:
        """Let the action of a request go ahead, once; raises Conflict if it is decided or over."""
        return self._decided(approval_id, "approve", by)

    def reject(self, approval_id: str, *, by: str) -> ApprovalRow:
        """Refuse a request; raises Conflict if it is decided or over."""
        return self._decided(approval_id, "reject", by)

    def _decided(self, approval_id: str, how: str, by: str) -> ApprovalRow:
        path = f"/v1/approvals/{_part(approval_id)}/{how}"
        return _approval(self._sender.send("POST", path, wire.ApprovalOut, body={"by": by}))


def _decision_path(decision_id: str, rest: str = "") -> str:
    return f"/v1/guard/decisions/{_part(decision_id)}{rest}"


def _part(text: str) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"need the id of a decision or request, got {shown(text)}")
    return quote(text, safe="").replace(".", "%2E")


def _action(action: Action) -> dict[str, object]:
    if not isinstance(action, Action):
        raise InvalidInput(f"need an amv.Action, got {shown(action)}")
    if action.principal:
        raise InvalidInput("a gateway knows by the key for whom an action is done: leave principal")
    body: dict[str, object] = {
        "tool": action.tool,
        "arguments": dict(action.arguments),
        "session": action.session,
    }
    return {**body, "namespace": list(action.namespace)} if action.namespace else body


def _decision(out: wire.DecisionOut) -> Decision:
    fields = _fields(out)
    if out.check is not None:
        check = {**_fields(out.check), "premises": tuple(out.check.premises)}
        fields["check"] = CheckRequest(**check)
    if out.permit is not None:
        fields["permit"] = Permit(
            token=out.permit.token,
            digest=out.permit.digest,
            expires_s=out.permit.expires_at.timestamp(),
        )
    fields["premises"] = tuple(PremiseView(**_fields(one)) for one in out.premises)
    fields["checks"] = tuple(CheckView(**_fields(one)) for one in out.checks)
    fields["suggestions"] = tuple(Suggestion(**_fields(one)) for one in out.suggestions)
    return Decision(**fields)


def _fields(out: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(out, name) for name in out.__struct_fields__}


def _approval(out: wire.ApprovalOut) -> ApprovalRow:
    return ApprovalRow(
        approval_id=out.id,
        decision_id=out.decision_id,
        digest="",
        state=out.state,
        created_s=out.created_at.timestamp(),
        expires_s=out.expires_at.timestamp(),
        decided_by=out.decided_by,
        decided_key=out.decided_key,
    )
