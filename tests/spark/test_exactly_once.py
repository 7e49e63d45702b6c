"""DataFrames into topics with `exactlyOnce`: what readers with read_committed see, after failures and restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import TransactionState
from ottla.spark import write_stream
from support.clients.peers import Peer
from support.topic_data import WAIT_S, TopicData
from support.waiting import wait_until


@pytest.fixture
def target(broker: Peer) -> TopicData:
    return TopicData(broker.bootstrap, partitions=3)


def committed(data: TopicData, isolation: str = "read_committed") -> list[str]:
    """All values, also if a transaction is open: then it fails."""
    partitions = [TopicPartition(data.name, index) for index in range(3)]
    with Admin(bootstrap_servers=data.bootstrap) as admin:
        assert admin.list_transactions(states=[TransactionState.ONGOING]) == []
    with Consumer(bootstrap_servers=data.bootstrap, isolation_level=isolation) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0, until=ends[partition])
        return sorted((record.value or b"").decode() for record in consumer)


def end_leftovers(data: TopicData) -> None:
    """Spark kills the other tasks of a job that has failed, so their transactions may stay open until they time out."""

    def is_none_left() -> bool:
        found = [one.transactional_id for one in admin.list_transactions(states=[TransactionState.ONGOING])]
        if found:
            admin.fence_producers(found)
        return not found

    with Admin(bootstrap_servers=data.bootstrap) as admin:
        wait_until(is_none_left, "open transactions of tasks that were killed")


def values(count: int, begin: int = 0) -> list[str]:
    return sorted(str(number) for number in range(begin, begin + count))


def options_of(data: TopicData, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": data.bootstrap, "topic": data.name, "exactlyOnce": "true", **options}


def run_out(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()


def stream_of(spark: SparkSession, data: TopicData, **options: str) -> DataFrame:
    usual = {"kafka.bootstrap.servers": data.bootstrap, "subscribe": data.name, "startingOffsets": "earliest"}
    return spark.readStream.format("ottla").options(**{**usual, **options}).load()


def passed_through(function: Callable[[bytes], bytes]) -> Column:
    # Without annotations: with them, PySpark asks for pandas.
    return udf(lambda value: function(value), "binary")("value").alias("value")


def killed_once(mark: Path) -> Callable[[bytes], bytes]:
    """A function of values that kills its worker at the last one, once."""

    def same(value: bytes) -> bytes:
        if value == b"99" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    return same


def test_a_batch_is_visible_as_a_whole(spark: SparkSession, target: TopicData) -> None:
    frame = spark.range(0, 3000, 1, 3).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    frame.write.format("ottla").options(**options_of(target)).mode("append").save()
    assert committed(target) == values(3000)
    # Also if its transactions have no timeout.
    two_phase = options_of(target, **{"kafka.transaction.two.phase.commit.enable": "true"})
    more = spark.range(3000, 3010, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    more.write.format("ottla").options(**two_phase).mode("append").save()
    assert committed(target) == values(3010)
    frame.limit(0).write.format("ottla").options(**options_of(target)).mode("append").save()
    # The last task fails, so nothing of the others is visible.
    broken = frame.selectExpr("key", "IF(key = '2999', CAST(raise_error('no') AS STRING), value) AS value")
    with pytest.raises(PySparkException, match="no"):
        broken.write.format("ottla").options(**options_of(target)).mode("append").save()
    end_leftovers(target)
    assert committed(target) == values(3010)


def test_a_write_with_a_name_takes_effect_once(spark: SparkSession, target: TopicData) -> None:
    frame = spark.range(0, 20, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):
        options = options_of(target, exactlyOnceJob=f"load-{target.name}")
        frame.write.format("ottla").options(**options).mode("append").save()
    assert committed(target) == values(20)


def test_a_micro_batch_that_is_replayed_is_not_written_again(
    spark: SparkSession, broker: Peer, target: TopicData, tmp_path: Path
) -> None:
    source = TopicData(broker.bootstrap, partitions=2)
    source.send(range(10), partition=0)
    source.send(range(10, 20), partition=1)
    (tmp_path / "file").touch()
    broken, whole = str(tmp_path / "file" / "results"), str(tmp_path / "results")

    def go_on(results: str) -> None:
        # Not the same number of tasks each time.
        frame = stream_of(spark, source, minPartitions="2" if results == broken else "5").select("value")
        options = options_of(target, resultsPath=results, checkpointLocation=str(tmp_path / "state"))
        run_out(frame.writeStream.format("ottla").options(**options))

    with pytest.raises(PySparkException, match="Not a directory"):  # behind the commit
        go_on(broken)
    assert committed(target) == values(20)
    go_on(whole)
    assert committed(target) == values(20)
    source.send(range(20, 25))
    go_on(whole)
    assert committed(target) == values(25)


def test_a_worker_that_is_killed_leaves_nothing(
    spark: SparkSession, broker: Peer, target: TopicData, tmp_path: Path
) -> None:
    source = TopicData(broker.bootstrap, partitions=2)
    for partition in range(2):
        source.send(range(partition * 50, partition * 50 + 50), partition=partition)
    checkpoint = str(tmp_path / "state")

    def go_on() -> None:
        frame = stream_of(spark, source).select(passed_through(killed_once(tmp_path / "mark")))
        run_out(frame.writeStream.format("ottla").options(**options_of(target), checkpointLocation=checkpoint))

    with pytest.raises(PySparkException):
        go_on()
    go_on()
    assert committed(target) == values(100)


def test_update_mode_and_names_in_foreach_batch(
    spark: SparkSession, broker: Peer, target: TopicData, tmp_path: Path
) -> None:
    source = TopicData(broker.bootstrap)
    source.send([0, 1, 1])
    counts = stream_of(spark, source).groupBy("value").count()
    counts = counts.selectExpr("concat(CAST(value AS STRING), ':', count) AS value")
    sink = write_stream(counts, **options_of(target)).outputMode("update")
    run_out(sink.option("checkpointLocation", str(tmp_path / "update")))
    assert committed(target) == ["0:1", "1:2"]

    def each(*names: str) -> DataStreamWriter:
        def both(frame: DataFrame, _: int) -> None:
            for name in names:
                named = {"exactlyOnceId": name} if name else {}
                options = options_of(target, **named)
                frame.select("value").write.format("ottla").options(**options).mode("append").save()

        return stream_of(spark, source).writeStream.foreachBatch(both)

    run_out(each("one", "two").option("checkpointLocation", str(tmp_path / "two")))
    assert len(committed(target)) == 8
    with pytest.raises(PySparkException, match="needs a name: set exactlyOnceId"):
        run_out(each("").option("checkpointLocation", str(tmp_path / "none")))
    with pytest.raises(PySparkException, match="set exactlyOnceId to a different name"):
        run_out(each("one", "one").option("checkpointLocation", str(tmp_path / "same")))
    assert len(committed(target)) == 11


def test_a_thread_of_foreach_batch_must_know_the_micro_batch(
    spark: SparkSession, broker: Peer, target: TopicData, tmp_path: Path
) -> None:
    """Otherwise the write of each micro-batch would be taken for that of the first one, and its rows would be lost."""
    source = TopicData(broker.bootstrap)
    source.send(range(6))

    def each(*, inherits: bool, **names: str) -> DataStreamWriter:
        def write(frame: DataFrame) -> None:
            frame.sparkSession.createDataFrame([], "id INT")  # a thread finds the sink only then
            frame.select("value").write.format("ottla").options(**options_of(target, **names)).mode("append").save()

        def elsewhere(frame: DataFrame, _: int) -> None:
            run = inheritable_thread_target(frame.sparkSession)(write) if inherits else write
            with ThreadPoolExecutor(1) as pool:
                pool.submit(run, frame).result(WAIT_S)

        writer = stream_of(spark, source, maxOffsetsPerTrigger="2").writeStream.foreachBatch(elsewhere)
        return writer.option("checkpointLocation", str(tmp_path / "state"))

    try:
        with pytest.raises(PySparkException, match="exactlyOnceId='own' names a write in foreachBatch"):
            run_out(each(inherits=False, exactlyOnceId="own"))
        with pytest.raises(PySparkException, match="the DataFrame is from foreachBatch"):
            run_out(each(inherits=False))
        assert committed(target) == []
        run_out(each(inherits=True, exactlyOnceId="own"))
        assert committed(target) == values(6)
    finally:
        spark.createDataFrame([], "id INT")  # the session of the last query is not the active one any more


def test_a_restored_checkpoint_is_refused(spark: SparkSession, broker: Peer, target: TopicData, tmp_path: Path) -> None:
    source = TopicData(broker.bootstrap)

    def go_on() -> None:
        frame = stream_of(spark, source).select("value")
        options = options_of(target, checkpointLocation=str(tmp_path / "state"))
        run_out(frame.writeStream.format("ottla").options(**options))

    for number in range(3):
        source.send([number])
        go_on()
    for kind in ("offsets", "commits"):
        for file in (tmp_path / "state" / kind).iterdir():
            if file.name.strip(".").split(".")[0] in ("1", "2"):
                file.unlink()
    with pytest.raises(PySparkException, match="batch 1 is older than batch 2"):
        go_on()
    assert committed(target) == values(3)


def test_readers_of_committed_rows_stop_before_an_open_transaction(
    spark: SparkSession, broker: Peer, target: TopicData, tmp_path: Path
) -> None:
    """Aborted records and markers are gaps, and no data is lost."""
    source = TopicData(broker.bootstrap)

    def go_on() -> None:
        frame = stream_of(spark, source, **{"kafka.isolation.level": "read_committed"}).select("value")
        options = options_of(target, checkpointLocation=str(tmp_path / "state"))
        run_out(frame.writeStream.format("ottla").options(**options))

    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"id-{source.name}") as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(source.name, str(number // 2).encode(), partition=0)
            if number % 2:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.begin_transaction()
        producer.send(source.name, b"3", partition=0).result(WAIT_S)
        source.send(["4"], partition=0)
        go_on()
        producer.abort_transaction()
    assert committed(target) == values(3)
    go_on()
    assert committed(target) == [*values(3), "4"]
