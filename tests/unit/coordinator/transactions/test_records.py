"""Records of transactional ids, as bytes. The bytes are those of Apache Kafka 4.3.1's own classes
(`TransactionLogKey` and `TransactionLogValue`, written by `MessageUtil.toVersionPrefixedBytes`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition
from ottla.coordinator.transactions import fast_records
from ottla.coordinator.transactions.records import (
    TransactionRecord,
    id_of,
    key_of,
    record_of,
    tombstone_of,
    transaction_of,
)
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import Transaction
from ottla.wire.codec import encode_versioned
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.transaction_records import TransactionLogValue

EMPTY = Transaction("orders", 4000, 3, 60_000, TransactionState.EMPTY, last_update_ms=1_700_000_000_123)
ONGOING = EMPTY._replace(
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("__consumer_offsets", 7)}),
    start_ms=1_700_000_000_100,
)
EXHAUSTED = ONGOING._replace(
    state=TransactionState.PREPARE_COMMIT,
    producer_epoch=32_767,
    previous_producer_id=4000,
    next_producer_id=5000,
    client_version=2,
)
TAKEN_OVER = ONGOING._replace(next_producer_id=4000, next_producer_epoch=4, client_version=2)
KAFKAS = {
    EMPTY: "00000000000000000fa000030000ea6000ffffffff0000018bcfe5687bffffffffffffffff",
    ONGOING: "00000000000000000fa000030000ea60010000000200125f5f636f6e73756d65725f6f6666736574730000000100000007"
    "0001740000000200000000000000010000018bcfe5687b0000018bcfe56864",
    EXHAUSTED: "00010000000000000fa07fff0000ea600203135f5f636f6e73756d65725f6f66667365747302000000070002740300000000"
    "00000001000000018bcfe5687b0000018bcfe568640300080000000000000fa00108000000000000138802020002",
    TAKEN_OVER: "00010000000000000fa000030000ea600103135f5f636f6e73756d65725f6f66667365747302000000070002740300000000"
    "00000001000000018bcfe5687b0000018bcfe568640301080000000000000fa00202000203020004",
}


@pytest.mark.parametrize("transaction", KAFKAS, ids=("empty", "ongoing", "exhausted", "taken over"))
def test_values_are_those_of_kafka(transaction: Transaction) -> None:
    record = record_of(transaction)
    assert record.value is not None
    assert record.value.hex() == KAFKAS[transaction]
    assert transaction_of("orders", record.value) == transaction


def test_keys_are_those_of_kafka() -> None:
    assert key_of("orders").hex() == "000000066f7264657273"
    assert record_of(EMPTY).key == key_of("orders")
    assert tombstone_of("orders") == (key_of("orders"), None)
    assert id_of(key_of("orders")) == "orders"


def test_keys_of_another_kind_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    assert id_of(b"\x00\x01whatever") is None
    assert "unknown kind" in caplog.text


def test_a_value_of_an_unknown_version_or_state_is_refused() -> None:
    with pytest.raises(ProtocolError):
        transaction_of("x", b"\x00\x02" + b"\x00" * 40)
    with pytest.raises(ValueError, match="11"):
        transaction_of("x", encode_versioned(TransactionLogValue(transaction_status=11), 0))


@pytest.mark.parametrize(
    "change",
    [{"client_version": 2}, {"previous_producer_id": 1}, {"next_producer_id": 1}, {"next_producer_epoch": 1}],
    ids=str,
)
def test_version_1_is_written_only_for_what_needs_it(change: dict[str, int]) -> None:
    assert (record_of(EMPTY).value or b"")[:2] == b"\x00\x00"
    assert (record_of(EMPTY._replace(**change)).value or b"")[:2] == b"\x00\x01"  # type: ignore[arg-type]


_IDS = st.integers(-1, 2**63 - 1)
_EPOCHS = st.integers(-1, 2**15 - 1)
_TIMES = st.integers(-1, 2**50)


_TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.just("x"),
    producer_id=_IDS,
    producer_epoch=_EPOCHS,
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(TransactionState).filter(lambda state: state is not TransactionState.EMPTY),
    partitions=st.frozensets(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 9))),
    start_ms=_TIMES,
    last_update_ms=_TIMES,
    previous_producer_id=_IDS,
    next_producer_id=_IDS,
    next_producer_epoch=_EPOCHS,
    client_version=st.integers(0, 2),
    last_epoch=st.just(-1),
)


@given(transaction=_TRANSACTIONS)
def test_what_is_written_is_read(transaction: Transaction) -> None:
    assert transaction_of("x", record_of(transaction).value or b"") == transaction


@given(transaction=_TRANSACTIONS, is_usual=st.booleans(), is_empty=st.booleans())
def test_the_fast_path_makes_the_same_records(transaction: Transaction, is_usual: bool, is_empty: bool) -> None:
    if is_usual:  # no producer id but one
        transaction = transaction._replace(previous_producer_id=-1, next_producer_id=-1, next_producer_epoch=-1)
    if is_empty:
        transaction = transaction._replace(state=TransactionState.EMPTY)
    for each in (transaction, transaction._replace(producer_id=7, start_ms=8)):  # the second finds what it remembers
        record = fast_records.record_of(each)
        assert record == record_of(each)
        assert isinstance(record, TransactionRecord)
        assert record.transaction is each
