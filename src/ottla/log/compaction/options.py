"""What a broker's config says of its cleaner: Kafka's keys, defaults and rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.base.config import ConfigError, ConfigKey, ConfigSchema, ConfigType, at_least

_UNLIMITED: Final = 1.7976931348623157e308
"""Java's largest double, which is how Kafka says that there is no limit."""
_LEAST_BUFFER_BYTES: Final = 2**20

CLEANER_CONFIG: Final = ConfigSchema(
    "broker",
    [
        ConfigKey(
            "log.cleaner.dedupe.buffer.size",
            ConfigType.LONG,
            128 * 2**20,
            "Bytes for the map of keys: 24 for each key of the uncompacted records.",
        ),
        ConfigKey(
            "log.cleaner.io.buffer.load.factor",
            ConfigType.DOUBLE,
            0.9,
            "How full the map of keys may become: fuller means more records at once, and more time for each.",
        ),
        ConfigKey(
            "log.cleaner.io.buffer.size",
            ConfigType.INT,
            512 * 1024,
            "Bytes that are read at once; a larger batch is read whole all the same.",
            at_least(0),
        ),
        ConfigKey(
            "log.cleaner.io.max.bytes.per.second",
            ConfigType.DOUBLE,
            _UNLIMITED,
            "How much is read and written in a second, on average.",
        ),
        ConfigKey(
            "log.cleaner.backoff.ms",
            ConfigType.LONG,
            15_000,
            "How long to wait before looking again when no log is worth compacting.",
            at_least(0),
        ),
        ConfigKey("log.cleaner.enable", ConfigType.BOOLEAN, True, "Whether logs are compacted at all."),
        ConfigKey("log.cleaner.threads", ConfigType.INT, 1, "How many logs are compacted at a time.", at_least(0)),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOptions:
    """See the keys."""

    dedupe_buffer_bytes: int = 128 * 2**20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 * 1024
    max_io_bytes_per_second: float | None = None
    backoff_ms: int = 15_000
    enabled: bool = True
    threads: int = 1

    @classmethod
    def from_properties(cls, broker: Mapping[str, str]) -> CleanerOptions:
        """From a broker's settings, of which others may be among them; a wrong value raises `ConfigError`."""
        values = CLEANER_CONFIG.parse({name: text for name, text in broker.items() if name in CLEANER_CONFIG})
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
            max_io_bytes_per_second=None if rate == _UNLIMITED else rate,
            backoff_ms=values["log.cleaner.backoff.ms"],
            enabled=values["log.cleaner.enable"],
            threads=values["log.cleaner.threads"],
        )
