"""Entity duplicated: another one bears the same name, so that the name is ambiguous."""

from random import Random

from bench.guard.world import Fact, State, World


def apply(world: World, state: State, fact: Fact, rng: Random) -> None:
    """Change an attribute of *state*; see the module."""
    index, _, name = fact.subject.partition("/")
    table, by = world.indexes[index]
    key = next(key for key, row in state[table].items() if row[by] == name)
    again = dict(state[table][key])
    for field in sorted(again):
        if (table, field) in world.pools and field != by:
            again[field] = world.other(table, field, again[field], rng)
    state[table][f"{key}-new"] = again
