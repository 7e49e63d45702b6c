"""The query under fire, as a program: from topic to topic, each id once, with the ids seen before as its state.

Its argument is JSON. A file named `raise…` or `die…` in the directory `orders` is an order for the next task that sees
it: to fail, or to kill its worker. The task that deletes the file has the order, so each is carried out once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def obeying(orders: str) -> Callable[[bytes], bytes]:
    def same(value: bytes) -> bytes:
        for order in Path(orders).iterdir():
            try:
                order.unlink()
            except FileNotFoundError:
                continue
            if order.name.startswith("die"):
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("a task was told to fail")
        return value

    return same


def run(given: Mapping[str, Any]) -> None:
    from pyspark.sql.functions import udf

    from ottla.spark import session

    spark = session(given["master"], sql_shuffle_partitions=2, **given["conf"])
    source = {"kafka.bootstrap.servers": given["bootstrap"], "subscribe": given["source"]}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(given["per_batch"])}
    obey = obeying(given["orders"])
    # Without annotations: with them, PySpark asks for pandas.
    obeyed = udf(lambda value: obey(value), "binary")("value").alias("value")
    ids = spark.readStream.format("ottla").options(**source, **limits).load().select("value").dropDuplicates(["value"])
    query = (
        ids.select(obeyed)
        .writeStream.format("ottla")
        .options(**{"kafka.bootstrap.servers": given["bootstrap"], "topic": given["target"]})
        .options(exactlyOnce=str(given["exactly_once"]).lower(), checkpointLocation=given["checkpoint"])
        .start()
    )
    Path(given["started"]).touch()
    query.awaitTermination()


if __name__ == "__main__":
    try:
        run(json.loads(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        os._exit(1)  # without waiting for Java
