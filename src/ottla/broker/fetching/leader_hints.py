"""The leaders of moved partitions in a fetch response (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.requests.api import RequestContext
from ottla.broker.requests.leader_hints import current_leader, endpoints_of
from ottla.wire.messages.fetch import FetchLeaderIdAndEpoch, FetchNodeEndpoint, FetchPartitionResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LEADERS_SINCE: Final = 12
_ENDPOINTS_SINCE: Final = 16
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """Collects the leaders of one response."""

    __slots__ = ("_broker", "_leaders", "_listener", "_version")

    def __init__(self, broker: Broker, context: RequestContext) -> None:
        self._broker = broker
        self._listener = context.listener
        self._version = context.version
        self._leaders: dict[int, None] = {}

    def add(self, answer: FetchPartitionResponse, topic: str, index: int) -> None:
        """Names the leader in the response of a partition that this broker does not lead."""
        if answer.error_code in _MOVED and self._version >= _LEADERS_SINCE:
            leader, epoch = current_leader(self._broker, topic, index)
            answer.current_leader = FetchLeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            self._leaders[leader] = None

    def endpoints(self) -> list[FetchNodeEndpoint]:
        if not self._leaders or self._version < _ENDPOINTS_SINCE:
            return []
        return [
            FetchNodeEndpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in endpoints_of(self._broker, self._leaders, self._listener)
        ]
