"""How a follower fetches from a leader: the `replica.fetch.*` configs, and delays after errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_RETRIES_MS: Final = (20, 50, 100, 200, 400)
"""The first delays after an error that ends by itself within moments, as most do after a leader change. With the
configured delay (1 s by default) a single early fetch would decide how long a failover takes."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """See the module. The defaults are Kafka's."""

    max_bytes: int = 2**20
    """Per partition."""
    response_max_bytes: int = 10 * 2**20
    min_bytes: int = 1
    wait_max_ms: int = 500
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000
    socket_receive_buffer_bytes: int = 64 * 1024
    fetchers_per_broker: int = 1

    def retry_s(self, failures: int) -> float:
        """The delay after that many failures in a row: short at first, then the configured one."""
        delay_ms = _RETRIES_MS[failures - 1] if failures <= len(_RETRIES_MS) else self.backoff_ms
        return min(delay_ms, self.backoff_ms) / 1000
