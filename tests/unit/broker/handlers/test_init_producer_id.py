from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.init_producer_id import init_producer_id
from ottla.broker.requests.api import RequestContext
from ottla.broker.transactions.producer_ids import ProducerIdError
from ottla.wire.codec import encode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.zookeeper.node_json import ZnodeError
from support.brokers.small_broker import context


@dataclass
class Ids:
    next: int = 40
    failure: Exception | None = None

    async def next_id(self) -> int:
        if self.failure is not None:
            raise self.failure
        self.next += 1
        return self.next


class Broker:
    def __init__(self, failure: Exception | None = None) -> None:
        self.producer_ids = Ids(failure=failure)
        self.transactions = SimpleNamespace(service=self)

    async def init_producer_id(self, request: InitProducerIdRequest, _: RequestContext) -> InitProducerIdResponse:
        assert request.transactional_id == "payments"
        return InitProducerIdResponse(producer_id=7, producer_epoch=3)


def ask(
    broker: Broker, *, transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch
    )
    response = asyncio.run(init_producer_id(broker, request, context(5)))  # type: ignore[arg-type]
    for version in InitProducerIdRequest.versions:
        encode(response, version)
    return response.error_code, response.producer_id, response.producer_epoch


def test_every_producer_gets_an_id_of_its_own() -> None:
    broker = Broker()
    assert ask(broker) == (ErrorCode.NONE, 41, 0)
    assert ask(broker) == (ErrorCode.NONE, 42, 0)


def test_one_that_has_an_id_gets_a_new_one() -> None:
    assert ask(Broker(), producer_id=7, producer_epoch=3) == (ErrorCode.NONE, 41, 0)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(7, -1), (-1, 3)])
def test_half_an_identity_is_refused(producer_id: int, producer_epoch: int) -> None:
    answer = ask(Broker(), producer_id=producer_id, producer_epoch=producer_epoch)
    assert answer == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_a_transactional_id_goes_to_its_coordinator() -> None:
    assert ask(Broker(), transactional_id="payments") == (ErrorCode.NONE, 7, 3)
    assert ask(Broker(), transactional_id="") == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (CoordinationError("/node", "not now"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ProducerIdError("used up"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ZnodeError("/node", "nonsense"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_ids_that_cannot_be_had(failure: Exception, code: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(Broker(failure)) == (code, -1, -1)
    assert str(failure) in caplog.text
