"""The two versions of kio that messages are compared with, each in a process of its own.

The newest kio has what Kafka 4 serves; an older one, in `.build` (`make setup` puts it there), has what Kafka dropped
with ZooKeeper. Which of them answers for a message and version is found from the files they consist of, so that tests
can be collected without starting a process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

REPOSITORY: Final = Path(__file__).parents[3]
WORKER: Final = Path(__file__).with_name("kio_worker.py")
OLD_VERSION: Final = "0.6.2"
_OWN_HOME: Final = Path(sys.prefix) / f"kio-{OLD_VERSION}"
"""kio has compiled parts: an environment of another Python (`make test-pythons`) has an old kio of its own."""
OLD_HOME: Final = _OWN_HOME if _OWN_HOME.exists() else REPOSITORY / ".build" / f"kio-{OLD_VERSION}"

Tree = dict[str, Any]
MessageVersion = tuple[str, int]
"""A message by its name in Kafka, and one of its versions."""


class OracleError(Exception):
    """kio failed: the text is the traceback of its process."""


@dataclass(frozen=True, slots=True)
class KioField:
    """A field as kio declares it. `kafka_type` is the type of the elements where it is an array."""

    name: str
    kafka_type: str
    is_array: bool
    nullable: bool
    tag: int | None
    has_default: bool
    default: Any
    fields: tuple[KioField, ...]

    @staticmethod
    def of(description: Tree) -> KioField:
        nested = tuple(KioField.of(inner) for inner in description["fields"])
        return KioField(**{**description, "fields": nested})


class KioProcess:
    """One version of kio, as a context manager: leaving it ends the process."""

    def __init__(self, home: Path | None) -> None:
        """`home` is the directory of a kio that shall come before the one of this environment."""
        environment = dict(os.environ)
        environment.pop("PYTHONPATH", None)
        if home is not None:
            environment["PYTHONPATH"] = str(home)
        # -P: the directory of the worker is not searched for modules.
        command = [sys.executable, "-P", str(WORKER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._descriptions: dict[MessageVersion, tuple[KioField, ...]] = {}
        self.version: str
        self.paths: Mapping[MessageVersion, str]
        self.error_codes: list[int]
        self.version, self.paths, self.error_codes = self._ask("about")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def describe(self, message: MessageVersion) -> tuple[KioField, ...]:
        """The fields of a message as kio declares them."""
        if message not in self._descriptions:
            described = self._ask("describe", self.paths[message])
            self._descriptions[message] = tuple(KioField.of(field) for field in described)
        return self._descriptions[message]

    def encode(self, message: MessageVersion, tree: Tree) -> bytes:
        written, _ = self._ask("exchange", self.paths[message], tree, None)
        return bytes(written)

    def exchange(self, message: MessageVersion, tree: Tree, encoded: bytes) -> tuple[bytes, Tree, int]:
        """The tree as kio's bytes; the tree that kio reads from `encoded`, and how many bytes of it kio read."""
        written, (read, size) = self._ask("exchange", self.paths[message], tree, encoded)
        return written, read, size

    def _ask(self, *request: Any) -> Any:
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise OracleError("the process of kio has no pipes")
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            succeeded, answer = pickle.load(process.stdout)
        except (BrokenPipeError, EOFError) as broken:
            raise OracleError(f"the process of kio ended with code {process.wait()}; see what it printed") from broken
        if not succeeded:
            raise OracleError(answer)
        return answer


@cache
def newest_messages() -> frozenset[MessageVersion]:
    """What the kio of this environment has."""
    spec = find_spec("kio")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("kio is not installed: run `make setup`")
    return _messages_below(Path(spec.origin).parent)


@cache
def old_messages() -> frozenset[MessageVersion]:
    """What only the old kio has."""
    if not OLD_HOME.exists():
        raise FileNotFoundError(f"{OLD_HOME} is missing: run `make setup`")
    return _messages_below(OLD_HOME / "kio") - newest_messages()


def _messages_below(package: Path) -> frozenset[MessageVersion]:
    """Messages by the files that hold them: `schema/list_offsets/v3/request.py` is ListOffsetsRequest v3."""
    suffixes = {"request": "Request", "response": "Response", "header": "", "data": ""}
    found = set()
    for file in package.glob("schema/*/v*/*.py"):
        if file.stem in suffixes:
            name, version, _ = file.relative_to(package / "schema").parts
            words = "".join(word.capitalize() for word in name.split("_"))
            found.add((words + suffixes[file.stem], int(version.removeprefix("v"))))
    return frozenset(found)
