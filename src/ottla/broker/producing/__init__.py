"""Produce requests: the general path, the fast path, batches that are appended later, and producer ids."""
