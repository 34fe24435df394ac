"""Labels: what became known of claims, for learning from what was said of them.

A label is a remembered claim that supported its action, with what was known of
it, and whether it was wrong.  That says the person, or the world, who was asked
for the truth (`Labels.label`); otherwise the first check that told anything,
which is not the truth, but as near to it as the gate comes by itself.  What was
unknown, or came from a source that is not trusted, makes no label.

What a plan checks is no fair sample: it is what looked doubtful.  So a share of
decisions is audited, drawn before anything is known of them: all is checked
that can be.  A label that is there only because of the audit counts with one
over the audit's probability (Horvitz-Thompson), one that the plan asked for
anyway counts once, and so every claim that could be checked is expected to
count once, whether it was doubtful or not.  Without an audit there is nothing
to weigh with, and what is learned holds for claims that are checked.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from amv.checks import shown
from amv.errors import InvalidInput
from amv.guard.certificate import Instance
from amv.guard.decision import Ground
from amv.guard.history import opened_in
from amv.guard.judge import NOTHING, Case, Evidence
from amv.guard.plan import Verdict
from amv.guard.ports import GuardStore
from amv.guard.prior import Features, LogisticPrior
from amv.guard.reliability import Answer
from amv.guard.state import Deciding, loaded
from amv.guard.untold import Heard

Source = Literal["checked", "audited", "told"]

LABEL_WEIGHT_MAX = 1e6


class Told(NamedTuple):
    """A label: a claim of some kind, what was said of it before any check, and what was so.

    *source* is how it came to be known: by a check that paid, by an audit, or
    because somebody was asked.
    """

    number: int
    features: Features
    kind: str
    said: float
    is_violated: bool
    weight: float
    source: Source


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A label as it stands in a file."""

    age_h: float
    trust: float
    is_violated: bool
    kind: str = ""
    confidence: float = 0.9
    is_contradicted: bool = False
    weight: float = 1.0


def read_label(line: bytes | str) -> Told:
    """Return the label in a JSON object; raises InvalidInput, or DecodeError of msgspec.

    >>> read_label('{"kind": "status", "age_h": 5, "trust": 0.8, "is_violated": true}').kind
    'status'
    """
    one = msgspec.json.decode(line, type=_Line)
    features = Features(
        confidence=one.confidence,
        age_h=one.age_h,
        trust=one.trust,
        is_contradicted=one.is_contradicted,
    )
    said = LogisticPrior()(features)
    return Told(0, features, one.kind, said, one.is_violated, check_weight(one.weight), "told")


class Drawn(NamedTuple):
    """An action for a certificate; *is_told* if its truth was told, and not only checked."""

    instance: Instance
    is_told: bool
    ground: Ground


class Sample(NamedTuple):
    """The actions that a certificate is made from: those that were decided on one ground."""

    instances: list[Instance]
    told: int
    ground: Ground


class Log(NamedTuple):
    """What a log of decisions holds for learning.

    *incomplete* counts those drawn for an audit of which an answer or the truth
    is missing, *through* is the last record that anything was learned of, and
    *ground* what the last decision was made on.
    """

    decisions: int
    labels: list[Told]
    answers: list[Answer]
    drawn: list[Drawn]
    incomplete: int
    through: int = 0
    ground: Ground = Ground("", "")
    heard: tuple[Heard, ...] = ()

    def sample(self) -> Sample:
        """Return what can be certified: a certificate holds for what it was made under."""
        own = [one for one in self.drawn if one.ground == self.ground]
        return Sample([one.instance for one in own], sum(one.is_told for one in own), self.ground)


class _Shown(NamedTuple):
    """What the first check that told anything of a premise found."""

    is_violated: bool
    is_audit: bool


class Labels:
    """What the log holds for learning."""

    _store: GuardStore
    _clock: Callable[[], float]

    def log(self, *, namespace: tuple[str, ...] = (), after: int = 0) -> Log:
        """Return what the decisions after record *after* hold for learning.

        Only those whose namespace begins with *namespace*.
        """
        found, count, incomplete, through = Log(0, [], [], [], 0), 0, 0, after
        ground, heard = found.ground, list[Heard]()
        for number, state in self._judged(namespace, after):
            count += 1
            ground = state.opened.ground
            labels, answers = labels_of(number, state), answers_of(state)
            through = number if labels or answers else through
            found.labels.extend(labels)
            found.answers.extend(answers)
            heard.extend(heard_of(state))
            if _is_drawn(state):
                drawn = drawn_of(state)
                incomplete += drawn is None
                found.drawn.extend([] if drawn is None else [drawn])
        return found._replace(
            decisions=count,
            incomplete=incomplete,
            through=through,
            ground=ground,
            heard=tuple(heard),
        )

    def labels(self, *, namespace: tuple[str, ...] = (), after: int = 0) -> list[Told]:
        """Return what became known of the claims that decisions rested on."""
        return self.log(namespace=namespace, after=after).labels

    def _judged(self, namespace: tuple[str, ...], after: int) -> Iterator[tuple[int, Deciding]]:
        """Return the decisions that have a case, and whose words were not forgotten."""
        with self._store.read() as reader:
            for row in opened_in(reader, namespace, after):
                state = loaded(reader, row.decision_id)
                is_whole = len(state.words.premises) == len(state.opened.premises)
                if state.opened.case is not None and is_whole:
                    yield row.number, state


def labels_of(number: int, state: Deciding) -> list[Told]:
    """Return the labels of one decision, whose first record is *number*.

    What a violated premise is the foundation of was violated with it, whatever its own
    claim was like.  That is all that is learned of a claim: what comes from below is
    added to it in each decision.
    """
    checked, told = _checked(state), _told(state)
    violated = {place for place, so in _known(state, checked, told).items() if so}
    by_audit = 1.0 / state.opened.audit if state.opened.audit > 0.0 else 0.0
    found = []
    for place, premise in enumerate(state.case.premises):
        of_check, truth = checked.get(place), told.get(premise.name)
        weight = 1.0
        source: Source = "checked"
        if premise.features is None or violated.intersection(premise.rests_on):
            continue
        if of_check is not None and of_check.is_audit and not state.opened.is_audited:
            # An approval had it checked, and nobody knows how likely that was.
            of_check = None
        if of_check is not None:
            is_violated = of_check.is_violated if truth is None else truth.is_violated
            if of_check.is_audit:
                weight, source = by_audit, "audited"
        elif truth is not None and not (by_audit and _is_checkable(state.case, place)):
            # Where an audit draws the sample, what was told besides would count twice.
            is_violated, weight, source = truth.is_violated, truth.weight, "told"
        else:
            continue
        features, kind, p = premise.features, premise.kind, premise.p
        found.append(Told(number, features, kind, p, is_violated, weight, source))
    return found


def _known(
    state: Deciding, checked: Mapping[int, "_Shown"], told: Mapping[str, "_Truth"]
) -> dict[int, bool]:
    """Return, by premise, whether it was violated: as was told, or else as a check found."""
    names = [premise.name for premise in state.case.premises]
    return {place: one.is_violated for place, one in checked.items()} | {
        place: told[name].is_violated for place, name in enumerate(names) if name in told
    }


def answers_of(state: Deciding) -> list[Answer]:
    """Return what checks said of premises whose truth was told.

    An answer that is there only because of an audit stands for as many as a label is.
    """
    told, names = _told(state), [premise.name for premise in state.case.premises]
    drawn = 1.0 / state.opened.audit if state.opened.is_audited else 1.0
    return [
        Answer(
            name,
            is_refuted,
            truth.is_violated,
            truth.weight * (drawn if is_audit else 1.0),
            f"{state.id}/{names[place]}",
        )
        for name, place, is_refuted, is_audit in _answered(state)
        if (truth := told.get(names[place])) is not None
    ]


def heard_of(state: Deciding) -> list[Heard]:
    """Return what checks said of claims of which nobody told the truth.

    Of what was not remembered, or not by somebody trusted, it is not known how likely
    it was violated.
    """
    told, said = _told(state), dict[int, list[tuple[str, bool]]]()
    for name, place, is_refuted, _ in _answered(state):
        premise = state.case.premises[place]
        if premise.features is not None and premise.name not in told:
            said.setdefault(place, []).append((name, is_refuted))
    before = () if state.opened.judgement is None else state.opened.judgement.before
    return [Heard(before[place], tuple(own)) for place, own in said.items()]


def drawn_of(state: Deciding) -> Drawn | None:
    """Return a decision as an instance; None if an answer or the truth is missing.

    A check whose source has answered under another name would have answered the
    same.  A premise of which nothing became known counts as violated, as long
    as something became known of another.
    """
    answers = {evidence.check: evidence for evidence in state.evidence}
    for check in state.case.checks:
        same = [
            answers[one.name]
            for one in state.case.checks
            if one.name in answers and (one.group, one.premises) == (check.group, check.premises)
        ]
        if check.name not in answers and not same:
            return None
        answers.setdefault(check.name, Evidence(check=check.name, outcomes=same[0].outcomes))
    checked, told = _checked(state), _told(state)
    so, names = _known(state, checked, told), [premise.name for premise in state.case.premises]
    if names and not so:
        return None
    # Without a check there was nothing to draw: whoever told the truth did.
    by_hand = max((truth.weight for truth in told.values()), default=1.0)
    weight = 1.0 / state.opened.audit if state.case.checks else by_hand
    return Drawn(
        Instance(
            case=state.case,
            answers=answers,
            is_harmful=any(so.get(place, True) for place in range(len(names))),
            weight=weight,
            key=state.opened.key,
        ),
        is_told=any(name in told for name in names),
        ground=state.opened.ground,
    )


def _is_drawn(state: Deciding) -> bool:
    """Return whether a decision is a fair sample, with all that its checks would have said.

    One that rests on nothing critical can't harm, and would only make others look better;
    so would one that was refused what its plan allowed.
    """
    is_fair = state.opened.is_audited or not state.case.checks
    return is_fair and bool(state.case.premises) and not _is_refused(state)


def _is_refused(state: Deciding) -> bool:
    """Return whether an action was given no permit though nothing was found against it.

    Its key was granted before, or its budget was spent.
    """
    judged, is_over = state.judgement, state.check() is None
    is_fine = judged is not None and judged.verdict == Verdict.PROCEED
    return is_over and is_fine and state.opened.mode == "enforce" and not state.is_granted


def harm_of(state: Deciding) -> bool | None:
    """Return whether an action that its plan let go ahead rested on something violated.

    None if the plan let it not, or that is not known.  It is if a critical premise
    was violated, and is not once all of them are known to have held: because that
    was told, or an audit's checks are taken for it.
    """
    if state.opened.case is None or not _went_ahead(state) or _is_refused(state):
        return None
    names = [premise.name for premise in state.case.premises]
    so: dict[str, bool] = {}
    if state.opened.is_audited and state.check() is None:
        so = {names[place]: one.is_violated for place, one in _checked(state).items()}
    so |= {name: one.is_violated for name, one in _told(state).items() if name in names}
    if any(so.values()):
        return True
    return False if names and so.keys() >= set(names) else None


def _went_ahead(state: Deciding) -> bool:
    """Return whether the plan by itself, without audit or approval, ended in PROCEED."""
    plans = (state.opened.judgement, *(observed.judgement for observed in state.observed))
    ended = next((plan for plan in plans if plan is not None and plan.check is None), None)
    return ended is not None and ended.verdict == Verdict.PROCEED


def _checked(state: Deciding) -> dict[int, _Shown]:
    """Return, by premise, what the first check that told anything found."""
    found: dict[int, _Shown] = {}
    for _, place, is_refuted, is_audit in _answered(state):
        found.setdefault(place, _Shown(is_refuted, is_audit))
    return found


class _Answered(NamedTuple):
    """What a check told of one premise; *is_audit*: the plan by itself would not have asked."""

    check: str
    place: int
    is_refuted: bool
    is_audit: bool


def _answered(state: Deciding) -> Iterator[_Answered]:
    """Yield all that checks told, in order."""
    checks = {check.name: check for check in state.case.checks}
    planned, is_audit = state.opened.judgement, False
    for observed in state.observed:
        # What follows an audit's check would not have been asked without it.
        is_audit = is_audit or planned is None or planned.check != observed.evidence.check
        name, outcomes = observed.evidence.check, observed.evidence.outcomes
        for place, outcome in zip(checks[name].premises, outcomes, strict=True):
            if outcome != NOTHING:
                yield _Answered(name, place, outcome == "refuted", is_audit)
        planned = observed.judgement


class _Truth(NamedTuple):
    """What somebody told of a premise, and one over the probability of looking into it."""

    is_violated: bool
    weight: float


def _told(state: Deciding) -> dict[str, _Truth]:
    """Return the truth by premise, as it was told last."""
    return {
        name: _Truth(so, one.weight) for one in state.labelled for name, so in one.violated.items()
    }


def _is_checkable(case: Case, place: int) -> bool:
    return any(place in check.premises for check in case.checks)


def check_weight(weight: Any) -> float:
    """Return what a label counts for; raises InvalidInput if it can't."""
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if is_number and 1.0 <= weight <= LABEL_WEIGHT_MAX:
        return float(weight)
    raise InvalidInput(
        f"a weight is one over a probability, from 1 to {LABEL_WEIGHT_MAX:g}, got {shown(weight)}"
    )
