"""Fetch requests: sessions."""
