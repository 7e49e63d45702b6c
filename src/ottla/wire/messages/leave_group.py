"""LeaveGroup (13): give up membership of a group, or take it from others.

Several members, static ones among them, since v3 (KIP-345), a reason since v5 (KIP-800).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string


class LeaveGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[LeaveGroupMember] = array(LeaveGroupMember, "3+")


class LeaveGroupMemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[LeaveGroupMemberResponse] = array(LeaveGroupMemberResponse, "3+")
