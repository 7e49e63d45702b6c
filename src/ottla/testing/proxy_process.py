"""The process of `ottla.testing.network`: a proxy that takes the state of the network as lines of JSON.

It ends when its standard input does, so that it never outlives the test that started it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ottla.testing.connection_owner import ConnectionOwners
from ottla.testing.proxy import Faults, Proxy, Route


def faults_to_json(faults: Faults) -> str:
    delays = [[source, target, delay_s] for (source, target), delay_s in faults.delays_s.items()]
    return json.dumps({"blocked": sorted(faults.blocked), "reset": sorted(faults.reset), "delays_s": delays})


def faults_from_json(text: str) -> Faults:
    given: dict[str, Any] = json.loads(text)
    return Faults(
        frozenset((source, target) for source, target in given["blocked"]),
        frozenset((source, target) for source, target in given["reset"]),
        {(source, target): delay_s for source, target, delay_s in given["delays_s"]},
    )


async def _serve(cluster: str, routes: list[Route]) -> None:
    loop = asyncio.get_running_loop()
    proxy = Proxy(ConnectionOwners(cluster))
    await proxy.start(routes)
    _say("ready")
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        proxy.apply(faults_from_json(line.decode()))
        _say("done")
    await proxy.close()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    given = json.loads(sys.argv[1])
    asyncio.run(_serve(given["cluster"], [Route(*route) for route in given["routes"]]))


if __name__ == "__main__":
    main()
