"""Every declaration of a message against Apache Kafka's own definition of it, and no definition forgotten."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_artifacts import jar
from kafka_definitions import load_definitions, report
from ottla.wire.registry import all_messages
from ottla.wire.schema import INT32, Message, Response, Struct, array, int8, int16, int32, int64, string

pytestmark = pytest.mark.compat

ARTIFACTS = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator")

LEFT_OUT = {
    "the quorum of KRaft's controllers: coordination is ZooKeeper's": """
        AddRaftVoterRequest AddRaftVoterResponse BeginQuorumEpochRequest BeginQuorumEpochResponse
        DescribeQuorumRequest DescribeQuorumResponse EndQuorumEpochRequest EndQuorumEpochResponse
        FetchSnapshotRequest FetchSnapshotResponse RemoveRaftVoterRequest RemoveRaftVoterResponse
        UpdateRaftVoterRequest UpdateRaftVoterResponse VoteRequest VoteResponse
    """,
    "how brokers and controllers register with KRaft: brokers are registered in ZooKeeper": """
        AssignReplicasToDirsRequest AssignReplicasToDirsResponse BrokerHeartbeatRequest BrokerHeartbeatResponse
        BrokerRegistrationRequest BrokerRegistrationResponse ControllerRegistrationRequest
        ControllerRegistrationResponse UnregisterBrokerRequest UnregisterBrokerResponse
    """,
    "share groups (KIP-932) are not served": """
        AlterShareGroupOffsetsRequest AlterShareGroupOffsetsResponse DeleteShareGroupOffsetsRequest
        DeleteShareGroupOffsetsResponse DeleteShareGroupStateRequest DeleteShareGroupStateResponse
        DescribeShareGroupOffsetsRequest DescribeShareGroupOffsetsResponse InitializeShareGroupStateRequest
        InitializeShareGroupStateResponse ReadShareGroupStateRequest ReadShareGroupStateResponse
        ReadShareGroupStateSummaryRequest ReadShareGroupStateSummaryResponse ShareAcknowledgeRequest
        ShareAcknowledgeResponse ShareFetchRequest ShareFetchResponse ShareGroupDescribeRequest
        ShareGroupDescribeResponse ShareGroupHeartbeatRequest ShareGroupHeartbeatResponse
        WriteShareGroupStateRequest WriteShareGroupStateResponse
    """,
    "records of share groups (KIP-932), which are not served": """
        ShareGroupCurrentMemberAssignmentKey ShareGroupCurrentMemberAssignmentValue ShareGroupMemberMetadataKey
        ShareGroupMemberMetadataValue ShareGroupMetadataKey ShareGroupMetadataValue ShareGroupPartitionMetadataKey
        ShareGroupPartitionMetadataValue ShareGroupStatePartitionMetadataKey ShareGroupStatePartitionMetadataValue
        ShareGroupTargetAssignmentMemberKey ShareGroupTargetAssignmentMemberValue
        ShareGroupTargetAssignmentMetadataKey ShareGroupTargetAssignmentMetadataValue
    """,
    "streams groups (KIP-1071) are not served": """
        StreamsGroupDescribeRequest StreamsGroupDescribeResponse StreamsGroupHeartbeatRequest
        StreamsGroupHeartbeatResponse
    """,
    "records of streams groups (KIP-1071), which are not served": """
        StreamsGroupCurrentMemberAssignmentKey StreamsGroupCurrentMemberAssignmentValue StreamsGroupMemberMetadataKey
        StreamsGroupMemberMetadataValue StreamsGroupMetadataKey StreamsGroupMetadataValue
        StreamsGroupTargetAssignmentMemberKey StreamsGroupTargetAssignmentMemberValue
        StreamsGroupTargetAssignmentMetadataKey StreamsGroupTargetAssignmentMetadataValue StreamsGroupTopologyKey
        StreamsGroupTopologyValue
    """,
    "Kafka 4's name for version 0 of OffsetCommitKey and OffsetCommitValue, which 3.9 and we count as versions": """
        LegacyOffsetCommitKey LegacyOffsetCommitValue
    """,
    "Kafka 3.9's name for version 0 of ListConfigResources": """
        ListClientMetricsResourcesRequest ListClientMetricsResourcesResponse
    """,
}
LEFT_OUT_NAMES = [name for names in LEFT_OUT.values() for name in names.split()]


@pytest.fixture(scope="module")
def sources() -> list[Path]:
    return [jar(version, artifact) for version in ("3.9.1", "4.3.1") for artifact in ARTIFACTS]


@pytest.fixture(scope="module")
def differences(sources: list[Path]) -> Mapping[str, list[str]]:
    """What `report` finds, by message."""
    by_message = defaultdict(list)
    for line in report(all_messages(), sources):
        by_message[line.partition(" ")[0]].append(line)
    return by_message


@pytest.fixture(scope="module")
def defined_names(sources: list[Path]) -> set[str]:
    return {name for source in sources for name in load_definitions(source)}


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_a_declaration_is_what_kafka_defines(name: str, differences: Mapping[str, list[str]]) -> None:
    found = differences.get(name, [])
    assert not found, "\n".join(found)


def test_every_definition_is_declared_or_left_out_for_a_reason(defined_names: set[str]) -> None:
    missing = defined_names - set(all_messages()) - set(LEFT_OUT_NAMES)
    assert not missing, f"neither declared nor left out on purpose: {', '.join(sorted(missing))}"


def test_nothing_that_is_left_out_is_declared_or_unknown_to_kafka(defined_names: set[str]) -> None:
    declared = set(LEFT_OUT_NAMES) & set(all_messages())
    assert not declared, f"declared, so not left out: {', '.join(sorted(declared))}"
    unknown = set(LEFT_OUT_NAMES) - defined_names
    assert not unknown, f"left out, but no definition of Kafka's: {', '.join(sorted(unknown))}"
    assert len(LEFT_OUT_NAMES) == len(set(LEFT_OUT_NAMES))


def test_every_request_that_a_zookeeper_mode_broker_answers_is_declared_with_its_response() -> None:
    definitions = load_definitions(jar("3.9.1", "kafka-clients"))
    answered = {name for name, each in definitions.items() if "zkBroker" in each.get("listeners", ())}
    assert len(answered) > 60
    wanted = answered | {f"{name.removesuffix('Request')}Response" for name in answered}
    missing = wanted - set(all_messages())
    assert not missing, f"not declared: {', '.join(sorted(missing))}"


# --- the comparison itself ------------------------------------------------------------------------------------------
#
# A right declaration of ListConfigResourcesResponse with one thing changed has to be told by the name of that thing.

NAME = "ListConfigResourcesResponse"


def _resource(**changed: Any) -> type[Struct]:
    fields = {"resource_name": string(), "resource_type": int8("1+", default=16, ignorable=True)} | changed
    return types.new_class("Resource", (Struct,), exec_body=lambda body: body.update(fields))


def _response(resource: type[Struct] | None = None, **changed: Any) -> dict[str, Any]:
    return {
        "throttle_time_ms": int32(),
        "error_code": int16(),
        "config_resources": array(resource or _resource()),
    } | changed


def _declare(fields: Mapping[str, Any], **options: Any) -> type[Message]:
    options = {"api_key": 74, "versions": "0-1", "flexible": "0+"} | options
    kept = {name: field for name, field in fields.items() if field is not None}
    return types.new_class(NAME, (Response,), options, lambda body: body.update(kept))


def _found(declaration: type[Message]) -> list[str]:
    lines = report({NAME: declaration}, [jar("4.3.1", "kafka-clients")])
    return sorted(line.replace(" (kafka-clients-4.3.1.jar)", "") for line in lines)


def _in_both_versions(words: str) -> list[str]:
    return [f"{NAME} v0: {words}", f"{NAME} v1: {words}"]


def test_a_right_declaration_has_no_differences() -> None:
    assert _found(_declare(_response())) == []


@pytest.mark.parametrize(
    ("declaration", "told"),
    [
        pytest.param(
            _declare(_response(error_code=int32())),
            _in_both_versions(f"{NAME}.error_code: type is 'int32' here and 'int16' in Kafka"),
            id="type",
        ),
        pytest.param(
            _declare(_response(config_resources=array(INT32))),
            _in_both_versions(f"{NAME}.config_resources: type is '[]int32' here and '[]struct' in Kafka"),
            id="element type",
        ),
        pytest.param(
            _declare(_response(error_code=None)),
            _in_both_versions(f"{NAME}.error_code: Kafka has this field in this version (int16), ours does not"),
            id="missing field",
        ),
        pytest.param(
            _declare(_response(error_code=int16("1+"))),
            [f"{NAME} v0: {NAME}.error_code: Kafka has this field in this version (int16), ours does not"],
            id="field too late",
        ),
        pytest.param(
            _declare(_response(_resource(resource_type=int8(default=16, ignorable=True)))),
            [f"{NAME} v0: {NAME}.config_resources.resource_type: ours has this field in this version, Kafka does not"],
            id="field too early, in a struct",
        ),
        pytest.param(
            _declare(_response(reason=int64("1+"))),
            [f"{NAME} v1: {NAME}.reason: ours has this field in this version, Kafka does not"],
            id="field too many",
        ),
        pytest.param(
            _declare(_response(_resource(resource_type=int8("1+", default=15, ignorable=True)))),
            [f"{NAME} v1: {NAME}.config_resources.resource_type: default is '15' here and '16' in Kafka"],
            id="default",
        ),
        pytest.param(
            _declare(_response(_resource(resource_type=int8("1+", default=16)))),
            [f"{NAME} v1: {NAME}.config_resources.resource_type: ignorable is False here and True in Kafka"],
            id="ignorable",
        ),
        pytest.param(
            _declare(_response(_resource(resource_name=string(nullable="1+")))),
            [f"{NAME} v1: {NAME}.config_resources.resource_name: nullable is True here and False in Kafka"],
            id="nullable",
        ),
        pytest.param(
            _declare(_response(_resource(resource_name=string(key=True)))),
            _in_both_versions(f"{NAME}.config_resources.resource_name: key is True here and False in Kafka"),
            id="key",
        ),
        pytest.param(
            _declare(_response(throttle_time_ms=int32(tag=0))),
            _in_both_versions(f"{NAME}.throttle_time_ms: tag is 0 here and None in Kafka"),
            id="tag",
        ),
        pytest.param(
            _declare(dict(sorted(_response().items(), key=lambda item: item[0] != "error_code"))),
            _in_both_versions(
                f"{NAME}: the order of fields is ['error_code', 'throttle_time_ms', 'config_resources'] here "
                "and ['throttle_time_ms', 'error_code', 'config_resources'] in Kafka"
            ),
            id="order",
        ),
        pytest.param(
            _declare(_response(), api_key=75),
            _in_both_versions("the api key is 75 here and 74 in Kafka"),
            id="api key",
        ),
        pytest.param(
            _declare(_response(), flexible="1+"),
            [f"{NAME} v0: flexible here: False, in Kafka: True"],
            id="flexible",
        ),
        pytest.param(
            _declare(_response(), unstable="1"),
            [f"{NAME} v1: unstable here: True, in Kafka: False"],
            id="unstable",
        ),
        pytest.param(
            _declare(_response(), versions="0"),
            [f"{NAME} v1: Kafka has this version, ours does not"],
            id="version missing",
        ),
        pytest.param(
            _declare(_response(), versions="0-2"),
            [f"{NAME} v2: ours has this version, Kafka does not"],
            id="version too many",
        ),
    ],
)
def test_a_wrong_declaration_is_reported_by_name(declaration: type[Message], told: list[str]) -> None:
    assert _found(declaration) == told
