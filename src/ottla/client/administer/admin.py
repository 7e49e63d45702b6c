"""`Admin`: the blocking admin client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from ottla.client.administer.async_admin import AsyncAdmin
from ottla.client.config_keywords import AdminKeywords
from ottla.client.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    """Wraps a coroutine method as a blocking one."""

    @functools.wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._admin, *args, **kwargs))

    return call


class Admin:
    """The methods of `AsyncAdmin`, run in a background thread. They can be called from any thread and interrupted with
    Ctrl-C. Use it as a context manager, or call `close`."""

    def __init__(self, settings: Mapping[str, object] | None = None, **keywords: Unpack[AdminKeywords]) -> None:
        # Before the thread: what is wrong with the settings leaves nothing to close.
        self._admin = AsyncAdmin(settings, **keywords)
        self._thread = LoopThread("the admin client")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections and ends the thread. Idempotent."""
        if self._thread.is_open:
            self._thread.finish(self._admin.close())
        else:
            self._thread.close()  # should that have been interrupted

    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    delete_topics_by_id = _blocking(AsyncAdmin.delete_topics_by_id)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    describe_topics_by_id = _blocking(AsyncAdmin.describe_topics_by_id)

    describe_configs = _blocking(AsyncAdmin.describe_configs)
    incremental_alter_configs = _blocking(AsyncAdmin.incremental_alter_configs)
    replace_configs = _blocking(AsyncAdmin.replace_configs)
    list_config_resources = _blocking(AsyncAdmin.list_config_resources)

    list_offsets = _blocking(AsyncAdmin.list_offsets)
    delete_records = _blocking(AsyncAdmin.delete_records)
    describe_producers = _blocking(AsyncAdmin.describe_producers)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AsyncAdmin.list_partition_reassignments)

    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    describe_replica_log_dirs = _blocking(AsyncAdmin.describe_replica_log_dirs)
    alter_replica_log_dirs = _blocking(AsyncAdmin.alter_replica_log_dirs)

    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_features = _blocking(AsyncAdmin.describe_features)
    api_versions = _blocking(AsyncAdmin.api_versions)

    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_consumer_groups = _blocking(AsyncAdmin.describe_consumer_groups)
    describe_classic_groups = _blocking(AsyncAdmin.describe_classic_groups)
    delete_consumer_groups = _blocking(AsyncAdmin.delete_consumer_groups)
    remove_members_from_consumer_group = _blocking(AsyncAdmin.remove_members_from_consumer_group)
    list_consumer_group_offsets = _blocking(AsyncAdmin.list_consumer_group_offsets)
    alter_consumer_group_offsets = _blocking(AsyncAdmin.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _blocking(AsyncAdmin.delete_consumer_group_offsets)

    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    find_hanging_transactions = _blocking(AsyncAdmin.find_hanging_transactions)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)
    fence_producers = _blocking(AsyncAdmin.fence_producers)
    complete_transactions = _blocking(AsyncAdmin.complete_transactions)
