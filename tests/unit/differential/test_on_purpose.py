"""The list of differences on purpose: each entry explains something, and not what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

from differential.comparison import ABSENT, Difference, Exchange, differences
from differential.on_purpose import ENTRIES, Explanations, OnPurpose


def _found(path: str, ours: object, theirs: object, api: str = "Produce", peer: str = "4.3.1") -> Difference:
    return Difference(peer, 0, {"api": api, "version": 9, "request": {"topic_data": []}}, path, ours, theirs)


def test_names_are_unique_and_reasons_are_sentences() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    assert all(entry.reason.endswith(".") for entry in ENTRIES)


@pytest.mark.parametrize("api", ["Produce", "Fetch", "CreateTopics", "JoinGroup", "OffsetCommit", "DeleteGroups"])
@pytest.mark.parametrize("peer", ["4.3.1", "3.9.1"])
def test_an_accepted_request_that_kafka_refuses_is_never_on_purpose(api: str, peer: str) -> None:
    explain = Explanations(ENTRIES)
    assert explain(_found("topics[0]/error_code", 0, 87, api, peer)) is None
    assert explain(_found("topics[0]/error_code", 0, -1, api, peer)) is None
    assert explain(_found("", "closed", {"topics": []}, api, peer)) is None


def test_a_config_that_kafka_4_removed() -> None:
    explain = Explanations(ENTRIES)
    difference = _found("topics[0]/configs/message.format.version", {}, ABSENT, "CreateTopics")
    entry = explain(difference)
    assert entry is not None
    assert explain(_found("topics[0]/configs/retention.ms", {}, ABSENT, "CreateTopics")) is None
    assert explain.used == {entry.name: 1}
    assert explain.kinds == {(entry.name, difference.kind): 1}
    assert entry not in explain.unused()


def test_the_first_reason_counts() -> None:
    entries = (OnPurpose("a", "A.", lambda _: False), OnPurpose("b", "B.", lambda _: True))
    explain = Explanations(entries)
    assert explain(_found("x", 1, 2)) == entries[1]
    assert explain.unused() == [entries[0]]


# --- whole answers ----------------------------------------------------------------------------------------------------


def _reasons(
    step: dict[str, Any], ours: Any, theirs: Any, history: tuple[Exchange, ...] = (), peer: str = "4.3.1"
) -> list[str | None]:
    """The names of the entries that explain the fields in which two answers differ."""
    explain = Explanations(ENTRIES)
    names = []
    for path, mine, other in differences(ours, theirs):
        entry = explain(Difference(peer, len(history), step, path, mine, other, history, ours, theirs))
        names.append(None if entry is None else entry.name)
    return names


def _asked(api: str, request: dict[str, Any], ours: Any = None, theirs: Any = None, **more: Any) -> Exchange:
    return Exchange({"api": api, "version": 9, **more, "request": request}, ours, ours if theirs is None else theirs)


def _created(**config: str) -> Exchange:
    """A topic with configs, named with underscores."""
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in config.items()]
    return _asked("CreateTopics", {"topics": [{"name": "$topic:0", "configs": configs}]})


def _produce(*batches: dict[str, Any], acks: int = -1, other: dict[str, Any] | None = None) -> dict[str, Any]:
    """To partition 0, and perhaps one batch to partition 1."""
    data = [{"index": 0, "records": list(batches)}]
    if other is not None:
        data.append({"index": 1, "records": [other]})
    topics = [{"name": "$topic:0", "topic_id": "$id:0", "partition_data": data}]
    return {"api": "Produce", "version": 9, "request": {"acks": acks, "topic_data": topics}}


def _answer(*codes: int) -> dict[str, Any]:
    partitions = [{"index": index, "error_code": code} for index, code in enumerate(codes)]
    return {"responses": [{"name": "$-t0", "partition_responses": partitions}]}


def _unanswered(connection: str, *ends: int) -> dict[str, Any]:
    log_ends = [{"topic": "$-t0", "partition": index, "end": end} for index, end in enumerate(ends)]
    return {"connection": connection, "log_ends": log_ends}


def test_records_that_only_ottla_refuses() -> None:
    bad: dict[str, Any] = {"damage": "offset deltas"}
    assert _reasons(_produce(bad), _answer(87), _answer(0)) == ["offsets of records"]
    assert _reasons(_produce(bad), _answer(0), _answer(87)) == [None]
    assert _reasons(_produce(bad), _answer(2), _answer(0)) == [None]
    assert _reasons(_produce({**bad, "codec": 1}), _answer(87), _answer(0)) == [None]
    # The batch of another partition is no reason.
    assert _reasons(_produce({}, other=bad), _answer(87, 87), _answer(0, 87)) == [None]


def test_without_an_answer_the_ends_of_logs_tell_which_batch_was_refused() -> None:
    bad, step = {"damage": "trailing", "codec": 2}, "bytes after compressed records"
    assert _reasons(_produce(bad, acks=0), _unanswered("closed", 0), _unanswered("open", 1)) == [step, step]
    assert _reasons(_produce(bad, acks=0), _unanswered("open", 1), _unanswered("closed", 0)) == [None, None]
    both = _produce(bad, acks=0, other={"damage": "crc"})
    assert _reasons(both, _unanswered("closed", 0, 0), _unanswered("closed", 1, 0)) == [step]
    assert _reasons(both, _unanswered("closed", 0, 0), _unanswered("closed", 0, 1)) == [None]
    assert _reasons(_produce({}, acks=0), _unanswered("open", 0), _unanswered("open", 1)) == [None]


def test_a_batch_for_which_kafka_refuses_the_whole_request() -> None:
    step = _produce({}, other={"damage": "magic 3"})
    assert _reasons(step, _answer(0, 2), _answer(2, 2)) == ["one bad partition"]
    assert _reasons(step, _answer(0, 2), _answer(0, 0)) == [None]
    assert _reasons(_produce({}, other={"damage": "crc"}), _answer(0, 2), _answer(2, 2)) == [None]
    assert _reasons(_produce({"damage": "magic 3"}), _answer(0), _answer(2)) == [None]
    assert _reasons(_produce({"damage": "magic 3"}), _answer(3), _answer(2)) == ["one bad partition"]
    assert _reasons(_produce({"damage": "crc"}), _answer(3), _answer(2)) == [None]


def test_wrong_acks_beside_a_batch_of_an_unknown_format() -> None:
    name = "wrong acks, and a batch of an unknown format"
    assert _reasons(_produce({"damage": "codec 5"}, acks=2), _answer(21), _answer(-1)) == [name]
    assert _reasons(_produce({"damage": "magic 3"}, acks=2), _answer(21), _answer(2)) == [name]
    assert _reasons(_produce({"damage": "codec 5"}), _answer(21), _answer(-1)) == [None]
    assert _reasons(_produce({"damage": "crc"}, acks=2), _answer(21), _answer(-1)) == [None]


@pytest.mark.parametrize(
    ("name", "error"),
    [("max.message.bytes", 10), ("cleanup.policy", 87), ("message.timestamp.before.max.ms", 32)],
)
def test_an_append_before_kafka_3_has_heard_of_a_config(name: str, error: int) -> None:
    resources = [{"resource_type": 2, "resource_name": "$topic:0", "configs": [{"name": name, "value": "1"}]}]
    changed = _asked("IncrementalAlterConfigs", {"resources": resources})
    reason = "an append after a change of config"
    for ours, theirs in ((error, 0), (0, error)):
        assert _reasons(_produce({}), _answer(ours), _answer(theirs), (changed,), "3.9.1") == [reason]
        assert _reasons(_produce({}), _answer(ours), _answer(theirs), (changed,)) == [None]
        assert _reasons(_produce({}), _answer(ours), _answer(theirs), (), "3.9.1") == [None]
    assert _reasons(_produce({}), _answer(45), _answer(0), (changed,), "3.9.1") == [None]


def test_half_a_batch_after_a_batch() -> None:
    assert _reasons(_produce({}, {"damage": "cut"}), _answer(87), _answer(0)) == ["half a batch after a batch"]
    assert _reasons(_produce({"damage": "cut"}), _answer(87), _answer(0)) == [None]
    assert _reasons(_produce({}, {}), _answer(87), _answer(76)) == [None]
    closed, still_open = ({"connection": state} for state in ("closed", "open"))
    assert _reasons(_produce({}, {"damage": "cut"}), closed, still_open) == ["half a batch after a batch"]
    assert _reasons(_produce({"damage": "cut"}), closed, still_open) == [None]
    assert _reasons(_produce({}, {"damage": "cut"}), still_open, closed) == [None]


def test_a_batch_that_comes_again_after_a_restart() -> None:
    batch = {"pid": "$pid:a", "epoch": 0, "seq": 3}
    sent, restart = Exchange(_produce(batch), _answer(0), _answer(0)), Exchange({"restart": True}, None, None)
    name = "a batch that comes again after a restart"
    assert _reasons(_produce(batch), _answer(0), _answer(45), (sent, restart)) == [name]
    assert _reasons(_produce(batch), _answer(45), _answer(0), (sent, restart)) == [None]
    assert _reasons(_produce(batch), _answer(0), _answer(45), (sent,)) == [None]
    assert _reasons(_produce(batch), _answer(0), _answer(45), (restart, sent)) == [None]
    assert _reasons(_produce({**batch, "seq": 4}), _answer(0), _answer(45), (sent, restart)) == [None]


# --- fetches ----------------------------------------------------------------------------------------------------------

FETCH = {"api": "Fetch", "version": 12, "request": {"topics": []}}


def _fetched(*batches: dict[str, Any], torn_bytes: int = 0) -> dict[str, Any]:
    size = sum(each["bytes"] for each in batches) + torn_bytes
    records = {"bytes": size, "batches": list(batches), "torn_bytes": torn_bytes}
    return {"responses": [{"topic": "$-t0", "partitions": [{"partition_index": 0, "records": records}]}]}


def _batch(offset: int, size: int = 100, key: str = "k") -> dict[str, Any]:
    return {"base_offset": offset, "bytes": size, "records": [[offset, "$time:0", key]]}


def test_a_wait_for_bytes_that_only_one_compressor_makes() -> None:
    def reasons(ours: int, theirs: int, *history: Exchange) -> list[str | None]:
        step = {**FETCH, "request": {"topics": [], "min_bytes": 100}}
        mine, other = ({**_fetched(_batch(0, size)), "waited": size < 100} for size in (ours, theirs))
        return _reasons(step, mine, other, history)

    recompressed = _created(compression_type="gzip")
    assert set(reasons(97, 100, recompressed)) == {"sizes of recompressed batches"}
    assert reasons(97, 100)[-1] is None
    step = {**FETCH, "request": {"topics": [], "min_bytes": 100}}
    slow, quick = ({**_fetched(_batch(0)), "waited": waited} for waited in (True, False))
    assert _reasons(step, slow, quick, (recompressed,)) == [None]


def test_sizes_of_recompressed_batches() -> None:
    history = (_created(compression_type="gzip"),)
    sizes = "sizes of recompressed batches"
    assert _reasons(FETCH, _fetched(_batch(0, 90)), _fetched(_batch(0, 95)), history) == [sizes, sizes]
    assert _reasons(FETCH, _fetched(_batch(0), _batch(1)), _fetched(_batch(0)), history) == [sizes, sizes]
    # Neither other records, nor sizes in a topic that leaves batches as they are.
    assert None in _reasons(FETCH, _fetched(_batch(0, 90, "x")), _fetched(_batch(0, 95)), history)
    assert None in _reasons(FETCH, _fetched(_batch(1, 90)), _fetched(_batch(0, 95)), history)
    for other in (_created(), _created(compression_type="producer")):
        assert set(_reasons(FETCH, _fetched(_batch(0, 90)), _fetched(_batch(0, 95)), (other,))) == {None}


def test_aborted_transactions_of_a_partition_for_which_few_bytes_are_left() -> None:
    history = (_created(compression_type="gzip"),)

    def reasons(ours: Any, theirs: Any, history: tuple[Exchange, ...] = history) -> list[str | None]:
        mine, other = _fetched(_batch(0)), _fetched(_batch(0))
        for answer, aborted in ((mine, ours), (other, theirs)):
            answer["responses"][0]["partitions"][0]["aborted_transactions"] = aborted
        return _reasons(FETCH, mine, other, history)

    assert reasons([], None) == reasons(None, []) == ["sizes of recompressed batches"]
    assert reasons([], None, (_created(),)) == [None]
    assert reasons([{"producer_id": 1, "first_offset": 0}], None) == [None]


def test_partitions_of_which_nothing_fitted() -> None:
    step = {"api": "Fetch", "version": 12, "request": {"session_epoch": 2, "topics": []}}
    ours: dict[str, Any] = {"responses": []}
    theirs = _fetched(_batch(0))
    recompressed = (_created(compression_type="gzip"),)
    assert _reasons(step, ours, theirs, recompressed) == ["sizes of recompressed batches"]
    assert _reasons(step, ours, theirs, (_created(),)) == [None]
    assert _reasons(FETCH, ours, theirs, recompressed) == [None]


def test_times_and_sizes_of_records_that_producers_stamp() -> None:
    history = (_created(compression_type="gzip"), Exchange(_produce({"damage": "log append time"}), {}, {}))
    ours, theirs = _fetched(_batch(0, 90)), _fetched(_batch(0, 95))
    theirs["responses"][0]["partitions"][0]["records"]["batches"][0]["records"][0][1] = "$time:5"
    stamped, sizes = "producers that set LogAppendTime, recompressed", "sizes of recompressed batches"
    assert _reasons(FETCH, ours, theirs, history) == [sizes, sizes, stamped]
    assert _reasons(FETCH, ours, theirs, history[:1]) == [None, sizes, None]
    assert set(_reasons(FETCH, ours, theirs, (_created(), *history[1:]))) == {None}


def test_segments_that_refused_batches_begin() -> None:
    created, refused = _created(segment_bytes="1048576"), Exchange(_produce({"pid": 5, "epoch": 0}), {}, {})
    ours, theirs = _fetched(_batch(0), _batch(1)), _fetched(_batch(0))
    segments = "segments that refused batches begin"
    assert _reasons(FETCH, ours, theirs, (created, refused)) == [segments, segments]
    assert set(_reasons(FETCH, ours, theirs, (_created(), refused))) == {None}
    assert set(_reasons(FETCH, ours, theirs, (created,))) == {None}
    elsewhere = _produce({}, other={"pid": 5, "epoch": 0})
    assert set(_reasons(FETCH, ours, theirs, (created, Exchange(elsewhere, {}, {})))) == {None}
    assert None in _reasons(FETCH, _fetched(_batch(0), _batch(1)), _fetched(_batch(1)), (created, refused))


# --- groups -----------------------------------------------------------------------------------------------------------


def test_groups_that_kafka_keeps_for_a_while() -> None:
    step = {"api": "DeleteGroups", "version": 2, "request": {"groups_names": ["$group:0"]}}
    ours, theirs = ({"results": [{"group_id": "$-g0", "error_code": code}]} for code in (69, 0))
    refused = _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 26})
    assert _reasons(step, ours, theirs, (refused,)) == ["groups without offsets"]
    assert _reasons(step, theirs, ours, (refused,)) == [None]
    for other in (
        _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 0}),
        _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 79}),
        _asked("JoinGroup", {"group_id": "$group:1"}, {"error_code": 26}),
    ):
        assert _reasons(step, ours, theirs, (other,)) == [None]


def test_groups_that_kafka_4_keeps_over_a_restart() -> None:
    step = {"api": "DescribeGroups", "version": 5, "request": {"groups": ["$group:0"]}}
    ours, theirs = ({"groups": [{"group_id": "$-g0", "group_state": state}]} for state in ("Empty", "Dead"))
    given = _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 79})
    restart = Exchange({"restart": True}, None, None)
    name = "groups without assignments, after a restart"
    assert _reasons(step, ours, theirs, (given, restart), "3.9.1") == [name]
    assert _reasons(step, ours, theirs, (given, restart)) == [None]
    assert _reasons(step, theirs, ours, (given, restart), "3.9.1") == [None]
    assert _reasons(step, ours, theirs, (restart, given), "3.9.1") == [None]
    joined = _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 0})
    assert _reasons(step, ours, theirs, (joined, restart), "3.9.1") == [name]
    for group, reason in (("$group:0", None), ("$group:1", name)):
        asked = _asked("SyncGroup", {"group_id": group}, "sent", connection=1, later=True)
        received = Exchange({"receive": 1}, {}, {"error_code": 0, "assignment": "for m0"})
        assert _reasons(step, ours, theirs, (joined, asked, received, restart), "3.9.1") == [reason]
        assigned = _asked("SyncGroup", {"group_id": group}, {"error_code": 0, "assignment": "for m0"})
        assert _reasons(step, ours, theirs, (joined, assigned, restart), "3.9.1") == [reason]
    topics = [{"name": "$topic:0", "partitions": [{"partition_index": 0}]}]
    taken = {"topics": [{"name": "$-t0", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
    committed = _asked("OffsetCommit", {"group_id": "$group:0", "topics": topics}, taken)
    assert _reasons(step, ours, theirs, (joined, committed, restart), "3.9.1") == [None]


def test_groups_that_kafka_3_drops_before_the_first_member_joins() -> None:
    given = _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 79})
    deleted = _asked("OffsetDelete", {"group_id": "$group:0"}, {"error_code": 0})
    step = {"api": "DescribeGroups", "version": 4, "request": {"groups": ["$group:0"]}}
    ours, theirs = ({"groups": [{"group_id": "$-g0", "group_state": state}]} for state in ("Empty", "Dead"))
    name = "offsets deleted before the first member joins"
    assert _reasons(step, ours, theirs, (given, deleted), "3.9.1") == [name]
    assert _reasons(step, ours, theirs, (given, deleted)) == [None]
    assert _reasons(step, ours, theirs, (deleted, given), "3.9.1") == [None]
    assert _reasons(step, ours, theirs, (given,), "3.9.1") == [None]
    joined = _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 0})
    assert _reasons(step, ours, theirs, (joined, deleted), "3.9.1") == [None]


def test_somebody_who_leaves_before_joining() -> None:
    given = _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 79})
    left = _asked("LeaveGroup", {"group_id": "$group:0"}, {"error_code": 0})
    step = {"api": "Heartbeat", "version": 1, "request": {"group_id": "$group:0"}}
    name = "somebody leaves before joining"
    assert _reasons(step, {"error_code": 27}, {"error_code": 0}, (given, left), "3.9.1") == [name]
    assert _reasons(step, {"error_code": 27}, {"error_code": 0}, (given, left)) == [None]
    assert _reasons(step, {"error_code": 0}, {"error_code": 27}, (given, left), "3.9.1") == [None]
    for history in ((left, given), (left,), (given,)):
        assert _reasons(step, {"error_code": 27}, {"error_code": 0}, history, "3.9.1") == [None]


def test_groups_of_which_kafka_4_has_written_nothing() -> None:
    refused = {"topics": [{"name": "$-t0", "partitions": [{"partition_index": 0, "error_code": 12}]}]}
    committed = _asked("OffsetCommit", {"group_id": "$group:0", "topics": []}, refused)
    given = _asked("JoinGroup", {"group_id": "$group:0"}, {"error_code": 79})
    step = {"api": "DescribeGroups", "version": 6, "request": {"groups": ["$group:0"]}}
    ours = {"groups": [{"error_code": 0, "group_id": "$-g0", "group_state": "Empty", "authorized_operations": 328}]}
    theirs = {"groups": [{"error_code": 69, "group_id": "$-g0", "group_state": "Dead", "authorized_operations": -1}]}
    name = "a group that is not in the log"
    assert _reasons(step, ours, theirs, (committed, given)) == [name] * 3
    assert _reasons(step, ours, theirs, (committed, given), "3.9.1") == [None] * 3
    assert _reasons(step, ours, theirs, (given, committed)) == [None] * 3
    assert _reasons(step, ours, theirs, (given,)) == [None] * 3
    accepted = {"topics": [{"name": "$-t0", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
    written = _asked("OffsetCommit", {"group_id": "$group:0", "topics": []}, accepted)
    assert _reasons(step, ours, theirs, (written, given)) == [None] * 3
    listed = {"api": "ListGroups", "version": 4, "request": {}}
    groups = {"groups": [{"group_id": "$-g0", "group_state": "Empty"}]}
    assert _reasons(listed, groups, {"groups": []}, (committed, given)) == [name]
    assert _reasons(listed, groups, {"groups": []}, (given,)) == [None]


def test_configs_that_kafka_4_brings_back_with_a_restart() -> None:
    def answer(time: object) -> dict[str, Any]:
        partition = {"index": 0, "log_append_time_ms": time}
        return {"responses": [{"topic_id": "$id:0", "partition_responses": [partition]}]}

    def reasons(*history: Exchange, peer: str = "4.3.1") -> list[str | None]:
        return _reasons(_produce({}), answer(-1), answer("<now>"), history, peer)

    created = _created(message_timestamp_type="LogAppendTime")
    by_id = _asked("DeleteTopics", {"topics": [{"name": None, "topic_id": "$id:0"}]}, {})
    by_name = _asked("DeleteTopics", {"topic_names": ["$topic:0"]}, {})
    restart = Exchange({"restart": True}, None, None)
    name = "configs of a deleted topic"
    assert reasons(created, by_id, restart) == [name]
    assert reasons(created, by_name, restart) == [name]
    assert reasons(created, by_name, restart, peer="3.9.1") == [None]
    assert reasons(created, by_name) == [None]
    assert reasons(created, restart) == [None]
    assert reasons(created, restart, by_name) == [None]
    assert reasons(_created(retention_ms="5"), by_name, restart) == [None]
    other = _asked("DeleteTopics", {"topics": [{"name": "$topic:1", "topic_id": "$id:zero"}]}, {})
    assert reasons(created, other, restart) == [None]


def test_changes_that_kafka_fails_on() -> None:
    def step(operation: int) -> dict[str, Any]:
        change = {"name": "retention.ms", "config_operation": operation, "value": "1"}
        resources = [{"resource_type": 2, "resource_name": "$topic:0", "configs": [change]}]
        return {"api": "IncrementalAlterConfigs", "version": 1, "request": {"resources": resources}}

    ours, theirs = ({"responses": [{"error_code": code}]} for code in (42, -1))
    assert _reasons(step(7), ours, theirs) == ["a name for the error of changes"]
    assert _reasons(step(0), ours, theirs) == [None]


def test_a_member_with_a_new_id_that_joins_as_a_static_one() -> None:
    def joins(**more: Any) -> Exchange:
        request = {"group_id": "$group:0", "member_id": "$member:m0", **more}
        return _asked("JoinGroup", request, "sent", connection=1, later=True)

    ours, theirs = {"error_code": 25}, {"error_code": -1}
    name = "a name for the error of a join"
    assert _reasons({"receive": 1}, ours, theirs, (joins(group_instance_id="i"),)) == [name]
    assert _reasons(joins(group_instance_id="i").step, ours, theirs) == [name]
    assert _reasons({"receive": 1}, ours, theirs, (joins(),)) == [None]
    assert _reasons({"receive": 2}, ours, theirs, (joins(group_instance_id="i"),)) == [None]


def test_listed_groups_that_kafka_keeps_for_a_while() -> None:
    step = {"api": "ListGroups", "version": 4, "request": {}}
    deleted = _asked("OffsetDelete", {"group_id": "$group:0"}, {"error_code": 0})
    more = [{"group_id": "$-g0"}, {"group_id": "$-g1"}]
    assert _reasons(step, {"groups": more[1:]}, {"groups": more}, (deleted,)) == ["groups without offsets"]
    assert _reasons(step, {"groups": more[:1]}, {"groups": more}, (deleted,)) == [None]
    assert _reasons(step, {"groups": more}, {"groups": more[1:]}, (deleted,)) == [None]


def test_the_leader_of_the_group_that_an_answer_is_for() -> None:
    joins = _asked("JoinGroup", {"group_id": "$group:0"}, "sent", connection=2, later=True)
    ours, theirs = {"leader": "<member 1>"}, {"leader": "<member 2>"}
    for group, name in (("$group:0", "leader after a leader left"), ("$group:1", None)):
        left = _asked("LeaveGroup", {"group_id": group}, {})
        assert _reasons({"receive": 2}, ours, theirs, (left, joins)) == [name]


# --- topics -----------------------------------------------------------------------------------------------------------


def test_topics_that_are_assigned_to_nobody() -> None:
    def step(*brokers: int) -> dict[str, Any]:
        assigned = [{"partition_index": 0, "broker_ids": list(brokers)}]
        topics = [{"name": "$topic:new0", "assignments": assigned}, {"name": "$topic:new1"}]
        return {"api": "CreateTopics", "version": 5, "request": {"topics": topics}}

    def answer(*codes: int) -> dict[str, Any]:
        return {"topics": [{"name": f"$-tnew{index}", "error_code": code} for index, code in enumerate(codes)]}

    assert _reasons(step(2), answer(39, 0), answer(0, 0), peer="3.9.1") == ["assignments to nobody"]
    assert _reasons(step(), answer(39, 0), answer(0, 0), peer="3.9.1") == ["assignments to nobody"]
    assert _reasons(step(2), answer(39, 0), answer(0, 0)) == [None]
    assert _reasons(step(1), answer(39, 0), answer(0, 0), peer="3.9.1") == [None]
    assert _reasons(step(2), answer(0, 39), answer(0, 0), peer="3.9.1") == [None]


def test_topics_that_are_named_twice() -> None:
    step = {"api": "DeleteTopics", "version": 3, "request": {"topic_names": ["$topic:0", "$topic:0"]}}
    once, twice = ({"responses": [{"name": "$-t0"}] * times} for times in (1, 2))
    assert _reasons(step, once, twice, peer="3.9.1") == ["topics named twice"]
    assert _reasons(step, twice, once, peer="3.9.1") == [None]
    step["request"] = {"topic_names": ["$topic:0", "$topic:1"]}
    assert _reasons(step, once, twice, peer="3.9.1") == [None]
