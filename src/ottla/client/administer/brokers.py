"""The cluster and its brokers, and their features and API versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.base.operations import Operation
from ottla.client.administer.operations import operations_of
from ottla.client.administer.outcomes import Area, known, version_of
from ottla.client.errors import raise_if_refused
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.registry import apis

_FENCED_SINCE: Final = 2
_OPERATIONS_IN_METADATA: Final = range(8, 11)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its address. A fenced broker (KIP-631) does not serve requests."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster. In clusters without ZooKeeper any broker can be returned as the controller."""

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[Node, ...]
    authorized_operations: frozenset[Operation] | None = None


class VersionRange(NamedTuple):
    """From the lowest to the highest version, both inclusive."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """The features that a broker supports, and the levels that the cluster has finalized (KIP-584)."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    finalized_epoch: int | None


class BrokersArea(Area):
    """Operations on the cluster."""

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False
    ) -> ClusterDescription:
        """The cluster id, the controller and the brokers."""

        async def attempt() -> ClusterDescription:
            connection = await self._cluster.any_connection()
            if DescribeClusterRequest.api_key not in connection.served and not include_fenced_brokers:
                return await self._metadata_of_cluster(operations=include_authorized_operations)
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers,
            )
            since = _FENCED_SINCE if include_fenced_brokers else 0
            why = "list fenced brokers"
            version = version_of(connection, DescribeClusterRequest, since=since, why=why)
            answer = await connection.send(request, DescribeClusterResponse, version=version)
            raise_if_refused(answer.error_code, "the description of the cluster", answer.error_message)
            brokers = [Node(one.broker_id, one.host, one.port, one.rack, one.is_fenced) for one in answer.brokers]
            return _description(answer.cluster_id, answer.controller_id, brokers, answer.cluster_authorized_operations)

        return await self._cluster.retry(attempt)

    async def _metadata_of_cluster(self, *, operations: bool) -> ClusterDescription:
        """The same for brokers before Kafka 2.8."""
        connection = await self._cluster.any_connection()
        version = version_of(connection, MetadataRequest)
        request = MetadataRequest(
            topics=[],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=operations and version in _OPERATIONS_IN_METADATA,
        )
        answer = await connection.send(request, MetadataResponse, version=version)
        raise_if_refused(answer.error_code, "the description of the cluster")
        brokers = [Node(one.node_id, one.host, one.port, one.rack) for one in answer.brokers]
        return _description(answer.cluster_id, answer.controller_id, brokers, answer.cluster_authorized_operations)

    async def describe_features(self, broker_id: int | None = None) -> FeatureMetadata:
        """The features of this broker, or of any."""
        answer = await self._api_versions(broker_id)
        return FeatureMetadata(
            {one.name: VersionRange(one.min_version, one.max_version) for one in answer.supported_features},
            {one.name: VersionRange(one.min_version_level, one.max_version_level) for one in answer.finalized_features},
            known(answer.finalized_features_epoch),
        )

    async def api_versions(self, broker_id: int | None = None) -> dict[str, VersionRange]:
        """The APIs that this broker, or any, supports: by name, or by number if the name is unknown."""
        answer = await self._api_versions(broker_id)
        named = {key: api.name for key, api in apis().items()}
        return {
            named.get(one.api_key, str(one.api_key)): VersionRange(one.min_version, one.max_version)
            for one in sorted(answer.api_keys, key=lambda each: each.api_key)
        }

    async def _api_versions(self, broker_id: int | None) -> ApiVersionsResponse:
        async def attempt() -> ApiVersionsResponse:
            request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
            answer = await self._ask(broker_id, request, ApiVersionsResponse)
            raise_if_refused(answer.error_code, "the API versions of a broker")
            return answer

        return await self._cluster.retry(attempt)


def _description(
    cluster_id: str | None, controller_id: int, brokers: list[Node], operations: int
) -> ClusterDescription:
    ordered = tuple(sorted(brokers, key=lambda broker: broker.broker_id))
    return ClusterDescription(cluster_id, known(controller_id), ordered, operations_of(operations))
