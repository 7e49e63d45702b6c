"""Producer ids for the transaction coordinator: errors of their source as coordinators report them."""

from __future__ import annotations

import logging

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.broker.transactions.producer_ids import ProducerIdError, ProducerIds
from ottla.coordinator.errors import CoordinatorError
from ottla.zookeeper.node_json import ZnodeError

_logger = logging.getLogger(__name__)


class CoordinatorProducerIds:
    """Implements `ottla.coordinator.transactions.seams.ProducerIdSource`."""

    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids

    async def next_id(self) -> int:
        try:
            return await self._ids.next_id()
        except CoordinationError as error:
            _logger.warning("no producer id for a transactional id: %s", error)
            # Producers retry after this error.
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        except (ProducerIdError, ZnodeError) as error:
            _logger.error("no producer id for a transactional id: %s", error)
            raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
