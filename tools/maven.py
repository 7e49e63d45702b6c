"""Maven, for the tools that bring jars from Maven Central: finds it, installs it where that is possible, and runs it.

Nothing of Ottla is imported here: the tools have to run on a machine that has only Python, Java and a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
"""Copies what a project depends on."""
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
"""Copies one artifact, and nothing of what it depends on."""

_ATTEMPTS = 3


class ArtifactsMissingError(RuntimeError):
    """What is needed is not there and could not be brought; the message says what to do about it."""


def run(goal: str, *arguments: str, wanted: str) -> None:
    """Runs a goal, more than once if need be. `wanted` is what an error says could not be brought."""
    command = [
        _executable(),
        "--batch-mode",
        "--quiet",
        "--update-snapshots",  # otherwise Maven remembers a failure and the next attempt does not ask again
        goal,
        *arguments,
    ]
    for attempt in range(1, _ATTEMPTS + 1):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode == 0:
            return
        say(f"  Maven failed (attempt {attempt} of {_ATTEMPTS})")
    raise ArtifactsMissingError(f"Maven could not bring {wanted}; its last words:\n{result.stdout}")


def say(line: str) -> None:
    print(line, flush=True)


def _executable() -> str:
    found = shutil.which("mvn")
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or not Path("/etc/debian_version").exists() or os.geteuid() != 0:
        raise ArtifactsMissingError(
            "Maven (`mvn`) is needed to bring jars from Maven Central and is not installed. "
            "On Debian or Ubuntu: `sudo apt-get install maven`; elsewhere install the package `maven` of your system."
        )
    say("Maven is not installed: installing it with apt-get ...")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", "maven"]):
        result = subprocess.run(
            [apt, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if result.returncode != 0:
            raise ArtifactsMissingError(f"`apt-get {' '.join(arguments)}` failed; its last words:\n{result.stdout}")
    found = shutil.which("mvn")
    if found is None:
        raise ArtifactsMissingError("apt-get installed Maven, but there is no `mvn` on the PATH")
    return found
