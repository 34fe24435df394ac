"""Fusing similarity, words and value into one rank."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.memory.ranking import Floats, RankWeights, fuse


def floats(*numbers: float) -> Floats:
    """Return a float32 array."""
    return np.array(numbers, dtype=np.float32)


Triple = tuple[float, float, float]


def ranks(weights: RankWeights, *items: Triple) -> list[float]:
    """Return the ranks of items given as (similarity, lexical, value)."""
    similarity, lexical, value = (floats(*column) for column in zip(*items, strict=True))
    return fuse(similarity, lexical, value, weights).tolist()  # type: ignore[no-any-return]


weights_ = st.builds(
    RankWeights,
    vector=st.floats(0.01, 10.0),
    lexical=st.floats(0.0, 10.0),
    value=st.floats(0.0, 1.0),
)
triples = st.tuples(st.floats(-1.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))


def test_a_rank_is_the_weighted_sum() -> None:
    """By hand: 0.5·0.8 + 0.3·0.5 + 0.1·1 = 0.65."""
    weights = RankWeights(vector=0.5, lexical=0.3, value=0.1)
    rank = fuse(floats(0.8, 0.0), floats(0.5, 0.0), floats(1.0, 0.0), weights)

    assert rank.tolist() == pytest.approx([0.65, 0.0])
    assert rank.dtype == np.float32


@given(one=triples, more=triples, weights=weights_)
def test_an_item_better_in_every_part_never_ranks_lower(
    one: Triple, more: Triple, weights: RankWeights
) -> None:
    """No part can work against the item."""
    better = (max(one[0], more[0]), max(one[1], more[1]), max(one[2], more[2]))
    rank, better_rank = ranks(weights, one, better)

    assert rank <= better_rank


@given(one=triples, others=st.lists(triples, max_size=20), weights=weights_)
def test_a_rank_does_not_depend_on_the_other_candidates(
    one: Triple, others: list[Triple], weights: RankWeights
) -> None:
    """So candidates can be fused in any batches, and paging stays in order."""
    assert ranks(weights, one, *others)[0] == ranks(weights, one)[0]


def test_value_orders_equal_matches_and_lifts_no_worse_one() -> None:
    """By default worth is a tie-breaker: it makes up for no more than a few hundredths."""
    weights = RankWeights()
    equal = fuse(floats(0.5, 0.5), floats(0.2, 0.2), floats(0.1, 0.9), weights)
    worse = fuse(floats(0.6, 0.5), floats(0.2, 0.2), floats(0.0, 1.0), weights)

    assert equal[0] < equal[1]
    assert worse[0] > worse[1]


def test_no_candidates_have_no_ranks() -> None:
    """An empty namespace is no special case."""
    assert fuse(floats(), floats(), floats(), RankWeights()).shape == (0,)


@pytest.mark.parametrize(
    ("vector", "lexical", "value"),
    [
        (-0.1, 1.0, 0.0),
        (1.0, -0.1, 0.0),
        (1.0, 1.0, -0.1),
        (math.nan, 1.0, 0.0),
        (1.0, math.inf, 0.0),
        (0.0, 0.0, 1.0),
    ],
)
def test_weights_that_rank_nothing_are_refused(vector: float, lexical: float, value: float) -> None:
    """A NaN rank would leave the order to chance."""
    with pytest.raises(InvalidInput, match="finite weights"):
        RankWeights(vector=vector, lexical=lexical, value=value)
