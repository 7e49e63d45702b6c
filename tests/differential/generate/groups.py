"""Steps of groups: members that join, sync, beat and leave, and offsets committed by members and by nobody."""

from __future__ import annotations

from typing import Any

from differential.generate.model import Draft, Member
from differential.generate.topics import NAMES

_GROUPS = ("0", "1")
_PATIENCE_MS = 600_000
"""With members: longer than any dialogue, so that none is dropped by one broker a moment before the other."""


def _group(draft: Draft) -> str:
    return draft.weighted({"0": 8, "1": 2})


# --- classic members --------------------------------------------------------------------------------------------------


def _join_request(draft: Draft, member: Member, version: int, member_id: str) -> dict[str, Any]:
    protocols = draft.choose([["range"], ["range", "sticky"], ["sticky", "range"], ["range"], ["mine"]])
    request: dict[str, Any] = {
        "group_id": f"$group:{member.group}",
        "session_timeout_ms": draft.weighted({_PATIENCE_MS: 20, 5_999: 0.3, 1_800_001: 0.3, 1_800_000: 0.5}),
        "member_id": member_id,
        "protocol_type": draft.weighted({"consumer": 20, "connect": 0.5, "": 0.3}),
        "protocols": [{"name": name, "metadata": _metadata(draft, f"{member.name} {name}")} for name in protocols],
    }
    if draft.maybe(0.02):
        request["protocols"] = []
    if version >= 1:
        request["rebalance_timeout_ms"] = _PATIENCE_MS
    if version >= 5 and member.instance_id is not None:
        request["group_instance_id"] = member.instance_id
    if draft.maybe(0.01):
        request["group_id"] = ""
    return request


def _metadata(draft: Draft, user: str) -> dict[str, Any]:
    return {"topics": [draft.topic().name], "user": user, "version": draft.number(0, 3)}


def join(draft: Draft) -> None:
    """A new member, or one that joins again."""
    there = [each for each in draft.members if each.is_in]
    if there and draft.maybe(0.5):
        member = draft.choose(there)
        others = [each for each in there if each.group == member.group and each is not member]
        version = draft.version("JoinGroup")
        if others:
            _join_together(draft, member, others, version, f"$member:{member.name}")
            return
        request = _join_request(draft, member, version, f"$member:{member.name}")
        draft.ask("JoinGroup", version, request, connection=member.connection, **{"as": member.name})
        return
    group = _group(draft)
    name = f"m{len(draft.members)}"
    member = Member(name, group, len(draft.members) + 1)
    others = [each for each in there if each.group == group]
    if draft.maybe(0.2) and not others:
        member.instance_id = draft.choose(["i", "j"])
    version = draft.version("JoinGroup")
    draft.members.append(member)
    if others:
        _join_together(draft, member, others, version, "")
        return
    request = _join_request(draft, member, version, "")
    draft.ask("JoinGroup", version, request, connection=member.connection, **{"as": name})
    if version >= 4 and member.instance_id is None and request["protocol_type"]:
        again = {**request, "member_id": f"$member:{name}"}
        draft.ask("JoinGroup", version, again, connection=member.connection, **{"as": name})
    member.is_in = True


def _join_together(draft: Draft, member: Member, others: list[Member], version: int, member_id: str) -> None:
    """Waits until the others have joined again."""
    request = _simple_join(draft, member, version, member_id)
    if version >= 4 and not member_id:
        draft.ask("JoinGroup", version, request, connection=member.connection, **{"as": member.name})
        request = {**request, "member_id": f"$member:{member.name}"}
    draft.ask("JoinGroup", version, request, connection=member.connection, later=True, **{"as": member.name})
    member.waits = True
    if draft.maybe(0.5):
        heartbeat(draft, draft.choose(others))
    if draft.maybe(0.2):
        describe_groups(draft)
    for other in others:
        version = draft.version("JoinGroup")
        again = _simple_join(draft, other, version, f"$member:{other.name}")
        draft.ask("JoinGroup", version, again, connection=other.connection, later=True, **{"as": other.name})
        other.waits = True
    _receive_all(draft, member)
    member.is_in = True


def _simple_join(draft: Draft, member: Member, version: int, member_id: str) -> dict[str, Any]:
    """One that is not refused for what it says."""
    request: dict[str, Any] = {
        "group_id": f"$group:{member.group}",
        "session_timeout_ms": _PATIENCE_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": _metadata(draft, member.name)}],
    }
    if version >= 1:
        request["rebalance_timeout_ms"] = _PATIENCE_MS
    if version >= 5 and member.instance_id is not None:
        request["group_instance_id"] = member.instance_id
    return request


def _receive_all(draft: Draft, member: Member) -> None:
    for each in draft.members:
        if each.waits and each.group == member.group:
            draft.steps.append({"receive": each.connection})
            each.waits = False


def sync(draft: Draft) -> None:
    """By all members of a group, since followers wait for the leader; each sends assignments, the leader's count."""
    there = [each for each in draft.members if each.is_in]
    if not there:
        join(draft)
        return
    group = draft.choose(there).group
    members = [each for each in there if each.group == group]
    for member in members:
        _sync(draft, member, members, later=len(members) > 1)
    if len(members) > 1:
        _receive_all(draft, members[0])


def _sync(draft: Draft, member: Member, members: list[Member], *, later: bool) -> None:
    version = draft.version("SyncGroup")
    request: dict[str, Any] = {
        "group_id": f"$group:{member.group}",
        "generation_id": _generation(draft, member.group),
        "member_id": f"$member:{member.name}",
        "assignments": [
            {"member_id": f"$member:{each.name}", "assignment": f"for {each.name}"}
            for each in members
            if draft.maybe(0.95)
        ],
    }
    if version >= 3 and member.instance_id is not None:
        request["group_instance_id"] = member.instance_id if draft.maybe(0.9) else "other"
    if version >= 5:
        request["protocol_type"] = draft.weighted({"consumer": 9, "connect": 0.5})
        request["protocol_name"] = draft.weighted({"range": 9, "sticky": 0.5})
    draft.ask("SyncGroup", version, request, connection=member.connection, **({"later": True} if later else {}))
    member.waits = later


def _generation(draft: Draft, group: str) -> int | str:
    kind = draft.weighted({"right": 12, "older": 1, "newer": 1, "none": 0.5})
    if kind == "none":
        return -1
    return f"$generation:{group}{ {'right': '', 'older': ':-1', 'newer': ':1'}[kind] }"


def _member_id(draft: Draft, member: Member) -> str:
    return f"$member:{member.name}" if draft.maybe(0.93) else draft.choose(["", "nobody"])


def heartbeat(draft: Draft, member: Member | None = None) -> None:
    if member is None:
        if not draft.members:
            join(draft)
            return
        member = draft.choose(draft.members)
    version = draft.version("Heartbeat")
    request: dict[str, Any] = {
        "group_id": f"$group:{member.group}" if draft.maybe(0.97) else draft.choose(["", "none"]),
        "generation_id": _generation(draft, member.group),
        "member_id": _member_id(draft, member),
    }
    if version >= 3 and member.instance_id is not None:
        request["group_instance_id"] = member.instance_id if draft.maybe(0.9) else "other"
    draft.ask("Heartbeat", version, request)


def leave(draft: Draft) -> None:
    if not draft.members:
        join(draft)
        return
    member = draft.choose(draft.members)
    version = draft.version("LeaveGroup")
    request: dict[str, Any] = {"group_id": f"$group:{member.group}"}
    if version < 3:
        request["member_id"] = _member_id(draft, member)
    else:
        leaving: dict[str, Any] = {"member_id": _member_id(draft, member)}
        if member.instance_id is not None:
            leaving["group_instance_id"] = member.instance_id
            if draft.maybe(0.5):
                leaving["member_id"] = ""
        request["members"] = [leaving]
        if draft.maybe(0.1):
            request["members"].append({"member_id": "nobody", "group_instance_id": draft.choose([None, "k"])})
    draft.ask("LeaveGroup", version, request)
    member.is_in = False


def describe_groups(draft: Draft) -> None:
    version = draft.version("DescribeGroups")
    groups = [f"$group:{_group(draft)}"] + (["$group:9"] if draft.maybe(0.2) else [])
    request: dict[str, Any] = {"groups": groups}
    if version >= 3:
        request["include_authorized_operations"] = draft.maybe(0.3)
    draft.ask("DescribeGroups", version, request)


def list_groups(draft: Draft) -> None:
    version = draft.version("ListGroups")
    request: dict[str, Any] = {}
    if version >= 4 and draft.maybe(0.5):
        request["states_filter"] = draft.choose([["Stable"], ["Empty", "Stable"], ["stable"], ["Nonsense"], ["Dead"]])
    if version >= 5 and draft.maybe(0.5):
        request["types_filter"] = draft.choose([["classic"], ["consumer"], ["Classic"], ["share"], ["nonsense"]])
    draft.ask("ListGroups", version, request)


def delete_groups(draft: Draft) -> None:
    groups = (
        [f"$group:{_group(draft)}"] + (["$group:9"] if draft.maybe(0.2) else []) + ([""] if draft.maybe(0.05) else [])
    )
    draft.ask("DeleteGroups", draft.version("DeleteGroups"), {"groups_names": groups})


# --- offsets ----------------------------------------------------------------------------------------------------------


def commit(draft: Draft) -> None:
    version = draft.version("OffsetCommit")
    members = [each for each in draft.members if each.is_in]
    request: dict[str, Any] = {"group_id": f"$group:{_group(draft)}", "topics": _committed(draft, version)}
    if draft.maybe(0.03):
        request["group_id"] = draft.choose(["", "$group:9"])
    if version >= 1:
        if members and draft.maybe(0.7):
            member = draft.choose(members)
            request["group_id"] = f"$group:{member.group}"
            request["generation_id_or_member_epoch"] = _generation(draft, member.group)
            request["member_id"] = _member_id(draft, member)
            if version >= 7 and member.instance_id is not None:
                request["group_instance_id"] = member.instance_id if draft.maybe(0.9) else "other"
        elif draft.maybe(0.1):
            request["generation_id_or_member_epoch"] = draft.choose([0, 3])
            request["member_id"] = draft.choose(["", "nobody"])
    if 2 <= version <= 4 and draft.maybe(0.3):
        request["retention_time_ms"] = draft.choose([-1, 1_000_000, 2**62, 2**63 - 1])
    draft.ask("OffsetCommit", version, request)


def _committed(draft: Draft, version: int) -> list[dict[str, Any]]:
    wanted: dict[str, list[dict[str, Any]]] = {}
    for _ in range(draft.weighted({1: 6, 2: 3, 0: 0.2})):
        topic, index = draft.place()
        one: dict[str, Any] = {
            "partition_index": index,
            "committed_offset": draft.weighted({5: 5, 0: 1, -1: 0.5, -2: 0.2, 2**40: 0.5}),
            "committed_metadata": draft.weighted({"": 5, "some": 2, None: 1, "m" * 4096: 0.5, "m" * 4097: 0.5}),
        }
        if version >= 6:
            one["committed_leader_epoch"] = draft.choose([-1, 0, 7])
        if all(each["partition_index"] != index for each in wanted.get(topic.key, [])):
            wanted.setdefault(topic.key, []).append(one)
    topics = [{"name": f"$topic:{key}", "topic_id": f"$id:{key}", "partitions": those} for key, those in wanted.items()]
    if draft.maybe(0.05):
        unknown = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        topics.append({"name": draft.choose(NAMES[3:]), "topic_id": "$id:none", "partitions": [unknown]})
    return topics


def fetch_offsets(draft: Draft) -> None:
    version = draft.version("OffsetFetch")
    group = f"$group:{_group(draft)}" if draft.maybe(0.95) else draft.choose(["", "$group:9"])
    topics: list[dict[str, Any]] | None = None
    if version < 2 or draft.maybe(0.6):
        topics = []
        for key in sorted({draft.topic().key for _ in range(draft.number(1, 2))}):
            indexes = sorted({draft.number(0, len(draft.topics[int(key)].partitions)) for _ in range(2)})
            topics.append({"name": f"$topic:{key}", "partition_indexes": indexes})
        if draft.maybe(0.05):
            topics.append({"name": draft.choose(NAMES[3:]), "partition_indexes": [0]})
    request: dict[str, Any] = {"require_stable": draft.maybe(0.3)} if version >= 7 else {}
    if version < 8:
        draft.ask("OffsetFetch", version, {"group_id": group, "topics": topics, **request})
        return
    if topics is not None and version >= 10:
        for each in topics:
            each["topic_id"] = each["name"].replace("$topic", "$id") if each["name"].startswith("$") else "$id:none"
    asked: dict[str, Any] = {"group_id": group, "topics": topics}
    if version >= 9 and draft.maybe(0.2):
        asked["member_id"], asked["member_epoch"] = draft.choose([("nobody", 1), (None, -1), ("", 0), ("nobody", -1)])
    groups = [asked] + ([{"group_id": "$group:1", "topics": None}] if group != "$group:1" and draft.maybe(0.1) else [])
    draft.ask("OffsetFetch", version, {"groups": groups, **request})


def delete_offsets(draft: Draft) -> None:
    topic, index = draft.place()
    request = {
        "group_id": f"$group:{_group(draft)}",
        "topics": [{"name": topic.name, "partitions": [{"partition_index": index}]}],
    }
    draft.ask("OffsetDelete", 0, request)


def find_coordinator(draft: Draft) -> None:
    version = draft.version("FindCoordinator")
    group = draft.choose(["$group:0", "", "$group:1"])
    if version >= 4:
        request: dict[str, Any] = {"key_type": draft.weighted({0: 9, 5: 0.5}), "coordinator_keys": [group]}
    else:
        request = {"key": group}
        if version >= 1:
            request["key_type"] = draft.weighted({0: 9, 5: 0.5})
    draft.ask("FindCoordinator", version, request)


# --- consumer protocol ------------------------------------------------------------------------------------------------


def beat(draft: Draft) -> None:
    """A lone member of a consumer group: what it hears does not depend on when others call."""
    if not draft.serves("ConsumerGroupHeartbeat"):
        heartbeat(draft)
        return
    group, name = "7", "c0"
    kind = draft.weighted({"join": 2, "on": 6, "leave": 0.7, "wrong epoch": 1, "unknown": 0.5, "bad": 1})
    version = draft.version("ConsumerGroupHeartbeat")
    request: dict[str, Any] = {"group_id": f"$group:{group}", "member_id": f"$uid:{name}"}
    names = [draft.topic().name for _ in range(draft.number(1, 2))]
    if kind == "join":
        request.update(
            member_epoch=0,
            rebalance_timeout_ms=_PATIENCE_MS,
            subscribed_topic_names=sorted(set(names)),
            topic_partitions=[],
        )
        if draft.maybe(0.3):
            request["server_assignor"] = draft.choose(["uniform", "range", "nonsense"])
    elif kind == "on":
        request.update(member_epoch=f"$epoch:{name}", topic_partitions=f"$owned:{name}")
        if draft.maybe(0.3):
            request["subscribed_topic_names"] = sorted(set(names))
    elif kind == "leave":
        request["member_epoch"] = -1
    elif kind == "wrong epoch":
        request["member_epoch"] = draft.choose([f"$epoch:{name}:1", f"$epoch:{name}:7", -2, -3])
    elif kind == "unknown":
        request.update(member_id="nobody", member_epoch=3)
    else:
        request["member_epoch"] = 0
        request.update(
            draft.choose([{}, {"rebalance_timeout_ms": _PATIENCE_MS}, {"subscribed_topic_names": []}, {"group_id": ""}])
        )
    draft.ask("ConsumerGroupHeartbeat", version, request, **{"as": name})


def describe_consumer_groups(draft: Draft) -> None:
    if not draft.serves("ConsumerGroupDescribe"):
        describe_groups(draft)
        return
    request = {"group_ids": [draft.choose(["$group:7", "$group:0", "$group:9", ""])]}
    draft.ask("ConsumerGroupDescribe", draft.version("ConsumerGroupDescribe"), request)
