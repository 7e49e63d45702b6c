"""Keys that Kafka does not have."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ConfigType, between, one_of
from ottla.broker.config_keys.rules import not_empty, one_of_ignoring_case

OWN: Final = [
    ConfigKey(
        "ottla.data.dir",
        ConfigType.STRING,
        "./ottla-data",
        "Where everything lies that has no other place: logs, and the embedded coordination tree.",
        not_empty,
    ),
    ConfigKey(
        "ottla.log.format",
        ConfigType.STRING,
        "text",
        "How the broker's own messages look: text for people, json for machines.",
        one_of("text", "json"),
    ),
    ConfigKey(
        "ottla.log.level",
        ConfigType.STRING,
        "info",
        "Which of them are written: debug, info, warning or error, and what is graver.",
        one_of_ignoring_case("debug", "info", "warning", "error"),
    ),
    ConfigKey(
        "ottla.metrics.host", ConfigType.STRING, "127.0.0.1", "The address that metrics are shown on.", not_empty
    ),
    ConfigKey(
        "ottla.metrics.port",
        ConfigType.INT,
        -1,
        "The port that metrics are shown on, for Prometheus; 0 for any free one, -1 for none.",
        between(-1, 65535),
    ),
]
