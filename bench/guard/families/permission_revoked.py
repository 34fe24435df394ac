"""Permission revoked: what was allowed is allowed no more."""

from random import Random

from bench.guard.world import Fact, State, World


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    table, _, _ = fact.subject.partition("/")
    if (table, fact.attribute) in world.pools:
        world.change(state, fact.subject, fact.attribute, rng)
    else:
        world.write(state, fact.subject, fact.attribute, "revoked")
