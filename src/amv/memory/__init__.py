"""The memory: values, tiers, cells, search and the life of an item; no I/O of its own."""
