"""What handlers are given and may raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.wire.schema import Request
from ottla.wire.versions import Versions


class BrokerError(Exception):
    """A request, or a part of it, that is refused: Kafka's code, and a sentence for people."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        super().__init__(reason or code.description)
        self.code = code


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Whose request it is, and what it came in. The same object for all requests of a connection and version."""

    version: int
    client_id: str | None
    client_host: str
    listener: str
    connection_id: int
    principal: str = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """A handler, and the versions it serves and tells of."""

    request: type[Request]
    served: Versions
    advertised: Versions
    function: Callable[..., Any]
