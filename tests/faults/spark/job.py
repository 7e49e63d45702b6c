"""The streaming job that is killed: one topic into another, partition by partition, until it is told to stop.

A program of its own, with a Spark driver of its own. Lines of JSON go out: each start of the query, why one failed, and
the end. A query that fails is started again, as whoever looks after a job would do it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from ottla.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SETTINGS: dict[str, Any] = {
    "spark.driver.memory": "512m",
    # Little is computed here, and starts are many.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    # A task hands its rows over a few at a time, so that a kill finds some of them written.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    # The whole history of the query: the checker reads it.
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
}


@dataclass(frozen=True, slots=True)
class Job:
    """What the program is given, as JSON."""

    bootstrap: str
    source: str
    target: str
    checkpoint: str
    group: str
    results: str
    drains: bool = False
    """Ends when it has read what is there, and hurries."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def start_query(spark: SparkSession, job: Job) -> StreamingQuery:
    reading = {
        "kafka.bootstrap.servers": job.bootstrap,
        "subscribe": job.source,
        "startingOffsets": "earliest",
        "commitGroup": job.group,
        "maxOffsetsPerTrigger": "100000" if job.drains else "1500",
        "kafka.reconnect.backoff.max.ms": "200",
    }
    writing = {
        "kafka.bootstrap.servers": job.bootstrap,
        "topic": job.target,
        "checkpointLocation": job.checkpoint,
        "resultsPath": job.results,
        # Rows stay a while in a worker, where a kill finds them.
        "kafka.linger.ms": "100",
        "kafka.reconnect.backoff.max.ms": "200",
    }
    rows = spark.readStream.format("ottla").options(**reading).load()
    if not job.drains:
        # Rows that take their time, at no cost: kills meet tasks at work.
        rows = rows.where("offset % 50 != 0 OR java_method('java.lang.Thread', 'sleep', 40L) = 'null'")
    # Each record goes to the partition that it came from, and says where it was there.
    told = rows.selectExpr("partition", "CONCAT(CAST(CAST(offset AS STRING) AS BINARY), X'20', value) AS value")
    stream = told.writeStream.format("ottla").options(**writing)
    stream = stream.trigger(availableNow=True) if job.drains else stream.trigger(processingTime="100 milliseconds")
    return stream.start()


def say(**what: object) -> None:
    sys.stdout.write(json.dumps({"time_s": time.time(), **what}) + "\n")
    sys.stdout.flush()


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    told_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told_to_stop.set())
    # A task is tried as often as it takes: how often it is killed is chance.
    spark = session("local[2,1000]", "killed", **_SETTINGS)
    try:
        is_done = False
        while not is_done and not told_to_stop.is_set():
            query = start_query(spark, job)
            say(started=str(query.runId))
            try:
                while not is_done and not told_to_stop.is_set():
                    is_done = bool(query.awaitTermination(1))
            except StreamingQueryException as error:
                say(failed=str(error))
            finally:
                query.stop()
    finally:
        spark.stop()
    say(ended=True)


if __name__ == "__main__":
    main()
