"""Facts and cards: what a search knows of items without asking the store again."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.memory import facts
from amv.memory.card import Card, card_of, values_of
from amv.memory.facts import BEGINS, ENDS, VALUE_KEY, Facts
from amv.memory.item import Protection, State, Status
from amv.memory.ports import PASSAGES_MAX
from amv.memory.tiers import Tier
from amv.memory.value import PRESETS
from amv.testing.samples import NOW_S, plain

MODEL = PRESETS["default"]
MOMENTS = st.sampled_from([NOW_S - 1.0, NOW_S, NOW_S + 1.0])


def card(key: int, value_key: float = 1.0) -> Card:
    state = State(tier=Tier.WARM, protection=Protection.NONE, value_key=value_key)
    return card_of(replace(plain(1, f"i{key}"), key=key, state=state))


def ids(*keys: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray([key * PASSAGES_MAX for key in keys], dtype=np.int64)


def known(held: Facts, count: int) -> list[float]:
    """Return the value keys of all places, NaN as -1."""
    columns = held.at(np.arange(count))
    pairs = zip(columns[VALUE_KEY].tolist(), columns[ENDS].tolist(), strict=True)
    return [-1.0 if math.isnan(ends_s) else value_key for value_key, ends_s in pairs]


@given(
    status=st.sampled_from(Status),
    protection=st.sampled_from(Protection),
    valid_from_s=MOMENTS,
    valid_until_s=st.none() | MOMENTS,
    expires_s=st.none() | MOMENTS,
    at_s=MOMENTS,
    now_s=MOMENTS,
)
def test_a_card_is_visible_when_its_row_is(
    status: Status,
    protection: Protection,
    valid_from_s: float,
    valid_until_s: float | None,
    expires_s: float | None,
    at_s: float,
    now_s: float,
) -> None:
    """Its one number is a short way to the same answer."""
    row = replace(
        plain(1, "a"),
        status=status,
        state=replace(plain(1, "a").state, protection=protection),
        valid_from_s=valid_from_s,
        valid_until_s=valid_until_s,
        expires_s=expires_s,
    )

    assert card_of(row).is_visible(at_s, now_s) == row.is_visible(at_s, now_s)


def test_a_card_with_another_state_keeps_what_was_made_of_the_row() -> None:
    """That is what takes long to make, and does not change by being used."""
    first = card(1)
    first.rendered = b"made"
    state = replace(first.state, exposed_count=7)

    second = first.with_state(state)

    assert (second.rendered, second.row) == (b"made", first.row)
    assert second.item(("a",), 0.5).exposed_count == 7
    assert first.item(("a",), 0.5).exposed_count == 0


def test_facts_keep_to_their_vectors_in_whatever_order() -> None:
    """A block fills a gap with its last vector; what is new is not known yet."""
    held = Facts()
    held.align(ids(1, 2, 3))
    held.learn(np.asarray([0, 2]), [card(1, 10.0), card(3, 30.0)])
    assert known(held, 3) == [10.0, -1.0, 30.0]

    held.align(ids(3, 2, 4))

    assert known(held, 3) == [30.0, -1.0, -1.0]
    held.align(ids())
    assert held.at(np.arange(0)).shape == (3, 0)


def test_facts_of_several_passages_are_those_of_their_item() -> None:
    held = Facts()
    held.align(np.asarray([PASSAGES_MAX, PASSAGES_MAX + 1, 2 * PASSAGES_MAX]))
    held.learn(np.arange(3), [card(1, 1.0), card(1, 1.0), card(2, 2.0)])

    held.follow({1: card(1, 5.0).state, 9: card(9, 9.0).state})

    assert known(held, 3) == [5.0, 5.0, 2.0]
    assert held.keys_at(np.arange(3)).tolist() == [1, 1, 2]
    assert not held.are_single
    held.forget([1])
    assert known(held, 3) == [-1.0, -1.0, 2.0]


def test_a_new_value_of_what_is_not_known_leaves_it_so() -> None:
    """When it ends is still to be read."""
    held = Facts()
    held.follow({1: card(1).state})
    held.align(ids(1))

    held.follow({1: card(1).state})
    held.follow({})

    assert known(held, 1) == [-1.0]


@given(
    st.lists(
        st.tuples(
            st.floats(MODEL.decay_rate * NOW_S - 20.0, MODEL.decay_rate * NOW_S + 5.0),
            st.sampled_from([NOW_S - 5.0, NOW_S, NOW_S + 5.0]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_values_from_facts_are_those_from_cards(given_items: list[tuple[float, float]]) -> None:
    """To the last bit: the same item must not be worth two things."""
    cards = [
        card_of(replace(card(1, value_key).row, valid_from_s=begins_s))
        for value_key, begins_s in given_items
    ]
    columns = np.asarray([(c.state.value_key, c.row.valid_from_s, c.ends_s) for c in cards]).T

    assert facts.values(columns, NOW_S, MODEL) == values_of(cards, NOW_S, MODEL)
    assert facts.worth(columns, NOW_S, MODEL) == pytest.approx(values_of(cards, NOW_S, MODEL))
    assert columns[BEGINS].tolist() == [begins_s for _, begins_s in given_items]


@pytest.mark.parametrize(
    ("until_s", "expires_s", "ends_s"),
    [(None, None, math.inf), (5.0, None, 5.0), (None, 6.0, 6.0), (5.0, 6.0, 5.0), (7.0, 6.0, 6.0)],
)
def test_a_card_ends_when_the_first_of_both_comes(
    until_s: float | None, expires_s: float | None, ends_s: float
) -> None:
    row = replace(card(1).row, valid_until_s=until_s, expires_s=expires_s)

    assert card_of(row).ends_s == ends_s
