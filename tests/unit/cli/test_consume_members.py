"""`ottla consume --group` as a member that the group gives no partition."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ottla.cli import consume
from ottla.client.consume import AsyncConsumer
from ottla.client.membership.metadata import GroupMetadata


class IdleMember:
    """Joins with its third look, and is given nothing."""

    def __init__(self) -> None:
        self.looks = 0

    async def poll(self, timeout: float | None, max_records: int | None) -> list[Any]:  # noqa: ARG002
        assert timeout is not None
        self.looks += 1
        return []

    def assignment(self) -> frozenset[Any]:
        return frozenset()

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("g", 1 if self.looks >= 3 else -1)


def test_it_ends_when_others_have_all_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    member = IdleMember()
    printer = consume._Printer(lambda _: b"", None)
    asyncio.run(consume._show_as_member(cast("AsyncConsumer", member), printer, is_endless=False))
    assert member.looks == 2 + round(consume._PATIENCE_S / consume._LOOK_UP_S)
    assert "are assigned to other members" in capsys.readouterr().err
