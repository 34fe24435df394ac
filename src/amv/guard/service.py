"""The gate: prepare, bind, decide, verify, and grant an action once.

    prepare -> bind premises -> decide -> (verify -> update -> decide)* -> permit
            -> reserve -> dispatch -> settle

Every step is written down before its answer is given.  Whatever fails on the
way ends in ABSTAIN, never in PROCEED.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from amv.checks import shown
from amv.errors import AmvError, Conflict, InvalidInput, ItemNotFound, StoreError
from amv.guard import bind, ledger, record
from amv.guard.actions import Action, canonical, equal
from amv.guard.bind import Premise
from amv.guard.decision import (
    CheckRequest,
    Decision,
    Ended,
    Observed,
    Opened,
    Permit,
    PremiseView,
    Words,
)
from amv.guard.judge import Case, Evidence, Judgement, Outcome, judge
from amv.guard.plan import Verdict
from amv.guard.policy import ActionRule, Policy
from amv.guard.ports import (
    Checker,
    Claims,
    Finding,
    GuardReader,
    GuardStore,
    GuardWriter,
    RecordRow,
    State,
    TextRow,
)

STEPS_MAX = 64
"""How many checks one decision makes at most."""


class NotFound:
    """What a verifier returns where the thing asked for is not there: that refutes."""

    def __repr__(self) -> str:
        return "amv.NOT_FOUND"


NOT_FOUND = NotFound()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A decision under way."""

    id: str
    opened: Opened
    words: Words
    evidence: tuple[Evidence, ...]
    judgement: Judgement | None
    values: dict[str, Any]


class GuardService:
    """The gate over one policy, one memory's claims and one store."""

    def __init__(
        self,
        policy: Policy,
        claims: Claims,
        store: GuardStore,
        checker: Checker,
        *,
        prior: bind.Prior,
        calibration: str,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        new_token: Callable[[], str],
    ) -> None:
        self._policy = policy
        self._claims = claims
        self._store = store
        self._checker = checker
        self._prior = prior
        self._calibration = calibration
        self._clock = clock
        self._new_id = new_id
        self._new_token = new_token

    # Deciding

    def decide(self, action: Action, *, run_checks: bool = True) -> Decision:
        """Decide about an action; makes the checks that pay, unless the caller runs its own.

        Never raises for what goes wrong inside: such a decision is ABSTAIN with
        the code `gate_error`.  Raises InvalidInput for an action that is none.
        """
        if not isinstance(action, Action):
            raise InvalidInput(f"need an amv.Action, got {shown(action)}")
        try:
            state = self._prepare(action)
            for _ in range(STEPS_MAX if run_checks else 0):
                if state.judgement is None or state.judgement.verdict != Verdict.VERIFY:
                    break
                state = self._observe(state, self._found(state))
            return self._answer(state)
        except (StoreError, ItemNotFound, Conflict) as error:
            return self._failed(action, error)

    def evidence(self, decision_id: str, verifier: str, value: object) -> Decision:
        """Take what a caller's own verifier read, and decide on.

        Raises ItemNotFound for an unknown decision, InvalidInput for a verifier
        that this decision does not ask.
        """
        with self._store.read() as reader:
            state = self._load(reader, decision_id)
        asked = None if state.judgement is None else state.judgement.check
        if asked != verifier:
            raise InvalidInput(
                f"decision {decision_id!r} asks for "
                f"{'no check' if asked is None else repr(asked)}, got evidence of {verifier!r}"
            )
        return self._answer(self._observe(state, Finding(value)))

    def _prepare(self, action: Action) -> _Open:
        now_s = self._clock()
        rule = self._rule(action.tool)
        premises: list[Premise] = []
        case, code, judgement = None, "unknown_tool", None
        if rule is not None and rule.effect == "read":
            code = "read_only"
        elif rule is not None:
            premises = bind.premises_of(action, rule, self._claims, self._prior, now_s)
            case = bind.case_of(premises, rule, self._policy, self._policy.defaults.planner)
            judgement = judge(case, ())
            code = "judged"
        words = Words(
            namespace=action.namespace,
            session=action.session,
            principal=action.principal,
            arguments=dict(action.arguments),
            premises=tuple(premises),
        )
        secret = self._store.secret()
        opened = Opened(
            at_s=now_s,
            tool=action.tool,
            digest=action.digest(),
            policy=self._policy.digest(),
            calibration=self._calibration,
            mode=self._policy.mode,
            code=code,
            case=case,
            judgement=judgement,
            premises=tuple(premise.name for premise in premises),
            claims=tuple(
                record.keyed_hash(
                    secret, canonical([p.subject, p.attribute, p.remembered], "a claim")
                )
                for p in premises
            ),
        )
        decision_id = self._new_id()

        def work(tx: GuardWriter) -> None:
            record.append(tx, decision_id, "opened", opened)
            tx.put_text(_text(decision_id, words))

        self._store.write(work)
        return _Open(
            id=decision_id,
            opened=opened,
            words=words,
            evidence=(),
            judgement=judgement,
            values={},
        )

    def _rule(self, tool: str) -> ActionRule | None:
        rule = self._policy.actions.get(tool)
        if rule is None and self._policy.defaults.unknown_tool == "read":
            return ActionRule(effect="read")
        return rule

    def _found(self, state: _Open) -> Finding:
        """Make the check that the plan asks for."""
        request = self._request(state)
        assert request is not None
        rule = self._policy.verifiers[request.verifier]
        case = state.opened.case
        assert case is not None
        worth = max(premise.theta for premise in case.premises)
        return self._checker.run(request.verifier, rule, request.arguments, worth=worth)

    def _request(self, state: _Open) -> CheckRequest | None:
        if state.judgement is None or state.judgement.check is None:
            return None
        case, name = state.opened.case, state.judgement.check
        assert case is not None
        check = next(check for check in case.checks if check.name == name)
        rule = self._policy.verifiers[name]
        return CheckRequest(
            verifier=name,
            arguments={
                key: state.words.arguments.get(value[1:])
                if isinstance(value, str) and value.startswith("$")
                else value
                for key, value in (rule.args or _own_arguments(state.words)).items()
            },
            premises=tuple(case.premises[i].name for i in check.premises),
            cost=rule.cost,
            timeout_s=rule.timeout_s,
        )

    def _observe(self, state: _Open, finding: Finding) -> _Open:
        """Update a decision by what its check found, and write that down."""
        case, asked = state.opened.case, state.judgement
        assert case is not None
        assert asked is not None
        assert asked.check is not None
        check = next(check for check in case.checks if check.name == asked.check)
        about = [self._premise(state, case.premises[i].name) for i in check.premises]
        outcomes = tuple(outcome_of(premise, finding) for premise in about)
        has_value = not finding.problem and finding.value is not NOT_FOUND
        found = Evidence(check=check.name, outcomes=outcomes, has_value=has_value)
        evidence = (*state.evidence, found)
        judgement = judge(case, evidence)
        values = dict(state.values)
        if has_value and "inconclusive" not in outcomes:
            values |= {premise.name: finding.value for premise in about}
        secret = self._store.secret()
        observed = Observed(
            at_s=self._clock(),
            evidence=found,
            problem=finding.problem,
            readings=(record.keyed_hash(secret, repr(finding.value).encode()),),
            judgement=judgement,
        )
        words = msgspec.structs.replace(state.words, values=values)

        def work(tx: GuardWriter) -> None:
            if len(_observed(tx.records(decision_id=state.id))) != len(state.evidence):
                raise Conflict(f"decision {state.id!r} went on elsewhere meanwhile")
            record.append(tx, state.id, "observed", observed)
            tx.put_text(_text(state.id, words))

        self._store.write(work)
        self._tell_memory(state, about, outcomes, finding)
        return replace(state, words=words, evidence=evidence, judgement=judgement, values=values)

    def _tell_memory(
        self,
        state: _Open,
        premises: Sequence[Premise],
        outcomes: Sequence[Outcome],
        finding: Finding,
    ) -> None:
        """Have the memory know what the world shows: claims confirmed, or superseded."""
        for premise, outcome in zip(premises, outcomes, strict=True):
            if not premise.item_id or outcome == "inconclusive":
                continue
            namespace = state.words.namespace
            try:
                if finding.value is NOT_FOUND:
                    self._claims.refute(namespace, premise.item_id, None)
                elif equal(finding.value, premise.remembered):
                    self._claims.confirm(namespace, premise.item_id)
                else:
                    self._claims.refute(namespace, premise.item_id, finding.value)
            except (ItemNotFound, Conflict):
                # Forgotten or replaced meanwhile: there is nothing left to tell it of.
                continue

    @staticmethod
    def _premise(state: _Open, name: str) -> Premise:
        return next(premise for premise in state.words.premises if premise.name == name)

    # Answering

    def _answer(self, state: _Open) -> Decision:
        decision = self._decision(state)
        if decision.verdict != Verdict.PROCEED:
            return decision
        if state.opened.code == "read_only" or self._policy.mode == "shadow":
            return decision
        permit = self._grant(state)
        if isinstance(permit, str):
            return replace(
                decision,
                verdict=Verdict.ABSTAIN.value,
                code="granted_before",
                reason=permit,
            )
        return replace(decision, permit=permit)

    def _grant(self, state: _Open) -> Permit | str:
        """Return a permit, or why there is none: a key is granted to one action, once."""
        rule = self._policy.actions[state.opened.tool]
        now_s = self._clock()
        token = self._new_token()
        key = ledger.key_of(state.opened.tool, state.opened.digest, state.words, rule)
        permit = Permit(token=token, digest=state.opened.digest, expires_s=now_s + rule.permit_s)

        def work(tx: GuardWriter) -> Permit | str:
            refused = ledger.approve(tx, key, permit, state.id, now_s)
            if refused:
                return refused
            record.append(tx, state.id, "permitted", Ended(at_s=now_s, what="APPROVED"))
            return permit

        return self._store.write(work)

    def _decision(self, state: _Open) -> Decision:
        opened, judged = state.opened, state.judgement
        base = Decision(
            id=state.id,
            tool=opened.tool,
            digest=opened.digest,
            verdict=Verdict.ABSTAIN.value,
            code=opened.code,
            reason=_UNJUDGED.get(opened.code, ""),
            mode=opened.mode,
            voi={},
            values=dict(state.values),
        )
        if opened.code == "read_only":
            return replace(base, verdict=Verdict.PROCEED.value)
        if judged is None:
            return base
        return replace(
            base,
            verdict=judged.verdict,
            reason=reason_of(judged, opened.case),
            risk=judged.proceed,
            harm=judged.harm,
            expected_loss=judged.expected_loss,
            premises=_views(state),
            voi=dict(judged.voi),
            planner=judged.planner,
            check=self._request(state),
        )

    def _failed(self, action: Action, error: AmvError) -> Decision:
        return Decision(
            id="",
            tool=action.tool,
            digest=action.digest(),
            verdict=Verdict.ABSTAIN.value,
            code="gate_error",
            reason=f"the gate could not decide: {error}",
            mode=self._policy.mode,
            voi={},
            values={},
        )

    # Executing

    def redeem(self, token: str, action: Action) -> str:
        """Reserve the one execution that a permit grants; return its idempotency key.

        Raises PermitRefused for a permit that is unknown, used, expired, or of
        another action.
        """
        digest, hashed, now_s = action.digest(), ledger.hashed(token), self._clock()

        def work(tx: GuardWriter) -> str:
            row = ledger.reserve(tx, hashed, digest, now_s)
            record.append(tx, row.decision_id, "reserved", Ended(at_s=now_s, what=row.state))
            return row.key

        return self._store.write(work)

    def dispatched(self, key: str) -> None:
        """Note, before the call is made, that it is made now."""
        self._move(key, State.DISPATCHED)

    def settle(self, key: str, state: State) -> None:
        """Note what became of a call: SUCCEEDED, FAILED, or UNKNOWN where nobody can tell."""
        if state not in ledger.SETTLED:
            raise InvalidInput(
                f"a call is settled as one of {', '.join(ledger.SETTLED)}, got {state}"
            )
        row = self._move(key, state)
        with self._store.read() as reader:
            words = self._load(reader, row).words
        used = [p.item_id for p in words.premises if p.item_id]
        if used and state is State.SUCCEEDED:
            self._claims.used(words.namespace, used)

    def _move(self, key: str, state: State) -> str:
        now_s = self._clock()

        def work(tx: GuardWriter) -> str:
            row = ledger.move(tx, key, state, now_s)
            record.append(tx, row.decision_id, "moved", Ended(at_s=now_s, what=state))
            return row.decision_id

        return self._store.write(work)

    def reconcile(self, older_than_s: float) -> list[str]:
        """Mark calls that were dispatched and never settled as UNKNOWN; return their keys."""
        with self._store.read() as reader:
            rows = reader.in_state(State.DISPATCHED, self._clock() - older_than_s)
        for row in rows:
            self._move(row.key, State.UNKNOWN)
        return [row.key for row in rows]

    # Looking back

    def get(self, decision_id: str) -> Decision:
        """Return a decision as it stands, without its permit."""
        with self._store.read() as reader:
            return self._decision(self._load(reader, decision_id))

    def replay(self) -> list[str]:
        """Judge every recorded case again; return what differs, and what the log lacks."""
        with self._store.read() as reader:
            rows = reader.records()
        found = record.faults(rows)
        seen: dict[str, tuple[Case, list[Evidence]]] = {}
        for row in rows:
            judged = None
            if row.kind == "opened":
                opened = record.body_of(row, Opened)
                if opened.case is None:
                    continue
                seen[row.decision_id] = (opened.case, [])
                judged = opened.judgement
            elif row.kind == "observed":
                observed = record.body_of(row, Observed)
                seen[row.decision_id][1].append(observed.evidence)
                judged = observed.judgement
            if judged is not None and judge(*seen[row.decision_id]) != judged:
                found.append(f"record {row.number} is judged otherwise now")
        return found

    def _load(self, reader: GuardReader, decision_id: str) -> _Open:
        rows = reader.records(decision_id=decision_id)
        if not rows:
            raise ItemNotFound(f"no decision {decision_id!r}")
        opened = record.body_of(rows[0], Opened)
        observed = _observed(rows)
        text = reader.text(decision_id)
        if text is not None:
            words = msgspec.json.decode(text.body, type=Words)
        else:
            # Forgotten: the numbers are all that is left.
            words = Words(namespace=(), session="", principal="", arguments={}, premises=())
        return _Open(
            id=decision_id,
            opened=opened,
            words=words,
            evidence=tuple(one.evidence for one in observed),
            judgement=observed[-1].judgement if observed else opened.judgement,
            values=dict(words.values),
        )


def _observed(rows: Sequence[RecordRow]) -> list[Observed]:
    return [record.body_of(row, Observed) for row in rows if row.kind == "observed"]


def _text(decision_id: str, words: Words) -> TextRow:
    items = tuple(premise.item_id for premise in words.premises if premise.item_id)
    return TextRow(decision_id, words.namespace, items, msgspec.json.encode(words))


def _own_arguments(words: Words) -> Mapping[str, Any]:
    return {name: f"${name}" for name in words.arguments}


def outcome_of(premise: Premise, finding: Finding) -> Outcome:
    """Return what a reading says of a premise.

    Values are compared as typed JSON; NOT_FOUND refutes; nothing, an empty
    reading, and what is no JSON are no evidence for anything.
    """
    value = finding.value
    if finding.problem:
        return "inconclusive"
    if value is NOT_FOUND:
        return "refuted"
    if value is None or value in ("", [], {}):
        return "inconclusive"
    try:
        return "confirmed" if premise.holds_for(value) else "refuted"
    except InvalidInput:
        return "inconclusive"


_UNJUDGED = {
    "unknown_tool": "no rule of the policy speaks of this tool, so it counts as a commit action",
    "read_only": "the policy says that this tool changes nothing",
}


def reason_of(judged: Judgement, case: Case | None) -> str:
    """Return why a plan is what it is, in a sentence."""
    weighed = (
        f"executing is expected to lose {judged.proceed:.4g}, abstaining {judged.abstain:.4g}; "
        f"a premise is violated with probability {judged.harm:.4g}"
    )
    if judged.verdict == Verdict.VERIFY:
        worth = dict(judged.voi).get(judged.check or "", 0.0)
        return f"{weighed}; checking {judged.check} is worth {worth:.4g} more than it costs"
    if judged.verdict == Verdict.REPAIR:
        return f"{weighed}; a check read another value, with which the action can be repaired"
    if judged.verdict == Verdict.ABSTAIN and case is not None and judged.proceed <= judged.abstain:
        return f"{weighed}, which is more than the {case.harm_max:.4g} allowed"
    return weighed


def _views(state: _Open) -> tuple[PremiseView, ...]:
    case, judged = state.opened.case, state.judgement
    assert case is not None
    assert judged is not None
    place = {premise.name: i for i, premise in enumerate(case.premises)}
    return tuple(
        PremiseView(
            name=premise.name,
            subject=premise.subject,
            attribute=premise.attribute,
            remembered=premise.remembered,
            is_critical=premise.name in place,
            theta=premise.theta,
            before=judged.before[place[premise.name]] if premise.name in place else premise.p,
            after=judged.after[place[premise.name]] if premise.name in place else premise.p,
        )
        for premise in state.words.premises
    )
