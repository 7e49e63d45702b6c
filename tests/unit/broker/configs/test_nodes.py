"""Settings in the tree: read past what is wrong, and written where nothing was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.config import ConfigKey, ConfigSchema, ValueType
from ottla.broker.configs.nodes import alter_settings, settings_in
from ottla.zookeeper.local_tree import LocalTree

KEYS = ConfigSchema("test", [ConfigKey("count", ValueType.INT, 1, "A number."), ConfigKey("x", ValueType.INT, 1, "")])
PATH = "/config/some/thing"


def _becoming(settings: Mapping[str, str]) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    return lambda _: settings


def test_what_is_written_is_read_as_far_as_it_is_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tree = await LocalTree.open(tmp_path / "tree.db", SystemClock())
        assert settings_in(PATH, await tree.get(PATH), KEYS.__getitem__) == {}
        for settings in ({"count": "few", "x": "3", "no.such": "4"}, {"count": "5"}):
            written = await alter_settings(tree, PATH, KEYS.__getitem__, _becoming(settings), keep_empty=True)
            assert written == settings
            found.append(dict(settings_in(PATH, await tree.get(PATH), KEYS.__getitem__)))
        await tree.close()

    found: list[dict[str, str]] = []
    with caplog.at_level(logging.ERROR, "ottla"):
        asyncio.run(main())
    assert found == [{"x": "3"}, {"count": "5"}]
    assert f"ignoring an invalid setting in {PATH}: count: 'few' is not a whole number" in caplog.text
    assert f"ignoring an invalid setting in {PATH}: no.such: there is no such test config" in caplog.text
