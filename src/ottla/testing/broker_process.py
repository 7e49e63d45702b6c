"""The process of `ottla.testing.broker`: reports through a pipe when and where it serves."""

from __future__ import annotations

import json
import os
import sys

from ottla.base.config import ConfigError
from ottla.broker.broker import ReadyInfo
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.run import run_broker
from ottla.log.errors import LogError
from ottla.zookeeper.tree_file import TreeFileError


def main() -> int:
    descriptor, settings = int(sys.argv[1]), json.loads(sys.argv[2])

    def tell(ready: ReadyInfo) -> None:
        first = ready.listeners[0]
        os.write(descriptor, json.dumps([first.host, first.port]).encode() + b"\n")
        os.close(descriptor)

    try:
        return run_broker(BrokerConfig(settings), tell)
    except (ConfigError, LogError, TreeFileError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
