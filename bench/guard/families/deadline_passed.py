"""Deadline passed: the time in which it could be done is over."""

from random import Random

from bench.guard.world import Fact, State, World


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    table, _, key = fact.subject.partition("/")
    if (table, fact.attribute) in world.pools:
        # A stage that comes later.
        world.change(state, fact.subject, fact.attribute, rng)
    else:
        state[table][key]["until_h"] = state["clock"]["now"]["h"] - round(rng.uniform(1.0, 48.0), 1)
