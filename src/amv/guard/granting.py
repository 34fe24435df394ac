"""Granting: what is answered to a decision that is made, and what that lets happen.

A plan says what would be best; whether it is answered so also hangs on what is
known only within the transaction that writes it down: an approval, what the
memory says by then, a certificate, a budget, an earlier grant of the same key.
So the answer is found first, then written with the decision, then granted.
"""

from collections.abc import Callable
from dataclasses import replace

from msgspec import UNSET

from amv.guard import approval, budget, ledger
from amv.guard.actions import equal
from amv.guard.decision import Decision, Permit
from amv.guard.plan import Verdict
from amv.guard.policy import ActionRule, Policy
from amv.guard.ports import ApprovalRow, Claims, GuardStore, GuardWriter
from amv.guard.standing import is_screened_so
from amv.guard.state import Deciding, changed_claim, loaded

Granted = Callable[[GuardWriter], None]
"""What is written after the decision: its grant, or its request to a person."""

_CERTIFICATE_CHANGED = "what is certified has changed meanwhile; decide about the action again"


def nothing(tx: GuardWriter) -> None:
    """Write nothing: nothing was granted."""


def refused(decision: Decision, code: str, why: str) -> Decision:
    """Return an answer that does not let the action go ahead."""
    return replace(decision, verdict=Verdict.ABSTAIN.value, code=code, reason=why)


def _remembered_otherwise(asked: Deciding, state: Deciding) -> str:
    """Return a critical premise of which the memory speaks otherwise, and not in its favour.

    That is, since a person was *asked*, who knew what was remembered and read then;
    empty if there is none.
    """
    critical = {premise.name for premise in state.case.premises}
    then = {premise.name: premise.remembered for premise in asked.words.premises}
    for premise in state.words.premises:
        if not premise.is_remembered or premise.name not in critical & then.keys():
            continue
        known = then[premise.name], asked.words.values.get(premise.name)
        is_met = premise.required is not UNSET and premise.holds_for(premise.remembered)
        if not is_met and not any(equal(premise.remembered, one) for one in known):
            return premise.name
    return ""


class Granting:
    """The granting half of the gate."""

    _policy: Policy
    _store: GuardStore
    _claims: Claims
    _clock: Callable[[], float]
    _new_id: Callable[[], str]
    _new_token: Callable[[], str]
    approvals: approval.Approvals

    def approve(
        self, approval_id: str, *, by: str, approve: bool = True, key_id: str = ""
    ) -> ApprovalRow:
        """Approve or reject a request; raises ItemNotFound, Conflict if it is decided or over.

        *key_id* is the id of the key with which *by* says so, where there is one.
        """
        return self.approvals.decide(
            approval_id, approve=approve, by=by, key_id=key_id, now_s=self._clock()
        )

    def _outdated(
        self, tx: GuardWriter, state: Deciding, decision: Decision, approval_id: str | None
    ) -> str:
        """Return why an action that may be let go ahead rests on what is no longer so."""
        if decision.verdict != Verdict.PROCEED and approval_id is None:
            return ""
        return changed_claim(self._claims, tx, state)

    def _ruled(
        self,
        tx: GuardWriter,
        state: Deciding,
        decision: Decision,
        approval_id: str | None,
        outdated: str,
        now_s: float,
    ) -> tuple[Decision, Granted]:
        """Return what is answered, with its permit or request, and what is to be written for it."""
        rule, approved_by = self._policy.actions[state.opened.tool], ""
        if approval_id is not None and decision.verdict in (Verdict.ABSTAIN, Verdict.REPAIR):
            decision = self._approved_so(tx, state, decision, approval_id, now_s)
            if decision.code == "approval_outdated":
                return self._asking(tx, state, decision, rule, now_s)
            if decision.code != "approved":
                return decision, nothing
            approved_by = approval_id
        asks = decision.verdict == Verdict.ABSTAIN and rule.approval
        if not asks and decision.verdict != Verdict.PROCEED:
            return decision, nothing
        # Those opened before keys were recorded have none.
        key = state.opened.key or ledger.key_of(
            state.opened.tool, state.opened.digest, state.words, rule
        )
        spending = budget.spending_of(self._policy, rule, state.words, key, now_s)
        if spending is not None and (over := spending.refusal(tx)):
            # Nor is a person asked for what no approval would lift.
            return refused(decision, "over_budget", over), nothing
        if asks:
            return self._asking(tx, state, decision, rule, now_s)
        if outdated:
            return refused(decision, "memory_changed", outdated), nothing
        if not approved_by and not is_screened_so(tx, state.opened):
            return refused(decision, "certificate_changed", _CERTIFICATE_CHANGED), nothing
        return self._granted(tx, state, decision, key, rule, spending, approved_by, now_s)

    def _approved_so(
        self, tx: GuardWriter, state: Deciding, decision: Decision, approval_id: str, now_s: float
    ) -> Decision:
        """Return what is answered to an action that a person may have approved."""
        request = tx.approval(approval_id)
        why_not = approval.refusal(request, state.opened.digest, now_s)
        if not why_not and any("refuted" in one.outcomes for one in state.evidence):
            why_not = "a check refutes what the approval was given for"
        if why_not or request is None:
            return refused(decision, "not_approved", why_not)
        if name := _remembered_otherwise(loaded(tx, request.decision_id), state):
            why_not = f"what is remembered of {name} is not what the approval was given for"
            return refused(decision, "approval_outdated", why_not)
        return replace(
            decision,
            verdict=Verdict.PROCEED.value,
            code="approved",
            reason=f"approved by {request.decided_by}",
        )

    def _granted(
        self,
        tx: GuardWriter,
        state: Deciding,
        decision: Decision,
        key: str,
        rule: ActionRule,
        spending: budget.Spending | None,
        approved_by: str,
        now_s: float,
    ) -> tuple[Decision, Granted]:
        """Return a decision with its permit, unless its key stands against it."""
        taken = ledger.refusal(tx, key, state.opened.digest)
        if taken:
            return refused(decision, "granted_before", taken), nothing
        permit = Permit(
            token=self._new_token(),
            digest=state.opened.digest,
            expires_s=now_s + rule.permit_s,
        )

        def grant(tx: GuardWriter) -> None:
            ledger.approve(tx, key, permit, state.id, approved_by, now_s)
            if spending is not None:
                spending.note(tx)

        return replace(decision, permit=permit), grant

    def _asking(
        self, tx: GuardWriter, state: Deciding, decision: Decision, rule: ActionRule, now_s: float
    ) -> tuple[Decision, Granted]:
        for row in tx.approvals_of(state.opened.digest, approval.PENDING):
            # An agent that tries again does not ask again.
            if now_s < row.expires_s:
                return replace(decision, approval_id=row.approval_id), nothing
        request = ApprovalRow(
            self._new_id(),
            state.id,
            state.opened.digest,
            approval.PENDING,
            now_s,
            now_s + rule.approval_s,
            "",
        )
        return (
            replace(decision, approval_id=request.approval_id),
            lambda tx: approval.put(tx, request, now_s),
        )
