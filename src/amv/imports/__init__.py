"""Bringing in memories from elsewhere."""
