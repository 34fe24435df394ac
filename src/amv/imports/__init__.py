"""Bringing in memories from elsewhere; what a command line needs to know of it before it runs."""

FORMATS = ("items", "chat", "chatgpt", "claude", "locomo", "mem0", "mcp-memory")

NEIGHBOURS = 2
"""By the words of how many turns on either side a turn is found, too, unless told otherwise."""

NEIGHBOURS_MAX = 16
