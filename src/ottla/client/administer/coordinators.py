"""Finds the coordinators of groups; not cached, because an admin needs them rarely."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.client.administer.outcomes import Area, refusal, version_of
from ottla.client.errors import RefusedError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

V = TypeVar("V")

_GROUP: Final = 0
_SEVERAL_SINCE: Final = 4


class CoordinatedArea(Area):
    """An area whose requests go to group coordinators."""

    async def _settle_at_coordinators(
        self,
        group_ids: Iterable[str],
        attempt: Callable[[int, list[str]], Awaitable[Mapping[str, V | RefusedError]]],
    ) -> dict[str, V]:
        async def everywhere(some: list[str]) -> dict[str, V | RefusedError]:
            found: dict[str, V | RefusedError] = {}
            by_coordinator: dict[int, list[str]] = {}
            for group_id, coordinator in (await self._coordinators(some)).items():
                if isinstance(coordinator, RefusedError):
                    found[group_id] = coordinator
                else:
                    by_coordinator.setdefault(coordinator, []).append(group_id)
            for broker_id, its_own in by_coordinator.items():
                found.update(await attempt(broker_id, its_own))
            return found

        return await self._settle(group_ids, everywhere)

    async def _coordinator(self, group_id: str) -> int:
        """The id of the coordinator of the group."""
        found = (await self._coordinators([group_id])).get(group_id)
        if isinstance(found, int):
            return found
        raise found or RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id}")

    async def _coordinators(self, group_ids: list[str]) -> dict[str, int | RefusedError]:
        connection = await self._cluster.any_connection()
        version = version_of(connection, FindCoordinatorRequest)
        found: dict[str, int | RefusedError] = {}
        if version >= _SEVERAL_SINCE:
            several = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=group_ids)
            answer = await connection.send(several, FindCoordinatorResponse, version=version)
            for one in answer.coordinators:
                found[one.key] = refusal(one.error_code, f"group {one.key}", one.error_message) or one.node_id
        else:
            for group_id in group_ids:
                request = FindCoordinatorRequest(key=group_id, key_type=_GROUP)
                answer = await connection.send(request, FindCoordinatorResponse, version=version)
                refused = refusal(answer.error_code, f"group {group_id}", answer.error_message)
                found[group_id] = refused or answer.node_id
        if any(isinstance(one, int) and one not in self._cluster.brokers for one in found.values()):
            await self._cluster.refresh()
        return {group_id: self._reachable(group_id, one) for group_id, one in found.items()}

    def _reachable(self, group_id: str, coordinator: int | RefusedError) -> int | RefusedError:
        """A broker that has just started can be a coordinator before it is in the metadata."""
        if isinstance(coordinator, RefusedError) or coordinator in self._cluster.brokers:
            return coordinator
        return RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id}")
