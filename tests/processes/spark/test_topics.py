from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.errors import BrokerConnectionError
from ottla.spark.offsets import AtOffsets, AtTime, AtTimes, Earliest, Latest
from ottla.spark.options import ReadOptions
from ottla.spark.topics import ClusterView, MissingTopicError, SourceError
from ottla.testing.broker import Broker
from support.topic_data import TopicData


@pytest.fixture
def data(ottla_broker: Broker) -> TopicData:
    return TopicData(ottla_broker.bootstrap, partitions=2)


class Views:
    """Views that are closed at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._made: list[ClusterView] = []

    def of(self, **given: str) -> ClusterView:
        options = {"kafka.bootstrap.servers": self._bootstrap, "fetchOffset.numRetries": "1", **given}
        view = ClusterView(ReadOptions.parse(options))
        self._made.append(view)
        return view

    def close(self) -> None:
        for view in self._made:
            view.close()


@pytest.fixture
def views(ottla_broker: Broker) -> Iterator[Views]:
    made = Views(ottla_broker.bootstrap)
    yield made
    made.close()


# Which partitions.


def test_all_partitions_of_topics_that_are_named(data: TopicData, views: Views) -> None:
    other = TopicData(data.bootstrap)
    found = views.of(subscribe=f"{data.name},{other.name}").partitions()
    assert found == {data.partition(0), data.partition(1), other.partition(0)}


def test_a_pattern_matches_anywhere_in_a_name(data: TopicData, views: Views) -> None:
    TopicData(data.bootstrap)
    assert views.of(subscribePattern=data.name[3:12] + ".").partitions() == {data.partition(0), data.partition(1)}
    assert views.of(subscribePattern=f"^{data.name[1:]}$").partitions() == set()


def test_topics_of_the_cluster_itself_match_no_pattern(data: TopicData, views: Views) -> None:
    with data.admin() as admin:
        admin.alter_consumer_group_offsets("g", {data.partition(0): 0})
        assert any(topic.is_internal for topic in admin.list_topics(include_internal=True))
    assert all(not one.topic.startswith("__") for one in views.of(subscribePattern=".").partitions())
    assert views.of(subscribe="__consumer_offsets").partitions()


def test_only_the_partitions_that_are_assigned(data: TopicData, views: Views) -> None:
    assert views.of(assign=f'{{"{data.name}":[1]}}').partitions() == {data.partition(1)}


def test_named_but_missing_partitions_are_an_error(data: TopicData, views: Views) -> None:
    with pytest.raises(MissingTopicError, match="topic 'nowhere' does not exist: create it first"):
        views.of(subscribe=f"nowhere,{data.name}").partitions()
    with pytest.raises(MissingTopicError, match=f"partition {data.name}-5 in option assign does not exist"):
        views.of(assign=f'{{"{data.name}":[1,5]}}').partitions()


def test_a_topic_that_is_missing_can_be_left_out(data: TopicData, views: Views) -> None:
    found = views.of(subscribe=f"nowhere,{data.name}").partitions(but_missing=True)
    assert found == {data.partition(0), data.partition(1)}
    assert views.of(assign='{"nowhere":[1]}').partitions(but_missing=True) == set()


def test_a_topic_that_grows_is_seen_at_once_or_after_a_while(data: TopicData, views: Views) -> None:
    eager = views.of(subscribe=data.name)
    patient = views.of(subscribe=data.name, **{"partition.metadata.cache.ttl.ms": "600000"})
    assert len(eager.partitions()) == len(patient.partitions()) == 2
    data.grow(3)
    assert len(eager.partitions()) == 3
    assert len(patient.partitions()) == 2


# Where they begin and end.


def test_ends_of_partitions(data: TopicData, views: Views) -> None:
    data.send(range(5))
    data.send(range(3), partition=1)
    data.delete_before(2)
    view = views.of(subscribe=data.name)
    assert view.earliest([data.partition(0), data.partition(1)]) == {data.partition(0): 2, data.partition(1): 0}
    assert view.latest() == {data.partition(0): 5, data.partition(1): 3}
    told = {data.partition(0): -2, data.partition(1): -1}
    assert view.resolved(told) == {data.partition(0): 2, data.partition(1): 3}


def test_partitions_that_are_gone_have_no_ends(data: TopicData, views: Views) -> None:
    view = views.of(subscribe=data.name)
    partitions = [data.partition(0), data.partition(7)]
    assert view.earliest(partitions) == {data.partition(0): 0}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_end_is_that_of_what_may_be_read(data: TopicData, views: Views, level: str) -> None:
    view = views.of(subscribe=data.name, **{"kafka.isolation.level": level})
    view.latest()
    asked: list[object] = []
    admin = view._admin
    assert admin is not None
    original = admin.list_offsets

    def listed(places: Any, **settings: Any) -> Any:
        asked.append(settings)
        return original(places, **settings)

    admin.list_offsets = listed  # type: ignore[method-assign]
    view.latest()
    assert asked == [{"isolation_level": level}]


def test_an_end_before_a_known_one_is_asked_for_again_and_then_believed(data: TopicData, views: Views) -> None:
    data.send(range(3))
    view = views.of(subscribe=data.name, **{"fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "1"})
    asked: list[int] = []
    original = view._offsets

    def counted(*args: object, **kwargs: object) -> object:
        asked.append(1)
        return original(*args, **kwargs)  # type: ignore[arg-type]

    view._offsets = counted  # type: ignore[method-assign,assignment]
    assert view.latest({data.partition(0): 2})[data.partition(0)] == 3
    assert len(asked) == 1
    assert view.latest({data.partition(0): 9})[data.partition(0)] == 3
    assert len(asked) == 4


def test_places_that_options_name(data: TopicData, views: Views) -> None:
    zero, one = data.partition(0), data.partition(1)
    data.send(["old"], timestamp_ms=1000)
    data.send(["new"], timestamp_ms=2000)
    data.send(["other"], partition=1, timestamp_ms=5000)
    view = views.of(subscribe=data.name)

    assert view.position(Earliest(), "o", is_start=True) == {zero: -2, one: -2}
    assert view.position(Latest(), "o", is_start=True) == {zero: -1, one: -1}
    assert view.position(AtOffsets({zero: 1, one: -2}), "o", is_start=True) == {zero: 1, one: -2}
    assert view.position(AtTime(1001), "o", is_start=True) == {zero: 1, one: 0}
    assert view.position(AtTimes({zero: 1000, one: 5000}), "o", is_start=True) == {zero: 0, one: 0}


def test_a_time_after_all_records(data: TopicData, views: Views) -> None:
    zero, one = data.partition(0), data.partition(1)
    data.send(["old"], timestamp_ms=1000)
    data.send(["new"], partition=1, timestamp_ms=3000)
    strict = views.of(subscribe=data.name)
    with pytest.raises(SourceError, match=f"no record of {data.name}-0 has the timestamp 2000"):
        strict.position(AtTime(2000), "o", is_start=True)
    assert strict.position(AtTime(2000), "o", is_start=False) == {zero: -1, one: 0}
    lenient = views.of(subscribe=data.name, startingOffsetsByTimestampStrategy="latest")
    assert lenient.position(AtTime(2000), "o", is_start=True) == {zero: -1, one: 0}


def test_offsets_have_to_be_given_for_all_partitions_and_no_others(data: TopicData, views: Views) -> None:
    zero, one, two = (data.partition(index) for index in range(3))
    view = views.of(subscribe=data.name)
    with pytest.raises(SourceError, match=f"option startingOffsets: lacks {one}"):
        view.position(AtOffsets({zero: 0}), "startingOffsets", is_start=True)
    with pytest.raises(SourceError, match=f"{two} is not one of the partitions to read"):
        view.position(AtOffsets({zero: 0, one: 0, two: 0}), "startingOffsets", is_start=True)
    with pytest.raises(SourceError, match="option startingOffsetsByTimestamp: lacks"):
        view.position(AtTimes({zero: 0}), "startingOffsets", is_start=True)


# A broker that is away.


def test_a_broker_that_comes_back_is_waited_for() -> None:
    with Broker() as broker:
        data = TopicData(broker.bootstrap)
        view = ClusterView(
            ReadOptions.parse(
                {
                    "kafka.bootstrap.servers": broker.bootstrap,
                    "subscribe": data.name,
                    "kafka.default.api.timeout.ms": "30000",
                }
            )
        )
        assert view.latest() == {data.partition(0): 0}
        broker.stop()
        starting = threading.Thread(target=broker.start)
        starting.start()
        assert view.latest() == {data.partition(0): 0}
        view.close()
        starting.join()


def test_a_broker_that_stays_away_is_an_error() -> None:
    with Broker() as broker:
        TopicData(broker.bootstrap, "t")
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": "t",
            "kafka.default.api.timeout.ms": "1000",
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "10",
        }
        view = ClusterView(ReadOptions.parse(given))
        assert len(view.latest()) == 1
        broker.stop()
        with pytest.raises(BrokerConnectionError, match=f"127.0.0.1:{broker.port}"):
            view.latest()
        view.close()
