"""Entity deleted: what the attribute was one of is there no more."""

from random import Random

from bench.guard.world import Fact, State, World


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    table, _, key = fact.subject.partition("/")
    del state[table][key]
