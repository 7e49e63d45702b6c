"""The cleaner's part of a broker's config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.base.config import ConfigError
from ottla.log.broker_config import LARGEST_DOUBLE, LOG_BROKER_CONFIG

_LEAST_BUFFER_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOptions:
    """The keys `log.cleaner.*`; `broker_config` documents them."""

    dedupe_buffer_bytes: int = 128 * 2**20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 * 1024
    max_io_bytes_per_second: float | None = None
    threads: int = 1

    @classmethod
    def from_properties(cls, broker: Mapping[str, str]) -> CleanerOptions:
        """From a broker's config, which may contain other keys; a wrong value raises `ConfigError`."""
        values = LOG_BROKER_CONFIG.parse({name: text for name, text in broker.items() if name in LOG_BROKER_CONFIG})
        rate = values["log.cleaner.io.max.bytes.per.second"]
        buffer_bytes = values["log.cleaner.dedupe.buffer.size"]
        if buffer_bytes // max(values["log.cleaner.threads"], 1) <= _LEAST_BUFFER_BYTES:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size", f"{buffer_bytes} is not more than 1 MiB for each thread"
            )
        return cls(
            dedupe_buffer_bytes=buffer_bytes,
            load_factor=values["log.cleaner.io.buffer.load.factor"],
            io_buffer_bytes=values["log.cleaner.io.buffer.size"],
            max_io_bytes_per_second=None if rate == LARGEST_DOUBLE else rate,
            threads=values["log.cleaner.threads"],
        )

    @property
    def for_one_thread(self) -> CleanerOptions:
        """With each thread's share of the buffers."""
        if self.threads <= 1:
            return self
        return replace(
            self,
            dedupe_buffer_bytes=self.dedupe_buffer_bytes // self.threads,
            io_buffer_bytes=max(self.io_buffer_bytes // self.threads, 1),
        )
