"""A compacted topic as a live, read-only mapping: `TableView`, and `AsyncTableView` for asyncio."""

from __future__ import annotations

from ottla.client.tables.views import AsyncTableView, TableView

__all__ = ["AsyncTableView", "TableView"]
