"""Brings Spark with its own connector for Kafka into `.build/spark-<version>/`: PySpark in `site`, jars in `jars`.

The connector is to be had for fewer versions than PySpark, so it gets a PySpark of its own beside the one of `.venv`.
Whatever else a program needs, py4j and pyarrow among it, it finds in `.venv`: `environment` puts `site` before that.

Jars are copied one by one: Spark's POM names a repository that is no part of Maven Central, and Maven would ask it
while it resolves what the connector depends on. PySpark brings the rest.

Nothing of Ottla is imported here: the tool has to run on a machine that has only Python, Java and a network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from maven import COPY, ArtifactsMissingError, run, say

VERSION = "4.2.0"
"""The newest Spark whose connector is in Maven Central."""

HOME = Path(__file__).resolve().parent.parent / ".build" / f"spark-{VERSION}"

_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    # For delegation tokens. Not to be had for 4.2.0, whose connector is content with this one.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
_STAMP = HOME / "stamp.json"
_ASKED = {"pyspark": VERSION, "jars": list(_CONNECTOR)}


def environment() -> dict[str, str]:
    """What a program has to have in its environment to import this PySpark."""
    _jar_names()
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(HOME / "site"), *([others] if others else [])])}


def jars() -> str:
    """The connector, as the setting `spark.jars` takes it."""
    return ",".join(str(HOME / "jars" / name) for name in _jar_names())


def fetch() -> None:
    """Makes sure that all is there."""
    if _present() is not None:
        return
    say(f"Spark {VERSION}: fetching it and its connector for Kafka ...")
    started = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.parent.mkdir(parents=True, exist_ok=True)
    # Moved into place when all has come, so that an interrupted run leaves no half of it.
    with tempfile.TemporaryDirectory(dir=HOME.parent, prefix="fetch-") as place:
        arriving = Path(place) / HOME.name
        for artifact in _CONNECTOR:
            run(COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={arriving / 'jars'}", wanted=artifact)
        _install_pyspark(arriving / "site")
        names = sorted(path.name for path in (arriving / "jars").glob("*.jar"))
        (arriving / _STAMP.name).write_text(json.dumps({"asked": _ASKED, "jars": names}, indent=1), encoding="utf-8")
        arriving.replace(HOME)
    say(f"  {len(names)} jars and PySpark, {time.monotonic() - started:.0f} s")


def _install_pyspark(site: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    result = subprocess.run(
        [*command, f"pyspark=={VERSION}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode != 0:
        raise ArtifactsMissingError(f"pip could not install PySpark {VERSION}; its last words:\n{result.stdout}")


def _jar_names() -> list[str]:
    names = _present()
    if names is None:
        raise ArtifactsMissingError(f"Spark {VERSION} is not there: run `python tools/spark_artifacts.py` first")
    return names


def _present() -> list[str] | None:
    """The names of the jars, if the stamp fits what is asked and nothing has gone since."""
    try:
        stamp = json.loads(_STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    names: list[str] = stamp.get("jars", [])
    parts = [HOME / "site" / "pyspark", *(HOME / "jars" / name for name in names)]
    return names if stamp.get("asked") == _ASKED and all(part.exists() for part in parts) else None


def main() -> int:
    try:
        fetch()
    except ArtifactsMissingError as error:
        print(error, file=sys.stderr)
        return 1
    say(f"Spark {VERSION} with its connector: in place")
    return 0


if __name__ == "__main__":
    sys.exit(main())
