"""What each route of the gate does.

A decision belongs to the namespace of its action.  A key that does not reach
that namespace is told the same as if there were no such decision.
"""

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from amv.errors import Conflict, InvalidInput, ItemNotFound
from amv.guard.actions import Action
from amv.guard.decision import Decision
from amv.guard.history import LISTED_MAX
from amv.guard.ports import ApprovalRow, State
from amv.guard.service import GuardService
from amv.guard.state import NOT_FOUND
from amv.server import wire_guard as wire
from amv.server.access import Forbidden, Level
from amv.server.api import PAGE_LIMIT, Call, Route

_LISTED = {
    "cursor": "Where an earlier page ended.",
    "limit": f"How many; {PAGE_LIMIT} if absent.",
    "session": "Only those of this task.",
    "verdict": "Only those with this verdict.",
}
_ASKED = {
    "state": "pending, approved, rejected or used; all if not given.",
    "cursor": "Where an earlier page ended.",
    "limit": f"How many; {PAGE_LIMIT} if absent.",
}


def _gate(call: Call) -> GuardService:
    if call.guard is None:
        raise Conflict("this gateway has no policy: name one with AMV_POLICY or serve --policy")
    return call.guard


def _action(call: Call, body: wire.DecideIn | wire.PermitIn) -> Action:
    return Action(
        tool=body.tool,
        arguments=body.arguments,
        namespace=call.one_namespace(body.namespace),
        session=body.session,
        principal=call.principal.key_id,
    )


def decide(call: Call) -> Struct:
    """Decide about an action."""
    body: wire.DecideIn = call.body
    decision = _gate(call).decide(
        _action(call, body), run_checks=body.run_checks, approval_id=body.approval_id
    )
    return decision_out(decision)


def rank(call: Call) -> Struct:
    """Tell what would be decided about each of several actions, the best first."""
    body: wire.RankIn = call.body
    alternatives = [
        Action(
            tool=one.tool,
            arguments=one.arguments,
            namespace=call.one_namespace(body.namespace),
            session=body.session,
            principal=call.principal.key_id,
        )
        for one in body.alternatives
    ]
    return wire.RankedOut(decisions=list(map(decision_out, _gate(call).rank(alternatives))))


def list_decisions(call: Call) -> Struct:
    """List decisions, oldest first."""
    gate, limit, cursor = _gate(call), _limit(call), call.query.get("cursor")
    after = 0
    if cursor is not None:
        # The id of a decision, as the number of its record would count those of others.
        if not _reaches(call, gate.get(cursor)):
            raise ItemNotFound(f"no decision {cursor!r}")
        after = gate.number_of(cursor)
    page = gate.decisions(
        after=after,
        limit=limit,
        namespace=call.principal.prefix,
        session=call.query.get("session"),
        verdict=call.query.get("verdict"),
    )
    return wire.DecisionsOut(
        decisions=[decision_out(decision) for _, decision in page],
        cursor=page[-1][1].id if len(page) == limit else None,
    )


def _limit(call: Call) -> int:
    text = call.query.get("limit", str(PAGE_LIMIT))
    limit = int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0
    if not 1 <= limit <= LISTED_MAX:
        raise InvalidInput(f"limit must be a number from 1 to {LISTED_MAX}, got {text[:40]!r}")
    return limit


def get_decision(call: Call) -> Struct:
    """Read a decision."""
    return decision_out(_own(call))


def _own(call: Call) -> Decision:
    """Return the decision a request names, if its key reaches it."""
    decision_id = call.path["id"]
    decision = _gate(call).get(decision_id)
    if not _reaches(call, decision):
        raise ItemNotFound(f"no decision {decision_id!r}")
    return decision


def _acting(call: Call) -> str:
    """Return the decision a request goes on with, if that is for its key to do.

    What a key asked about is its own business: another one of the namespace can
    neither say what was read for it nor what became of its call.  An admin can.
    """
    decision_id, principal = _own(call).id, call.principal
    if principal.level < Level.ADMIN and not _gate(call).is_of(decision_id, principal.key_id):
        raise Forbidden(
            f"decision {decision_id!r} was asked for with another key; use that one, or one of "
            "level admin"
        )
    return decision_id


def _reaches(call: Call, decision: Decision) -> bool:
    prefix = call.principal.prefix
    return decision.namespace[: len(prefix)] == prefix


def give_evidence(call: Call) -> Struct:
    """Tell what a verifier of the caller's own has read."""
    body: wire.EvidenceIn = call.body
    value = NOT_FOUND if body.not_found else body.value
    return decision_out(
        _gate(call).evidence(_acting(call), body.verifier, value, approval_id=body.approval_id)
    )


def redeem_permit(call: Call) -> Struct:
    """Reserve the one execution that a permit grants."""
    body: wire.PermitIn = call.body
    decision_id = _gate(call).redeem(body.permit, _action(call, body))
    return wire.LedgerOut(decision_id=decision_id, state=State.RESERVED.value)


def settle_decision(call: Call) -> Struct:
    """Note what became of an action that was reserved."""
    body: wire.SettleIn = call.body
    gate, decision_id = _gate(call), _acting(call)
    if body.outcome == State.DISPATCHED:
        gate.dispatched(decision_id)
    else:
        gate.settle(decision_id, State(body.outcome))
    return wire.LedgerOut(decision_id=decision_id, state=body.outcome)


def label_decision(call: Call) -> Struct:
    """Tell what was true of the memories that a decision rested on."""
    body: wire.LabelIn = call.body
    decision = _own(call)
    _gate(call).label(decision.id, body.violated, weight=body.weight, by=body.by)
    return wire.LabelOut(decision_id=decision.id, violated=body.violated, weight=body.weight)


def read_certificate(call: Call) -> Struct:
    """Tell what decisions are screened by, and what became known since."""
    gate = _gate(call)
    if call.principal.prefix:
        raise Forbidden("a certificate is of all namespaces; this needs a key that reaches them")
    standing = gate.certificate()
    if standing is None:
        return wire.CertificateOut(state="none")
    found = standing.certificate
    return wire.CertificateOut(
        state=standing.screen(gate.ground).state,
        id=standing.id,
        since=_time(standing.since_s),
        by=standing.by,
        epsilon=found.epsilon,
        delta=found.delta,
        threshold=found.threshold,
        executed=standing.executed,
        harmed=standing.harmed,
        evidence=standing.evidence,
        withdrawn_at=_time(standing.ended_s) if standing.ended else None,
    )


def list_approvals(call: Call) -> Struct:
    """List requests to a person."""
    gate, state = _gate(call), call.query.get("state")
    limit, cursor = _limit(call), call.query.get("cursor")
    if cursor is not None:
        _check_reached(call, cursor)
    rows = gate.approvals.list(state, namespace=call.principal.prefix, after=cursor, limit=limit)
    return wire.ApprovalsOut(
        approvals=list(map(approval_out, rows)),
        cursor=rows[-1].approval_id if len(rows) == limit else None,
    )


def _check_reached(call: Call, approval_id: str) -> str:
    """Return the decision of a request; raises ItemNotFound if there is none for this key."""
    gate = _gate(call)
    row = gate.approvals.get(approval_id)
    if not _reaches(call, gate.get(row.decision_id)):
        raise ItemNotFound(f"no request for approval {approval_id!r}")
    return row.decision_id


def approve(call: Call) -> Struct:
    """Let the action of a request go ahead, once."""
    return _decided(call, is_approved=True)


def reject(call: Call) -> Struct:
    """Refuse a request."""
    return _decided(call, is_approved=False)


def _decided(call: Call, *, is_approved: bool) -> Struct:
    gate, approval_id, key_id = _gate(call), call.path["id"], call.principal.key_id
    decision_id = _check_reached(call, approval_id)
    # Without any key there is nobody else to ask.
    if is_approved and key_id and gate.is_of(decision_id, key_id):
        raise Forbidden(
            f"request {approval_id!r} was asked with this very key; another one must approve it"
        )
    return approval_out(
        gate.approve(approval_id, by=call.body.by, approve=is_approved, key_id=key_id)
    )


def decision_out(decision: Decision) -> wire.DecisionOut:
    """Return a decision as it goes over the wire."""
    permit = decision.permit
    out = msgspec.convert(replace(decision, permit=None), wire.DecisionOut, from_attributes=True)
    if permit is not None:
        out.permit = wire.PermitOut(
            token=permit.token, digest=permit.digest, expires_at=_time(permit.expires_s)
        )
    return out


def approval_out(row: ApprovalRow) -> wire.ApprovalOut:
    """Return a request to a person as it goes over the wire."""
    return wire.ApprovalOut(
        id=row.approval_id,
        decision_id=row.decision_id,
        state=row.state,
        created_at=_time(row.created_s),
        expires_at=_time(row.expires_s),
        decided_by=row.decided_by,
        decided_key=row.decided_key,
    )


def _time(moment_s: float) -> datetime:
    return datetime.fromtimestamp(moment_s, UTC)


_DECISION = "/v1/guard/decisions/{id}"
_APPROVAL = "/v1/approvals/{id}"

GUARD_ROUTES = (
    Route(
        method="POST",
        path="/v1/guard/decide",
        handler=decide,
        gives=wire.DecisionOut,
        level=Level.WRITE,
        summary="Decide about an action",
        takes=wire.DecideIn,
        writes=True,
    ),
    Route(
        method="POST",
        path="/v1/guard/rank",
        handler=rank,
        gives=wire.RankedOut,
        level=Level.READ,
        summary="Rank alternatives",
        takes=wire.RankIn,
    ),
    Route(
        method="GET",
        path="/v1/guard/decisions",
        handler=list_decisions,
        gives=wire.DecisionsOut,
        level=Level.READ,
        summary="List decisions",
        query=_LISTED,
    ),
    Route(
        method="GET",
        path=_DECISION,
        handler=get_decision,
        gives=wire.DecisionOut,
        level=Level.READ,
        summary="Read a decision",
    ),
    Route(
        method="POST",
        path=f"{_DECISION}/evidence",
        handler=give_evidence,
        gives=wire.DecisionOut,
        level=Level.WRITE,
        summary="Give evidence",
        takes=wire.EvidenceIn,
        writes=True,
    ),
    Route(
        method="POST",
        path="/v1/guard/redeem",
        handler=redeem_permit,
        gives=wire.LedgerOut,
        level=Level.WRITE,
        summary="Redeem a permit",
        takes=wire.PermitIn,
        writes=True,
    ),
    Route(
        method="POST",
        path=f"{_DECISION}/settle",
        handler=settle_decision,
        gives=wire.LedgerOut,
        level=Level.WRITE,
        summary="Settle an action",
        takes=wire.SettleIn,
        writes=True,
    ),
    Route(
        method="POST",
        path=f"{_DECISION}/label",
        handler=label_decision,
        gives=wire.LabelOut,
        # Who acts must not be who says how it went: that is learned from.
        level=Level.ADMIN,
        summary="Label a decision",
        takes=wire.LabelIn,
        writes=True,
    ),
    Route(
        method="GET",
        path="/v1/guard/certificate",
        handler=read_certificate,
        gives=wire.CertificateOut,
        level=Level.READ,
        summary="Read the certificate",
    ),
    Route(
        method="GET",
        path="/v1/approvals",
        handler=list_approvals,
        gives=wire.ApprovalsOut,
        level=Level.READ,
        summary="List requests for approval",
        query=_ASKED,
    ),
    Route(
        method="POST",
        path=f"{_APPROVAL}/approve",
        handler=approve,
        gives=wire.ApprovalOut,
        level=Level.ADMIN,
        summary="Approve a request",
        takes=wire.ApprovalIn,
        writes=True,
    ),
    Route(
        method="POST",
        path=f"{_APPROVAL}/reject",
        handler=reject,
        gives=wire.ApprovalOut,
        level=Level.ADMIN,
        summary="Reject a request",
        takes=wire.ApprovalIn,
        writes=True,
    ),
)
