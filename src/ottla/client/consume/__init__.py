"""Reading records: what is subscribed to, fetching ahead, decoding, and the two faces of a consumer.

The consumers are loaded when they are asked for: groups, which they need, look at the subscription in here themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.client.consume.async_consumer import AsyncConsumer, SubscriptionPattern
    from ottla.client.consume.consumer import Consumer
    from ottla.client.consume.interceptors import ConsumerInterceptor
    from ottla.client.consume.listeners import RebalanceListener
    from ottla.client.consume.record import ConsumerRecord

__all__ = [
    "AsyncConsumer",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "RebalanceListener",
    "SubscriptionPattern",
]

_MODULES: Final = {
    "AsyncConsumer": "async_consumer",
    "Consumer": "consumer",
    "ConsumerInterceptor": "interceptors",
    "ConsumerRecord": "record",
    "RebalanceListener": "listeners",
    "SubscriptionPattern": "async_consumer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
