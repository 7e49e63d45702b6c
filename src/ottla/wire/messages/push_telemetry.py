"""PushTelemetry (72): a client's own metrics, as OpenTelemetry's protobuf, to the broker (KIP-714)."""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import Request, Response, binary, boolean, int8, int16, int32, uuid


class PushTelemetryRequest(Request, api_key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Response, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
