"""Handlers: one module per API. Handlers register themselves; a broker serves the registered APIs.

    @handles(CreateTopicsRequest)
    async def create_topics(broker: Broker, request: CreateTopicsRequest, context: RequestContext) -> …Response:

A handler may also be an ordinary function that returns the response, or a `Deferred` if the response must wait. If it
raises a `BrokerError`, that becomes the error code of the whole response, if the response has one.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from ottla.broker.requests.api import HandlerEntry, RequestReader
from ottla.broker.requests.between_brokers import BETWEEN_BROKERS
from ottla.wire.schema import Request
from ottla.wire.versions import Versions

F = TypeVar("F", bound=Callable[..., Any])

_entries: dict[int, HandlerEntry] = {}


def handles(
    request: type[Request],
    *,
    versions: str | None = None,
    advertised: str | None = None,
    reader: RequestReader | None = None,
) -> Callable[[F], F]:
    """Registers a handler for `versions`, by default all stable ones that are declared. `advertised` are the versions
    in ApiVersions responses, if they must differ. `reader` decodes requests without the objects of the declared
    message, for very frequent requests."""

    def register(function: F) -> F:
        if request.api_key in _entries:
            raise TypeError(f"{request.__name__} has two handlers")
        served = Versions.parse(versions) if versions is not None else _stable(request)
        told = Versions.parse(advertised) if advertised is not None else served
        _entries[request.api_key] = HandlerEntry(request, served, told, function, reader)
        return function

    return register


def _stable(request: type[Request]) -> Versions:
    stable = [version for version in request.versions if version not in request.unstable]
    return Versions(stable[0], stable[-1])


@cache
def handlers(*, in_cluster: bool = False) -> dict[int, HandlerEntry]:
    """All handlers by API key; imports them all. Those for other brokers are only for brokers of a cluster."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return {key: entry for key, entry in sorted(_entries.items()) if in_cluster or entry.request not in BETWEEN_BROKERS}
