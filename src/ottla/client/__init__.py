"""The Python client. `TableView` and `AsyncTableView` are here too; they are loaded when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.tables import AsyncTableView, TableView

__all__ = ["AsyncTableView", "TableView"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("ottla.client.tables"), name)
