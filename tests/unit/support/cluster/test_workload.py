"""What librdkafka's lines about idempotence are taken for."""

from __future__ import annotations

import pytest

from support.cluster.workload import RdkafkaLoad, _EosLog

SKIPPED = (
    "ERRSEQ: ProduceRequest for orders [1] with 3 message(s) failed due to skipped sequence numbers "
    "(PID{Id:1,Epoch:0}, base seq 9 > next seq 5) caused by "
    "previous failed request ({cause}, actions Retry, base seq 5..8): recovering"
)


@pytest.mark.parametrize(
    ("cause", "is_explained"),
    [("KAFKA_STORAGE_ERROR", True), ("NOT_ENOUGH_REPLICAS", True), ("REQUEST_TIMED_OUT", False), ("NO_ERROR", False)],
)
def test_only_a_refusal_that_a_fault_explains_excuses_records_that_come_twice(cause: str, is_explained: bool) -> None:
    load = RdkafkaLoad.__new__(RdkafkaLoad)
    load.renumberings = []
    log = _EosLog(load.renumberings)
    assert not load.renumbers
    log.log(7, SKIPPED.replace("{cause}", cause))
    log.log(7, SKIPPED.replace("{cause}", "OUT_OF_ORDER_SEQUENCE_NUMBER"))
    assert load.renumberings == [cause, "OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert load.renumbers is is_explained
