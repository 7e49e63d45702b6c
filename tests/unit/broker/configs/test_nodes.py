"""Settings in the tree: read past what is wrong, and written where nothing was."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.config import ConfigKey, ConfigSchema, ValueType
from ottla.broker.configs.nodes import settings_in, write_settings
from ottla.zookeeper.local_tree import LocalTree

KEYS = ConfigSchema("test", [ConfigKey("count", ValueType.INT, 1, "A number."), ConfigKey("x", ValueType.INT, 1, "")])
PATH = "/config/some/thing"


def test_what_is_written_is_read_as_far_as_it_is_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tree = await LocalTree.open(tmp_path / "tree.db", SystemClock())
        assert settings_in(PATH, await tree.get(PATH), KEYS.__getitem__) == {}
        for settings in ({"count": "few", "x": "3", "no.such": "4"}, {"count": "5"}):
            await write_settings(tree, PATH, settings)
            found.append(dict(settings_in(PATH, await tree.get(PATH), KEYS.__getitem__)))
        await tree.close()

    found: list[dict[str, str]] = []
    with caplog.at_level(logging.ERROR, "ottla"):
        asyncio.run(main())
    assert found == [{"x": "3"}, {"count": "5"}]
    assert f"ignoring an invalid setting in {PATH}: count: 'few' is not a whole number" in caplog.text
    assert f"ignoring an invalid setting in {PATH}: no.such: there is no such test config" in caplog.text
