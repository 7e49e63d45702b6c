"""Our reader of properties files against Java's own, on files made by chance."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from ottla.broker.configs.properties import PropertiesError, parse_properties

pytestmark = pytest.mark.compat

READER = Path(__file__).parent / "java" / "PropertiesReader.java"
PIECES = [
    "a",
    "b",
    "c.d",
    "é",
    "=",
    ":",
    " ",
    "\t",
    "\f",
    "\n",
    "\r",
    "\r\n",
    "#",
    "!",
    "\\",
    "\\\\",
    "\\u0041",
    "\\u1",
    "\\n",
    "\\q",
]
FILES = 3000
LONE_BACKSLASH = re.compile(r"(?:^|[\r\n])[ \t\f]*\\(?:[\r\n]|$)")
"""What such a line is depends, in Java, on how it and the file end."""


def test_files_are_read_as_java_reads_them() -> None:
    seed = int(os.environ.get("OTTLA_SEED", random.randrange(2**32)))
    chance = random.Random(seed)
    made = ("".join(chance.choices(PIECES, k=chance.randrange(1, 16))) for _ in range(FILES))
    texts = [text for text in made if not LONE_BACKSLASH.search(text)]
    answer = subprocess.run(
        ["java", str(READER)], input="\0".join(texts).encode(), check=True, capture_output=True, timeout=120
    ).stdout.decode()
    theirs = answer.split("\0")[:-1]
    assert len(theirs) == len(texts) > FILES / 2
    differing = [(text, read(text), said) for text, said in zip(texts, theirs, strict=True) if read(text) != said]
    assert differing == [], f"OTTLA_SEED={seed}"


def read(text: str) -> str:
    try:
        found = {each.key: each.value for each in parse_properties(text)}
    except PropertiesError:
        return "\x1e"
    return "".join(f"{key}\x1f{value}\x1f" for key, value in sorted(found.items()))
