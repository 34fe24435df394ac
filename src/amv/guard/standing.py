"""The certificate that decisions are screened by: adopted, watched, withdrawn.

A certificate that is adopted is written into the log.  From then on its
threshold is the screen of every action, but for those whose rule sets a
stricter one itself, and it counts for decisions made under the policy and the
calibration that it was made under.  Under others it is stale: then it only
makes the policy's screen stricter.

Each action that went ahead under it and of which the truth becomes known, by an
audit or because somebody tells it, feeds the alarm in the same transaction.
Once that is raised the certificate is withdrawn: until somebody certifies anew,
or drops it, nothing goes ahead that is not below the strictest threshold there
is, which takes a check for almost anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import msgspec

from amv.checks import shown
from amv.errors import Conflict, InvalidInput, PermitRefused
from amv.guard import record
from amv.guard.actions import check_who
from amv.guard.calibration import Calibration
from amv.guard.certificate import (
    THRESHOLDS,
    Certificate,
    DriftAlarm,
    certificate_of,
    check_bounds,
)
from amv.guard.decision import Ground, Labelled, Opened, Screen
from amv.guard.judge import Case
from amv.guard.labels import Labels, check_weight, harm_of
from amv.guard.loss import check_probability
from amv.guard.policy import Policy
from amv.guard.ports import GuardReader, GuardWriter, LedgerRow
from amv.guard.state import Deciding, loaded

CERTIFICATES = "certificate"
"""What stands in the records of certificates where others name a decision."""

STRICTEST = THRESHOLDS[0]
"""The screen while a certificate is withdrawn."""


class Rescreened(Conflict):
    """What is certified has changed since a decision was begun; nothing of it was written."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and what became of it since: the body of each of its records.

    It counts for decisions made on *ground*.  *executed* of those that went ahead
    became known, *harmed* of them rested on something violated, and *evidence* is
    what the alarm has by now.  *about* is the decision that became known with this
    record, *is_harmful* what.
    """

    id: str
    since_s: float
    by: str
    certificate: Certificate
    ground: Ground
    executed: int = 0
    harmed: int = 0
    evidence: float = 0.0
    ended: Literal["", "withdrawn", "dropped"] = ""
    ended_s: float = 0.0
    about: str = ""
    is_harmful: bool = False

    def screen(self, ground: Ground) -> Screen:
        """Return what it is to a decision made on a ground."""
        assert self.certificate.threshold is not None
        return Screen(
            id=self.id,
            state="withdrawn" if self.ended else "in_force" if ground == self.ground else "stale",
            harm_max=self.certificate.threshold,
            epsilon=self.certificate.epsilon,
        )


def current(reader: GuardReader) -> Standing | None:
    """Return the certificate that was adopted last, unless it was dropped."""
    row = reader.last_record(CERTIFICATES)
    standing = None if row is None else record.body_of(row, Standing)
    return None if standing is None or standing.ended == "dropped" else standing


def screened(case: Case, screen: Screen | None) -> Case:
    """Return a case with the screen that holds for it."""
    if screen is None:
        return case
    if screen.state == "in_force":
        own = 1.0 if case.harm_own is None else case.harm_own
        return msgspec.structs.replace(case, harm_max=min(own, screen.harm_max))
    most = STRICTEST if screen.state == "withdrawn" else screen.harm_max
    return msgspec.structs.replace(case, harm_max=min(case.harm_max, screen.harm_max, most))


def is_screened_so(reader: GuardReader, opened: Opened) -> bool:
    """Return whether a decision that was opened would still be screened as it was."""
    standing = current(reader)
    return opened.screen == (None if standing is None else standing.screen(opened.ground))


def check_redeemed(reader: GuardReader, row: LedgerRow) -> None:
    """Raise PermitRefused for a permit that rests on a certificate which no longer counts."""
    if row.approval_id or reader.last_record(CERTIFICATES) is None:
        return
    opened = record.body_of(reader.records(decision_id=row.decision_id, limit=1)[0], Opened)
    is_certified = opened.screen is not None and opened.screen.state == "in_force"
    if is_certified and not is_screened_so(reader, opened):
        raise PermitRefused(
            "the certificate that the permit rests on was withdrawn or replaced; decide about the "
            "action again"
        )


def watch(tx: GuardWriter, before: Deciding, after: Deciding, now_s: float) -> None:
    """Note for the alarm what became known of an action that went ahead as certified."""
    standing, screen = current(tx), after.opened.screen
    if standing is None or standing.ended or screen != standing.screen(after.opened.ground):
        return
    known, is_harmful = harm_of(before), harm_of(after)
    if is_harmful is None or known == is_harmful or screen.state != "in_force":
        return
    noted = msgspec.structs.replace(standing, about=after.id, is_harmful=is_harmful)
    if known is None:
        alarm = DriftAlarm(standing.certificate.epsilon, evidence=standing.evidence)
        is_over = alarm.note(is_harmful)
        counts = standing.executed + 1, standing.harmed + is_harmful
    else:
        seen = {**_seen(tx, standing), after.id: is_harmful}
        alarm = DriftAlarm(standing.certificate.epsilon)
        is_over = any([alarm.note(one) for one in seen.values()])
        counts = len(seen), sum(seen.values())
    noted = msgspec.structs.replace(
        noted, executed=counts[0], harmed=counts[1], evidence=alarm.evidence
    )
    record.append(tx, CERTIFICATES, "watched", noted)
    if is_over:
        _end(tx, noted, "withdrawn", now_s)


def _seen(reader: GuardReader, standing: Standing) -> dict[str, bool]:
    """Return what became known of which decision, in the order in which that was first so."""
    rows = reader.records(decision_id=CERTIFICATES, kind="watched")
    bodies = [record.body_of(row, Standing) for row in rows]
    return {one.about: one.is_harmful for one in bodies if one.id == standing.id}


def _end(
    tx: GuardWriter, standing: Standing, how: Literal["withdrawn", "dropped"], now_s: float
) -> None:
    ended = msgspec.structs.replace(standing, ended=how, ended_s=now_s, about="", is_harmful=False)
    record.append(tx, CERTIFICATES, how, ended)


class Certifying(Labels):
    """The half of the gate that vouches: it certifies, is told the truth, and withdraws."""

    _policy: Policy
    _calibration: Calibration
    _new_id: Callable[[], str]
    _looked: tuple[Standing | None] | None = None

    def _screen(self, *, is_fresh: bool) -> Screen | None:
        """Return what the certificate is to decisions made now; None without one.

        What was looked up before is taken, unless *is_fresh*: the transaction that
        writes a decision down finds out if it has changed since (`Rescreened`).
        """
        looked = None if is_fresh else self._looked
        if looked is None:
            looked = self._looked = (self.certificate(),)
        return None if looked[0] is None else looked[0].screen(self.ground)

    def _forget_screen(self) -> None:
        self._looked = None

    @property
    def ground(self) -> Ground:
        """What decisions are made on now, which a certificate holds for."""
        return Ground(self._policy.rules(), self._calibration.digest())

    def certify(self, *, epsilon: float = 0.05, delta: float = 0.1, by: str = "") -> Certificate:
        """Certify by the decisions of the log, and screen by that from now on.

        At most *epsilon* of the actions that go ahead do harm, with a confidence of
        1 - *delta*, as long as actions are like those.  Counted are the decisions
        made on the ground of the last one.  If nothing can be certified, nothing
        changes; the certificate's *why* says why.  Raises InvalidInput.
        """
        sample = self.log().sample()
        found = certificate_of(sample.instances, epsilon=epsilon, delta=delta)
        if found.threshold is not None:
            self.adopt(found, sample.ground, by=by)
        return found

    def adopt(self, certificate: Certificate, ground: Ground, *, by: str = "") -> Standing:
        """Screen by a certificate from now on, in place of any other.

        Raises InvalidInput for one that certifies nothing, or can't be one.
        """
        if not isinstance(certificate, Certificate):
            raise InvalidInput(f"need a certificate, got {shown(certificate)}")
        if certificate.threshold is None:
            raise InvalidInput(f"nothing is certified: {certificate.why}")
        check_bounds(certificate.epsilon, certificate.delta)
        check_probability(certificate.threshold, "the threshold of a certificate")
        check_who(by)
        standing = Standing(
            id=self._new_id(),
            since_s=self._clock(),
            by=by,
            certificate=certificate,
            ground=ground,
        )
        self._store.write(lambda tx: record.append(tx, CERTIFICATES, "certified", standing))
        return standing

    def certificate(self) -> Standing | None:
        """Return the certificate that was adopted last and what became of it; None without one."""
        with self._store.read() as reader:
            return current(reader)

    def last_ground(self) -> Ground:
        """Return what the newest decision was made on; what this gate's would be, without one."""
        with self._store.read() as reader:
            row = reader.last_record(kind="opened")
        return self.ground if row is None else record.body_of(row, Opened).ground

    def drop_certificate(self) -> None:
        """Go back to the policy's own screen, whether the certificate was withdrawn or not.

        Raises Conflict where there is no certificate.
        """
        now_s = self._clock()

        def work(tx: GuardWriter) -> None:
            standing = current(tx)
            if standing is None:
                raise Conflict("no certificate was adopted, so there is none to drop")
            _end(tx, standing, "dropped", now_s)

        self._store.write(work)

    def label(
        self,
        decision_id: str,
        violated: Mapping[str, bool],
        *,
        weight: float = 1.0,
        by: str = "",
    ) -> None:
        """Note what was true of the premises of a decision: whether each was violated.

        *weight* is one over the probability with which this decision was chosen
        to be looked into.  What is said later of a premise holds.  Raises
        ItemNotFound, InvalidInput for a premise that the decision does not have.
        """
        if not isinstance(violated, Mapping) or not violated:
            raise InvalidInput(f"need what was true, by premise, got {shown(violated)}")
        for name, value in violated.items():
            if not isinstance(value, bool):
                raise InvalidInput(f"{name!r} was violated or not: need a bool, got {shown(value)}")
        check_who(by)
        body = Labelled(
            at_s=self._clock(), violated=dict(violated), weight=check_weight(weight), by=by
        )

        def work(tx: GuardWriter) -> None:
            state = loaded(tx, decision_id)
            for name in violated:
                if name not in state.opened.premises:
                    there = ", ".join(state.opened.premises) or "none"
                    raise InvalidInput(
                        f"decision {decision_id!r} has no premise {shown(name)}; there is {there}"
                    )
            record.append(tx, decision_id, "labelled", body)
            watch(tx, state, replace(state, labelled=(*state.labelled, body)), body.at_s)

        self._store.write(work)
