"""Benchmarks: what the documentation claims about cost and quality, measured.

Nothing here is imported by the package.  Raw rows are kept beside the code
(`results/`), and every table is computed from them again by a report module.
"""
