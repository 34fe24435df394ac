"""Records: what was decided, append-only, each chained to the one before by its hash.

A record holds numbers, names of checks and keyed hashes of claims, and no
words: these stand beside it and can be forgotten, while the chain and every
number that a replay needs stay.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec

from amv.errors import StoreError
from amv.guard.decision import Words
from amv.guard.ports import GuardWriter, RecordRow, TextRow

B = TypeVar("B")

FIRST = "0" * 64
"""What the first record is chained to."""


def keyed_hash(secret: bytes, text: bytes) -> str:
    """Return what stands for words in a record; without the store's secret it tells nothing."""
    return hmac.new(secret, text, sha256).hexdigest()


def chained(number: int, before: str, decision_id: str, kind: str, body: bytes) -> str:
    """Return the hash of a record."""
    head = msgspec.json.encode((number, before, decision_id, kind))
    return sha256(head + b"\n" + body).hexdigest()


def hash_of(row: tuple[object, ...]) -> str:
    """Return the hash of a row that stands beside the log, for the record of its change."""
    # A store gives back every number as a float.
    plain = [float(one) if isinstance(one, int) else one for one in row]
    return sha256(msgspec.json.encode(plain)).hexdigest()


def append(tx: GuardWriter, decision_id: str, kind: str, body: object) -> RecordRow:
    """Append a record of a decision."""
    last = tx.last_record()
    number, before = (1, FIRST) if last is None else (last.number + 1, last.hash)
    data = msgspec.json.encode(body)
    row = RecordRow(
        number, decision_id, kind, before, chained(number, before, decision_id, kind, data), data
    )
    tx.append(row)
    return row


def body_of(row: RecordRow, kind: type[B]) -> B:
    """Return what a record says, as an object of *kind*."""
    try:
        return msgspec.json.decode(row.body, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreError(f"record {row.number} is damaged: {error}") from error


def words_of(row: TextRow) -> Words:
    """Return the words of a decision."""
    try:
        return msgspec.json.decode(row.body, type=Words)
    except msgspec.MsgspecError as error:
        raise StoreError(f"the words of {row.decision_id!r} are damaged: {error}") from error


def faults(rows: Sequence[RecordRow]) -> list[str]:
    """Return what is wrong with a whole log, oldest first; empty if it is as it was written.

    A record that was changed, dropped from within, or put elsewhere is found.
    What was cut off the end is found by whoever kept the last hash.
    """
    found, before = [], FIRST
    for number, row in enumerate(rows, start=1):
        if row.number != number:
            found.append(f"record {number} is missing; the next one is {row.number}")
            return found
        if row.before != before:
            found.append(f"record {number} does not follow the record before it")
        if row.hash != chained(row.number, row.before, row.decision_id, row.kind, row.body):
            found.append(f"record {number} is not what was written: its hash differs")
        before = row.hash
    return found
