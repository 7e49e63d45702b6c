"""JoinGroup (11): become a member of a group of the classic protocol, and wait for the others.

Rebalance timeout since v1 (KIP-62), a member id to come back with before joining since v4 (KIP-394), static members
since v5 (KIP-345), the group's protocol type since v7 (KIP-559), a reason since v8 (KIP-800), a leader that is not to
assign anew since v9 (KIP-814).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, boolean, int16, int32, string


class JoinGroupProtocol(Struct):
    """A way to assign that the member knows, best first, with what it says of itself for it."""

    name: str = string(key=True)
    metadata: bytes = binary()


class JoinGroupRequest(Request, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = string()
    session_timeout_ms: int = int32()
    # In v0 the session timeout serves for this one too.
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupProtocol] = array(JoinGroupProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = binary()


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    # Only the leader gets the other members.
    members: list[JoinGroupMember] = array(JoinGroupMember)
