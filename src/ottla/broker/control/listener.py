"""Which connections may carry the controller's requests.

Without authentication anybody who can connect could send them. So they are taken only on the listener between brokers,
or on the control plane's listener if there is one. On a listener that clients use too, the epochs in the requests are
what protects the broker (`control_requests`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.error_codes import ErrorCode
from ottla.broker.requests.api import BrokerError, RequestContext

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.control.control_requests import ControlRequests
    from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


class ControllerApis(Protocol):
    """What brokers ask the controller: `ottla.controller.cluster_controller.ClusterController`."""

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse: ...
    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse: ...
    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse: ...


def controlled(broker: Broker, api: str, context: RequestContext) -> ControlRequests:
    """Takes the controller's requests; raises `BrokerError` on a wrong listener, and in a broker without a cluster."""
    control = broker.control
    if control is None:
        raise _refused(broker, api, context, "this broker is not part of a cluster")
    wanted = broker.config.control_plane_listener or broker.config.inter_broker_listener
    if context.listener != wanted:
        raise _refused(broker, api, context, f"such requests are accepted only on listener {wanted}")
    return control


def cluster_controller(broker: Broker, api: str, context: RequestContext) -> ControllerApis:
    """Takes requests of other brokers to the controller; raises like `controlled`."""
    controller = broker.cluster_controller
    if controller is None:
        raise _refused(broker, api, context, "this broker is not part of a cluster")
    config = broker.config
    if context.listener not in (config.inter_broker_listener, config.control_plane_listener):
        raise _refused(broker, api, context, f"such requests are accepted only on {config.inter_broker_listener}")
    return controller


def _refused(broker: Broker, api: str, context: RequestContext, why: str) -> BrokerError:
    broker.complaints.warning(
        f"{api} {context.client_host}",
        "refused %s of %s at %s on listener %s: %s",
        *(api, context.client_id or "a client", context.client_host, context.listener, why),
    )
    return BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{api} is refused: {why}.")
