"""Fetch requests: sessions, reading, and waiting for records."""
