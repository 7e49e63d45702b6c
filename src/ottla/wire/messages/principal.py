"""The principal of a request that one broker forwards to another in an envelope (KIP-590)."""

from __future__ import annotations

from ottla.wire.schema import Data, boolean, string


class DefaultPrincipalData(Data, versions="0", flexible="0+"):
    """The form of Kafka's own principal builder; a custom builder may have another."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
