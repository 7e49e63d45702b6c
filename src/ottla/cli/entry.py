"""Entry point of the command `ottla`; says what to install if only the client is installed."""

from __future__ import annotations

import sys
from typing import Final

_NEEDED: Final = ("rich", "typer")


def main() -> None:
    try:
        from ottla.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(f"Error: The command `ottla` needs {error.name}. Install it with `pip install 'ottla[cli]'`.")
    run()
