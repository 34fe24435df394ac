"""The claims of a memory, as the gate asks for them, and which of them sessions have read."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from amv.errors import ItemNotFound
from amv.guard.ports import GuardWriter, Remembered, Shown
from amv.guard.prior import TRUSTED_FROM
from amv.guard.suggest import Seen
from amv.memory.checked import Checked
from amv.memory.item import Row, Status
from amv.memory.service import MemoryService

SESSIONS_MAX = 256
"""Of how many sessions the gate knows what they have read lately."""

SEEN_MAX = 32
"""How many items it knows of each, the newest ones."""


class RecentReads:
    """Which items sessions have read lately; bounded, and known to this process alone."""

    def __init__(self) -> None:
        # By namespace and session, the one that read last at the end: ids, the newest at the end.
        self._read: OrderedDict[tuple[tuple[str, ...], str], OrderedDict[str, None]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, namespace: tuple[str, ...], session: str, item_ids: Sequence[str]) -> None:
        """Note that a session has read items; only the last ones are known for a while."""
        with self._lock:
            known = self._read.setdefault((namespace, session), OrderedDict())
            self._read.move_to_end((namespace, session))
            # The best hit counts as read last.
            for item_id in reversed(item_ids):
                known[item_id] = None
                known.move_to_end(item_id)
            _trim(known, SEEN_MAX)
            _trim(self._read, SESSIONS_MAX)

    def of(self, namespace: tuple[str, ...], session: str) -> list[str]:
        """Return what a session has read, and what was read outside of any, the newest first."""
        with self._lock:
            keys = dict.fromkeys([(namespace, session), (namespace, "")])
            ids = [one for key in keys for one in reversed(self._read.get(key, OrderedDict()))]
        return list(dict.fromkeys(ids))


class MemoryClaims:
    """The claims of a memory, as the gate asks for them, and what sessions have read of it."""

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory
        self.reads = RecentReads()

    def find(self, namespace: tuple[str, ...], subject: str, attribute: str) -> Remembered | None:
        """Return the claim that is believed now, or None."""
        return _remembered(self._memory.claim_row(None, namespace, subject, attribute))

    def find_in(
        self, tx: GuardWriter, namespace: tuple[str, ...], subject: str, attribute: str
    ) -> Remembered | None:
        """Return the same, as a transaction finds it."""
        return _remembered(self._memory.claim_row(tx.memory, namespace, subject, attribute))

    @contextmanager
    def telling(
        self, namespace: tuple[str, ...], shown: Sequence[Shown]
    ) -> Iterator[Callable[[GuardWriter], list[str]]]:
        """Prepare to tell the memory what checks showed, within a decision's transaction."""
        # The policy trusts its verifiers, though no more than it must, so that whoever else is
        # trusted can tell the memory what is newer.
        checks = [Checked(o.item_id, o.holds, o.value, o.by, TRUSTED_FROM) for o in shown]
        with self._memory.telling(checks, namespace=namespace) as tell:
            yield lambda tx: tell(tx.memory)

    def used(self, namespace: tuple[str, ...], item_ids: Sequence[str]) -> None:
        """Note that an action rested on items."""
        self._memory.reinforce(item_ids, contributed=True, namespace=namespace)

    def seen(self, namespace: tuple[str, ...], session: str) -> list[Seen]:
        """Return the claims a session has read that still hold, the last one first.

        What was read outside of any session belongs to each.  What an untrusted
        source says is left out.
        """
        found = []
        for item_id in self.reads.of(namespace, session):
            try:
                item = self._memory.get(item_id, namespace=namespace)
            except ItemNotFound:
                # Forgotten since.
                continue
            is_live = item.status is Status.LIVE and item.source_trust >= TRUSTED_FROM
            if item.claim is not None and is_live:
                claim = item.claim
                found.append(Seen(item.id, claim.subject, claim.attribute, claim.value))
        return found


def _remembered(row: Row | None) -> Remembered | None:
    if row is None or row.claim is None:
        return None
    return Remembered(
        item_id=row.id,
        value=row.claim.value,
        since_s=row.valid_from_s if row.last_verified_s is None else row.last_verified_s,
        trust=row.source_trust,
        is_contradicted=row.contradicted,
        is_trusted=row.source_trust >= TRUSTED_FROM,
    )


def _trim(known: OrderedDict[Any, Any], most: int) -> None:
    while len(known) > most:
        known.popitem(last=False)
