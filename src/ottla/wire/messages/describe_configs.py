"""DescribeConfigs (32): the configuration of topics, brokers and other resources, and where each value comes from.

Sources and synonyms in place of a mere is-default since v1 (KIP-226), types and documentation since v3 (KIP-569).
"""

from __future__ import annotations

from ottla.wire.schema import STRING, Request, Response, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(STRING, nullable="0+")  # null asks for all


class DescribeConfigsRequest(Request, api_key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribedConfigSynonym(Struct):
    """A place the value may come from; the first one that is set wins."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribedConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribedConfigSynonym] = array(DescribedConfigSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="3+", ignorable=True)


class DescribeConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribedConfig] = array(DescribedConfig)


class DescribeConfigsResponse(Response, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResourceResponse] = array(DescribeConfigsResourceResponse)
