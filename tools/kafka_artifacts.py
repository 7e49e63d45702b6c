"""Brings Apache Kafka's jars from Maven Central into `.build/kafka/<version>/`.

Two sets can be asked for. `definitions` is the few small jars that hold Kafka's message definitions; `tools` is a whole
broker with its command line tools and everything they depend on. Without a choice, the ZooKeeper consumer of Kafka 0.8
and Kafka Streams 3.9 come too. Maven does the resolving and the fetching. A stamp
beside the jars holds what was asked and what came, so a second run only looks at names.

Nothing of Ottla is imported here: the tool has to run on a machine that has only Python, Java and a network.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from maven import COPY_DEPENDENCIES, ArtifactsMissingError, run, say

VERSIONS = ("3.9.1", "4.3.1")
"""The last Kafka with ZooKeeper, and the newest one whose client APIs are spoken."""

HOME = Path(__file__).resolve().parent.parent / ".build" / "kafka"


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """Artifacts of the group `org.apache.kafka` that are fetched together."""

    name: str
    artifacts: tuple[str, ...]
    transitive: bool


SETS = {
    "definitions": ArtifactSet(
        "definitions", ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator"), transitive=False
    ),
    "tools": ArtifactSet("tools", ("kafka_2.13", "kafka-tools"), transitive=True),
}


OLD_VERSION = "0.8.2.2"
OLD_CONSUMER = ArtifactSet("old-consumer", ("kafka_2.10",), transitive=True)
"""The consumer that needs no coordinator, with all that it depends on."""


STREAMS_VERSION = "3.9.1"
STREAMS = ArtifactSet("streams", ("kafka-streams", "kafka-streams-test-utils"), transitive=True)
"""Kafka Streams, with the driver that runs a topology without a broker."""


def jar(version: str, artifact: str) -> Path:
    """The jar of one of Kafka's artifacts, whichever set brought it."""
    path = HOME / version / f"{artifact}-{version}.jar"
    if not path.is_file():
        raise ArtifactsMissingError(f"{path} is not there: run `python tools/kafka_artifacts.py` first")
    return path


def classpath(version: str) -> str:
    """All jars of the `tools` set, or of the old consumer, as `java -cp` takes them."""
    wanted = OLD_CONSUMER if version == OLD_VERSION else SETS["tools"]
    names = _present(wanted, version)
    if names is None:
        raise ArtifactsMissingError(
            f"Kafka {version}'s {wanted.name} is not there: run `python tools/kafka_artifacts.py` first"
        )
    return os.pathsep.join(str(HOME / version / name) for name in names)


def streams_classpath() -> str:
    """All jars of Kafka Streams, as `java -cp` takes them."""
    names = _present(STREAMS, STREAMS_VERSION)
    if names is None:
        raise ArtifactsMissingError("Kafka Streams is not there: run `python tools/kafka_artifacts.py` first")
    return os.pathsep.join(str(HOME / STREAMS_VERSION / name) for name in names)


def fetch(wanted: ArtifactSet, version: str) -> int:
    """Makes sure the set is there; the number of its jars is returned."""
    names = _present(wanted, version)
    if names is not None:
        return len(names)
    target = HOME / version
    target.mkdir(parents=True, exist_ok=True)
    say(f"Kafka {version}, {wanted.name}: fetching {', '.join(wanted.artifacts)} ...")
    started = time.monotonic()
    # Jars are moved into place one by one when all have come, so that an interrupted run leaves no half of a jar.
    with tempfile.TemporaryDirectory(dir=target, prefix="fetch-") as place:
        arriving = Path(place)
        pom = arriving / "pom.xml"
        pom.write_text(_pom(wanted, version), encoding="utf-8")
        run(
            COPY_DEPENDENCIES,
            f"--file={pom}",
            f"-DoutputDirectory={arriving / 'jars'}",
            "-DincludeScope=runtime",
            f"-DexcludeTransitive={str(not wanted.transitive).lower()}",
            wanted=", ".join(wanted.artifacts),
        )
        names = sorted(path.name for path in (arriving / "jars").glob("*.jar"))
        for name in names:
            (arriving / "jars" / name).replace(target / name)
    _stamp(wanted, version).write_text(
        json.dumps({"asked": _asked(wanted, version), "jars": names}, indent=1), encoding="utf-8"
    )
    size_mb = sum((target / name).stat().st_size for name in names) / 1e6
    say(f"  {len(names)} jars, {size_mb:.0f} MB, {time.monotonic() - started:.0f} s")
    return len(names)


def _asked(wanted: ArtifactSet, version: str) -> dict[str, object]:
    asked: dict[str, object] = json.loads(json.dumps({**asdict(wanted), "version": version, "goal": COPY_DEPENDENCIES}))
    return asked


def _stamp(wanted: ArtifactSet, version: str) -> Path:
    return HOME / version / f"{wanted.name}.stamp.json"


def _present(wanted: ArtifactSet, version: str) -> list[str] | None:
    """The names of the set's jars if the stamp fits what is asked and none has gone since."""
    try:
        stamp = json.loads(_stamp(wanted, version).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if stamp.get("asked") != _asked(wanted, version):
        return None
    names: list[str] = stamp["jars"]
    return names if all((HOME / version / name).is_file() for name in names) else None


def _pom(wanted: ArtifactSet, version: str) -> str:
    dependencies = "\n".join(
        f"    <dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for artifact in wanted.artifacts
    )
    return f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla.build</groupId>
  <artifactId>kafka-{wanted.name}</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Bring Apache Kafka's jars from Maven Central into .build/kafka.")
    parser.add_argument("--set", dest="sets", choices=sorted(SETS), action="append", help="only this set (repeatable)")
    parser.add_argument("--version", dest="versions", choices=VERSIONS, action="append", help="only this version")
    chosen = parser.parse_args(arguments)
    try:
        for version in chosen.versions or VERSIONS:
            for name in chosen.sets or SETS:
                count = fetch(SETS[name], version)
                say(f"Kafka {version}, {name}: {count} jars in place")
        if not chosen.sets and not chosen.versions:
            for wanted, version in ((OLD_CONSUMER, OLD_VERSION), (STREAMS, STREAMS_VERSION)):
                count = fetch(wanted, version)
                say(f"Kafka {version}, {wanted.name}: {count} jars in place")
    except ArtifactsMissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
