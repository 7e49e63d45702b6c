"""The process of one member of a local cluster: runs `ottla` with the arguments that it is given, and stops when the
process that started it is gone, even if that was killed.

It notices that by the end of its standard input. ZooKeeper waits a while first, so that the brokers can still say
goodbye to it. Executed by its name: whatever `ottla` can do is imported here, the launcher of local clusters included.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from ottla.cli.main import run


def main(grace_s: float, arguments: Sequence[str]) -> int:
    threading.Thread(target=_stop_with_parent, args=(grace_s,), name="watch-parent", daemon=True).start()
    return run(arguments)


def _stop_with_parent(grace_s: float) -> None:
    while os.read(0, 4096):
        pass
    time.sleep(grace_s)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
