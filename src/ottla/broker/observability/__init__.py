"""Counters, metrics and log lines of a broker."""
