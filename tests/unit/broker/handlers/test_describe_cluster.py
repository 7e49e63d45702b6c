from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.describe_cluster import describe_cluster
from ottla.broker.metadata.metadata_cache import BrokerEndpoint, MetadataCache
from ottla.wire.codec import encode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from support.brokers.small_broker import context


class Broker:
    def __init__(self, controller_id: int = 4) -> None:
        self.metadata = MetadataCache("a-cluster", controller_id)
        self.metadata.put_broker(BrokerEndpoint(4, "here", 9092, "a rack"), listener="PLAINTEXT")
        self.metadata.put_broker(BrokerEndpoint(4, "there", 9093), listener="OTHER")


def ask(broker: Broker, request: DescribeClusterRequest, version: int = 2) -> DescribeClusterResponse:
    response = describe_cluster(broker, request, context(version))  # type: ignore[arg-type]
    encode(response, version)
    return response


@pytest.mark.parametrize("version", list(DescribeClusterRequest.versions))
def test_the_cluster(version: int) -> None:
    assert ask(Broker(), DescribeClusterRequest(), version) == DescribeClusterResponse(
        cluster_id="a-cluster",
        controller_id=4,
        brokers=[DescribeClusterBroker(broker_id=4, host="here", port=9092, rack="a rack")],
        cluster_authorized_operations=-(2**31),
    )


def test_operations_on_request() -> None:
    response = ask(Broker(), DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert response.cluster_authorized_operations == 8096  # as Kafka without an authorizer


def test_a_controller_that_is_not_there_is_not_named() -> None:
    assert ask(Broker(controller_id=9), DescribeClusterRequest()).controller_id == -1


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_only_brokers_can_be_asked_for(endpoint_type: int, code: ErrorCode) -> None:
    response = ask(Broker(), DescribeClusterRequest(endpoint_type=endpoint_type))
    assert response.error_code == code
    assert response.error_message
    assert response.brokers == []
