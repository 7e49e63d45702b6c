"""Partitions in roles that a test chooses."""
