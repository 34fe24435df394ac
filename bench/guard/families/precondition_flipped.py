"""Precondition flipped: a switch that was one way is the other way."""

from random import Random

from bench.guard.world import Fact, State, World

FLIPPED = {"on": "off", "off": "on", "enough": "low", "low": "enough"}
"""What each position of a switch becomes."""


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    old = world.read(state, fact.subject, fact.attribute)
    world.write(state, fact.subject, fact.attribute, FLIPPED[old])
