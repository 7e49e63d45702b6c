"""All messages, by API key and by name, derived from the declarations in `messages`.

Importing this module imports every declaration, but compiles nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType

from ottla.wire import messages
from ottla.wire.schema import Message, Request, Response
from ottla.wire.versions import Versions

CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class Api:
    """A request and its response."""

    key: int
    name: str
    request: type[Request]
    response: type[Response]

    @property
    def versions(self) -> Versions:
        return self.request.versions

    def request_header_version(self, version: int) -> int:
        if version in self.request.flexible:
            return 2
        return 0 if self.key == CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions always uses the oldest: a client that does not know the broker yet must be able to read it."""
        return 1 if version in self.response.flexible and self.key != API_VERSIONS else 0


@cache
def all_messages() -> Mapping[str, type[Message]]:
    """Every declared message, by its name in Kafka."""
    found: dict[str, type[Message]] = {}
    for module_info in pkgutil.iter_modules(messages.__path__):
        module = import_module(f"{messages.__name__}.{module_info.name}")
        for name, value in vars(module).items():
            is_message = isinstance(value, type) and issubclass(value, Message) and hasattr(value, "versions")
            if is_message and value.__module__ == module.__name__:
                found[name] = value
    return MappingProxyType(found)


@cache
def apis() -> Mapping[int, Api]:
    """Every API, by its key."""
    declared = all_messages().values()
    requests = {message.api_key: message for message in declared if issubclass(message, Request)}
    responses = {message.api_key: message for message in declared if issubclass(message, Response)}
    if unpaired := requests.keys() ^ responses.keys():
        raise TypeError(f"API keys {sorted(unpaired)} lack their request or their response")
    pairs = ((key, requests[key], responses[key]) for key in sorted(requests))
    return MappingProxyType(
        {key: Api(key, ask.__name__.removesuffix("Request"), ask, reply) for key, ask, reply in pairs}
    )
