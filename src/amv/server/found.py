"""What a search found, as JSON of which most is kept from one search to the next.

An item is told in some twenty fields.  All but the last four stay as they are
until someone changes the item, so that they are written once, and kept with
the card.
"""

import msgspec

from amv.memory.item import Namespace
from amv.memory.query import Found, Match
from amv.memory.tiers import Tier
from amv.server import wire


class FoundHit(wire.Result):
    """A `wire.HitOut` whose item is JSON already."""

    item: msgspec.Raw
    similarity: float
    lexical: float
    rank: float


class FoundOut(wire.Result):
    """A `wire.SearchOut` of such hits."""

    hits: list[FoundHit]
    scanned: wire.ScannedOut
    complete: bool
    reason: str
    cold_probed: bool


def found_out(found: Found) -> FoundOut:
    """Return hits and counts."""
    name, out = found
    # All values at once: to find the fewest digits of a number takes Python ten times as long.
    values = wire.encoded([match.value for match in out.matches])[1:-1].split(b",")
    return FoundOut(
        hits=[
            FoundHit(
                item=msgspec.Raw(_item_json(match, value, name)),
                similarity=match.similarity,
                lexical=match.lexical,
                rank=match.rank,
            )
            for match, value in zip(out.matches, values, strict=False)
        ],
        scanned=wire.ScannedOut(
            hot=out.scanned.hot,
            warm=out.scanned.warm,
            cold=out.scanned.cold,
            postings=out.scanned.postings,
            total=out.scanned.total,
        ),
        complete=not out.reason,
        reason=out.reason,
        cold_probed=out.cold_probed,
    )


def _item_json(match: Match, value: bytes, namespace: Namespace) -> bytes:
    """Return the item found as the JSON that `wire.item_out` becomes.

    Tier, value and counts stand last.  What comes before them is kept with the card.
    """
    card = match.card
    if not card.rendered:
        whole = wire.encoded(wire.item_out(card.item(namespace, match.value)))
        card.rendered = whole[: whole.rindex(b',"tier":')]
    state = card.state
    return b'%b,"tier":"%b","value":%b,"exposed_count":%d,"contributed_count":%d}' % (
        card.rendered,
        _TIER_NAMES[state.tier],
        value,
        state.exposed_count,
        state.contributed_count,
    )


_TIER_NAMES = {tier: tier.name.encode() for tier in Tier}
