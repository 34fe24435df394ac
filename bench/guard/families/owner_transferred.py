"""Owner transferred: it belongs to somebody else now."""

from random import Random

from bench.guard.world import Fact, State, World


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    world.change(state, fact.subject, fact.attribute, rng)
