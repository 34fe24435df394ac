"""Common cause: one event changed several attributes at once."""

from collections.abc import Callable, Sequence
from random import Random

from bench.guard.world import Fact, State, World


def apply(
    world: World,
    state: State,
    facts: Sequence[Fact],
    rng: Random,
    change: Callable[[World, State, Fact, Random], str],
) -> None:
    """Change several attributes, each in a way of its own: only when is what they share."""
    for fact in facts:
        change(world, state, fact, rng)
