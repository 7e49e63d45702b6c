"""Fuzzers: what reads bytes from outside meets bytes that nobody meant to send."""
