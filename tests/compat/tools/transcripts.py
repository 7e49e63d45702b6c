"""What tools print, kept as text that can be read and compared: one file a run, one section a step.

== a name
$ the command
what it printed
-- its exit code
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compat.tools.peers import Peer

SEEN = Path(__file__).parent / "seen"


def _sorted_directories(found: re.Match[str]) -> str:
    """What the tool for log directories says, without where each partition lies and how well it is packed."""
    lines = []
    for broker in json.loads(found[0])["brokers"]:
        directories = sorted(broker["logDirs"], key=lambda each: str(each["logDir"]))
        lines += [f"broker {broker['broker']}: {each['logDir']}, error {each['error']}" for each in directories]
        partitions = [row for each in directories for row in each["partitions"]]
        for row in sorted(partitions, key=lambda each: str(each["partition"])):
            size = "some" if row["size"] else "no"
            future = ", future" if row["isFuture"] else ""
            lines.append(f"  {row['partition']}: {size} bytes, lag {row['offsetLag']}{future}")
    return "\n".join(lines)


def _sorted_sections(found: re.Match[str]) -> str:
    """Lines that are not indented, with those below them that are, sorted."""
    return "".join(sorted(re.findall(r"^\S.*\n(?:\s.*\n)*", found[0], re.MULTILINE)))


_LINES = re.MULTILINE
# What differs from run to run or with the wording of a broker, and is nobody's promise.
_ACCIDENTAL: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"127\.0\.0\.1:\d+"), "BROKER"),
    (re.compile(r"\b(TopicId: |Cluster ID: )[\w-]{22}"), r"\1ID"),
    (re.compile(r"\b1[789]\d{11}\b"), "TIME"),
    (re.compile(r"^\d+ +\t", _LINES), "PRODUCER\t"),
    (re.compile(r", [\d.]+ records/sec.*"), ", RATES"),
    (re.compile(r"\bEpoch: \d+"), "Epoch: NUMBER"),
    (re.compile(r'("avg_throughput"):[\d.]+'), r"\1:RATE"),
    (re.compile(r"^\tat .*\n|^\t\.\.\. \d+ more\n", _LINES), ""),
    (re.compile(r"\b(org\.apache\.kafka\.common\.errors\.\w+): .*"), r"\1"),
    (re.compile(r"^(Error while executing topic command) : .*", _LINES), r"\1"),
    # The order of a hash map.
    (re.compile(r"(^(Topic|partition): .*\n)+", _LINES), _sorted_sections),
    (re.compile(r"(^Dynamic configs for topic .*\n(  .*\n)*)+", _LINES), _sorted_sections),
    (re.compile(r'^\{"brokers":.*', _LINES), _sorted_directories),
    (re.compile(r'"PLACE/(first|second)"'), '"DIRECTORY"'),
    (re.compile(r"(?<=\tConfigs: )\S+"), lambda found: ",".join(sorted(found[0].split(",")))),
    # Eligible leader replicas are a feature of KRaft; with it the least number of replicas is a config of all brokers.
    (re.compile(r"\tElr:.*"), ""),
    (re.compile(r"(?<=[ ,])min\.insync\.replicas=1,(?=\w+\.)"), ""),
    (re.compile(r"DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, "), ""),
    (re.compile(r"^  min\.insync\.replicas=1 .*DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1\}\n", _LINES), ""),
)


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, on both streams, and its exit code."""

    command: str
    text: str
    exit: int

    def __str__(self) -> str:
        text = self.text if not self.text or self.text.endswith("\n") else self.text + "\n"
        return f"$ {self.command}\n{text}-- {self.exit}\n"


def normalised(text: str, peer: Peer) -> str:
    text = text.replace(str(peer.place), "PLACE")
    for pattern, word in _ACCIDENTAL:
        text = pattern.sub(word, text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def save(name: str, transcript: Mapping[str, Said]) -> None:
    SEEN.mkdir(exist_ok=True)
    text = "\n".join(f"== {step}\n{said}" for step, said in transcript.items())
    (SEEN / f"{name}.txt").write_text(text, encoding="utf-8")


def load(name: str) -> dict[str, Said]:
    """What was seen of real Kafka."""
    transcript = {}
    text = (SEEN / f"{name}.txt").read_text(encoding="utf-8")
    for section in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        step, command, rest = section.split("\n", 2)
        printed, _, exit_code = rest.rstrip("\n").rpartition("-- ")
        transcript[step] = Said(command.removeprefix("$ "), printed, int(exit_code))
    return transcript
