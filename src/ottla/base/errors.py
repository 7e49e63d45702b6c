"""The base class of all errors that Ottla's clients raise."""

from __future__ import annotations


class OttlaError(Exception):
    """Base class of all errors that Ottla's clients raise deliberately."""
