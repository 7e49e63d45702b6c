"""Differences in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from differential.comparison import Difference, Exchange
from differential.on_purpose.entry import OnPurpose
from differential.on_purpose.places import innermost, structs, topic_key
from ottla.base.error_codes import ErrorCode
from ottla.base.operations import Operation
from ottla.broker.requests.authorized_operations import GROUP_OPERATIONS

_GROUP_OPERATIONS_IN_4: Final = GROUP_OPERATIONS | 1 << Operation.DESCRIBE_CONFIGS | 1 << Operation.ALTER_CONFIGS
_NOT_FOUND: Final = ErrorCode.GROUP_ID_NOT_FOUND
_UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID
_OF_LEFT_GROUPS: Final[dict[tuple[str, str], tuple[tuple[Any, Any], ...]]] = {
    ("DeleteGroups", "results/error_code"): ((_NOT_FOUND, ErrorCode.NONE),),
    ("DescribeGroups", "groups/error_code"): ((_NOT_FOUND, ErrorCode.NONE),),
    ("DescribeGroups", "groups/group_state"): (("Dead", "Empty"),),
    ("OffsetDelete", "error_code"): ((_NOT_FOUND, ErrorCode.NONE),),
    ("OffsetCommit", "topics/partitions/error_code"): (
        (_NOT_FOUND, _UNKNOWN),
        (ErrorCode.ILLEGAL_GENERATION, _UNKNOWN),
    ),
    ("JoinGroup", "error_code"): ((_UNKNOWN, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),),
}
"""By API and field: ours and theirs, where Kafka still has a group and Ottla has not."""
_REBALANCES: Final[tuple[tuple[Any, ...], ...]] = (
    ("Heartbeat", "error_code", ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE),
    ("SyncGroup", "error_code", ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE),
    ("OffsetCommit", "topics/partitions/error_code", ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE),
    ("DescribeGroups", "groups/group_state", "PreparingRebalance", "CompletingRebalance"),
    ("DescribeGroups", "groups/group_state", "PreparingRebalance", "Stable"),
)
"""By API and field: ours and theirs, where only Ottla's group rebalances."""
_JOINING: Final = (None, ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
"""Answers to a join that is not refused; to some, nobody waited for one."""


def _request(found: Difference) -> dict[str, Any]:
    """That the answer is for: if it was waited for, the one that was sent first and is not answered yet."""
    if "receive" not in found.step:
        return found.request
    number = found.step["receive"]
    sent = [each for each in found.history if each.step.get("later") and each.step.get("connection", 0) == number]
    received = sum(1 for each in found.history if each.step.get("receive") == number)
    return sent[received].request if received < len(sent) else {}


def _group(found: Difference) -> str | None:
    """That the difference is about, as requests name it."""
    if "group_id" in (request := _request(found)):
        return str(request["group_id"])
    for struct in structs(found):
        if "group_id" in struct:
            return _as_asked(struct["group_id"])
    return None


def _as_asked(name: str) -> str:
    return name.replace("$-g", "$group:")


def _asked_of(group: str | None, exchange: Exchange, api: str) -> bool:
    return exchange.api == api and exchange.request.get("group_id") == group


def _is_left(found: Difference, group: str | None) -> bool:
    """Whether the dialogue took away the last that was in the group, or never got anything into it."""
    committed = {
        topic_key(topic["name"])
        for exchange in found.history
        if _asked_of(group, exchange, "OffsetCommit")
        for topic in exchange.request["topics"]
    }
    return any(
        _asked_of(group, exchange, "OffsetDelete")
        or (exchange.api == "DeleteTopics" and committed & _deleted(exchange))
        or (_asked_of(group, exchange, "JoinGroup") and _error(exchange) not in _JOINING)
        or (_asked_of(group, exchange, "OffsetCommit") and _is_refused(exchange))
        for exchange in found.history
    )


def _deleted(exchange: Exchange) -> set[str]:
    request = exchange.request
    named = [each["topic_id"] if each["name"] is None else each["name"] for each in request.get("topics", ())]
    return {topic_key(name) for name in (*request.get("topic_names", ()), *named)}


def _error(exchange: Exchange) -> int | None:
    """Of Kafka's answer; none is known where it was not waited for."""
    return exchange.theirs.get("error_code") if isinstance(exchange.theirs, dict) else None


def _is_refused(exchange: Exchange) -> bool:
    """A commit of which Kafka took nothing."""
    if not isinstance(exchange.theirs, dict):
        return False
    return all(each["error_code"] for topic in exchange.theirs["topics"] for each in topic["partitions"])


def _is_left_group(found: Difference) -> bool:
    if (found.api, found.field) == ("ListGroups", "groups"):
        ours = [each["group_id"] for each in found.ours]
        more = [each["group_id"] for each in found.theirs if each["group_id"] not in ours]
        return len(ours) + len(more) == len(found.theirs) and all(_is_left(found, _as_asked(each)) for each in more)
    pairs = _OF_LEFT_GROUPS.get((found.api, found.field), ())
    return (found.ours, found.theirs) in pairs and _is_left(found, _group(found))


def _is_restarted_group(found: Difference) -> bool:
    if (found.api, found.field) == ("ListGroups", "groups"):
        theirs = [each["group_id"] for each in found.theirs]
        more = [each["group_id"] for each in found.ours if each["group_id"] not in theirs]
        return len(theirs) + len(more) == len(found.ours) and all(
            _awaited_restart(found, _as_asked(each)) for each in more
        )
    pairs = _OF_LEFT_GROUPS.get((found.api, found.field), ())
    return (found.theirs, found.ours) in pairs and _awaited_restart(found, _group(found))


def _awaited_restart(found: Difference, group: str | None) -> bool:
    """Whether members joined the group before a restart, or were given ids to join with, and until then none of them
    was assigned anything and no offset was committed."""
    restarts = [number for number, exchange in enumerate(found.history) if "restart" in exchange.step]
    before = found.history[: restarts[-1]] if restarts else ()
    return (
        any(
            _asked_of(group, exchange, "JoinGroup")
            and _error(exchange) in (None, ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
            for exchange in before
        )
        and group not in _assigned_groups(before)
        and not any(_asked_of(group, exchange, "OffsetCommit") and not _is_refused(exchange) for exchange in before)
    )


def _had_one_about_to_join(found: Difference) -> bool:
    """Whether the dialogue deleted offsets of a group after somebody was given an id to join it with."""
    if (found.theirs, found.ours) not in _OF_LEFT_GROUPS.get((found.api, found.field), ()):
        return False
    group = _group(found)
    given = [
        number
        for number, exchange in enumerate(found.history)
        if _asked_of(group, exchange, "JoinGroup") and _error(exchange) == ErrorCode.MEMBER_ID_REQUIRED
    ]
    return bool(given) and any(_asked_of(group, exchange, "OffsetDelete") for exchange in found.history[given[0] + 1 :])


def _began_when_an_id_left(found: Difference) -> bool:
    """Whether Ottla rebalances and Kafka does not, and somebody left who was given an id and has not joined with it."""
    if (found.api, found.field, found.ours, found.theirs) not in _REBALANCES:
        return False
    group = _group(found)
    was_given = False
    for exchange in found.history:
        if _asked_of(group, exchange, "LeaveGroup") and was_given:
            return True
        was_given |= _asked_of(group, exchange, "JoinGroup") and _error(exchange) == ErrorCode.MEMBER_ID_REQUIRED
    return False


def _is_unwritten(found: Difference) -> bool:
    """Whether the dialogue had a commit to the group refused, then somebody was given an id to join it with, and
    nothing was written of it since."""
    groups: list[str | None] = []
    if (found.api, found.field) == ("ListGroups", "groups"):
        listed = [each["group_id"] for each in found.theirs]
        groups = [_as_asked(each["group_id"]) for each in found.ours if each["group_id"] not in listed]
    elif found.api == "DescribeGroups":
        ours, theirs = (innermost(found, tree).get("group_state") for tree in (found.our_tree, found.their_tree))
        groups = [_group(found)] if (ours, theirs) == ("Empty", "Dead") else []
    return bool(groups) and all(_is_only_known(found, group) for group in groups)


def _is_only_known(found: Difference, group: str | None) -> bool:
    asked = [
        exchange
        for exchange in found.history
        if any(_asked_of(group, exchange, api) for api in ("OffsetCommit", "JoinGroup"))
    ]
    return (
        len(asked) > 1
        and asked[0].api == "OffsetCommit"
        and all(
            _is_refused(exchange)
            if exchange.api == "OffsetCommit"
            else _error(exchange) == ErrorCode.MEMBER_ID_REQUIRED
            for exchange in asked
        )
        and asked[-1].api == "JoinGroup"
    )


def _assigned_groups(history: Sequence[Exchange]) -> set[str]:
    """The groups with an accepted SyncGroup request, which may have been answered later."""
    unanswered: dict[int, list[Exchange]] = {}
    groups = set()
    for exchange in history:
        step = exchange.step
        if step.get("later"):
            unanswered.setdefault(step.get("connection", 0), []).append(exchange)
            continue
        asked = [exchange]
        if "receive" in step:  # answers come in the order of the requests
            waiting = unanswered.get(step["receive"], [])
            asked, waiting[:1] = waiting[:1], []
        groups |= {
            each.request["group_id"] for each in asked if each.api == "SyncGroup" and _error(exchange) == ErrorCode.NONE
        }
    return groups


ENTRIES: Final[tuple[OnPurpose, ...]] = (
    OnPurpose(
        "operations on groups",
        "Groups have configs since Kafka 4, so two more operations; Ottla reports those of 3.9.1.",
        lambda found: (
            found.peer == "4.3.1"
            and found.field == "groups/authorized_operations"
            and (found.ours, found.theirs) == (GROUP_OPERATIONS, _GROUP_OPERATIONS_IN_4)
        ),
    ),
    OnPurpose(
        "groups without offsets",
        "Kafka keeps groups without members and offsets until its next clean-up: those whose last offset is gone, and "
        "those whose only join or commit was refused. Ottla drops them at once.",
        _is_left_group,
        parts_ways=True,
    ),
    OnPurpose(
        "groups without assignments, after a restart",
        "Kafka 4 keeps a group in its log from when its first member joins or is given an id, 3.9.1 from when members "
        "are assigned something.",
        lambda found: found.peer == "3.9.1" and _is_restarted_group(found),
        parts_ways=True,
    ),
    OnPurpose(
        "offsets deleted before the first member joins",
        "Kafka 3.9.1 then drops the group, with the id that somebody was given to join; Kafka 4 and Ottla keep it.",
        lambda found: found.peer == "3.9.1" and _had_one_about_to_join(found),
        parts_ways=True,
    ),
    OnPurpose(
        "somebody leaves before joining",
        "Kafka 4 and Ottla rebalance if somebody leaves who was given an id to join with; Kafka 3.9.1 does not.",
        lambda found: found.peer == "3.9.1" and _began_when_an_id_left(found),
        parts_ways=True,
    ),
    OnPurpose(
        "a group that is not in the log",
        "Kafka 4 shows groups as they are in its log. It writes nothing of a member-to-be if a refused commit has made "
        "the group in memory before; Ottla shows that group as one without members, as it does without the commit.",
        lambda found: found.peer == "4.3.1" and _is_unwritten(found),
        parts_ways=True,
    ),
    OnPurpose(
        "commit to a group that is not there",
        "With a generation, Kafka 4 says that the group or member is unknown, 3.9.1 that the generation is.",
        lambda found: (
            found.peer == "3.9.1"
            and (found.api, found.field) == ("OffsetCommit", "topics/partitions/error_code")
            and found.ours in (_NOT_FOUND, _UNKNOWN)
            and found.theirs == ErrorCode.ILLEGAL_GENERATION
            and found.request.get("generation_id_or_member_epoch", -1) != -1
        ),
    ),
    OnPurpose(
        "assignments while a group rebalances",
        "DescribeGroups of Kafka 3.9.1 shows assignments of stable groups only; Kafka 4 shows them always.",
        lambda found: (
            found.peer == "3.9.1"
            and found.field == "groups/members/member_assignment"
            and found.theirs == ""
            and any(
                struct.get("group_state") in ("PreparingRebalance", "CompletingRebalance") for struct in structs(found)
            )
        ),
    ),
    OnPurpose(
        "leader after a leader left",
        "Kafka makes any of the other members the leader, by the hash of its id; Ottla the one that joined first.",
        lambda found: (
            found.field == "leader"
            and found.ours.startswith("<member ")
            and found.theirs.startswith("<member ")
            and any(_asked_of(_group(found), exchange, "LeaveGroup") for exchange in found.history)
        ),
        parts_ways=True,
    ),
    OnPurpose(
        "a name for the error of a join",
        "Kafka fails with UNKNOWN_SERVER_ERROR if a member that was given its id joins as a static one; Ottla says "
        "that it does not know such a member.",
        lambda found: (
            found.api in ("JoinGroup", "receive")
            and found.field == "error_code"
            and (found.ours, found.theirs) == (_UNKNOWN, ErrorCode.UNKNOWN_SERVER_ERROR)
            and _request(found).get("group_instance_id") is not None
            and _request(found)["member_id"] != ""
        ),
        parts_ways=True,
    ),
)
