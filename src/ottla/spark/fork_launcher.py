"""The program that a local Spark starts in place of Python: it asks the fork server for the process, or becomes Python.

Started by a script that `ottla.spark.fork_server.Server` writes, without site-packages and isolated from the
environment, so that it takes a few milliseconds. That is why it imports neither our packages nor `socket`. It lives as
long as the process that the server forked for it, which has its standard streams; when it is killed, the server ends
that process.

A request is its length, four bytes, and texts that are separated by zeros: the directory, the number of arguments, the
arguments, and the environment. The answer is a byte that says whether the server does it and, when the process has
ended, its exit code.
"""

from __future__ import annotations

import _socket
import os
import sys
from typing import Final, NoReturn

REFUSED: Final = b"n"
STARTED: Final = b"y"
_STREAMS: Final = (0).to_bytes(4, sys.byteorder) + (1).to_bytes(4, sys.byteorder) + (2).to_bytes(4, sys.byteorder)


def main(address: str, python: str) -> NoReturn:
    code = run(address, sys.argv[1:])
    if code is None:
        os.execv(python, [python, *sys.argv[1:]])
    os._exit(code)


def run(address: str, arguments: list[str]) -> int | None:
    """Returns the exit code; None if the server does not start the process."""
    try:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.connect(address)
        request = _request(arguments)
        sent = connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _STREAMS)])
        while sent < len(request):
            sent += connection.send(request[sent:])
        if connection.recv(1) != STARTED:
            connection.close()
            return None
    except OSError:  # there is no server
        return None
    try:
        ended = connection.recv(1)
    except OSError:
        ended = b""
    return ended[0] if ended else 1  # a server that is gone does not know


def _request(arguments: list[str]) -> bytes:
    environment = [part for pair in os.environb.items() for part in pair]
    directory = os.getcwdb()  # noqa: PTH109 - pathlib takes longer to load than all else here
    texts = [directory, b"%d" % len(arguments), *map(os.fsencode, arguments), *environment]
    body = b"\0".join(texts)
    return len(body).to_bytes(4, "big") + body
