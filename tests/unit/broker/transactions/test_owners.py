"""Who may write to a transaction at the edges: a take-over, used-up epochs, a cluster that goes back to version 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.metadata.features import LiveRegistration
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import LAST_EPOCH, ProducerIdentity, Transaction
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.brokers import Client, with_client
from support.brokers.transactions import NEW, OLD, TransactionalProducer, values_in
from support.waiting import until

NONE = ErrorCode.NONE
FEW = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}
ID = "payments"
USED_UP = LAST_EPOCH - 1
"""The last epoch that a producer gets."""


async def started(client: Client, version: int) -> TransactionalProducer:
    producer = TransactionalProducer(client, ID, version=version)
    assert await producer.init() is NONE
    return producer


async def began(producer: TransactionalProducer, index: int = 0) -> None:
    if producer.version < NEW:
        assert await producer.add("orders", index) is NONE


async def decided(client: Client, index: int = 0) -> None:
    partition = client.broker.replicas.get("orders", index)
    assert partition is not None
    log = partition.log
    assert log is not None
    await until(lambda: log.first_unstable_offset is None, "a transaction is not ended")


async def take_over(client: Client) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=2**31 - 1, enable2_pc=True, keep_prepared_txn=True
    )
    return await client.ask(request, InitProducerIdResponse, 6)


async def end_as(client: Client, producer: ProducerIdentity, version: int = 5) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
    )
    return await client.ask(request, EndTxnResponse, version)


def identity(producer: TransactionalProducer) -> ProducerIdentity:
    return ProducerIdentity(producer.producer_id, producer.producer_epoch)


# --- take-over --------------------------------------------------------------------------------------------------------


def test_after_a_take_over_the_old_owner_reaches_only_partitions_of_the_transaction(tmp_path: Path) -> None:
    """The coordinator fences it; the leader of a partition learns of the new owner only by the marker."""

    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        old = await started(client, NEW)
        assert await old.produce(b"a") is NONE
        taken = await take_over(client)
        new = ProducerIdentity(taken.producer_id, taken.producer_epoch)
        assert new == (old.producer_id, old.producer_epoch + 1)
        assert (taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch) == identity(old)
        assert await old.produce(b"b") is NONE
        assert await old.produce(b"c", index=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await end_as(client, identity(old))).error_code == ErrorCode.PRODUCER_FENCED
        ended = await end_as(client, new)
        assert (ended.error_code, ended.producer_epoch) == (NONE, new.producer_epoch + 1)
        await decided(client)
        assert await old.produce(b"d") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await values_in(client), await values_in(client, index=1)) == ([b"a", b"b"], [])

    with_client(tmp_path, work, **FEW)


def test_the_new_owner_cannot_add_records(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        old = await started(client, NEW)
        assert await old.produce(b"a") is NONE
        taken = await take_over(client)
        new = TransactionalProducer(client, ID, version=NEW)
        new.producer_id, new.producer_epoch = taken.producer_id, taken.producer_epoch
        for index in (0, 1):
            assert await new.produce(b"b", index=index) is ErrorCode.INVALID_TXN_STATE
        assert await new.end(committed=False) is NONE
        await decided(client)
        assert await new.produce(b"c") is NONE  # in the next transaction
        assert await new.end() is NONE
        await decided(client)
        assert await values_in(client) == [b"c"]

    with_client(tmp_path, work, **FEW)


# --- epochs -----------------------------------------------------------------------------------------------------------


def state_of(client: Client) -> Transaction:
    (shard,) = [each for each in client.broker.transactions.service.runtime.active_shards() if ID in each.transactions]
    return shard.transactions[ID]


async def with_epoch(client: Client, version: int, epoch: int) -> TransactionalProducer:
    """A producer that has had so many epochs."""
    producer = await started(client, version)
    for shard in client.broker.transactions.service.runtime.active_shards():
        if ID in shard.transactions:
            shard.transactions[ID] = shard.transactions[ID]._replace(producer_epoch=epoch)
    producer.producer_epoch = epoch
    return producer


def test_version_2_goes_on_with_a_new_id_when_the_epochs_are_used_up(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await with_epoch(client, NEW, USED_UP - 1)
        assert await producer.produce(b"a") is NONE
        assert await producer.end() is NONE
        last = identity(producer)
        assert last.producer_epoch == USED_UP
        assert await producer.produce(b"b") is NONE
        assert await producer.end() is NONE
        assert producer.producer_id != last.producer_id
        assert producer.producer_epoch == 0
        again = await end_as(client, last)  # as if the answer had been lost
        assert (again.error_code, again.producer_id, again.producer_epoch) == (NONE, *identity(producer))
        await decided(client)
        zombie = TransactionalProducer(client, ID, version=NEW)
        zombie.producer_id, zombie.producer_epoch = last
        assert await zombie.produce(b"z") in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert await producer.produce(b"c") is NONE
        assert (await end_as(client, last)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await producer.end(committed=False) is NONE
        assert await producer.produce(b"d") is NONE
        assert await producer.end() is NONE
        await decided(client)
        assert await values_in(client) == [b"a", b"b", b"d"]

    with_client(tmp_path, work, **FEW)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_producer_that_starts_when_the_epochs_are_used_up_gets_a_new_id(tmp_path: Path, version: int) -> None:
    """Version 1 keeps its epoch from transaction to transaction, and uses them up by restarts alone."""

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await with_epoch(client, version, USED_UP)
        last = identity(producer)
        await began(producer)
        assert await producer.produce(b"a") is NONE
        if version == OLD:
            assert await producer.end() is NONE
            assert identity(producer) == last
            await decided(client)
            await began(producer)
            assert await producer.produce(b"b") is NONE
        # The transaction is open: it is aborted with the epoch that nobody gets.
        successor = await started(client, version)
        assert successor.producer_id != last.producer_id
        assert successor.producer_epoch == 0
        await decided(client)
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        assert await producer.produce(b"z") in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert await producer.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await began(successor)
        assert await successor.produce(b"c") is NONE
        assert await successor.end() is NONE
        await decided(client)
        assert await values_in(client) == ([b"a", b"c"] if version == OLD else [b"c"])
        assert state_of(client).state is TransactionState.COMPLETE_COMMIT

    with_client(tmp_path, work, **FEW)


def test_a_take_over_when_the_epochs_are_used_up_brings_a_new_id(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await with_epoch(client, NEW, USED_UP)
        assert await producer.produce(b"a") is NONE
        taken = await take_over(client)
        assert taken.producer_id != producer.producer_id
        assert taken.producer_epoch == 0
        assert (taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch) == identity(producer)
        assert (await end_as(client, identity(producer))).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        ended = await end_as(client, ProducerIdentity(taken.producer_id, taken.producer_epoch))
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (NONE, taken.producer_id, 1)
        await decided(client)
        assert await values_in(client) == [b"a"]

    with_client(tmp_path, work, **FEW)


# --- a cluster that goes back to version 1 ----------------------------------------------------------------------------


async def finalized(client: Client) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = await client.ask(request, ApiVersionsResponse, 4)
    return {one.name: one.max_version_level for one in answer.finalized_features}


def test_a_producer_of_version_2_goes_on_when_a_broker_without_it_joins(tmp_path: Path) -> None:
    """The version of each request says what its producer means, so nothing changes for a transaction that is open."""

    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        producer = await started(client, NEW)
        assert await producer.produce(b"a") is NONE
        assert await finalized(client) == {"transaction.version": 2}
        live = {1: LiveRegistration(1, {"transaction.version": (0, 2)}), 2: LiveRegistration(2, {})}
        client.broker.features.brokers_changed(live)
        assert await finalized(client) == {}
        assert await producer.produce(b"b", index=1) is NONE
        epoch = producer.producer_epoch
        assert await producer.end() is NONE
        assert producer.producer_epoch == epoch + 1
        await decided(client)
        await decided(client, 1)
        # What clients do once they are told, with the epoch that they have.
        older = TransactionalProducer(client, ID, version=OLD)
        older.producer_id, older.producer_epoch = identity(producer)
        await began(older)
        assert await older.produce(b"c") is NONE
        assert await older.end() is NONE
        assert identity(older) == identity(producer)
        await decided(client)
        assert (await values_in(client), await values_in(client, index=1)) == ([b"a", b"c"], [b"b"])

    with_client(tmp_path, work, **FEW)


def test_a_transaction_of_version_2_that_an_older_client_request_ends(tmp_path: Path) -> None:
    """As when the coordinator moves to a broker that has no EndTxn with an epoch."""

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, NEW)
        assert await producer.produce(b"a") is NONE
        assert (await end_as(client, identity(producer), version=4)).error_code == NONE
        await decided(client)
        older = TransactionalProducer(client, ID, version=OLD)
        older.producer_id, older.producer_epoch = identity(producer)
        older.sequences = producer.sequences  # the epoch is the same
        await began(older)
        assert await older.produce(b"b") is NONE
        assert await older.end(committed=False) is NONE
        await decided(client)
        assert await values_in(client) == [b"a"]

    with_client(tmp_path, work, **FEW)
