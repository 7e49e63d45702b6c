"""Sessions: what is told to the broker, and when everything is told again."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition, Uuid
from ottla.client.consume.fetch_session import ConsumerFetchSession, SessionRequest, Wanted

IDS = [Uuid(bytes([index]) * 16) for index in range(1, 4)]


def wanted(topic_id: Uuid = IDS[0], offset: int = 0) -> Wanted:
    return Wanted(topic_id, offset, 0, 1000)


def told(request: SessionRequest) -> set[tuple[str, int]]:
    return {(topic.topic, one.partition) for topic in request.topics for one in topic.partitions}


def forgotten(request: SessionRequest) -> set[tuple[Uuid, int]]:
    return {(topic.topic_id, index) for topic in request.forgotten for index in topic.partitions}


def test_a_session_from_its_beginning_to_its_end() -> None:
    session = ConsumerFetchSession()
    partitions = {TopicPartition("a", 0): wanted(), TopicPartition("a", 1): wanted()}
    first = session.ask(partitions, by_id=True)
    assert (first.session_id, first.epoch) == (0, 0)
    assert told(first) == {("a", 0), ("a", 1)}
    session.answered(5)
    partitions[TopicPartition("a", 1)] = wanted(offset=7)
    second = session.ask(partitions, by_id=True)
    assert (second.session_id, second.epoch) == (5, 1)
    assert told(second) == {("a", 1)}
    session.answered(5)
    del partitions[TopicPartition("a", 0)]
    third = session.ask(partitions, by_id=True)
    assert (third.epoch, told(third), forgotten(third)) == (2, set(), {(IDS[0], 0)})
    session.failed()
    again = session.ask(partitions, by_id=True)
    assert (again.session_id, again.epoch) == (5, 0)  # ends the old one
    assert told(again) == {("a", 1)}
    session.failed(is_forgotten=True)
    assert session.ask(partitions, by_id=True).session_id == 0


def test_a_topic_that_was_created_again_is_forgotten_under_its_old_id() -> None:
    session = ConsumerFetchSession()
    session.ask({TopicPartition("a", 0): wanted()}, by_id=True)
    session.answered(5)
    request = session.ask({TopicPartition("a", 0): wanted(IDS[1])}, by_id=True)
    assert told(request) == {("a", 0)}
    assert forgotten(request) == {(IDS[0], 0)}


def test_names_and_ids_do_not_share_a_session() -> None:
    session = ConsumerFetchSession()
    session.ask({TopicPartition("a", 0): wanted()}, by_id=True)
    session.answered(5)
    request = session.ask({TopicPartition("a", 0): wanted()}, by_id=False)
    assert (request.session_id, request.epoch, told(request)) == (5, 0, {("a", 0)})


@dataclass
class Broker:
    """What a broker remembers of a session."""

    epoch: int = 0
    known: dict[tuple[str, int], int] = field(default_factory=dict)

    def take(self, request: SessionRequest) -> dict[tuple[str, int], int]:
        if request.epoch == 0:
            self.known = {}
        else:
            assert request.epoch == self.epoch
        for topic in request.forgotten:
            for index in topic.partitions:
                del self.known[topic.topic, index]
        for one in request.topics:
            for partition in one.partitions:
                self.known[one.topic, partition.partition] = partition.fetch_offset
        self.epoch = request.epoch + 1
        return self.known


partition_sets = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), st.integers(0, 3), max_size=6
)


@given(st.lists(st.tuples(partition_sets, st.booleans()), max_size=8))
def test_the_broker_always_knows_what_is_wanted(steps: list[tuple[dict[tuple[str, int], int], bool]]) -> None:
    session, broker = ConsumerFetchSession(), Broker()
    ids = {"a": IDS[0], "b": IDS[1]}
    for partitions, is_answered in steps:
        asked = {TopicPartition(*one): wanted(ids[one[0]], offset) for one, offset in partitions.items()}
        assert broker.take(session.ask(asked, by_id=True)) == partitions
        if is_answered:
            session.answered(9)
        else:
            session.failed()
