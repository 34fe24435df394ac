"""What goes over the wire of the gate; the rest is in `wire`."""

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from amv.guard.certificate import ALPHA
from amv.server.wire import NamespaceIn, OnceBody, Result


class DecideIn(OnceBody):
    """An action that is about to be done; *run_checks* false if the caller verifies itself."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    namespace: NamespaceIn | UnsetType = UNSET
    session: str = ""
    run_checks: bool = True
    approval_id: str | None = None


class AlternativeIn(OnceBody):
    """One of several actions that could be done instead of each other."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


class RankIn(OnceBody):
    """Actions to be ranked by what they are expected to lose."""

    alternatives: list[AlternativeIn]
    namespace: NamespaceIn | UnsetType = UNSET
    session: str = ""


class EvidenceIn(OnceBody):
    """What a verifier of the caller's own read; *not_found* if there is no such thing."""

    verifier: str
    value: Any = None
    not_found: bool = False
    approval_id: str | None = None


class PermitIn(OnceBody):
    """A permit, and the action it is redeemed for."""

    permit: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    namespace: NamespaceIn | UnsetType = UNSET
    session: str = ""


class SettleIn(OnceBody):
    """What became of an action that was reserved."""

    outcome: Literal["DISPATCHED", "SUCCEEDED", "FAILED", "UNKNOWN"]


class LabelIn(OnceBody):
    """What was true of the premises of a decision; *weight* is one over how likely it was asked."""

    violated: dict[str, bool]
    weight: float = 1.0
    by: str = ""


class ApprovalIn(OnceBody):
    """Who approves or rejects a request."""

    by: str


class PremiseOut(Result):
    """A premise of a decision; *before* and *after* are P(violated)."""

    name: str
    subject: str
    attribute: str
    remembered: Any
    is_critical: bool
    theta: float
    before: float
    after: float


class CheckOut(Result):
    """A check to be made."""

    verifier: str
    arguments: dict[str, Any]
    premises: list[str]
    cost: float
    timeout_s: float


class CheckedOut(Result):
    """A check that was made; *found* is what it found of each premise."""

    verifier: str
    ended: Literal["answered", "inconclusive", "failed", "timed_out", "refused", "not_asked"]
    found: dict[str, str]
    problem: str


class PermitOut(Result):
    """Leave to execute an action once; *token* is shown this once."""

    token: str
    digest: str
    expires_at: datetime


class SuggestionOut(Result):
    """A claim that an argument nobody checks may have come from; it weighs nothing."""

    argument: str
    claim: str
    is_required: bool
    match: str
    item_id: str


class DecisionOut(Result):
    """What the gate answers about an action."""

    id: str
    tool: str
    digest: str
    verdict: Literal["PROCEED", "VERIFY", "REPAIR", "ABSTAIN"]
    code: str
    reason: str
    mode: str
    namespace: tuple[str, ...]
    risk: float
    harm: float
    expected_loss: float
    premises: list[PremiseOut]
    voi: dict[str, float]
    planner: str
    check: CheckOut | None
    permit: PermitOut | None
    values: dict[str, Any]
    approval_id: str
    checks: list[CheckedOut]
    suggestions: list[SuggestionOut]
    arguments: dict[str, Any]
    certificate: Literal["", "in_force", "stale", "withdrawn"]


class DecisionsOut(Result):
    """Decisions, oldest first, and where the next page begins."""

    decisions: list[DecisionOut]
    cursor: str | None


class RankedOut(Result):
    """What would be decided about each of several actions, the best first."""

    decisions: list[DecisionOut]


class LedgerOut(Result):
    """How far an action has come that was granted."""

    decision_id: str
    state: str


class CertificateOut(Result):
    """The certificate that decisions are screened by; *id* is empty where none was adopted.

    *executed* and *harmed* are those that became known since, *evidence* is what
    the alarm has by now, *withdrawn_from* at which it withdraws.
    """

    state: Literal["none", "in_force", "stale", "withdrawn"]
    id: str = ""
    since: datetime | None = None
    by: str = ""
    epsilon: float | None = None
    delta: float | None = None
    threshold: float | None = None
    executed: int = 0
    harmed: int = 0
    evidence: float = 0.0
    withdrawn_from: float = 1.0 / ALPHA
    withdrawn_at: datetime | None = None


class LabelOut(Result):
    """What was noted to be true of a decision's premises."""

    decision_id: str
    violated: dict[str, bool]
    weight: float


class ApprovalOut(Result):
    """A request to a person; *decided_key* is the id of the key that decided it."""

    id: str
    decision_id: str
    state: str
    created_at: datetime
    expires_at: datetime
    decided_by: str
    decided_key: str


class ApprovalsOut(Result):
    """Requests to a person, oldest first, and where the next page begins."""

    approvals: list[ApprovalOut]
    cursor: str | None
