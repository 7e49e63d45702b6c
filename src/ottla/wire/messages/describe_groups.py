"""DescribeGroups (15): state and members of groups of the classic protocol.

Authorized operations since v3 (KIP-430), static members since v4 (KIP-345), an error instead of a dead group where
there is none since v6 (KIP-1043).
"""

from __future__ import annotations

from ottla.wire.schema import STRING, Request, Response, Struct, array, binary, boolean, int16, int32, string


class DescribeGroupsRequest(Request, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    # These two are known while the group is stable, and empty otherwise.
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    # The name of the protocol that was chosen, while the group is stable.
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    # One bit per operation; the default means that they were not requested.
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
