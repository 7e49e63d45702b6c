"""Consuming records: fetching ahead, decoding, and the blocking and asyncio consumers."""

from __future__ import annotations

from ottla.client.consume.async_consumer import AsyncConsumer, SubscriptionPattern
from ottla.client.consume.consumer import Consumer
from ottla.client.consume.interceptors import ConsumerInterceptor
from ottla.client.consume.record import ConsumerRecord
from ottla.client.subscriptions.listeners import RebalanceListener

__all__ = [
    "AsyncConsumer",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "RebalanceListener",
    "SubscriptionPattern",
]
