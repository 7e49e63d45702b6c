"""The compiled codec of consumers, loaded once per process: in the background, or when columns are requested."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from ottla.base.background_load import BackgroundLoad, load_apart
from ottla.client.errors import CompiledCodeError, MissingPackageError


class _Kernels:
    """The compiled codec, loaded once per process; None before that, or if it is not installed."""

    def __init__(self) -> None:
        self.module: Any = None
        self.untrack: Callable[[list[Any]], None] | None = None
        self.loading = BackgroundLoad(self._import)

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
