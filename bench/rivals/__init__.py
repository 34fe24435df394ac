"""AMV beside what people use instead: same vectors, same queries, each in its own process.

`python -m bench.rivals` runs it.  `contenders` lists who takes part; each has a
module here that runs in an environment of its own and imports nothing of AMV.
"""
