"""Coordinators without a broker: a log in memory, and time that a test turns."""
