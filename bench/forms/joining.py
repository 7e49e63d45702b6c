"""Groups that form one after the other: a member joins, gets its assignment, and leaves."""

from __future__ import annotations

import time
from typing import Final

from bench.broker.control import Control, check
from bench.broker.raw import measured

from ottla.base.error_codes import ErrorCode
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

_TYPE: Final = "consumer"
_PROTOCOL: Final = "range"
_TOPIC: Final = "joined"
_SUBSCRIPTION: Final = encode_versioned(ConsumerProtocolSubscription(topics=[_TOPIC]), 0)
"""What consumers send. Kafka 4.3.1 reads it when a group of the type "consumer" has formed, and never answers the
JoinGroup request if these bytes are something else."""
_ASSIGNMENT: Final = encode_versioned(
    ConsumerProtocolAssignment(assigned_partitions=[ConsumerProtocolPartitions(topic=_TOPIC, partitions=[0])]), 0
)
_RETRY_PAUSE_S: Final = 0.02
_COORDINATOR_TIMEOUT_S: Final = 60.0
_ANSWER_TIMEOUT_S: Final = 30
"""Longer than any group waits for a member here, so that an answer which is still missing never comes."""


def joins(address: str, pid: int, prefix: str, seconds: float) -> dict[str, float]:
    with Control(address, answer_timeout_s=_ANSWER_TIMEOUT_S) as control:
        await_coordinator(control, prefix)
    formed, until_s = 0, time.perf_counter() + seconds
    with Control(address, answer_timeout_s=_ANSWER_TIMEOUT_S) as control, measured(pid) as spent:
        while time.perf_counter() < until_s:
            _form_and_leave(control, f"{prefix}-{formed}")
            formed += 1
    return spent.of_requests(formed)


def await_coordinator(control: Control, group: str) -> None:
    """Asking makes the topic of groups."""
    request = FindCoordinatorRequest(coordinator_keys=[group])
    give_up_s = time.monotonic() + _COORDINATOR_TIMEOUT_S
    while code := control.ask(request, 4, FindCoordinatorResponse).coordinators[0].error_code:
        if time.monotonic() > give_up_s:
            check(code, f"FindCoordinator of {group}, for {_COORDINATOR_TIMEOUT_S} s,")
        time.sleep(_RETRY_PAUSE_S)


def _form_and_leave(control: Control, group: str) -> None:
    joined = _join(control, group, "")
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = _join(control, group, joined.member_id)
    check(joined.error_code, f"JoinGroup of {group}")
    member_id = joined.member_id
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=member_id,
        protocol_type=_TYPE,
        protocol_name=_PROTOCOL,
        assignments=[SyncGroupAssignment(member_id=member_id, assignment=_ASSIGNMENT)],
    )
    check(control.ask(sync, 5, SyncGroupResponse).error_code, f"SyncGroup of {group}")
    leave = LeaveGroupRequest(group_id=group, members=[LeaveGroupMember(member_id=member_id)])
    check(control.ask(leave, 5, LeaveGroupResponse).error_code, f"LeaveGroup of {group}")


def _join(control: Control, group: str, member_id: str) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type=_TYPE,
        protocols=[JoinGroupProtocol(name=_PROTOCOL, metadata=_SUBSCRIPTION)],
    )
    return control.ask(request, 9, JoinGroupResponse)
