"""ApiVersions (18): which versions of which APIs the broker serves; the first request of a client.

The client names its software, and the broker its features, since v3 (KIP-511, KIP-584). A feature's lowest version may
be 0 only since v4. The answer to a version that the broker does not know is in v0, with the versions of this API in it.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Request, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16(key=True)
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeature(Struct):
    name: str = string(key=True)
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeature(Struct):
    """The levels of a feature that the whole cluster has agreed to use."""

    name: str = string(key=True)
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Response, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeature] = array(SupportedFeature, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeature] = array(FinalizedFeature, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
