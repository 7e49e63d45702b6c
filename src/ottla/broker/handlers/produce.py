"""Produce: tries the fast path, and falls back to the general one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.producing import general_produce
from ottla.broker.producing.fast_produce import FastProduce, produce_fast, produce_reader
from ottla.broker.producing.general_produce import Answer
from ottla.broker.requests.api import RequestContext
from ottla.log.errors import LargeBatchError
from ottla.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(ProduceRequest, versions="3-13", advertised="0-13", reader=produce_reader)
def produce(broker: Broker, request: ProduceRequest | FastProduce, context: RequestContext) -> Answer:
    """Versions below 3, with older message sets, are advertised but not served: librdkafka tells from the lowest
    version which codecs a broker has."""
    if isinstance(request, FastProduce):
        try:
            answer = produce_fast(broker, request, context)
        except LargeBatchError:
            return general_produce.produce(broker, request.as_request(), context, is_large=True)
        if answer is not None:
            return answer
        request = request.as_request()
    return general_produce.produce(broker, request, context)
