"""What stands beside the log, compared with it: words, grants, requests to a person.

These change, or can be forgotten, so they are no records.  But each record says
by a hash what was written beside it at the time; the last one of each holds.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from amv.errors import StoreError
from amv.guard import record
from amv.guard.decision import Ended, Observed, Opened
from amv.guard.ports import ApprovalRow, GuardReader, LedgerRow, RecordRow, State
from amv.guard.state import text_of


class _Noted(NamedTuple):
    """What the log says last: of words by decision, of grants by key, of requests by id.

    *moved* is how far the calls of decisions have come of which the record has no
    more, as those of old do not.
    """

    words: dict[str, str]
    grants: dict[str, str]
    requests: dict[str, str]
    moved: dict[str, str]


def faults_beside(reader: GuardReader, rows: Sequence[RecordRow], secret: bytes) -> list[str]:
    """Return what is not as the log, *rows*, says; words that were forgotten are no fault."""
    try:
        noted = _noted(rows)
    except StoreError:
        # A record is damaged, which whoever judges it tells.
        return []
    return [
        *_words(reader, noted, secret),
        *_grants(reader, noted),
        *_requests(reader, noted),
    ]


def _noted(rows: Sequence[RecordRow]) -> _Noted:
    noted = _Noted({}, {}, {}, {})
    for row in rows:
        if row.kind in ("opened", "observed"):
            kind: type[Opened | Observed] = Opened if row.kind == "opened" else Observed
            words = record.body_of(row, kind).words
            if words:
                noted.words[row.decision_id] = words
        elif row.kind in ("moved", "asked"):
            ended = record.body_of(row, Ended)
            named = noted.grants if row.kind == "moved" else noted.requests
            if ended.name:
                named[ended.name] = ended.row
            else:
                noted.moved[row.decision_id] = ended.what
    return noted


def _words(reader: GuardReader, noted: _Noted, secret: bytes) -> Iterable[str]:
    for decision_id, written in noted.words.items():
        text = reader.text(decision_id)
        if text is None:
            continue
        try:
            is_whole = text == text_of(decision_id, record.words_of(text))._replace(body=text.body)
        except StoreError:
            is_whole = False
        if not is_whole or record.keyed_hash(secret, text.body) != written:
            yield f"the words of decision {decision_id!r} are not those that were written"


def _grants(reader: GuardReader, noted: _Noted) -> Iterable[str]:
    rows: list[LedgerRow] = []
    for state in State:
        rows += reader.in_state(state, float("inf"))
    for row in rows:
        written = noted.grants.get(row.key)
        if written is None and noted.moved.get(row.decision_id) == row.state:
            continue
        if written != record.hash_of(row):
            yield (
                f"the ledger says of decision {row.decision_id!r} what the log does not: "
                f"{row.state}"
            )
    for key in noted.grants.keys() - {row.key for row in rows}:
        yield f"the ledger has lost what was granted under the key {key!r}"


def _requests(reader: GuardReader, noted: _Noted) -> Iterable[str]:
    rows: list[ApprovalRow] = reader.approvals()
    for row in rows:
        if noted.requests.get(row.approval_id) != record.hash_of(row):
            yield f"the log does not say of request {row.approval_id!r} that it is {row.state}"
    for approval_id in noted.requests.keys() - {row.approval_id for row in rows}:
        yield f"request {approval_id!r} was lost"
