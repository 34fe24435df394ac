"""The demonstration; run `make demo`."""
