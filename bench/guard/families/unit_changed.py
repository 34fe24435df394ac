"""Unit or format changed: the same number means something else by now."""

from random import Random

from bench.guard.world import Fact, State, World


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    world.change(state, fact.subject, fact.attribute, rng)
