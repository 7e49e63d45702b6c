"""An Apache ZooKeeper behind kazoo, as a `Coordination`: to hold it, and Kafka beside it, to what ours does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient

from ottla.base.coordination import (
    ANY_VERSION,
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Znode,
)
from ottla.zookeeper.transaction import check_operation, check_path

T = TypeVar("T")

ERRORS: dict[type[Exception], type[CoordinationError]] = {
    exceptions.NoNodeError: NoNodeError,
    exceptions.NodeExistsError: NodeExistsError,
    exceptions.BadVersionError: BadVersionError,
    exceptions.NotEmptyError: NotEmptyError,
}


class KazooTree:
    """Each call in a thread: kazoo's own calls wait. No data is written as null, as Kafka does: a block of producer ids
    that is empty, but not null, is a broken one to it. (In transactions kazoo knows no null.)"""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: str, root: str = "") -> AsyncIterator[KazooTree]:
        """`root`, if given, is a node of the tree that stands for its root."""
        client = KazooClient(address)
        await asyncio.to_thread(client.start, 30)
        try:
            await asyncio.to_thread(client.ensure_path, root or "/")
            client.chroot = root
            yield cls(client)
        finally:
            await asyncio.to_thread(client.stop)
            await asyncio.to_thread(client.close)

    async def get(self, path: str) -> Znode | None:
        check_path(path)
        try:
            data, stat = await asyncio.to_thread(self.client.get, path)
        except exceptions.NoNodeError:
            return None
        return Znode(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return [await self.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        check_path(path)
        try:
            return sorted(await asyncio.to_thread(self.client.get_children, path))
        except exceptions.NoNodeError:
            return []

    async def create(self, path: str, data: bytes = b"", *, sequential: bool = False, parents: bool = False) -> str:
        check_operation(Create(path, data, sequential))
        return await _calling(
            path, lambda: str(self.client.create(path, data or None, sequence=sequential, makepath=parents))
        )

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        check_path(path)
        return await _calling(path, lambda: int(self.client.set(path, data or None, version).version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        check_operation(Delete(path, version))
        await _calling(path, lambda: self.client.delete(path, version))

    async def delete_trees(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_operation(Delete(path))
        for path in paths:
            with suppress(exceptions.NoNodeError):
                await asyncio.to_thread(partial(self.client.delete, path, recursive=True))

    async def transact(self, operations: Sequence[Operation]) -> None:
        request = self.client.transaction()
        for operation in operations:
            check_operation(operation)
            match operation:
                case Create(path, data, sequential):
                    request.create(path, data, sequence=sequential)
                case SetData(path, data, version):
                    request.set_data(path, data, version)
                case Delete(path, version):
                    request.delete(path, version)
                case Check(path, version):
                    request.check(path, version)
        results = await asyncio.to_thread(request.commit)
        for operation, result in zip(operations, results, strict=True):
            if type(result) in ERRORS:
                raise ERRORS[type(result)](operation.path, repr(result))

    async def close(self) -> None:
        await asyncio.to_thread(self.client.stop)


async def _calling(path: str, call: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(call)
    except tuple(ERRORS) as error:
        raise ERRORS[type(error)](path, repr(error)) from error
