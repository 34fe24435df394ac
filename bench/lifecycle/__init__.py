"""Does the lifecycle help?  Workloads, replayed through the gateway under one policy each.

`python -m bench.lifecycle` runs it; `docs/explanation/lifecycle.md` says what it shows.
"""
