"""Asks the controller to move a stopping broker's leaderships to other brokers, so that clients hardly notice.

As in Kafka: the controller answers which partitions the broker still leads, and it is asked again after a while, up to
`controlled.shutdown.max.retries` times. Then the broker stops anyway, and its session ends its leaderships. Unlike
Kafka's, a broker does not ask again after `controller.socket.timeout.ms`: a controller that does not answer, perhaps
because ZooKeeper hangs, would hold it up for minutes, and a service manager would kill it before that. If the broker
itself has no connection to ZooKeeper, the controller probably has none either, and can change nothing: then it waits
only a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.cluster_settings import ClusterSettings
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.wire.peer import Peer, PeerError

_logger = logging.getLogger(__name__)

_NOBODY: Final = -1
_ELECTION_S: Final = 1.0
"""How long to wait for a controller."""
_LOOK_AGAIN_S: Final = 0.05
_WITHOUT_TREE_S: Final = 3.0
"""How long to wait for an answer without a connection to ZooKeeper."""
_SHOWN: Final = 5


async def shut_down(
    controller: Peer,
    controller_id: Callable[[], int],
    broker_id: int,
    broker_epoch: Callable[[], int],
    is_alone: Callable[[], bool],
    settings: ClusterSettings,
    is_connected: Callable[[], bool] = lambda: True,
) -> bool:
    """Whether other brokers have taken over everything; `is_alone` says that there are none. `controller` sends to the
    broker with `controller_id`, which is -1 while there is none. A new controller is asked at once, because all brokers
    may be stopping, one after the other. `is_connected`: whether this broker has a connection to ZooKeeper."""
    timeout_s = settings.controller_socket_timeout_ms / 1000
    time_s = asyncio.get_running_loop().time
    give_up_at_s = time_s() + timeout_s
    for left in reversed(range(settings.shutdown_retries)):
        if is_alone():
            _logger.info("stopping without a controlled shutdown: no other broker is there")
            return False
        if not await _until(lambda: controller_id() != _NOBODY, _ELECTION_S):
            _logger.warning("stopping without a controlled shutdown: the cluster has no controller now")
            return False
        asked = controller_id()
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch())
        asking = asyncio.ensure_future(_ask(controller, request, timeout_s))
        try:
            if not await _answered(asking, is_connected):
                _logger.warning("stopping without a controlled shutdown: ZooKeeper cannot be reached")
                return False
        finally:
            asking.cancel()
        fault = asking.result()
        if fault is None:
            _logger.info("controlled shutdown succeeded: other brokers have taken over")
            return True
        if left and time_s() < give_up_at_s and is_connected():
            _logger.warning("controlled shutdown: %s; retrying within %d ms", fault, settings.shutdown_backoff_ms)
            is_news = partial(_is_news, controller_id, asked, is_alone)
            await _until(is_news, settings.shutdown_backoff_ms / 1000)
        else:
            _logger.warning("stopping, although controlled shutdown did not succeed: %s", fault)
            break
    return False


async def _answered(asking: asyncio.Future[str | None], is_connected: Callable[[], bool]) -> bool:
    """False if no answer came for a while without a connection to ZooKeeper."""
    time_s = asyncio.get_running_loop().time
    lost_s: float | None = None
    while not asking.done():
        await asyncio.wait([asking], timeout=_LOOK_AGAIN_S)
        if is_connected():
            lost_s = None
        elif lost_s is None:
            lost_s = time_s()
        elif time_s() - lost_s > _WITHOUT_TREE_S and not asking.done():
            return False
    return True


def _is_news(controller_id: Callable[[], int], asked: int, is_alone: Callable[[], bool]) -> bool:
    return is_alone() or controller_id() not in (asked, _NOBODY)


async def _until(is_so: Callable[[], bool], timeout_s: float) -> bool:
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not is_so():
        left_s = deadline_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(_LOOK_AGAIN_S, left_s))
    return True


async def _ask(controller: Peer, request: ControlledShutdownRequest, timeout_s: float) -> str | None:
    """What is wrong; None for success."""
    try:
        response = await controller.send(request, ControlledShutdownResponse, timeout_s=timeout_s)
    except (PeerError, TimeoutError) as error:
        return str(error) or "the controller did not answer"
    if response.error_code:
        return f"the controller answered {ErrorCode.of(response.error_code).name}"
    if response.remaining_partitions:
        remaining = [f"{each.topic_name}-{each.partition_index}" for each in response.remaining_partitions]
        shown = ", ".join(sorted(remaining)[:_SHOWN]) + (", …" if len(remaining) > _SHOWN else "")
        return f"no other broker can lead {len(remaining)} partitions: {shown}"
    return None
