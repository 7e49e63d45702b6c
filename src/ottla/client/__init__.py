"""Clients of a broker."""
