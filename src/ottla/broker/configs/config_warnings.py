"""Configs that are valid, and that somebody should think about again."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.configs.broker_config import BrokerConfig


def warnings_of(config: BrokerConfig) -> Iterator[str]:
    """Warnings about valid but questionable configs."""
    if config.without_effect:
        yield f"these configs are set and have no effect yet: {', '.join(config.without_effect)}"
    for listener in config.listeners:
        if listener.is_exposed:
            yield (
                f"listener {listener} accepts connections from other machines without authentication or encryption: "
                "everyone who can reach it can read and change all data. Listen on 127.0.0.1 (--host 127.0.0.1), or "
                "let a firewall decide who can connect."
            )
