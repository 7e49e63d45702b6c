"""Finds the coordinators of groups and of transactional ids; not cached, because an admin needs them rarely."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.client.administer.outcomes import Area, refusal, version_of
from ottla.client.errors import RefusedError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

V = TypeVar("V")

_SEVERAL_SINCE: Final = 4
_TRANSACTIONS_SINCE: Final = 1


class CoordinatorType(IntEnum):
    """What a coordinator looks after, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1

    def subject(self, key: str) -> str:
        return f"group {key}" if self is CoordinatorType.GROUP else f"transactional id {key}"


class CoordinatedArea(Area):
    """An area whose requests go to coordinators: of groups, unless `kind` says otherwise."""

    async def _settle_at_coordinators(
        self,
        keys: Iterable[str],
        attempt: Callable[[int, list[str]], Awaitable[Mapping[str, V | RefusedError]]],
        *,
        kind: CoordinatorType = CoordinatorType.GROUP,
    ) -> dict[str, V]:
        async def everywhere(some: list[str]) -> dict[str, V | RefusedError]:
            found: dict[str, V | RefusedError] = {}
            by_coordinator: dict[int, list[str]] = {}
            for key, coordinator in (await self._coordinators(some, kind)).items():
                if isinstance(coordinator, RefusedError):
                    found[key] = coordinator
                else:
                    by_coordinator.setdefault(coordinator, []).append(key)
            for broker_id, its_own in by_coordinator.items():
                found.update(await attempt(broker_id, its_own))
            return found

        return await self._settle(keys, everywhere)

    async def _coordinator(self, group_id: str) -> int:
        """The id of the coordinator of the group."""
        found = (await self._coordinators([group_id], CoordinatorType.GROUP)).get(group_id)
        if isinstance(found, int):
            return found
        raise found or RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id}")

    async def _coordinators(self, keys: list[str], kind: CoordinatorType) -> dict[str, int | RefusedError]:
        connection = await self._cluster.any_connection()
        since = _TRANSACTIONS_SINCE if kind is CoordinatorType.TRANSACTION else 0
        version = version_of(connection, FindCoordinatorRequest, since=since, why="find transaction coordinators")
        found: dict[str, int | RefusedError] = {}
        if version >= _SEVERAL_SINCE:
            several = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
            answer = await connection.send(several, FindCoordinatorResponse, version=version)
            for one in answer.coordinators:
                found[one.key] = refusal(one.error_code, kind.subject(one.key), one.error_message) or one.node_id
        else:
            for key in keys:
                request = FindCoordinatorRequest(key=key, key_type=kind)
                answer = await connection.send(request, FindCoordinatorResponse, version=version)
                refused = refusal(answer.error_code, kind.subject(key), answer.error_message)
                found[key] = refused or answer.node_id
        if any(isinstance(one, int) and one not in self._cluster.brokers for one in found.values()):
            await self._cluster.refresh()
        return {key: self._reachable(kind.subject(key), one) for key, one in found.items()}

    def _reachable(self, subject: str, coordinator: int | RefusedError) -> int | RefusedError:
        """A broker that has just started can be a coordinator before it is in the metadata."""
        if isinstance(coordinator, RefusedError) or coordinator in self._cluster.brokers:
            return coordinator
        return RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, subject)
