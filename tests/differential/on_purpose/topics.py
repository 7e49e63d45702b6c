"""Differences in topics and their configs."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from differential.comparison import ABSENT, Difference
from differential.on_purpose.entry import OnPurpose
from differential.on_purpose.places import configured, innermost, place, structs, topic_key
from ottla.base.error_codes import ErrorCode

_REMOVED_IN_4: Final = (
    "message.format.version",
    "message.downconversion.enable",
    "message.timestamp.difference.max.ms",
)
_ADDED_IN_4: Final = ("internal.segment.bytes",)
_DYNAMIC_DEFAULT: Final = 3
_ONLY_BROKER: Final = 1
_OPERATIONS: Final = range(4)
"""To set, delete, append to and subtract from a config."""
_OF_LISTS: Final = (2, 3)
_NO_CONFIGS: Final = ("", "no.such.key")
"""Keys in dialogues that no topic has."""


def _is_config_of_other_version(found: Difference) -> bool:
    holder, _, name = found.path.rpartition("/")
    if not holder.endswith("configs"):
        return False
    if found.ours == ABSENT:
        return name in _ADDED_IN_4
    return found.theirs == ABSENT and name in _REMOVED_IN_4


def _is_default_of_replicas(found: Difference) -> bool:
    if found.path.endswith("/min.insync.replicas/config_source"):
        return (found.ours, found.theirs) == (5, _DYNAMIC_DEFAULT)
    return found.path.endswith("/min.insync.replicas/synonyms") and found.ours == [
        each for each in found.theirs if each["source"] != _DYNAMIC_DEFAULT
    ]


def _asked_topic(found: Difference) -> dict[str, Any]:
    """What the request says of the topic of an answer to CreateTopics."""
    name = innermost(found).get("name", "")
    return next(
        (each for each in found.request["topics"] if topic_key(each["name"]) == topic_key(name)),
        {},
    )


def _is_assigned_to_nobody(topic: dict[str, Any]) -> bool:
    return any(set(each["broker_ids"]) != {_ONLY_BROKER} for each in topic.get("assignments", ()))


def _makes_unled_topic(found: Difference) -> bool:
    if found.peer != "3.9.1" or found.api != "CreateTopics":
        return False
    if not found.path:
        return found.theirs == "timeout" and any(_is_assigned_to_nobody(each) for each in found.request["topics"])
    return (
        found.field == "topics/error_code"
        and (found.ours, found.theirs) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NONE)
        and _is_assigned_to_nobody(_asked_topic(found))
    )


def _names_twice(found: Difference) -> bool:
    """Whether Kafka answers as often as the request names a topic, and Ottla once."""
    if found.peer != "3.9.1" or (found.api, found.field) not in (
        ("CreateTopics", "topics"),
        ("DeleteTopics", "responses"),
    ):
        return False
    request = found.request
    named = request["topic_names"] if "topic_names" in request else [_told(each) for each in request["topics"]]
    times = Counter(named)
    return len(found.theirs) == len(named) and len(found.ours) == len(times) < len(named)


def _is_nameless(found: Difference) -> bool:
    """Whether Ottla says what is wrong with a request, and it is."""
    if (found.api, found.field) == ("CreatePartitions", "results/error_code"):
        return (
            found.peer == "3.9.1"
            and found.ours == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            and not str(innermost(found)["name"]).startswith("$")
        )
    if (found.api, found.field) != ("IncrementalAlterConfigs", "responses/error_code"):
        return False
    changes = [change for resource in found.request["resources"] for change in resource["configs"]]
    if any(change["config_operation"] not in _OPERATIONS for change in changes):
        return found.ours in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    return (
        found.peer == "3.9.1"
        and found.ours == ErrorCode.INVALID_CONFIG
        and any(change["config_operation"] in _OF_LISTS and change["name"] in _NO_CONFIGS for change in changes)
    )


def _is_config_of_deleted_topic(found: Difference) -> bool:
    """Whether the topic had a config that shows here, was deleted, and the broker was restarted after that."""
    if found.api == "DescribeConfigs" and found.field.startswith("results/configs/"):
        name = next((each["resource_name"] for each in structs(found) if "resource_name" in each), "")
        return _came_back(found, topic_key(name), found.field.split("/")[2])
    if found.field == "responses/partition_responses/log_append_time_ms":
        here = place(found)
        return here is not None and _came_back(found, here.topic, "message.timestamp.type")
    return False


def _came_back(found: Difference, topic: str, config: str) -> bool:
    was_set = was_deleted = was_restarted = False
    for exchange in found.history:
        if exchange.api == "DeleteTopics" and was_set:
            request = exchange.request
            named = [*request.get("topic_names", ()), *map(_told, request.get("topics", ()))]
            was_deleted |= any(topic_key(each) == topic for each in named)
        elif exchange.step.get("restart") and was_deleted:
            was_restarted = True
        was_set |= any(
            topic_key(name) == topic and any(each["name"] == config for each in configs)
            for name, configs in configured(exchange)
        )
    return was_restarted


def _told(topic: dict[str, Any]) -> str:
    return topic_key(topic["name"] if topic["name"] is not None else topic["topic_id"])


ENTRIES: Final[tuple[OnPurpose, ...]] = (
    OnPurpose(
        "topic configs of 3.9.1",
        "Ottla has the topic configs of Kafka 3.9.1; Kafka 4 removed three of them.",
        lambda found: found.peer == "4.3.1" and _is_config_of_other_version(found),
    ),
    OnPurpose(
        "source of min.insync.replicas",
        "KRaft clusters keep a dynamic default of min.insync.replicas for eligible leader replicas (KIP-966).",
        lambda found: found.peer == "4.3.1" and _is_default_of_replicas(found),
    ),
    OnPurpose(
        "default of message.timestamp.after.max.ms",
        "Kafka 4 changed the default to an hour; Ottla has that of 3.9.1.",
        lambda found: (
            found.peer == "4.3.1"
            and "/message.timestamp.after.max.ms/synonyms" in found.path
            and (found.ours, found.theirs) == (str(2**63 - 1), "3600000")
        ),
    ),
    OnPurpose(
        "whether a config is the default, in version 0",
        "To version 0 of DescribeConfigs, Kafka 3.9.1 says of no topic config that it is the default.",
        lambda found: (
            found.peer == "3.9.1"
            and (found.api, found.version) == ("DescribeConfigs", 0)
            and found.field.endswith("/is_default")
            and (found.ours, found.theirs) == (True, False)
        ),
    ),
    OnPurpose(
        "spelling of config values",
        "Kafka 3.9.1 answers CreateTopics with values as it understood them; Kafka 4 with those that were sent.",
        lambda found: (
            found.peer == "3.9.1"
            and found.api == "CreateTopics"
            and found.field.endswith("/value")
            and found.ours != found.theirs
            and str(found.ours).strip().lower() == found.theirs
        ),
    ),
    OnPurpose(
        "configs of impossible topics",
        "Kafka 4 says that the name of the topic is invalid, 3.9.1 that there is no such topic or config.",
        lambda found: (
            found.peer == "3.9.1"
            and (found.api, found.field) == ("IncrementalAlterConfigs", "responses/error_code")
            and found.ours == ErrorCode.INVALID_TOPIC_EXCEPTION
            and found.theirs in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_CONFIG)
        ),
    ),
    OnPurpose(
        "a name for the error of changes",
        "Kafka fails with UNKNOWN_SERVER_ERROR for an operation on configs that there is not; 3.9.1 also for appending "
        "to a config that there is not, and for partitions of an impossible topic. Ottla says what is wrong.",
        lambda found: found.theirs == ErrorCode.UNKNOWN_SERVER_ERROR and _is_nameless(found),
    ),
    OnPurpose(
        "assignments to nobody",
        "Kafka 3.9.1 makes topics whose replicas are on no broker, and waits for a leader; Kafka 4 refuses them.",
        _makes_unled_topic,
        parts_ways=True,
    ),
    OnPurpose(
        "configs of a deleted topic",
        "After a restart Kafka 4.3.1 gives a topic that is created anew without configs those of the deleted topic of "
        "its name: a deletion only removes configs that were known before the replay of the log began "
        "(ConfigurationsDelta). Ottla forgets them with the topic.",
        lambda found: found.peer == "4.3.1" and _is_config_of_deleted_topic(found),
        parts_ways=True,
    ),
    OnPurpose(
        "topics named twice",
        "Kafka 4 answers once for a topic that a request names twice, 3.9.1 as often as it is named.",
        _names_twice,
        parts_ways=True,
    ),
    OnPurpose(
        "deleting neither a name nor an id",
        "Kafka 4 says that the request is invalid, 3.9.1 that the client may not delete the topic.",
        lambda found: (
            found.peer == "3.9.1"
            and (found.api, found.field) == ("DeleteTopics", "responses/error_code")
            and (found.ours, found.theirs) == (ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ),
    ),
    OnPurpose(
        "id of a topic deleted by name",
        "Kafka 4 tells it, 3.9.1 does not.",
        lambda found: (
            found.peer == "3.9.1"
            and (found.api, found.field) == ("DeleteTopics", "responses/topic_id")
            and found.theirs == "$id:zero"
        ),
    ),
    OnPurpose(
        "id of a topic that is only validated",
        "Kafka 4 answers an id that no topic will have; Ottla gives none.",
        lambda found: (
            found.peer == "4.3.1"
            and (found.api, found.field) == ("CreateTopics", "topics/topic_id")
            and (found.ours, found.theirs) == ("$id:zero", "$id:?")
            and bool(found.request.get("validate_only"))
        ),
    ),
)
