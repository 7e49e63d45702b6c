"""Steps about topics: made, changed, deleted, described, with good settings and bad ones."""

from __future__ import annotations

from typing import Any, Final

from differential.generate.model import Draft, Partition, Topic

CONFIGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete"},
    {"compression.type": "gzip"},
    {"compression.type": "snappy"},
    {"compression.type": "lz4"},
    {"compression.type": "zstd"},
    {"compression.type": "uncompressed"},
    {"max.message.bytes": "1000"},
    {"max.message.bytes": "200"},
    {"segment.bytes": "1048576"},
    {"segment.index.bytes": "32", "index.interval.bytes": "100"},
    {"index.interval.bytes": "0"},
    {"message.timestamp.before.max.ms": "7200000", "message.timestamp.after.max.ms": "7200000"},
    {"message.timestamp.before.max.ms": "1000"},
    {"min.insync.replicas": "2"},
    {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"},
    {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
)
SETTINGS: Final[tuple[tuple[str, str | None], ...]] = (
    ("retention.ms", "1000000000000"),
    ("retention.ms", "-1"),
    ("retention.ms", "-2"),
    ("retention.ms", "soon"),
    ("retention.bytes", "123456789"),
    ("retention.bytes", "9223372036854775808"),
    ("segment.ms", "0"),
    ("segment.ms", "86400000"),
    ("segment.bytes", "1048576"),
    ("segment.bytes", "13"),
    ("max.message.bytes", "500"),
    ("max.message.bytes", "0"),
    ("max.message.bytes", "-1"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "delete,compact"),
    ("cleanup.policy", "shred"),
    ("compression.type", "zstd"),
    ("compression.type", "zip"),
    ("compression.gzip.level", "5"),
    ("compression.gzip.level", "10"),
    ("compression.zstd.level", "23"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "logappendtime"),
    ("min.insync.replicas", "1"),
    ("min.insync.replicas", "0"),
    ("min.cleanable.dirty.ratio", "0.7"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("unclean.leader.election.enable", "true"),
    ("unclean.leader.election.enable", "perhaps"),
    ("preallocate", "TRUE"),
    ("flush.messages", "1"),
    ("flush.messages", "0"),
    ("index.interval.bytes", "4096"),
    ("index.interval.bytes", "-1"),
    ("delete.retention.ms", "5"),
    ("max.compaction.lag.ms", "1"),
    ("min.compaction.lag.ms", "7"),
    ("file.delete.delay.ms", "60000"),
    ("local.retention.ms", "-2"),
    ("remote.storage.enable", "false"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("follower.replication.throttled.replicas", "nonsense"),
    ("message.timestamp.before.max.ms", "60000"),
    ("no.such.key", "1"),
    ("", "1"),
    ("retention.ms", None),
    ("retention.ms", " 77 "),
    ("retention.ms", ""),
)
# Never that of a topic which other dialogues need, such as the one of groups.
NAMES: Final = ("", ".", "..", "a/b", "a b", "ü", "x" * 250, "x" * 249 + "y", "no.such.topic", "no-such-topic")
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LISTS: Final = ("cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_TOPIC: Final = 2


def create_topic(draft: Draft, config: dict[str, str] | None = None) -> None:
    """One that a dialogue can use."""
    key = str(len(draft.topics))
    count = draft.weighted({1: 5, 2: 3, 3: 2, 5: 0.5})
    config = dict(draft.choose(CONFIGS)) if config is None else config
    topic = Topic(key, [Partition() for _ in range(count)], config)
    draft.topics.append(topic)
    draft.ask(
        "CreateTopics", draft.version("CreateTopics", 2), {"topics": [_described(topic, count)], "timeout_ms": 30_000}
    )


def _described(topic: Topic, count: int) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": [{"name": name, "value": value} for name, value in topic.config.items()],
    }


def create_badly(draft: Draft) -> None:
    """Several at once, most of them refused."""
    version = draft.version("CreateTopics")
    topics = [_doubtful(draft) for _ in range(draft.number(1, 3))]
    validate_only = version >= 1 and draft.maybe(0.4)
    request = {"topics": topics, "timeout_ms": 30_000}
    if validate_only:
        request["validate_only"] = True
    draft.ask("CreateTopics", version, request)


_ASSIGNMENTS: Final[tuple[list[tuple[int, list[int]]], ...]] = (
    [(0, [1])],
    [(0, [1]), (1, [1])],
    [(1, [1]), (0, [1])],
    [(0, [2])],
    [(0, [1, 1])],
    [(0, [])],
    [(1, [1])],
    [(0, [1]), (2, [1])],
    [(0, [1]), (1, [1, 2])],
    [(0, [-1])],
)


def _doubtful(draft: Draft) -> dict[str, Any]:
    """With one fault at most: which of several is named first, Kafka's own versions do not agree on."""
    topic: dict[str, Any] = {
        "name": f"$topic:new{draft.number(0, 3)}",
        "num_partitions": draft.number(1, 2),
        "replication_factor": 1,
    }
    fault = draft.weighted(
        {"none": 2, "name": 2, "old": 2, "partitions": 2, "replication": 2, "config": 4, "assigned": 3, "both": 0.5}
    )
    if fault == "name":
        topic["name"] = draft.choose(NAMES[:8])
    elif fault == "old":
        topic["name"] = draft.topic().name
    elif fault == "partitions":
        topic["num_partitions"] = draft.choose([0, -1, -2])
    elif fault == "replication":
        topic["replication_factor"] = draft.choose([2, 0, -1, -2])
    elif fault == "config":
        topic["configs"] = [{"name": key, "value": value} for key, value in _settings(draft)]
    elif fault in ("assigned", "both"):
        if fault == "assigned":
            topic["num_partitions"] = topic["replication_factor"] = -1
        assigned = draft.choose(_ASSIGNMENTS) if fault == "assigned" else _ASSIGNMENTS[0]
        topic["assignments"] = [{"partition_index": index, "broker_ids": ids} for index, ids in assigned]
    return topic


def _settings(draft: Draft) -> list[tuple[str, str | None]]:
    """One for each key."""
    return list(
        {key: (key, value) for key, value in (draft.choose(SETTINGS) for _ in range(draft.number(1, 3)))}.values()
    )


def create_partitions(draft: Draft) -> None:
    topic = draft.topic()
    count = len(topic.partitions)
    wanted = draft.weighted({count + 1: 5, count + 2: 1, count: 2, count - 1: 1, 0: 0.5, -1: 0.5})
    request: dict[str, Any] = {"name": topic.name if draft.maybe(0.9) else draft.choose(NAMES), "count": wanted}
    request["assignments"] = None
    if draft.maybe(0.25):
        request["assignments"] = draft.choose(
            [
                [{"broker_ids": [1]}],
                [{"broker_ids": [2]}],
                [],
                [{"broker_ids": []}],
                [{"broker_ids": [1]}] * 2,
                [{"broker_ids": [1, 1]}],
            ]
        )
    validate_only = draft.maybe(0.2)
    draft.ask(
        "CreatePartitions",
        draft.version("CreatePartitions"),
        {"topics": [request], "timeout_ms": 30_000, "validate_only": validate_only},
    )
    if wanted > count and request["assignments"] is None and request["name"] == topic.name and not validate_only:
        topic.partitions.extend(Partition() for _ in range(wanted - count))


def delete_topic(draft: Draft) -> None:
    version = draft.version("DeleteTopics")
    topic = draft.topic()
    kind = draft.weighted(
        {"name": 5, "id": 3, "unknown": 2, "unknown id": 1, "both": 0.7, "neither": 0.5, "twice": 0.7}
    )
    if version < 6:
        names = {"unknown": [draft.choose(NAMES)], "twice": [topic.name, topic.name]}.get(kind, [topic.name])
        draft.ask("DeleteTopics", version, {"topic_names": names, "timeout_ms": 30_000})
    else:
        asked: dict[str, list[dict[str, Any]]] = {
            "name": [{"name": topic.name}],
            "id": [{"name": None, "topic_id": topic.id}],
            "unknown": [{"name": draft.choose(NAMES)}],
            "unknown id": [{"name": None, "topic_id": "$id:none"}],
            "both": [{"name": topic.name, "topic_id": topic.id}],
            "neither": [{"name": None, "topic_id": "$id:zero"}],
            "twice": [{"name": topic.name}, {"name": None, "topic_id": topic.id}],
        }
        draft.ask("DeleteTopics", version, {"topics": asked[kind], "timeout_ms": 30_000})
    if kind in ("name", "id"):
        topic.exists = False
        topic.partitions = [Partition() for _ in topic.partitions]


def recreate_topic(draft: Draft) -> None:
    """With the name of a deleted one, or of one that is there."""
    topic = draft.topic()
    count = draft.number(1, 3)
    draft.ask(
        "CreateTopics", draft.version("CreateTopics", 2), {"topics": [_described(topic, count)], "timeout_ms": 30_000}
    )
    if not topic.exists:
        topic.exists = True
        topic.partitions = [Partition() for _ in range(count)]


def metadata(draft: Draft) -> None:
    version = draft.version("Metadata")
    kind = draft.weighted({"one": 5, "some": 3, "all": 1, "none": 0.5, "unknown": 2, "ids": 3})
    topics: list[dict[str, Any]] | None
    if kind == "all":
        topics = None if version else []
    elif kind == "none":
        topics = []
    elif kind == "unknown":
        topics = [{"name": draft.choose(NAMES)}]
    elif kind == "ids" and version >= 12:
        topics = [{"name": None, "topic_id": draft.choose([draft.topic().id, "$id:none"])}]
    else:
        topics = [{"name": draft.topic().name} for _ in range(1 if kind == "one" else 2)]
    request: dict[str, Any] = {"topics": topics}
    if version >= 4:
        request["allow_auto_topic_creation"] = draft.maybe(0.3)
    if version >= 8:
        request["include_topic_authorized_operations"] = draft.maybe(0.3)
    if 8 <= version <= 10:
        request["include_cluster_authorized_operations"] = draft.maybe(0.3)
    draft.ask("Metadata", version, request)


def describe_configs(draft: Draft) -> None:
    version = draft.version("DescribeConfigs")
    keys = sorted({draft.choose(SETTINGS)[0] for _ in range(draft.number(0, 4))})
    name = draft.topic().name if draft.maybe(0.9) else draft.choose(NAMES)
    request: dict[str, Any] = {
        "resources": [{"resource_type": _TOPIC, "resource_name": name, "configuration_keys": keys}],
    }
    if version >= 1:
        request["include_synonyms"] = draft.maybe(0.5)
    draft.ask("DescribeConfigs", version, request)


def alter_configs(draft: Draft) -> None:
    if draft.maybe(0.06):
        # With a good setting: which of two faults is named first, Kafka's own versions do not agree on.
        change = {"name": "retention.ms", "config_operation": _SET, "value": "-1"}
        unknown = {"resource_type": _TOPIC, "resource_name": draft.choose(NAMES), "configs": [change]}
        draft.ask("IncrementalAlterConfigs", draft.version("IncrementalAlterConfigs"), {"resources": [unknown]})
        return
    name = draft.topic().name
    if draft.maybe(0.25):
        configs = [{"name": key, "value": value} for key, value in _settings(draft)]
        resource = {"resource_type": _TOPIC, "resource_name": name, "configs": configs}
        request = {"resources": [resource], "validate_only": draft.maybe(0.2)}
        draft.ask("AlterConfigs", draft.version("AlterConfigs"), request)
        return
    changes: list[dict[str, Any]] = []
    for key, value in _settings(draft):
        operation = draft.weighted({_SET: 6, _DELETE: 2, _APPEND: 1, _SUBTRACT: 1, 7: 0.1})
        if key in _LISTS and draft.maybe(0.5):
            operation = draft.choose([_APPEND, _SUBTRACT])
        changes.append({"name": key, "config_operation": operation, "value": None if operation == _DELETE else value})
    resource = {"resource_type": _TOPIC, "resource_name": name, "configs": changes}
    request = {"resources": [resource], "validate_only": draft.maybe(0.2)}
    draft.ask("IncrementalAlterConfigs", draft.version("IncrementalAlterConfigs"), request)
