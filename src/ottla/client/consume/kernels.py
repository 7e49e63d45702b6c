"""The compiled codec of consumers, loaded once per process: in the background, or when columns are requested.

Loading takes most of a second, so it starts in the background when plain Python has taken nearly as long: a program
that reads a million similar records and ends is faster without kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from ottla.base.background_load import BackgroundLoad, load_apart
from ottla.client.errors import CompiledCodeError, MissingPackageError

LOAD_AFTER_S: Final = 0.8


class _Kernels:
    """The compiled codec, loaded once per process; None before that, or if it is not installed."""

    def __init__(self) -> None:
        self.module: Any = None
        self.untrack: Callable[[list[Any]], None] | None = None
        self.loading = BackgroundLoad(self._import)
        self._plainly_s = 0.0

    def spend(self, plainly_s: float) -> None:
        """Counts the time that plain Python took for work that kernels could do; starts loading them at a limit."""
        self._plainly_s += plainly_s
        if self._plainly_s >= LOAD_AFTER_S:
            self.loading.begin()

    def load(self) -> Any:
        """Loads the codec now."""
        if self.module is None:
            try:
                load_apart(self._import)
            except ImportError as error:
                raise MissingPackageError("reading Arrow columns", error.name or "pyarrow", "columns") from error
            except RuntimeError as error:
                raise CompiledCodeError("reading Arrow columns", error) from error
        return self.module

    def _import(self) -> None:
        self.untrack = import_module("ottla.client.consume.untracking").untrack
        self.module = import_module("ottla.records.columns")


KERNELS: Final = _Kernels()
