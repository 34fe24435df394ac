"""Whether the gate helps: frozen worlds that change behind an agent, and rules on the same cases.

    python -m bench.guard                        # everything
    python -m bench.guard --quick                # one small world, for a look

A world is a state, tools that change it, and attributes that can be read.  An
instance is an action an agent is about to take on what it read earlier; in the
meantime the world may have changed.  Harm is decided by the world: the change
that an action made is not the one it would have made had everything that was
remembered still held.  No language model takes part.
"""
