"""The root of what a program that uses Ottla may want to catch."""

from __future__ import annotations


class OttlaError(Exception):
    """Anything that Ottla's clients raise on purpose."""
