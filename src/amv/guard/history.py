"""Looking back: what was decided, why, and whether it would be decided so again."""

import math

from amv.checks import shown
from amv.errors import AmvError, InvalidInput, ItemNotFound
from amv.guard import record
from amv.guard.actions import check_count, check_named
from amv.guard.beside import faults_beside
from amv.guard.decision import Decision, Ended, Observed, Opened
from amv.guard.judge import Case, Evidence, judge
from amv.guard.plan import Verdict
from amv.guard.ports import GuardReader, GuardStore, LedgerRow, RecordRow, State
from amv.guard.state import Deciding, decision_of, is_told, loaded

LISTED_MAX = 1000

VERDICTS = tuple(verdict.value for verdict in Verdict)

UNSETTLED = (State.RESERVED, State.DISPATCHED, State.UNKNOWN)


class History:
    """The reading half of the gate."""

    _store: GuardStore

    def get(self, decision_id: str) -> Decision:
        """Return a decision as it stands, without its permit; raises ItemNotFound."""
        with self._store.read() as reader:
            return decision_of(loaded(reader, decision_id))

    def decisions(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        namespace: tuple[str, ...] = (),
        session: str | None = None,
        verdict: str | None = None,
    ) -> list[tuple[int, Decision]]:
        """Return decisions, oldest first, with the number of the record that opened each.

        Only those whose namespace begins with *namespace*, and which are of that
        *session* and have that *verdict*, if these are named.  Raises
        InvalidInput for a verdict that is none.
        """
        if verdict is not None and verdict not in VERDICTS:
            known = ", ".join(VERDICTS)
            raise InvalidInput(f"verdict must be one of {known}, got {shown(verdict)}")
        check_count(after, "the number of a record")
        limit, found = min(check_count(limit, "limit"), LISTED_MAX), list[tuple[int, Decision]]()
        is_any = session is None and verdict is None
        with self._store.read() as reader:
            # What is asked of a decision besides its namespace is known once it is loaded.
            while len(found) < limit and (
                rows := opened_in(reader, namespace, after, limit if is_any else LISTED_MAX)
            ):
                after = rows[-1].number
                for row in rows:
                    state = loaded(reader, row.decision_id)
                    decision = decision_of(state)
                    is_of_session = session in (None, state.words.session)
                    if is_of_session and verdict in (None, decision.verdict):
                        found.append((row.number, decision))
        return found[:limit]

    def unsettled(self) -> list[LedgerRow]:
        """Return the executions of which it is not known what became, longest ago first.

        UNKNOWN are those of which nobody could tell, RESERVED and DISPATCHED
        those that are under way or were when a process ended.
        """
        with self._store.read() as reader:
            rows = [row for state in UNSETTLED for row in reader.in_state(state, math.inf)]
        return sorted(rows, key=lambda row: (row.changed_s, row.key))

    def number_of(self, decision_id: str) -> int:
        """Return the number of the record that opened a decision; raises ItemNotFound."""
        check_named(decision_id, "the id of a decision")
        with self._store.read() as reader:
            rows = reader.records(decision_id=decision_id, kind="opened", limit=1)
        if not rows:
            raise ItemNotFound(f"no decision {decision_id!r}")
        return rows[0].number

    def decided(self) -> int:
        """Return how many decisions are in the log."""
        with self._store.read() as reader:
            return len(reader.records(kind="opened"))

    def replay(self, *, last_hash: str = record.FIRST) -> list[str]:
        """Judge every recorded case again; return what differs, and what is wrong with the log.

        Words, grants and requests to a person stand beside the log; those that are
        not as it says are told, too.  Words that were forgotten are no fault.

        *last_hash* is what `last_hash` once returned; its record must still be there.
        """
        secret = self._store.secret()
        with self._store.read() as reader:
            rows = reader.records()
            found = record.faults(rows)
            beside = [] if found else faults_beside(reader, rows, secret)
        if last_hash not in (record.FIRST, *(row.hash for row in rows)):
            found.append("the record whose hash was kept is missing")
        if found:
            return found
        cases: dict[str, tuple[Case, list[Evidence]]] = {}
        for row in rows:
            try:
                if not _is_judged_so(row, cases):
                    found.append(f"record {row.number} would be judged otherwise now")
            except (AmvError, KeyError) as error:
                found.append(f"record {row.number} can't be judged: {error}")
        return found + beside

    def last_hash(self) -> str:
        """Return the hash of the newest record.

        Records cut off the end leave a log that is whole in itself.  Whoever
        keeps this hash elsewhere finds that out, by `replay(last_hash=...)`.
        """
        with self._store.read() as reader:
            last = reader.last_record()
        return record.FIRST if last is None else last.hash

    def explain(self, decision_id: str) -> str:
        """Return a decision in plain words, from its first record to its last."""
        with self._store.read() as reader:
            state = loaded(reader, decision_id)
            rows = reader.records(decision_id=decision_id)
        ended = [
            _became(row.kind, record.body_of(row, Ended))
            for row in rows
            if row.kind in ("moved", "asked")
        ]
        return "\n".join(_told(state, ended))

    def is_of(self, decision_id: str, principal: str) -> bool:
        """Return whether a decision was asked for by a principal; raises ItemNotFound.

        That is known also once its words are forgotten.
        """
        secret = self._store.secret()
        check_named(decision_id, "the id of a decision")
        with self._store.read() as reader:
            rows = reader.records(decision_id=decision_id, kind="opened", limit=1)
        if not rows:
            raise ItemNotFound(f"no decision {decision_id!r}")
        owner = record.body_of(rows[0], Opened).owner
        return owner == record.keyed_hash(secret, principal.encode())


def opened_in(
    reader: GuardReader, namespace: tuple[str, ...], after: int, limit: int | None = None
) -> list[RecordRow]:
    """Return records that opened a decision in a namespace or below it; in any, if it is ()."""
    if namespace:
        return reader.opened(namespace, after=after, limit=limit)
    return reader.records(after=after, kind="opened", limit=limit)


def _is_judged_so(row: RecordRow, cases: dict[str, tuple[Case, list[Evidence]]]) -> bool:
    """Return whether a record's judgement comes out again; *cases* holds those opened so far."""
    if row.kind == "opened":
        opened = record.body_of(row, Opened)
        if opened.case is None:
            return opened.judgement is None
        cases[row.decision_id] = (opened.case, [])
        return judge(opened.case, ()) == opened.judgement
    if row.kind == "observed":
        observed = record.body_of(row, Observed)
        case, evidence = cases[row.decision_id]
        evidence.append(observed.evidence)
        return judge(case, evidence) == observed.judgement
    if row.kind in ("moved", "asked"):
        # Nothing is judged by it, but it must say something.
        record.body_of(row, Ended)
    return True


def _became(kind: str, ended: Ended) -> str:
    if kind == "moved":
        return ended.what
    by = f" by {ended.by}" if ended.by else ""
    key = f", with the key {ended.by_key}" if ended.by_key else ""
    return f"a request to a person is {ended.what}{by}{key}"


def _told(state: Deciding, ended: list[str]) -> list[str]:
    decision = decision_of(state)
    lines = [f"{decision.verdict}: {decision.call}", f"  {decision.reason}"]
    if not is_told(state):
        lines.append("  The words of this decision were forgotten; its numbers are kept.")
    if state.opened.is_audited:
        lines.append(f"  drawn for an audit (probability {state.opened.audit:g})")
    for premise in decision.premises:
        known = "not remembered" if premise.remembered is None else f"{premise.remembered!r}"
        weight = "" if premise.is_critical else ", not critical"
        lines.append(
            f"  {premise.name}: {premise.subject}/{premise.attribute} is {known}{weight}; "
            f"violated with probability {premise.before:.3g}, after checks {premise.after:.3g}; "
            f"a wrong action would lose {premise.theta:g}"
        )
    for check in decision.checks:
        said = ", ".join(check.found.values()) if check.ended == "answered" else check.ended
        lines.append(
            f"  check {check.verifier}: {said}" + (check.problem and f" ({check.problem})")
        )
    for hint in decision.suggestions:
        need = f", require: {{argument: {hint.argument}}}" if hint.is_required else ""
        lines.append(
            f"  suggestion ({hint.match} match): {hint.argument} may rest on "
            f"{{claim: {hint.claim!r}{need}}}; it weighs nothing until the policy says so"
        )
    lines += [f"  then {what}" for what in ended]
    for labelled in state.labelled:
        by = f", says {labelled.by}" if labelled.by else ""
        lines += [
            f"  in truth, {name} {'was violated' if so else 'held'}{by}"
            for name, so in labelled.violated.items()
        ]
    return lines
