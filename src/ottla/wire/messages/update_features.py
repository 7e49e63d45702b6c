"""UpdateFeatures (57): raise, lower or remove the finalized level of cluster features (KIP-584).

Kinds of downgrade and dry runs since v1 (KIP-778). From v2 on one error answers the whole request, not one a feature.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdate(Struct):
    feature: str = string(key=True)
    max_version_level: int = int16()  # below 1: remove the feature
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)  # 1: upgrade, 2: downgrade without loss, 3: downgrade with loss


class UpdateFeaturesRequest(Request, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean("1+")


class FeatureUpdateResponse(Struct):
    feature: str = string(key=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Response, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[FeatureUpdateResponse] = array(FeatureUpdateResponse, "0-1", ignorable=True)
