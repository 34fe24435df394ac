"""The gate: prepare, bind, decide, verify, and grant an action once.

    prepare -> bind premises -> decide -> (verify -> update -> decide)* -> permit
            -> reserve -> dispatch -> settle

A decision is written down, in one transaction with the permit it gives and with
what its checks tell the memory, before it is answered.  Whatever fails on the
way ends in ABSTAIN, never in PROCEED.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from amv.checks import several
from amv.errors import AmvError, Conflict, EmbedderError, InvalidInput, ItemNotFound, StoreError
from amv.guard import approval, bind, budget, ledger, record
from amv.guard.actions import Action, canonical, check_action, check_named, held
from amv.guard.bind import Premise
from amv.guard.calibration import Calibration
from amv.guard.decision import CheckRequest, Decision, Observed, Opened, Words
from amv.guard.execution import Executions
from amv.guard.granting import Granting, nothing
from amv.guard.history import History
from amv.guard.judge import Evidence, judge
from amv.guard.learning import Learning
from amv.guard.plan import Verdict
from amv.guard.policy import ActionRule, Policy
from amv.guard.ports import Checker, Claims, Finding, GuardStore, GuardWriter
from amv.guard.prior import Features
from amv.guard.standing import Certifying, Rescreened, is_screened_so, screened, watch
from amv.guard.state import (
    NOT_FOUND,
    Deciding,
    checked,
    decision_of,
    ended_as,
    is_kept,
    loaded,
    observed_in,
    outcome_of,
    planned_of,
    shown_by,
    worth_of,
)
from amv.guard.suggest import Seen, Suggestion, suggested

STEPS_MAX = 64
"""How many checks one decision makes at most."""

RANKED_MAX = 256
"""How many alternatives are ranked at once, at most."""

OPEN_S = 3600.0
"""How long a decision waits for evidence; what it rests on is too old after that."""


class GuardService(Executions, Granting, History, Learning, Certifying):
    """The gate over one policy, one memory's claims and one store."""

    def __init__(
        self,
        policy: Policy,
        claims: Claims,
        store: GuardStore,
        checker: Checker,
        *,
        prior: Callable[[Features], float],
        calibration: Calibration,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        new_token: Callable[[], str],
        chance: Callable[[], float],
        seen: Callable[[tuple[str, ...], str], Sequence[Seen]] = lambda namespace, session: (),
    ) -> None:
        """Decide by *policy*; *seen* tells which claims a namespace's session has read."""
        Executions.__init__(self, store, claims, clock)
        self._policy = policy
        self._checker = checker
        self._prior = prior
        self._given = self._calibration = calibration
        self._new_id = new_id
        self._new_token = new_token
        self._seen = seen
        self._chance = chance
        self.approvals = approval.Approvals(store)

    @property
    def policy(self) -> Policy:
        """The rules in force."""
        return self._policy

    def decide(
        self, action: Action, *, run_checks: bool = True, approval_id: str | None = None
    ) -> Decision:
        """Decide about an action; makes the checks that pay, unless the caller runs its own.

        A check whose verifier has an address is made here all the same.  With
        *approval_id*, a person's approval stands for the screen, once all that can
        be checked was checked anew; a check that only the caller can make is asked
        for (VERIFY).  What goes wrong inside is not raised: such a
        decision is ABSTAIN with the code `gate_error`.  Raises InvalidInput for an
        action that is none.
        """
        try:
            # Its own, which nobody changes meanwhile.
            action = replace(check_action(action))
            try:
                return self._decided(action, run_checks, approval_id)
            except Rescreened:
                self._forget_screen()
                return self._decided(action, run_checks, approval_id)
        except (StoreError, ItemNotFound, Conflict, EmbedderError) as error:
            return self._failed(action, error)

    def _decided(self, action: Action, run_checks: bool, approval_id: str | None) -> Decision:
        state = self._approved(self._prepared(action), approval_id)
        return self._answered(self._advanced(state, run_checks=run_checks), approval_id)

    def evidence(
        self, decision_id: str, verifier: str, value: object, *, approval_id: str | None = None
    ) -> Decision:
        """Take what a caller's own verifier read, and decide on.

        Raises ItemNotFound for an unknown decision, InvalidInput for a verifier
        that this decision does not ask or that the gate asks itself, Conflict if it
        was told meanwhile, or if what it rests on was forgotten or is no longer so.
        """
        check_named(verifier, "the name of a verifier")
        with self._store.read() as reader:
            state = loaded(reader, decision_id)
        stale = self._stale(state)
        if stale:
            raise Conflict(f"decision {decision_id!r} {stale}; decide about the action again")
        if self._is_own(verifier):
            raise InvalidInput(
                f"verifier {verifier!r} has an address, which the gate asks itself; it takes no "
                "evidence of it unless the policy says by_client: true"
            )
        state = self._approved(state, approval_id)
        check = state.check()
        if check is None or check.name != verifier:
            wanted = "no check" if check is None else repr(check.name)
            raise InvalidInput(
                f"decision {decision_id!r} asks for {wanted}, got evidence of {verifier!r}"
            )
        state = self._advanced(self._observed(state, Finding(value)), run_checks=False)
        return self._answered(state, approval_id)

    def rank(self, alternatives: Sequence[Action]) -> list[Decision]:
        """Return what would be decided about each of several actions now, the best first.

        Best is the least expected loss.  No check is made, nothing granted and
        nothing written down, so these decisions have no id.  An action of which
        no loss is known comes last.  Raises what `decide` raises, and InvalidInput
        for more than 256 actions.
        """
        each = list(several(alternatives, "alternatives must be several actions"))
        if len(each) > RANKED_MAX:
            raise InvalidInput(f"at most {RANKED_MAX} alternatives are ranked, got {len(each)}")
        found = [self._foreseen(action) for action in each]
        found.sort(key=lambda decision: (decision.is_unjudged, decision.expected_loss))
        return found

    def _foreseen(self, action: Action) -> Decision:
        try:
            state = self._prepared(check_action(action), is_real=False)
            return replace(decision_of(state), id="", check=self._request(state))
        except (StoreError, ItemNotFound, Conflict, EmbedderError) as error:
            return self._failed(action, error)

    def _stale(self, state: Deciding) -> str:
        """Return why a decision takes no evidence any more, or nothing."""
        if state.opened.policy != self._policy.digest():
            return "was made under another policy"
        age_s = self._clock() - state.opened.at_s
        if age_s > OPEN_S:
            return f"was opened more than {OPEN_S:g} s ago"
        if age_s < -ledger.STEPPED_S:
            return "was opened at a time that is yet to come, as the clock was put back"
        if len(state.words.premises) != len(state.opened.premises):
            return "rests on what was forgotten"
        return ""

    # Preparing

    def _prepared(self, action: Action, *, is_real: bool = True) -> Deciding:
        now_s, policy, learned = self._clock(), self._policy, self._calibration
        rule, audit = self._rule(action.tool), 0.0
        premises: list[Premise] = []
        case, code, judgement, screen = None, "unknown_tool", None, None
        if rule is not None and rule.effect == "read":
            code = "read_only"
        elif rule is not None:
            budget.amount_of(rule, action.arguments)
            prior = partial(learned.said, self._prior)
            premises = bind.premises_of(action, rule, self._claims, prior, now_s)
            planner, known = policy.defaults.planner, (learned.verifiers, learned.typical)
            screen = self._screen(is_fresh=not is_real)
            case = bind.case_of(premises, rule, policy, planner, *known)
            case = screened(case, screen)
            judgement = judge(case, ())
            code = "judged"
            audit = policy.defaults.audit if rule.audit is None else rule.audit
        secret, digest = self._store.secret(), action.digest()
        words = Words(
            namespace=action.namespace,
            session=action.session,
            principal=action.principal,
            arguments=dict(action.arguments),
            premises=tuple(premises),
            suggestions=self._suggested(action, rule),
        )
        opened = Opened(
            at_s=now_s,
            tool=action.tool,
            digest=digest,
            key="" if rule is None else ledger.key_of(action.tool, digest, words, rule),
            policy=policy.digest(),
            rules=policy.rules(),
            calibration=learned.digest(),
            mode=policy.mode,
            code=code,
            audit=audit,
            is_audited=is_real and audit > 0.0 and self._chance() < audit,
            screen=screen,
            case=case,
            judgement=judgement,
            owner=record.keyed_hash(secret, action.principal.encode()),
            premises=tuple(premise.name for premise in premises),
            claims=tuple(
                record.keyed_hash(secret, canonical([p.subject, p.attribute, p.remembered], "it"))
                for p in premises
            ),
        )
        return Deciding(id=self._new_id(), opened=opened, words=words, unwritten=(opened,))

    def _suggested(self, action: Action, rule: ActionRule | None) -> tuple[Suggestion, ...]:
        is_bound = rule is not None and not bind.unbound_arguments(action, rule)
        if is_bound or not action.arguments:
            return ()
        return suggested(action, rule, self._seen(action.namespace, action.session))

    def note_unjudged(self, action: Action, why: str) -> Decision:
        """Write down that a call ran in shadow mode that can't be judged, and *why*.

        Such a record has no case; its verdict is ABSTAIN and its code
        `invalid_action`.  *action* has those arguments that are JSON.
        """
        opened = Opened(
            at_s=self._clock(),
            tool=action.tool,
            digest=action.digest(),
            policy=self._policy.digest(),
            calibration=self._calibration.digest(),
            mode=self._policy.mode,
            code="invalid_action",
            owner=record.keyed_hash(self._store.secret(), action.principal.encode()),
            case=None,
            judgement=None,
        )
        words = Words(
            namespace=action.namespace,
            session=action.session,
            principal=action.principal,
            arguments=dict(action.arguments),
            premises=(),
            unjudged=why,
        )
        state = Deciding(id=self._new_id(), opened=opened, words=words, unwritten=(opened,))
        return self._answered(state, None)

    def _rule(self, tool: str) -> ActionRule | None:
        rule = self._policy.actions.get(tool)
        if rule is None and self._policy.defaults.unknown_tool == "read":
            return ActionRule(effect="read")
        return rule

    # Verifying

    def _approved(self, state: Deciding, approval_id: str | None) -> Deciding:
        """Return a decision for which a person's approval stands, if it does."""
        if approval_id is None:
            return state
        check_named(approval_id, "the id of a request")
        with self._store.read() as reader:
            request = reader.approval(approval_id)
        stands = not approval.refusal(request, state.opened.digest, self._clock())
        return replace(state, is_approved=stands)

    def _advanced(self, state: Deciding, *, run_checks: bool) -> Deciding:
        """Make the checks that are due; only those that are the gate's own, unless *run_checks*."""
        while self._is_due(state, run_checks=run_checks):
            state = self._observed(state, self._asked(state))
        return state

    def _is_due(self, state: Deciding, *, run_checks: bool) -> bool:
        check = state.check()
        if check is None or len(state.observed) >= STEPS_MAX:
            return False
        rule = self._policy.verifiers[check.name]
        if state.is_approved and not self._checker.knows(check.name, rule):
            # What can't be made here is no reason to go ahead without it.
            return False
        return run_checks or self._is_own(check.name)

    def _is_own(self, verifier: str) -> bool:
        """Return whether the gate alone may make a check: it knows the address to ask."""
        rule = self._policy.verifiers.get(verifier)
        return rule is not None and rule.url is not None and not rule.by_client

    def _request(self, state: Deciding) -> CheckRequest | None:
        check = state.check()
        if check is None:
            return None
        rule = self._policy.verifiers[check.name]
        given = state.words.arguments
        arguments = {
            name: given.get(value[1:]) if isinstance(value, str) and value[:1] == "$" else value
            for name, value in (rule.args or {name: f"${name}" for name in given}).items()
        }
        return CheckRequest(
            verifier=check.name,
            arguments=arguments,
            premises=tuple(state.case.premises[i].name for i in check.premises),
            cost=rule.cost,
            timeout_s=rule.timeout_s,
        )

    def _asked(self, state: Deciding) -> Finding:
        check, request = state.check(), self._request(state)
        assert check is not None
        assert request is not None
        rule = self._policy.verifiers[request.verifier]
        about = {state.case.premises[place].kind for place in check.premises}
        changes_s = self._calibration.changes_s(about)
        if changes_s is not None and changes_s < rule.fresh_s:
            # What was declared is the most; what was learned may only be stricter.
            rule = msgspec.structs.replace(rule, fresh_s=changes_s)
        return self._checker.run(
            request.verifier,
            rule,
            held(request.arguments),
            worth=worth_of(state),
        )

    def _observed(self, state: Deciding, finding: Finding) -> Deciding:
        """Update a decision by what the check it asks for has found."""
        check, finding = state.check(), checked(finding)
        assert check is not None
        about = state.about(check)
        outcomes = tuple(outcome_of(premise, finding) for premise in about)
        is_read = not finding.problem and finding.value is not NOT_FOUND
        found = Evidence(
            check=check.name,
            outcomes=outcomes,
            has_value=is_read,
            is_kept=is_kept(finding),
            is_audit=state.is_auditing,
        )
        words, read = state.words, {premise.name: finding.value for premise in about}
        if is_read and "inconclusive" not in outcomes:
            words = msgspec.structs.replace(words, values={**words.values, **read})
        if finding.problem:
            problems = {**words.problems, check.name: finding.problem}
            words = msgspec.structs.replace(words, problems=problems)
        observed = Observed(
            at_s=self._clock(),
            evidence=found,
            is_evidence=not finding.problem,
            ended=ended_as(finding, outcomes),
            reading=record.keyed_hash(self._store.secret(), repr(finding.value).encode()),
            judgement=judge(state.case, (*state.evidence, found)),
        )
        return state.with_observed(observed, words, shown_by(check, about, outcomes, finding))

    # Answering

    def _answered(self, state: Deciding, approval_id: str | None) -> Decision:
        """Write a decision down, with what it grants, and return it."""
        decision = planned = replace(planned_of(state), check=self._request(state))
        if decision.check is not None and decision.verdict != Verdict.VERIFY:
            reason = f"approved; {decision.check.verifier} is asked once more before that counts"
            decision = replace(decision, verdict=Verdict.VERIFY.value, reason=reason)
        before, now_s = len(state.observed) - _count_observed(state), self._clock()
        secret = self._store.secret()

        def work(tx: GuardWriter, tell: Callable[[GuardWriter], list[str]]) -> Decision:
            is_new = state.unwritten[:1] == (state.opened,)
            if not is_new and before != len(observed_in(tx.records(decision_id=state.id))):
                raise Conflict(f"decision {state.id!r} went on elsewhere meanwhile")
            if is_new and state.opened.case is not None and not is_screened_so(tx, state.opened):
                raise Rescreened(f"decision {state.id!r} was screened by what no longer stands")
            is_ruled = state.opened.code == "judged" and state.opened.mode != "shadow"
            # Before the memory is told what this decision has found out itself.
            outdated = self._outdated(tx, state, decision, approval_id) if is_ruled else ""
            found = tell(tx)
            if state.opened.is_audited and state.check() is None:
                known = replace(state, is_granted=not ledger.is_taken(tx, state.opened.key))
                watch(tx, replace(known, observed=state.observed[:before]), known, now_s)
            answered, grant = (
                self._ruled(tx, state, decision, approval_id, outdated, now_s)
                if is_ruled
                else (decision, nothing)
            )
            state.write(tx, found, secret, planned, answered)
            grant(tx)
            return answered

        if not state.shown:
            return self._store.write(lambda tx: work(tx, lambda tx: []))
        with self._claims.telling(state.words.namespace, state.shown) as tell:
            return self._store.write(lambda tx: work(tx, tell))

    def _failed(self, action: Action, error: AmvError) -> Decision:
        """Return the answer of a gate that is out of order: only what changes nothing passes."""
        rule = self._rule(action.tool)
        is_read = rule is not None and rule.effect == "read"
        return Decision(
            id="",
            tool=action.tool,
            digest=action.digest(),
            verdict=(Verdict.PROCEED if is_read else Verdict.ABSTAIN).value,
            code="read_only" if is_read else "gate_error",
            reason=f"the gate could not decide: {error}",
            mode=self._policy.mode,
            namespace=action.namespace,
            voi={},
            values={},
            arguments=dict(action.arguments),
        )


def _count_observed(state: Deciding) -> int:
    return sum(isinstance(body, Observed) for body in state.unwritten)
