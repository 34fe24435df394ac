"""An item's life: added, superseded by a newer claim, corrected, forgotten.

Each function here runs inside one transaction, on one `Edit`.  What leaves the
believed state leaves the indexes in the same transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from amv.errors import Conflict, InvalidInput
from amv.memory import contradiction, doubts, lexical, repeats
from amv.memory.context import IN_DOUBT, date_of, quoted
from amv.memory.edit import Edit, indexed_text
from amv.memory.given import NewItem, same_or_conflict
from amv.memory.item import Protection, Row, State, Status, utc
from amv.memory.ports import PASSAGES_MAX, Event, HistoryRow, Reader, Vectors
from amv.memory.tiers import Tier
from amv.memory.value import EventKind, ValueModel, apply_event, exposed, value_key

REPEATS_MAX = 64
"""How many items of one content are looked at for one that a new item repeats."""

QUOTED_MAX = 1000
"""How many entries a block may have that is looked up when it is written back."""


def new_row(edit: Edit, item: NewItem, state: State) -> Row:
    """Return the row of a new item, in the state it begins with."""
    return Row(
        key=0,
        ns_id=edit.row.ns_id,
        id=item.id,
        content=item.content,
        context=item.context,
        length=item.length,
        created_s=item.created_s,
        valid_from_s=item.begins_s,
        valid_until_s=item.valid_until_s,
        expires_s=item.expires_s,
        source=item.source,
        source_trust=item.source_trust,
        claim=item.claim,
        status=Status.LIVE,
        contradicted=False,
        pinned=item.pinned,
        metadata=item.metadata,
        supersedes=None,
        superseded_by=None,
        last_verified_s=None,
        state=state,
    )


def counted(row: Row) -> tuple[Row, Mapping[str, int]]:
    """Return a row with the number of terms of its content and context, and those terms."""
    terms, length = lexical.term_counts(indexed_text(row.content, row.context))
    return replace(row, length=length), terms


def _first_state(edit: Edit, begins_s: float, *, pinned: bool) -> State:
    """Return where a new item starts: hot while in probation, whatever its value."""
    if begins_s > edit.now_s:
        return State(tier=Tier.COLD, protection=Protection.NOT_YET_VALID, value_key=begins_s)
    key = value_key(edit.model.initial, edit.now_s, edit.model)
    if pinned:
        return State(tier=Tier.HOT, protection=Protection.PINNED, value_key=key)
    return State(tier=Tier.HOT, protection=Protection.PROBATION, value_key=key)


def add(edit: Edit, items: Sequence[NewItem]) -> list[Row]:
    """Add items in order; one that is there already, by its id, is left alone.

    One without an id of the caller's is not added where it repeats a live one (see
    `repeats`), whose row is then returned.  Texts that may contradict each other are
    flagged (see `contradiction`).

    Raises Conflict if what is there differs in a field that was given,
    InvalidInput if more items would be pinned than half of hot_max.
    """
    done: dict[int, Row] = {}
    waiting: list[tuple[int, Row, NewItem]] = []
    claimed: set[tuple[str, str]] = set()
    ids: set[str] = set()
    live: list[Row] = []
    echoes = [_echoes(item) if _may_repeat(edit, item) else [] for item in items]
    told = set(edit.tx.told(edit.row.ns_id, sorted({d for each in echoes for d in each})))
    probation_from = len(items) - edit.settings.probation_max
    released = edit.released_state(_first_state(edit, edit.now_s, pinned=False))

    def write_waiting() -> None:
        rows = [row for _, row, _ in waiting]
        vectors = [item.vectors for *_, item in waiting]
        edit.insert(rows, vectors, [item.terms for *_, item in waiting])
        done.update((place, row) for place, row, _ in waiting)
        live.extend(rows)
        waiting.clear()
        claimed.clear()

    for place, (item, echo) in enumerate(zip(items, echoes, strict=True)):
        may_repeat = not told.isdisjoint(echo)
        if item.id in ids or may_repeat or (item.claim and item.claim.key in claimed):
            write_waiting()
        present = edit.tx.rows_with_id(item.id, edit.row.ns_id) if item.id_is_given else []
        if present and present[0].is_expired(edit.now_s):
            # As absent as if a sweep had been there.
            _delete(edit, present)
        elif present:
            done[place] = same_or_conflict(edit.tx, present[0], item)
            continue
        # Where too many come after it, it is not among the newest that are in probation.
        is_released = place < probation_from and not item.pinned and item.begins_s <= edit.now_s
        state = released if is_released else _first_state(edit, item.begins_s, pinned=item.pinned)
        row = new_row(edit, item, state)
        repeated = _repeated(edit, row, item.vectors, echo[0]) if may_repeat else None
        if repeated is not None:
            done[place] = _told_again(edit, repeated)
            continue
        if item.pinned:
            check_pinned_room(edit, 1 + sum(r.pinned for _, r, _ in waiting))
        ids.add(item.id)
        told.add(echo[0] if echo else repeats.digest(item.content))
        if item.claim is None:
            waiting.append((place, row, item))
            continue
        row = settle_claim(edit, row, is_of_now=item.valid_from_s is None)
        if row.status is Status.LIVE:
            claimed.add(item.claim.key)
            waiting.append((place, row, item))
        else:
            done[place] = insert_aside(edit, row, item.vectors)
    write_waiting()
    doubts.compare(edit, live)
    doubts.settle(edit, done.values())
    edit.settle_probation()
    # Those after it may have moved or superseded one.
    changed = set(edit.change.items)
    now = edit.tx.rows([row.key for row in done.values() if row.key in changed])
    return [now.get(done[place].key, done[place]) for place in range(len(items))]


def _may_repeat(edit: Edit, item: NewItem) -> bool:
    """Return whether an item is not added where it repeats another one."""
    is_callers = item.id_is_given and not item.id_is_made
    return not (edit.settings.keep_repeats or is_callers or item.claim)


def _echoes(item: NewItem) -> list[int]:
    """Return the digests of which one was told before if an item repeats others: its own first."""
    first = [text for _, text in quoted(item.content)[:1]]
    bare = [text.removeprefix(IN_DOUBT) for text in first]
    return [repeats.digest(text) for text in (item.content, *first, *bare)]


def _repeated(edit: Edit, new: Row, vectors: Vectors, digest: int) -> Row | None:
    """Return the live row that *new* repeats, looking at the newest few of that content."""
    keys = edit.tx.told(edit.row.ns_id, [digest]).get(digest, [])[-REPEATS_MAX:]
    for key, row in edit.tx.rows(keys).items():
        if repeats.tells_nothing_new(row, new, edit.now_s):
            held = edit.tx.vectors(edit.tx.vector_ids([key])).matrix
            if repeats.are_copies(held, vectors.matrix):
                return row
    return _first_quoted(edit, new)


def _first_quoted(edit: Edit, new: Row) -> Row | None:
    """Return the first row that *new* quotes, if it only quotes; None if one is missing."""
    entries = quoted(new.content)
    if not 1 <= len(entries) <= QUOTED_MAX or not repeats.is_plain(new):
        return None
    asked = [
        [(date, repeats.normal_form(form)) for form in (text, text.removeprefix(IN_DOUBT))]
        for date, text in entries
    ]
    digests = {repeats.digest(form) for forms in asked for _, form in forms}
    keys = edit.tx.told(edit.row.ns_id, sorted(digests))
    rows = edit.tx.rows([key for same in keys.values() for key in same[-REPEATS_MAX:]])
    known: dict[tuple[str, str], Row] = {}
    for row in rows.values():
        if row.is_visible(edit.now_s, edit.now_s):
            text = repeats.normal_form(row.content)
            known[date_of(utc(row.valid_from_s)), text] = known["", text] = row
    found = [known.get(as_it_is) or known.get(bare) for as_it_is, bare in asked]
    return found[0] if all(found) else None


def _told_again(edit: Edit, row: Row) -> Row:
    """Note that an item was told again: a cold one is worth again what a new one is.

    No other gains value, so that repeating it lifts it over nothing.
    """
    was = row.state
    if was.tier is Tier.COLD:
        key = value_key(edit.model.initial, edit.now_s, edit.model)
        row = replace(row, state=edit.released_state(replace(was, value_key=key)))
        edit.move(row.key, row.state, was=was)
    return row


def check_pinned_room(edit: Edit, more: int) -> None:
    """Raise InvalidInput if *more* items can't be pinned in this namespace."""
    most = edit.settings.hot_max // 2
    if edit.row.pinned + more > most:
        raise InvalidInput(
            f"at most {most} items of a namespace can be pinned (half of hot_max), "
            f"got {edit.row.pinned + more}; unpin some first"
        )


def settle_claim(edit: Edit, row: Row, *, is_of_now: bool) -> Row:
    """Let a new claim supersede older ones, or be superseded by what is known already.

    Of two claims with the same subject and attribute and another value, the one
    that is valid from later on supersedes the other, unless its source is
    trusted less: then both only carry the contradiction flag.  So one that was
    valid earlier than what is known is history from the start, and one not
    valid yet ends what is known when it begins.  One *is_of_now*, which was not
    told when it begins, does so after all that have begun, though the clock was
    set back since.
    """
    assert row.claim is not None
    if row.valid_until_s is not None and row.valid_until_s <= edit.now_s:
        return row
    rivals = contradiction.rival_claims(edit.tx, row, edit.now_s)
    if is_of_now:
        row = _not_before(row, rivals)
    for rival in sorted(rivals, key=lambda rival: (rival.valid_from_s, rival.key)):
        if not row.overlaps(rival):
            continue
        doubts.note(edit, [rival])
        older, newer = (row, rival) if row.valid_from_s < rival.valid_from_s else (rival, row)
        if newer.source_trust < older.source_trust:
            row = replace(row, contradicted=True)
            doubts.flag(edit, rival)
            # Another claim may yet take the place of the one that it is flagged for.
            edit.doubted.add(rival.key)
        elif newer is rival:
            row = _ended(row, rival)
            if rival.state.protection is Protection.NOT_YET_VALID:
                edit.put(replace(rival, supersedes=row.id))
            else:
                row = replace(row, status=Status.SUPERSEDED)
        elif row.state.protection is Protection.NOT_YET_VALID:
            edit.put(_ended(rival, row))
            row = replace(row, supersedes=rival.id)
        else:
            end_superseded(edit, rival)
            supersede(edit, _ended(rival, row), edit.now_s)
            row = replace(row, supersedes=rival.id)
    return row


def _not_before(row: Row, rivals: Sequence[Row]) -> Row:
    """Return *row* as beginning no earlier than the rivals that have begun."""
    begun_s = [r.valid_from_s for r in rivals if r.state.protection is not Protection.NOT_YET_VALID]
    begins_s = max([row.valid_from_s, *begun_s])
    if row.valid_until_s is not None and row.valid_until_s <= begins_s:
        return row
    return replace(row, valid_from_s=begins_s)


def _ended(row: Row, successor: Row) -> Row:
    """Return *row* as valid until its successor begins."""
    return replace(row, valid_until_s=successor.valid_from_s, superseded_by=successor.id)


def supersede(edit: Edit, ended: Row, at_s: float) -> None:
    """Take a live item, whose end and successor are noted on it, out of every search of now."""
    doubts.note(edit, [ended])
    edit.retire(ended, status=Status.SUPERSEDED)
    edit.tx.add_history(ended.key, HistoryRow(at_s, "superseded", ended.content, ended.claim))


def insert_aside(edit: Edit, row: Row, vectors: Vectors) -> Row:
    """Add an item that is not live: it is in no index of now, and cold."""
    state = replace(row.state, tier=Tier.COLD, protection=Protection.NONE)
    # What it was flagged for, it may contradict no more.
    is_live = row.status is Status.LIVE
    row = replace(row, pinned=False, contradicted=row.contradicted and is_live, state=state)
    key = edit.tx.insert([row])[0]
    if row.status is Status.SUPERSEDED:
        ids = vectors.ids + key * PASSAGES_MAX
        edit.tx.add_vectors(edit.row.ns_id, Vectors(ids, vectors.matrix))
        edit.tx.retire_vectors(ids)
    edit.wake_at(row.expires_s)
    return replace(row, key=key)


def ended_by(reader: Reader, successor: Row) -> list[Row]:
    """Return the live items that end, or ended, where *successor* begins."""
    return [
        row
        for row in reader.linked_rows(successor.ns_id, successor.id)
        if row.status is Status.LIVE and row.superseded_by == successor.id
    ]


def end_superseded(edit: Edit, successor: Row) -> None:
    """Do now what a sweep would: retire what was ended by an item that has begun."""
    todo = [successor]
    while todo:
        begun = todo.pop()
        ended = ended_by(edit.tx, begun)
        todo += ended
        for row in ended:
            supersede(edit, row, begun.valid_from_s)


def _let_go(edit: Edit, row: Row) -> None:
    """Settle what *row* has ended, or was going to end, before it goes itself."""
    if row.valid_from_s <= edit.now_s:
        end_superseded(edit, row)
        return
    # As it is by now: what ends it may just have gone, too.
    row = edit.tx.rows([row.key])[row.key]
    until_s = None if row.superseded_by is None else row.valid_until_s
    for ended in ended_by(edit.tx, row):
        edit.put(replace(ended, superseded_by=row.superseded_by, valid_until_s=until_s))


def change(edit: Edit, row: Row, changed: Row, vectors: Vectors | None) -> Row:
    """Replace a row; *vectors* are new ones where content or context changed.

    What it said before stays in its history.  Where it says something else now, or ends at
    another moment, flags that it was a cause of are looked at again, as is its own.
    """
    if changed.content != row.content:
        edit.tx.add_history(row.key, HistoryRow(edit.now_s, "updated", row.content, row.claim))
    if (changed.content, changed.valid_until_s) != (row.content, row.valid_until_s):
        doubts.note(edit, [row])
    _replace(edit, row, changed, vectors)
    if changed.content != row.content and row.status is Status.LIVE:
        doubts.compare(edit, list(edit.tx.rows([row.key]).values()))
    doubts.settle(edit)
    return edit.tx.rows([row.key])[row.key]


def _replace(edit: Edit, row: Row, changed: Row, vectors: Vectors | None) -> None:
    """Put a changed row in the place of one, with its vectors, wherever that has them."""
    if vectors is None or row.status is not Status.LIVE:
        edit.put(changed)
        edit.wake_at(changed.expires_s)
        edit.wake_at(changed.valid_until_s if changed.contradicted else None)
        if vectors is not None and row.status is Status.SUPERSEDED:
            edit.take_vectors(edit.tx.vector_ids([row.key]), keep=False)
            ids = vectors.ids + row.key * PASSAGES_MAX
            edit.tx.add_vectors(edit.row.ns_id, Vectors(ids, vectors.matrix))
            edit.tx.retire_vectors(ids)
        return
    edit.unindex(row, keep_vectors=False)
    changed, terms = counted(changed)
    edit.tx.update(changed)
    edit.index([changed], [vectors], [terms])
    hot = changed.state.tier is Tier.HOT
    if hot:
        edit.change.hot_in.append(row.key)
    edit.add_to_totals(hot=int(hot), pinned=int(changed.pinned))
    edit.wake_for(changed)


def set_pinned(edit: Edit, row: Row, *, pinned: bool) -> Row:
    """Pin a live item into hot, or release it to the tier of its value."""
    if row.pinned == pinned:
        return row
    if row.status is not Status.LIVE:
        raise Conflict(f"only a live item can be pinned, {row.id!r} is {row.status.value}")
    if pinned:
        check_pinned_room(edit, 1)
    state = row.state
    if state.protection is not Protection.NOT_YET_VALID:
        state = (
            replace(state, tier=Tier.HOT, protection=Protection.PINNED)
            if pinned
            else edit.released_state(state)
        )
    changed = replace(row, pinned=pinned, state=state)
    edit.tx.update(changed)
    edit.move(row.key, state, was=row.state)
    edit.add_to_totals(pinned=1 if pinned else -1)
    edit.shed_hot()
    return changed


def after_events(state: State, events: Sequence[Event], model: ValueModel) -> State:
    """Return a state after events, in order; what is not yet valid only counts them."""
    key, kinds = state.value_key, [event.kind for event in events]
    exposures = kinds.count(EventKind.EXPOSED)
    if state.protection is Protection.NOT_YET_VALID:
        pass
    elif exposures == len(events):
        key = exposed(key, [event.at_s for event in events], model)
    else:
        for event in events:
            key = apply_event(key, event.at_s, event.kind, model, event.rank)
    return State(
        tier=state.tier,
        protection=state.protection,
        value_key=key,
        exposed_count=state.exposed_count + exposures,
        contributed_count=state.contributed_count + kinds.count(EventKind.CONTRIBUTED),
    )


def apply_events(edit: Edit, events: Sequence[Event]) -> None:
    """Apply logged events, those of an item in order; skip what is not live any more."""
    by_key: dict[int, list[Event]] = {}
    for event in events:
        by_key.setdefault(event.key, []).append(event)
    states = {
        key: after_events(state, by_key[key], edit.model)
        for key, state in edit.tx.states(edit.row.ns_id, list(by_key)).items()
    }
    edit.tx.put_states(list(states.items()))
    edit.change.used += states
    edit.wake_for_states(states.values())


def confirm(edit: Edit, row: Row) -> Row:
    """Note that a check found the item still true: verified now, worth keeping near."""
    if row.status is not Status.LIVE:
        raise Conflict(f"only a live item can be confirmed, {row.id!r} is {row.status.value}")
    event = Event(row.ns_id, row.key, EventKind.CONTRIBUTED, edit.now_s)
    state = after_events(row.state, [event], edit.model)
    changed = replace(row, last_verified_s=edit.now_s, contradicted=False, state=state)
    edit.tx.update(changed)
    edit.change.items.append(row.key)
    edit.wake_at(edit.now_s)
    edit.tx.add_history(row.key, HistoryRow(edit.now_s, "confirmed", row.content, row.claim))
    return changed


def refute(edit: Edit, row: Row, by: str | None) -> Row:
    """Note that a check found the item wrong; *by* names what holds instead."""
    if row.status is not Status.LIVE:
        raise Conflict(f"only a live item can be refuted, {row.id!r} is {row.status.value}")
    doubts.note(edit, [row])
    _let_go(edit, row)
    until_s = edit.now_s if row.valid_until_s is None else min(edit.now_s, row.valid_until_s)
    refuted = replace(row, superseded_by=by, valid_until_s=until_s, last_verified_s=edit.now_s)
    changed = edit.retire(refuted, status=Status.REFUTED)
    edit.tx.add_history(row.key, HistoryRow(edit.now_s, "refuted", row.content, row.claim))
    doubts.settle(edit)
    return changed


def delete(edit: Edit, rows: Sequence[Row]) -> None:
    """Remove items for good: from both indexes, with history, and from the links of others.

    Flags that they were a cause of are looked at again.
    """
    _delete(edit, rows)
    doubts.settle(edit)


def _delete(edit: Edit, rows: Sequence[Row]) -> None:
    doubts.note(edit, rows)
    for row in rows:
        if row.status is Status.LIVE and row.claim is not None:
            _let_go(edit, row)
    # Read again, since one of them may have ended another.
    for row in edit.tx.rows([row.key for row in rows]).values():
        if row.status is Status.LIVE:
            edit.unindex(row, keep_vectors=False)
        else:
            edit.take_vectors(edit.tx.vector_ids([row.key]), keep=False)
            edit.change.items.append(row.key)
        for other in edit.tx.linked_rows(edit.row.ns_id, row.id):
            edit.put(
                replace(
                    other,
                    supersedes=None if other.supersedes == row.id else other.supersedes,
                    superseded_by=None if other.superseded_by == row.id else other.superseded_by,
                ),
            )
    edit.tx.delete([row.key for row in rows])
