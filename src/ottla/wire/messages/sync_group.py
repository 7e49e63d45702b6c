"""SyncGroup (14): the leader of a classic group hands out the assignments, every member gets its own.

Static members since v3 (KIP-345), protocol type and name to check against those of the group since v5 (KIP-559).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, int16, int32, string


class SyncGroupAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    # Empty from all members but the leader.
    assignments: list[SyncGroupAssignment] = array(SyncGroupAssignment)


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = binary()
