"""InitProducerId (22): allocates ids for idempotent producers, and begins the work of transactional ones.

An idempotent producer always gets a new id with epoch 0, even if it sends its current one (KIP-360): it bumps its epoch
itself where that is enough. A transactional producer gets its id and epoch from the coordinator of its transactional
id. Version 6, two-phase commit (KIP-939), is served although it is not stable in Kafka: the data source for Spark uses
it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.broker.transactions.producer_ids import ProducerIdError
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.zookeeper.node_json import ZnodeError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)
_NONE: Final = -1


@handles(InitProducerIdRequest, versions="0-6")
async def init_producer_id(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if request.transactional_id:
        return await broker.transactions.service.init_producer_id(request, context)
    try:
        return InitProducerIdResponse(producer_id=await _new_id(broker, request), producer_epoch=0)
    except BrokerError as error:
        code = error.code
    except CoordinationError as error:
        _logger.warning("no producer id for client %s: %s", context.client_id, error)
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # producers retry after this error
    except (ProducerIdError, ZnodeError) as error:
        _logger.error("no producer id for client %s: %s", context.client_id, error)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)


async def _new_id(broker: Broker, request: InitProducerIdRequest) -> int:
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:  # an empty one
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    return await broker.producer_ids.next_id()
