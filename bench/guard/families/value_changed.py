"""Value changed: the attribute has another value by now."""

from random import Random

from bench.guard.world import Fact, State, World


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    table, _, key = fact.subject.partition("/")
    if table in world.indexes:
        # Somebody else bears the name.
        rows, by = world.indexes[table]
        mine = next(one for one, row in state[rows].items() if row[by] == key)
        other = rng.choice([one for one in state[rows] if one != mine])
        state[rows][mine][by], state[rows][other][by] = state[rows][other][by], key
        return
    world.change(state, fact.subject, fact.attribute, rng)
