"""DescribeCluster (60): the brokers of the cluster (KIP-700). There are no dedicated controllers (KIP-919), and no
fenced brokers (KIP-1073)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.operations import NOT_ASKED
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.broker.requests.authorized_operations import CLUSTER_OPERATIONS
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@handles(DescribeClusterRequest)
def describe_cluster(
    broker: Broker, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is a broker; the request asks for controllers, and this cluster has no dedicated ones.",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unknown endpoint type {request.endpoint_type}; use 1 for brokers.",
        )
    metadata = broker.metadata
    brokers = metadata.brokers_of(context.listener)
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id if metadata.controller_id in brokers else -1,
        brokers=[
            DescribeClusterBroker(
                broker_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
            for endpoint in brokers.values()
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
