"""ListGroups (16): the groups that a broker coordinates.

By state since v4 (KIP-518), by type since v5 (KIP-848).
"""

from __future__ import annotations

from ottla.wire.schema import STRING, Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, api_key=16, versions="0-5", flexible="3+"):
    # An empty filter lets every group pass.
    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
