"""Steps about records: produced in all forms, fetched, looked up, deleted."""

from __future__ import annotations

from typing import Any

from differential import batches
from differential.generate.model import Draft, Partition, Producer, Session, Topic

_CODECS = {0: 6, 1: 2, 2: 2, 3: 2, 4: 2}
_HOUR_MS = 3_600_000


# --- produce ----------------------------------------------------------------------------------------------------------


def produce(draft: Draft) -> None:
    """To one partition or several."""
    version = draft.version("Produce")
    acks = draft.weighted({-1: 6, 1: 4, 0: 1, 2: 0.2})
    places = {draft.place()[0].key for _ in range(1 if draft.maybe(0.75) else 2)}
    topics = []
    for key in sorted(places):
        topic = draft.topics[int(key)]
        indexes = sorted({_index(draft, topic) for _ in range(1 if draft.maybe(0.7) else 3)})
        data = [{"index": index, "records": _records(draft, topic, index, version, acks)} for index in indexes]
        topic_id = "$id:none" if draft.maybe(0.03) else topic.id
        topics.append({"name": topic.name, "topic_id": topic_id, "partition_data": data})
    draft.ask("Produce", version, {"acks": acks, "timeout_ms": 10_000, "topic_data": topics})


def _index(draft: Draft, topic: Topic) -> int:
    return draft.number(0, len(topic.partitions) - 1) if draft.maybe(0.98) else len(topic.partitions)


def _records(draft: Draft, topic: Topic, index: int, version: int, acks: int) -> list[dict[str, Any]] | None:
    if draft.maybe(0.01):
        return None
    if draft.maybe(0.015):
        return []
    spec = _batch(draft, topic, index)
    if spec.get("codec") == 4 and version < 7 and draft.maybe(0.7):
        spec["codec"] = 1
    specs = [spec] if draft.maybe(0.98) else [spec, _batch(draft, topic, index)]
    partition = draft.partition(topic, index)
    if acks in (-1, 0, 1) and len(specs) == 1 and "damage" not in spec and spec.get("n", 1):
        partition.append(spec.get("n", 1), batches.size_of(spec))
    return specs


def _batch(draft: Draft, topic: Topic, index: int) -> dict[str, Any]:
    compacted = "compact" in topic.config.get("cleanup.policy", "")
    spec: dict[str, Any] = {
        "n": draft.weighted({1: 5, 2: 3, 5: 2, 20: 1, 0: 0.15}),
        "size": _size(draft, topic),
        "time": f"$time:{_time(draft)}",
    }
    if draft.maybe(0.95 if compacted else 0.5):
        spec["key"] = draft.choose(["a", "b", ""])
    codec = draft.weighted(_CODECS)
    if codec:
        spec["codec"] = codec
    if draft.maybe(0.1):
        spec["headers"] = 2
    if draft.producers and draft.maybe(0.5):
        spec.update(_sequenced(draft, topic, index, spec["n"]))
    elif draft.maybe(0.01):
        spec.update(draft.choose([{"pid": 5}, {"epoch": 0}, {"seq": 3}, {"pid": 5, "epoch": 0}]))
    # One fault at a time: which of two is named depends on the order in which a broker looks.
    is_limited = any(key.startswith(("max.message", "message.timestamp.before")) for key in topic.config)
    if draft.maybe(0.07) and not is_limited and spec["size"] < 100_000:
        spec["damage"] = draft.choose(batches.DAMAGES)
    return spec


def _size(draft: Draft, topic: Topic) -> int:
    limit = int(topic.config.get("max.message.bytes", 0))
    if limit and draft.maybe(0.5):
        return max(limit - 70 + draft.number(-8, 4), 1)  # a lone record without a key is close to the limit
    if "segment.bytes" in topic.config and draft.maybe(0.3):
        return draft.choose([200_000, 400_000])
    if draft.maybe(0.01):
        return 1_048_588 - 61 - draft.number(0, 24)
    return draft.weighted({0: 1, 10: 4, 100: 4, 1000: 2, 5000: 0.6})


def _time(draft: Draft) -> int:
    """In milliseconds from the start of the dialogue."""
    kind = draft.weighted({"near": 10, "old": 0.5, "future": 0.5, "very old": 0.2})
    if kind == "near":
        return draft.number(0, 20) * 1000
    if kind == "old":
        return -3 * _HOUR_MS
    return 5 * _HOUR_MS if kind == "future" else -90_000 * _HOUR_MS


def _sequenced(draft: Draft, topic: Topic, index: int, count: int) -> dict[str, Any]:
    """By an idempotent producer: next in turn, again, too early, of another epoch."""
    producer = draft.choose(draft.producers)
    place = topic.key, index
    following = producer.sequences.get(place, 0)
    kind = draft.weighted(
        {"next": 10, "again": 2, "older": 0.7, "gap": 1, "old epoch": 0.5, "new epoch": 0.5, "wrap": 0.1}
    )
    epoch, sequence = producer.epoch, following
    if kind == "again":
        sequence = max(following - count, 0)
    elif kind == "older":
        sequence = max(following - draft.number(1, 12), 0)
    elif kind == "gap":
        sequence = following + draft.choose([1, 5])
    elif kind == "old epoch":
        epoch -= 1
    elif kind == "new epoch":
        producer.epoch += 1
        producer.sequences.clear()
        epoch, sequence, following = producer.epoch, draft.choose([0, 0, 0, 3]), 0
    elif kind == "wrap":
        sequence = 2**31 - draft.number(1, 4)
    if kind in ("next", "new epoch"):
        producer.sequences[place] = sequence + count
    return {"pid": producer.id, "epoch": epoch, "seq": sequence}


def init_producer(draft: Draft) -> None:
    version = draft.version("InitProducerId")
    request: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    if version >= 3 and draft.maybe(0.15):
        request["producer_id"] = draft.choose([-1, 77])
        request["producer_epoch"] = draft.choose([-1, 0, 3])
        draft.ask("InitProducerId", version, request, **{"as": f"odd{len(draft.steps)}"})
        return
    name = f"p{len(draft.producers)}"
    draft.producers.append(Producer(name))
    draft.ask("InitProducerId", version, request, **{"as": name})


def describe_producers(draft: Draft) -> None:
    topic, index = draft.place()
    draft.ask("DescribeProducers", 0, {"topics": [{"name": topic.name, "partition_indexes": [index]}]})


# --- fetch ------------------------------------------------------------------------------------------------------------


def fetch(draft: Draft) -> None:
    """Without a session."""
    version = draft.version("Fetch", 4)
    topics = _fetched_topics(draft, version, draft.weighted({1: 6, 2: 3, 3: 1}))
    request = {**_fetch_limits(draft), "topics": topics}
    if version >= 7:
        request["session_epoch"] = -1
        if draft.maybe(0.03):
            request["session_id"] = 9
    draft.ask("Fetch", version, request)


def _fetch_limits(draft: Draft) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "max_wait_ms": draft.weighted({0: 5, 1: 3, 10: 2, 350: 0.6}),
        "min_bytes": draft.weighted({0: 2, 1: 6, 100: 1, 5_000: 0.7, 10_000_000: 0.3}),
        "max_bytes": draft.weighted({50_000_000: 6, 2**31 - 1: 1, 10_000: 1, 300: 1, 1: 1, 0: 0.5}),
    }
    if draft.maybe(0.3):
        limits["isolation_level"] = 1
    return limits


def _fetched_topics(draft: Draft, version: int, count: int) -> list[dict[str, Any]]:
    wanted: dict[str, dict[int, dict[str, Any]]] = {}
    for _ in range(count):
        topic, index = draft.place()
        wanted.setdefault(topic.key, {})[index] = _fetched_partition(draft, topic, index, version)
    topics = []
    for key, partitions in wanted.items():
        topic_id = "$id:none" if draft.maybe(0.03) else f"$id:{key}"
        topics.append({"topic": f"$topic:{key}", "topic_id": topic_id, "partitions": list(partitions.values())})
    return topics


def _fetched_partition(draft: Draft, topic: Topic, index: int, version: int) -> dict[str, Any]:
    partition = draft.partition(topic, index)
    wanted: dict[str, Any] = {
        "partition": index,
        "fetch_offset": draft.offset(partition),
        "partition_max_bytes": _partition_max_bytes(draft, topic, partition),
    }
    if version >= 9:
        epoch = draft.leader_epoch(topic)
        if epoch != -1:
            wanted["current_leader_epoch"] = epoch
    if version >= 12 and draft.maybe(0.08):
        wanted["last_fetched_epoch"] = draft.choose([f"$leader:{topic.key}", f"$leader:{topic.key}:1"])
    return wanted


def _partition_max_bytes(draft: Draft, topic: Topic, partition: Partition) -> int:
    kind = draft.weighted({"plenty": 5, "batch": 4, "tiny": 1, "zero": 0.6, "negative": 0.5})
    if kind == "batch" and partition.batches and not topic.recompresses:
        start = draft.number(0, len(partition.batches) - 1)
        sizes = [size for _, size in partition.batches[start : start + draft.number(1, 3)]]
        return sum(sizes) + draft.choose([-1, 0, 1, 12, 17, 61])
    if kind == "tiny":
        return draft.choose([1, 11, 12, 16, 17, 60, 61, 62, 100])
    if kind in ("zero", "negative"):
        return 0 if kind == "zero" else -1
    return 1_048_576


def open_session(draft: Draft) -> None:
    version = draft.version("Fetch", 7)
    name = f"s{len(draft.sessions)}"
    topics = _fetched_topics(draft, version, draft.number(1, 4))
    request = {**_fetch_limits(draft), "session_id": 0, "session_epoch": 0, "topics": topics}
    if draft.maybe(0.05):
        request["session_id"] = 12345
    draft.ask("Fetch", version, request, **{"as": name})
    places = {(topic["topic"], each["partition"]) for topic in topics for each in topic["partitions"]}
    draft.sessions.append(Session(name, 1, places, version))


def continue_session(draft: Draft) -> None:
    if not draft.sessions:
        open_session(draft)
        return
    session = draft.choose(draft.sessions)
    kind = draft.weighted({"next": 12, "wrong epoch": 1, "close": 0.5, "full": 0.5, "other version": 0.4})
    version = session.version if kind != "other version" else draft.version("Fetch", 7)
    epoch = session.epoch
    if kind == "wrong epoch":
        epoch += draft.choose([1, -1, 7])
    elif kind == "close":
        epoch = -1
    elif kind == "full":
        epoch = 0
    topics = (
        _fetched_topics(draft, version, draft.weighted({0: 5, 1: 3, 2: 1}))
        if kind != "full" or draft.maybe(0.5)
        else []
    )
    request = {
        **_fetch_limits(draft),
        "session_id": f"$session:{session.name}",
        "session_epoch": epoch,
        "topics": topics,
    }
    if session.partitions and draft.maybe(0.2):
        name, index = draft.choose(sorted(session.partitions))
        request["forgotten_topics_data"] = [
            {"topic": name, "topic_id": name.replace("$topic", "$id"), "partitions": [index]}
        ]
    draft.ask("Fetch", version, request, **({"as": session.name} if kind == "full" else {}))
    if kind == "next":
        session.epoch += 1
    elif kind == "full":
        session.epoch, session.version = 1, version


# --- offsets ----------------------------------------------------------------------------------------------------------


def list_offsets(draft: Draft) -> None:
    version = draft.version("ListOffsets")
    wanted: dict[str, list[dict[str, Any]]] = {}
    for _ in range(draft.weighted({1: 6, 2: 2, 3: 1})):
        topic, index = draft.place()
        asked: dict[str, Any] = {"partition_index": index, "timestamp": _looked_up(draft, version)}
        if version >= 4:
            asked["current_leader_epoch"] = draft.leader_epoch(topic)
        if all(each["partition_index"] != index for each in wanted.get(topic.name, [])):
            wanted.setdefault(topic.name, []).append(asked)
    request: dict[str, Any] = {
        "replica_id": -1,
        "topics": [{"name": name, "partitions": asked} for name, asked in wanted.items()],
    }
    if version >= 2 and draft.maybe(0.3):
        request["isolation_level"] = 1
    if version == 0:
        for topic_asked in request["topics"]:
            for each in topic_asked["partitions"]:
                each["max_num_offsets"] = draft.choose([1, 2, 10])
    draft.ask("ListOffsets", version, request)


def _looked_up(draft: Draft, version: int) -> int | str:
    places = [-1, -2, -2, -1, -3, -3, -4, -5, -6, -7]
    if draft.maybe(0.5):
        return draft.choose(places)
    del version
    return f"$time:{draft.number(-1, 21) * 1000 + draft.choose([0, 0, 1, -1, 3])}"


def delete_records(draft: Draft) -> None:
    topic, index = draft.place()
    partition = draft.partition(topic, index)
    offset = draft.weighted({"offset": 8, "end": 1})
    wanted = draft.offset(partition) if offset == "offset" else -1
    version = draft.version("DeleteRecords")
    partitions = [{"partition_index": index, "offset": wanted}]
    draft.ask(
        "DeleteRecords", version, {"topics": [{"name": topic.name, "partitions": partitions}], "timeout_ms": 10_000}
    )
    if wanted == -1:
        partition.start = partition.end
    elif partition.start < wanted <= partition.end:
        partition.start = wanted


def leader_epoch_ends(draft: Draft) -> None:
    version = draft.version("OffsetForLeaderEpoch")
    topic, index = draft.place()
    asked: dict[str, Any] = {
        "partition": index,
        "leader_epoch": draft.choose([f"$leader:{topic.key}", f"$leader:{topic.key}:3", -1]),
    }
    if not draft.restarts and draft.maybe(0.3):
        asked["leader_epoch"] = draft.choose([0, 1, -2])
    if version >= 2:
        asked["current_leader_epoch"] = draft.leader_epoch(topic)
    request: dict[str, Any] = {"topics": [{"topic": topic.name, "partitions": [asked]}]}
    if version >= 3:
        request["replica_id"] = -1
    draft.ask("OffsetForLeaderEpoch", version, request)
