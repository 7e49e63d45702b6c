"""The driver of an exactly-once sink, with a broker and without Spark: what it does wherever it died before."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pytest

from ottla import Admin, Producer
from ottla.client.administer import ConfigResource, NewTopic
from ottla.spark.exactly_once.commit_log import newest_record
from ottla.spark.exactly_once.decisions import Proposal
from ottla.spark.exactly_once.driver import SinkDriver, settle
from ottla.spark.exactly_once.errors import (
    CommitTopicError,
    ExactlyOnceError,
    LostTransactionsError,
    SupersededError,
)
from ottla.spark.exactly_once.identifiers import sink_of_one_write
from ottla.spark.exactly_once.places import Place
from support.clients.peers import Peer
from support.exactly_once.sink import Sink, new_sink


@pytest.fixture
def sink(broker: Peer, topic: str) -> Iterator[Sink]:
    """What a test leaves open ends with it: other tests of this broker expect that nobody has an open transaction."""
    sink = new_sink(broker.bootstrap, topic)
    yield sink
    sink.end_open()


def test_batches_of_a_run_become_visible_when_they_are_committed(sink: Sink) -> None:
    driver = sink.driver()
    reports = [sink.report("r1", 0, 0, "a"), sink.report("r1", 0, 0, "b"), sink.report("r1", 0, 0, None)]
    assert sink.visible() == []
    driver.commit(reports)
    assert sink.visible() == ["a", "b"]
    driver.commit([sink.report("r1", 0, 1, "c")])
    driver.close()
    assert (sink.visible(), sink.open()) == (["a", "b", "c"], [])


def test_a_driver_that_died_after_the_record_is_replaced(sink: Sink) -> None:
    first = sink.driver()
    first._record(Proposal.of([sink.report("r1", 0, 0, "a"), sink.report("r1", 0, 0, "b")]))
    assert sink.visible() == []
    second = sink.driver()
    second.commit([sink.report("r2", None, 0, None), sink.report("r2", None, 0, None)])
    assert sink.visible() == ["a", "b"]
    second.commit([sink.report("r2", 0, 1, "c")])
    # The first one was only slow.
    late = [sink.report("r1", 0, 1, "not this")]
    with pytest.raises(ExactlyOnceError):
        first.commit(late)
    first.abort(late)
    first.close()
    second.close()
    assert (sink.visible(), sink.open()) == (["a", "b", "c"], [])


def test_a_driver_that_died_before_the_record_leaves_nothing(sink: Sink) -> None:
    sink.report("r1", 0, 0, "lost")
    ahead = sink.report("r9", 1, 1, "of a run that is not known")
    driver = sink.driver()
    driver.commit([sink.report("r2", 0, 0, "a")])
    assert sink.open() == [ahead.transaction.transactional_id]  # type: ignore[union-attr]
    driver.commit([sink.report("r2", 0, 1, "b")])
    # Looked for again only after a while, or if tasks failed.
    driver._tidied = None
    driver.commit([sink.report("r2", 0, 2, "c")])
    driver.close()
    assert (sink.visible(), sink.open()) == (["a", "b", "c"], [])


def test_two_drivers_write_the_first_batch_and_one_wins(sink: Sink) -> None:
    one, two = sink.driver(), sink.driver()
    mine, yours = [sink.report("r1", 0, 0, "one")], [sink.report("r2", 0, 0, "two")]
    two.commit(yours)
    with pytest.raises(SupersededError, match="meanwhile"):
        one.commit(mine)
    one.abort(mine)
    one.close()
    two.commit([sink.report("r2", 0, 1, "three")])  # fenced by the other, and opened again
    two.close()
    assert (sink.visible(), sink.open()) == (["two", "three"], [])


def test_an_abort_after_a_commit_that_failed_aborts_only_what_is_not_recorded(sink: Sink) -> None:
    driver = sink.driver()
    recorded = [sink.report("r1", 0, 0, "a")]
    driver._record(Proposal.of(recorded))
    other = sink.driver()
    other.abort(recorded)
    assert len(sink.open()) == 1
    driver._complete(driver._record(Proposal.of(recorded)))
    failed = [sink.report("r1", 0, 1, "b")]
    other.abort(failed)
    assert sink.open() == []
    with pytest.raises(SupersededError, match="aborted"):  # comes late
        driver.commit(failed)
    driver.close()
    other.close()
    assert sink.visible() == ["a"]


def test_a_batch_that_timed_out_as_a_whole_is_written_again(sink: Sink) -> None:
    driver = sink.driver()
    reports = [sink.report("r1", 0, 0, "a"), sink.report("r1", 0, 0, "b")]
    sink.time_out(*reports)
    with pytest.raises(LostTransactionsError, match="restart the query to write it again"):
        driver.commit(reports)
    driver.abort(reports)
    driver.commit([sink.report("r2", 0, 0, "a again")])
    driver.close()
    assert sink.visible() == ["a again"]


def test_a_batch_of_which_a_part_timed_out_is_told(broker: Peer, sink: Sink) -> None:
    driver = sink.driver()
    reports = [sink.report("r1", 0, 0, "a"), sink.report("r1", 0, 0, "b")]
    sink.time_out(reports[0])
    with pytest.raises(LostTransactionsError, match=r"1 of 2 transactions of batch 0 .* Their rows are missing"):
        driver.commit(reports)
    driver.abort(reports)
    driver.close()
    again = [sink.report("r2", None, 0, None)]
    sink.options = Sink(broker.bootstrap, sink.topic, failOnDataLoss="false").options
    settle(sink.options, again, commit=True)
    assert sink.visible() == ["b"]


def test_a_batch_that_took_too_long_is_not_recorded(sink: Sink) -> None:
    driver = sink.driver()
    reports = [sink.report("r1", 0, 0, "a", began_s=1.0)]
    with pytest.raises(ExactlyOnceError, match=r"time out after 900 s: make batches smaller"):
        driver.commit(reports)
    driver.abort(reports)
    driver.close()
    assert (sink.visible(), sink.open()) == ([], [])


def test_writes_without_a_name_leave_no_record(sink: Sink) -> None:
    for names in (["a", "b"], ["c"], ["d", "e"]):
        sink.sink = sink_of_one_write(uuid.uuid4().hex)
        settle(sink.options, [sink.report("x", 0, 0, name) for name in names], commit=True)
        assert sink.open() == []
    sink.sink = sink_of_one_write(uuid.uuid4().hex)
    settle(sink.options, [sink.report("x", 0, 0, "f"), sink.report("x", 0, 0, "g")], commit=False)
    assert (sink.visible(), sink.open()) == (["a", "b", "c", "d", "e"], [])
    settings: Mapping[str, str] = {"bootstrap.servers": sink.bootstrap}
    with Admin(settings) as admin:
        assert newest_record(settings, admin, sink.options.topic, sink.sink) is None


def test_a_process_that_served_other_writes_does_not_abort_what_another_one_recorded(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.sink = sink_of_one_write(uuid.uuid4().hex)
    settle(sink.options, [sink.report("x", 0, 0, "a"), sink.report("x", 0, 0, "b")], commit=True)
    sink.sink = sink_of_one_write(uuid.uuid4().hex)
    proposal = Proposal.of(reports := [sink.report("x", 0, 0, "c"), sink.report("x", 0, 0, "d")])
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("ottla.spark.exactly_once.driver.place_of_this_process", lambda: Place("elsewhere", None))
        other = sink.driver()
    record = other._record(proposal)
    other._end(record.transactions[:1], commit=True)
    settle(sink.options, reports, commit=False)
    assert sink.open() == [record.transactions[1].transactional_id]
    other._complete(record)
    other.close()
    assert sorted(sink.visible()) == ["a", "b", "c", "d"]


@pytest.fixture
def own_topics(broker: Peer) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        yield admin


def test_a_topic_that_is_not_for_commit_records_is_refused(sink: Sink, own_topics: Admin, topic: str) -> None:
    own_topics.create_topics(
        [
            NewTopic(f"{topic}-deleting", 8, 1),
            NewTopic(f"{topic}-small", 3, 1, configs={"cleanup.policy": "compact"}),
            NewTopic(f"{topic}-used", 8, 1, configs={"cleanup.policy": "compact"}),
        ]
    )
    with Producer(bootstrap_servers=sink.bootstrap) as producer:
        for partition in range(8):
            producer.send(f"{topic}-used", b"order", key=sink.sink.encode(), partition=partition)
    for name, told in (("deleting", "cleanup.policy=delete"), ("small", "has 3 partitions"), ("used", "b'order'")):
        options = Sink(sink.bootstrap, sink.topic, commitTopic=f"{topic}-{name}").options
        driver = SinkDriver(options, sink.sink)
        with pytest.raises(CommitTopicError, match=told):
            driver.commit([sink.report("r1", 0, 0, "a")])
        driver.close()
    settings = {"bootstrap.servers": sink.bootstrap}
    assert newest_record(settings, own_topics, f"{topic}-none", sink.sink) is None
    assert own_topics.describe_configs([ConfigResource.topic(f"{topic}-small")])
