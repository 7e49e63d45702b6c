"""GetTelemetrySubscriptions (71): which of its metrics a client should push, how often and how (KIP-714)."""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT8, STRING, Request, Response, array, boolean, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Request, api_key=71, versions="0", flexible="0+"):
    """A client without an id of its own asks with the zero one, and is given one."""

    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(INT8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    # Prefixes of metric names. No element: none is wanted; one empty element: all are.
    requested_metrics: list[str] = array(STRING)
