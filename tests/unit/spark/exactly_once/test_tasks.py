from __future__ import annotations

import pytest

from ottla.spark.exactly_once.errors import ExactlyOnceError
from ottla.spark.exactly_once.tasks import Assignment, assignment_of
from ottla.spark.options import OptionError, WriteOptions

STREAM = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7", "spark.app.id": "app", "spark.jobGroup.id": "run"}
BATCH = {"spark.app.id": "app"}
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t", "exactlyOnce": "true"}


def test_a_stream_belongs_to_its_query_and_run() -> None:
    assert assignment_of(STREAM.get, "e", is_stream=True) == Assignment("query:q", "app/run", 7)
    assert assignment_of(STREAM.get, "e", name="n", is_stream=True) == Assignment("query:q:n", "app/run", 7)
    assert assignment_of(STREAM.get, "e", name="n", is_stream=False) == Assignment("query:q:n", "app/run", 7)


def test_a_batch_write_belongs_to_its_job_or_to_itself() -> None:
    assert assignment_of(BATCH.get, "e", is_stream=False) == Assignment("once:e", "e", 0)
    assert assignment_of(BATCH.get, "e", job="n", is_stream=False) == Assignment("write:n", "e", 0)


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(ExactlyOnceError, match="needs a name: set exactlyOnceId"):
        assignment_of(STREAM.get, "e", is_stream=False)
    with pytest.raises(ExactlyOnceError, match="did not say to which query"):
        assignment_of(BATCH.get, "e", is_stream=True)


def test_a_micro_batch_that_spark_does_not_name_is_refused() -> None:
    """Of a thread that foreachBatch has started."""
    of_stream = BATCH | {"spark.sql.streaming.internal.stateStore.partitions": "2"}
    for properties in (BATCH, of_stream):
        with pytest.raises(ExactlyOnceError, match=r"'n' names a write in foreachBatch.*inheritable_thread_target"):
            assignment_of(properties.get, "e", name="n", is_stream=False)
    for job in (None, "n"):
        with pytest.raises(ExactlyOnceError, match=r"is from foreachBatch.*inheritable_thread_target"):
            assignment_of(of_stream.get, "e", job=job, is_stream=False)


def test_the_name_of_a_job_is_not_for_queries() -> None:
    for is_stream in (False, True):
        with pytest.raises(ExactlyOnceError, match="every micro-batch but the first would be lost"):
            assignment_of(STREAM.get, "e", job="n", is_stream=is_stream)


def test_options() -> None:
    assert WriteOptions.parse({**GIVEN, "exactlyOnce": "false"}).exactly_once is None
    usual = WriteOptions.parse(GIVEN).exactly_once
    assert usual is not None
    assert (usual.name, usual.job, usual.prefix) == (None, None, "ottla-spark")
    assert usual.topic == "__ottla_spark_commits"
    assert (usual.timeout_ms, usual.is_two_phase, usual.fail_on_data_loss) == (900_000, False, True)
    own = {"exactlyOnceId": "n", "kafka.transaction.timeout.ms": "5000", "commitTopic": "c", "failOnDataLoss": "false"}
    given = WriteOptions.parse({**GIVEN, **own, "transactionalIdPrefix": "p"}).exactly_once
    assert given is not None
    assert (given.name, given.prefix, given.topic, given.timeout_ms) == ("n", "p", "c", 5000)
    assert not given.fail_on_data_loss
    once = WriteOptions.parse({**GIVEN, "exactlyOnceJob": "j"}).exactly_once
    assert once is not None
    assert (once.name, once.job) == (None, "j")
    assert given.client_settings["transaction.timeout.ms"] == "5000"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"exactlyOnceId": "a/b"}, "'a/b' is not 1 to 100 letters"),
        ({"exactlyOnceJob": "a b"}, "'a b' is not 1 to 100 letters"),
        ({"exactlyOnceId": "a", "exactlyOnceJob": "a"}, "omit one of them"),
        ({"transactionalIdPrefix": ""}, "'' is not 1 to 100 letters"),
        ({"commitTopic": ""}, "commitTopic: is empty"),
        ({"exactlyOnce": "maybe"}, "maybe"),
        ({"kafka.transactional.id": "mine"}, "set exactlyOnce, and transactionalIdPrefix"),
        ({"kafka.acks": "1"}, "option exactlyOnce: cannot be combined with acks=1"),
        ({"kafka.enable.idempotence": "false"}, "option exactlyOnce: cannot be combined with enable.idempotence"),
        ({"exactlyOnec": "true"}, "did you mean exactlyOnce"),
    ],
)
def test_wrong_options_are_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        WriteOptions.parse({**GIVEN, **options})


def test_two_phase_commit_is_an_option() -> None:
    two_phase = {"kafka.transaction.two.phase.commit.enable": "true"}
    options = WriteOptions.parse({**GIVEN, **two_phase}).exactly_once
    assert options is not None
    assert options.is_two_phase
    assert "transaction.timeout.ms" not in options.client_settings
