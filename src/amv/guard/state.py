"""A decision under way: what is known of it, and what is not written down yet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from amv.errors import InvalidInput, ItemNotFound
from amv.guard import record
from amv.guard.actions import canonical, check_named, copied, equal
from amv.guard.bind import Premise
from amv.guard.decision import (
    Answer,
    CheckView,
    Decision,
    Labelled,
    Observed,
    Opened,
    PremiseView,
    Screen,
    Words,
)
from amv.guard.judge import NOTHING, Case, CaseCheck, Evidence, Judgement, Outcome
from amv.guard.plan import Verdict
from amv.guard.ports import Claims, Finding, GuardReader, GuardWriter, RecordRow, Shown, TextRow


class NotFound:
    """What a verifier returns where the thing asked for is not there: that refutes."""

    def __repr__(self) -> str:
        return "amv.NOT_FOUND"

    def __reduce__(self) -> str:
        # There is one only, also of what was copied or comes from another process.
        return "NOT_FOUND"


NOT_FOUND = NotFound()

READING_BYTES_MAX = 4096
"""The longest reading: that of a claim's value, as one too long would take no claim's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """One decision under way.

    *unwritten* holds its records that are not in the log yet, *shown* what the
    memory was not told yet.  *is_approved*: a person has approved the action.
    *is_granted*: it was given a permit.
    """

    id: str
    opened: Opened
    words: Words
    observed: tuple[Observed, ...] = ()
    labelled: tuple[Labelled, ...] = ()
    unwritten: tuple[Opened | Observed, ...] = ()
    shown: tuple[Shown, ...] = ()
    is_approved: bool = False
    is_granted: bool = False

    @property
    def judgement(self) -> Judgement | None:
        """The plan as of now; None where there was nothing to judge."""
        return self.observed[-1].judgement if self.observed else self.opened.judgement

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """All evidence so far, in its order."""
        return tuple(one.evidence for one in self.observed)

    @property
    def case(self) -> Case:
        """The case, of a decision that has one."""
        assert self.opened.case is not None
        return self.opened.case

    def check(self) -> CaseCheck | None:
        """Return the check that the plan or the approval asks for, or else the audit."""
        if self.judgement is None:
            return None
        return self._due() or (self._audited() if self.opened.is_audited else None)

    @property
    def is_auditing(self) -> bool:
        """Whether nothing but the audit asks for the next check."""
        return self.judgement is not None and self._due() is None and self.check() is not None

    def _due(self) -> CaseCheck | None:
        """Return the check that the plan asks for, or else the approval."""
        name = None if self.judgement is None else self.judgement.check
        if name is None:
            return self._unmade() if self.is_approved else None
        return next(one for one in self.case.checks if one.name == name)

    def _audited(self) -> CaseCheck | None:
        """Return the next check that nothing else asks for; None if none is left."""
        return next(iter(self._left()), None)

    def _unmade(self) -> CaseCheck | None:
        """Return the cheapest check left of a premise of which no check has told anything.

        None if the action goes ahead without the approval, or against what was found.
        """
        if self.judgement is None or self.judgement.verdict == Verdict.PROCEED:
            return None
        by_name = {check.name: check for check in self.case.checks}
        told = [
            (place, outcome)
            for found in self.evidence
            for place, outcome in zip(by_name[found.check].premises, found.outcomes, strict=True)
            if outcome != NOTHING
        ]
        if any(outcome == "refuted" for _, outcome in told):
            return None
        settled = {place for place, _ in told}
        left = [check for check in self._left() if not settled.issuperset(check.premises)]
        return min(left, key=lambda check: check.cost, default=None)

    def _left(self) -> list[CaseCheck]:
        """Return the checks not made yet, of sources that have told nothing so far."""
        by_name = {check.name: check for check in self.case.checks}
        # The same source twice is not two opinions.
        told = {by_name[e.check].group for e in self.evidence if not e.is_vain}
        asked = {evidence.check for evidence in self.evidence}
        return [
            check
            for check in self.case.checks
            if check.name not in asked and check.group not in told
        ]

    def about(self, check: CaseCheck) -> list[Premise]:
        """Return the premises that a check observes."""
        by_name = {premise.name: premise for premise in self.words.premises}
        return [by_name[self.case.premises[i].name] for i in check.premises]

    def with_observed(self, observed: Observed, words: Words, shown: Sequence[Shown]) -> "Deciding":
        """Return the decision after one more check."""
        return replace(
            self,
            words=words,
            observed=(*self.observed, observed),
            unwritten=(*self.unwritten, observed),
            shown=(*self.shown, *shown),
        )

    @property
    def answer(self) -> Answer | None:
        """What was answered last, where that is not what the plan says."""
        return self.observed[-1].answer if self.observed else self.opened.answer

    def write(
        self,
        tx: GuardWriter,
        found: Sequence[str],
        secret: bytes,
        planned: Decision,
        answered: Decision,
    ) -> None:
        """Write down what is not in the log yet; *found* are items that say what was read.

        What was *answered* is kept where it is not what was *planned*.
        """
        answer, why = None, ""
        if answered.says != planned.says or answered.approval_id or answered.code != planned.code:
            why = answered.reason
            answer = Answer(
                verdict=answered.verdict, code=answered.code, approval_id=answered.approval_id
            )
        words = msgspec.structs.replace(self.words, found=(*self.words.found, *found), answered=why)
        text = text_of(self.id, words)
        *before, last = self.unwritten
        # The words as they are kept from now on.
        last = msgspec.structs.replace(
            last, answer=answer, words=record.keyed_hash(secret, text.body)
        )
        for body in (*before, last):
            record.append(tx, self.id, "opened" if isinstance(body, Opened) else "observed", body)
        tx.put_text(text)


def text_of(decision_id: str, words: Words) -> TextRow:
    """Return what is kept of the words of a decision, and the items with which they go."""
    hints = (hint.item_id for hint in words.suggestions)
    items = tuple(sorted({*words.found, *items_of(words), *hints}))
    return TextRow(decision_id, words.namespace, items, msgspec.json.encode(words))


def worth_of(state: Deciding) -> float:
    """Return what a wrong action would lose, in units of what checks cost."""
    weight = state.case.check_weight
    # What a person has approved is checked anew, whatever was read before; and so is all
    # where checks are free.
    if state.is_approved or weight == 0.0:
        return math.inf
    return max(premise.theta for premise in state.case.premises) / weight


def items_of(words: Words) -> list[str]:
    """Return the items that an action rests on."""
    return [premise.item_id for premise in words.premises if premise.item_id]


def changed_claim(claims: Claims, tx: GuardWriter, state: Deciding) -> str:
    """Return why a belief is out of date: the memory says something else by now; else nothing.

    What the decision's own checks have read and told it is what it knows itself.
    """
    if len(state.words.premises) != len(state.opened.premises):
        return "what the decision rests on was forgotten; decide about the action again"
    critical = {premise.name for premise in state.case.premises}
    for premise in state.words.premises:
        if premise.name not in critical or premise.is_unbound:
            continue
        now = claims.find_in(tx, state.words.namespace, premise.subject, premise.attribute)
        item_id = "" if now is None else now.item_id
        known = premise.features
        if item_id in state.words.found and item_id != premise.item_id:
            continue
        is_doubtful = (
            now is not None
            and known is not None
            and (now.trust < known.trust or (now.is_contradicted and not known.is_contradicted))
        )
        if item_id != premise.item_id or is_doubtful:
            return (
                f"what is remembered of {premise.name} has changed since this was decided; "
                "decide about the action again"
            )
    return ""


def is_told(state: Deciding) -> bool:
    """Return whether the words of a decision are still there; they can be forgotten."""
    return state.words is not FORGOTTEN


FORGOTTEN = Words(namespace=(), session="", principal="", arguments={}, premises=())
"""What is left of words that were forgotten: the numbers stand without them."""


def loaded(reader: GuardReader, decision_id: str) -> Deciding:
    """Return a decision from the log; raises ItemNotFound."""
    check_named(decision_id, "the id of a decision")
    rows = reader.records(decision_id=decision_id)
    if not rows or rows[0].kind != "opened":
        raise ItemNotFound(f"no decision {decision_id!r}")
    text = reader.text(decision_id)
    words = FORGOTTEN if text is None else record.words_of(text)
    return Deciding(
        id=decision_id,
        opened=record.body_of(rows[0], Opened),
        words=words,
        observed=tuple(observed_in(rows)),
        labelled=tuple(record.body_of(row, Labelled) for row in rows if row.kind == "labelled"),
        is_granted=any(row.kind == "moved" for row in rows),
    )


def observed_in(rows: Sequence[RecordRow]) -> list[Observed]:
    """Return what checks found, by the records of a decision."""
    return [record.body_of(row, Observed) for row in rows if row.kind == "observed"]


def outcome_of(premise: Premise, finding: Finding) -> Outcome:
    """Return what a reading says of a premise.

    Values are compared as typed JSON; NOT_FOUND refutes; nothing and an empty
    reading are no evidence for anything.
    """
    value = finding.value
    if finding.problem:
        return "inconclusive"
    if value is NOT_FOUND:
        return "refuted"
    if value is None or value in ("", [], {}):
        return "inconclusive"
    return "confirmed" if premise.holds_for(value) else "refuted"


def is_kept(finding: Finding) -> bool:
    """Return whether what was read can take a claim's place."""
    return not finding.problem and isinstance(finding.value, str | int | float | bool)


def ended_as(finding: Finding, outcomes: Sequence[Outcome]) -> str:
    """Return in a word how a check ended."""
    if finding.problem:
        return finding.fault
    return NOTHING if set(outcomes) == {NOTHING} else "answered"


def shown_by(
    check: CaseCheck, premises: Sequence[Premise], outcomes: Sequence[Outcome], finding: Finding
) -> list[Shown]:
    """Return what a check showed of the claims that are remembered."""
    value = None if finding.value is NOT_FOUND else finding.value
    return [
        Shown(
            premise.item_id,
            holds=value is not None and equal(value, premise.remembered),
            value=value,
            by=check.name,
        )
        for premise, outcome in zip(premises, outcomes, strict=True)
        if premise.item_id and outcome != "inconclusive"
    ]


def checked(finding: Finding) -> Finding:
    """Return a finding, or one that is no evidence if no claim can say what was read.

    That is no JSON, such as NaN, or too long to be remembered and kept.
    """
    if finding.problem:
        return finding._replace(value=None)
    if finding.value is NOT_FOUND:
        return finding
    try:
        size = len(canonical(finding.value, "a reading"))
    except InvalidInput as error:
        return Finding(None, str(error))
    if isinstance(finding.value, str):
        if "\x00" in finding.value:
            return Finding(None, "a reading must not hold a NUL character")
        size = len(finding.value.encode())
    if size > READING_BYTES_MAX:
        return Finding(
            None,
            f"a reading must take at most {READING_BYTES_MAX} bytes, got {size}; have the verifier "
            "return the value alone, or name its place with `read`",
        )
    # Whoever read it may still hold it, and change it.
    return finding._replace(value=copied(finding.value))


_UNJUDGED = {
    "unknown_tool": "no rule of the policy speaks of this tool, so it counts as a commit action",
    "read_only": "the policy says that this tool changes nothing",
    "invalid_action": "the call can't be judged; under enforce it raises an error",
}


def decision_of(state: Deciding) -> Decision:
    """Return the public view of a decision as it was answered, without a permit."""
    planned, answer = planned_of(state), state.answer
    if answer is None:
        return planned
    return replace(
        planned,
        verdict=answer.verdict,
        code=answer.code,
        reason=state.words.answered or "why was forgotten with the words of the decision",
        approval_id=answer.approval_id,
    )


def planned_of(state: Deciding) -> Decision:
    """Return a decision as the plan says it, whatever was answered."""
    opened, judged = state.opened, state.judgement
    base = Decision(
        id=state.id,
        tool=opened.tool,
        digest=opened.digest,
        verdict=Verdict.ABSTAIN.value,
        code=opened.code,
        reason=state.words.unjudged or _UNJUDGED.get(opened.code, ""),
        mode=opened.mode,
        namespace=state.words.namespace,
        voi={},
        values=dict(state.words.values),
        suggestions=state.words.suggestions,
        arguments=dict(state.words.arguments),
    )
    if opened.code == "read_only":
        return replace(base, verdict=Verdict.PROCEED.value)
    if judged is None:
        return base
    is_unresolved = bool(judged.unresolved) and judged.verdict == Verdict.ABSTAIN
    is_audit = state.is_auditing
    checks = _checks(state)
    reason = reason_of(judged, state.case)
    if is_unresolved:
        vain = (f"{one.verifier}: {one.ended}" for one in checks if one.ended != "answered")
        reason = f"{reason} ({', '.join(vain)})"
    if is_audit:
        reason = f"{reason}; drawn at random to be checked anyway"
    return replace(
        base,
        checks=checks,
        code="unresolved" if is_unresolved and not is_audit else opened.code,
        verdict=Verdict.VERIFY.value if is_audit else judged.verdict,
        reason=reason + _unbound_of(state, judged) + _certified_of(opened.screen),
        risk=judged.proceed,
        harm=judged.harm,
        expected_loss=judged.expected_loss,
        premises=_views(state, judged),
        voi=dict(judged.voi),
        planner=judged.planner,
        certificate="" if opened.screen is None else opened.screen.state,
    )


def reason_of(judged: Judgement, case: Case) -> str:
    """Return why a plan is what it is, in a sentence."""
    if not case.premises:
        least = case.prices().critical_above
        return f"no premise would lose more than {least:.4g} if it were violated: none was weighed"
    weighed = (
        f"executing is expected to lose {judged.proceed:.4g}, abstaining {judged.abstain:.4g}; "
        f"a critical premise is violated with probability {judged.harm:.4g}"
    )
    if judged.verdict == Verdict.VERIFY:
        worth = dict(judged.voi).get(judged.check or "", 0.0)
        return f"{weighed}; checking {judged.check} is worth {worth:.4g} more than it costs"
    if judged.verdict == Verdict.REPAIR:
        return f"{weighed}; a check read another value, with which the action can be repaired"
    if judged.verdict == Verdict.ABSTAIN and judged.refuted:
        return f"{weighed}; an audit refutes {', '.join(judged.refuted)}"
    if judged.verdict == Verdict.ABSTAIN and judged.unresolved:
        return f"{weighed}; checks told nothing of {', '.join(judged.unresolved)}"
    if judged.verdict == Verdict.ABSTAIN and judged.proceed <= judged.abstain:
        return f"{weighed}, which is more than the {case.harm_max:.4g} allowed"
    return weighed


def _checks(state: Deciding) -> tuple[CheckView, ...]:
    about = {check.name: check.premises for check in state.case.checks}
    return tuple(
        CheckView(
            verifier=one.evidence.check,
            ended=one.ended or _ended_before(one),
            found={
                state.case.premises[place].name: outcome
                for place, outcome in zip(
                    about[one.evidence.check], one.evidence.outcomes, strict=True
                )
            },
            problem=state.words.problems.get(one.evidence.check, ""),
        )
        for one in state.observed
    )


def _ended_before(observed: Observed) -> str:
    """Return how a check ended of which the record does not say it, as those of old do not."""
    if not observed.is_evidence:
        return "failed"
    return NOTHING if observed.evidence.is_vain else "answered"


def _unbound_of(state: Deciding, judged: Judgement) -> str:
    """Return which arguments no rule speaks of, where the action does not go ahead."""
    names = [premise.attribute for premise in state.words.premises if premise.is_unbound]
    if judged.verdict != Verdict.ABSTAIN or not names:
        return ""
    return (
        f"; the rule does not speak of {', '.join(names)}, which counts as a premise that nobody "
        "verified: name it in a claim, in the idempotency key or in free"
    )


def _certified_of(screen: Screen | None) -> str:
    """Return what the certificate is to a decision, where it is not what it was."""
    if screen is None or screen.state == "in_force":
        return ""
    if screen.state == "stale":
        return "; the certificate was made under another policy or calibration: certify anew"
    return "; the certificate was withdrawn as more harm was done than it allows: certify anew"


def _views(state: Deciding, judged: Judgement) -> tuple[PremiseView, ...]:
    place = {premise.name: i for i, premise in enumerate(state.case.premises)}
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
