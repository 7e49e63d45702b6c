"""The command `ottla` called from tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.cli.main import run

Ottla = Callable[..., str]


def caller(bootstrap: str, capture: pytest.CaptureFixture[bytes]) -> Ottla:
    """Runs a command that must succeed (or end with the code given); what it wrote, standard error behind the rest."""

    def call(*arguments: str, code: int = 0) -> str:
        capture.readouterr()
        ended = run(["-b", bootstrap, *arguments])
        output = capture.readouterr()
        assert ended == code, output
        return (output.out + output.err).decode()

    return call
