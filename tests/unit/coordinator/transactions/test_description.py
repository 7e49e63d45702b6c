"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import asyncio

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
)
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from support.coordinators import in_loop
from support.coordinators.transactional import OFFSETS, T0, T1, Transactional


async def three() -> Transactional:
    """`open` runs for two seconds, `new` has had no transaction, `done` has committed one."""
    setting = Transactional()
    owner = await setting.owner("open")
    await setting.confirm(owner, T1, T0, OFFSETS, transactional_id="open")
    await setting.owner("new")
    owner = await setting.owner("done")
    await setting.confirm(owner, T0, transactional_id="done")
    await setting.ended(owner, transactional_id="done")
    setting.markers.finish()
    await setting.pass_ms(2_000)
    return setting


@in_loop
async def test_a_description_tells_where_an_id_stands() -> None:
    setting = await three()
    request = DescribeTransactionsRequest(transactional_ids=["open", "unknown", "", "new"])
    response = await setting.coordinator.describe(request)
    opened, unknown, empty, new = response.transaction_states
    start_ms = setting.time.now_ms() - 2_000
    assert opened == DescribedTransaction(
        transactional_id="open",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=start_ms,
        producer_id=1000,
        topics=[
            DescribedTransactionTopic(topic="__consumer_offsets", partitions=[7]),
            DescribedTransactionTopic(topic="t", partitions=[0, 1]),
        ],
    )
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    assert (new.transaction_state, new.transaction_start_time_ms) == ("Empty", -1)
    setting.coordinator.close()
    response = await setting.coordinator.describe(request)
    assert response.transaction_states[0].error_code == ErrorCode.NOT_COORDINATOR


async def listed(setting: Transactional, **filters: object) -> tuple[set[tuple[str, str]], list[str]]:
    response = await setting.coordinator.list(ListTransactionsRequest(**filters))  # type: ignore[arg-type]
    assert response.error_code == ErrorCode.NONE
    found = {(each.transactional_id, each.transaction_state) for each in response.transaction_states}
    return found, response.unknown_state_filters


@in_loop
async def test_a_list_has_what_passes_all_filters() -> None:
    setting = await three()
    opened, new, done = ("open", "Ongoing"), ("new", "Empty"), ("done", "CompleteCommit")
    assert await listed(setting) == ({opened, new, done}, [])
    assert await listed(setting, state_filters=["Ongoing", "Empty"]) == ({opened, new}, [])
    assert await listed(setting, state_filters=["ongoing", "Dead"]) == (set(), ["ongoing"])
    assert await listed(setting, producer_id_filters=[1000, 5]) == ({opened}, [])
    assert await listed(setting, duration_filter=1_999, state_filters=["Ongoing"]) == ({opened}, [])
    assert await listed(setting, duration_filter=2_000, state_filters=["Ongoing"]) == (set(), [])
    assert await listed(setting, transactional_id_pattern="o.*|d[no]+e") == ({opened, done}, [])
    assert await listed(setting, transactional_id_pattern="pe") == (set(), [])
    assert await listed(setting, transactional_id_pattern="") == ({opened, new, done}, [])


@in_loop
async def test_an_invalid_pattern_is_refused() -> None:
    setting = await three()
    response = await setting.coordinator.list(ListTransactionsRequest(transactional_id_pattern="("))
    assert response == ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)


@in_loop
async def test_a_list_waits_until_every_shard_is_loaded() -> None:
    setting = await three()
    other = Transactional(log=setting.log.copy())
    response = await other.coordinator.list(ListTransactionsRequest())
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await other.settle()
    assert len((await listed(other))[0]) == 3


@pytest.mark.parametrize("held", [False, True])
@in_loop
async def test_what_is_not_committed_is_not_shown(held: bool) -> None:
    setting = await three()
    if held:
        setting.log.hold_commits()
    await setting.init("another")
    listing = asyncio.create_task(setting.coordinator.list(ListTransactionsRequest()))
    await setting.settle()
    assert listing.done() is not held
    setting.log.commit()
    await setting.settle()
    assert len(listing.result().transaction_states) == 4
