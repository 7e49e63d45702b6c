"""Committed offsets: how they are stored, committed, fetched and expired."""
