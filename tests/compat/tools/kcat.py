"""kcat, as Debian brings it: what it is asked, and what it prints."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat.tools.peers import Peer, peer
from compat.tools.tool_runs import Step
from compat.tools.transcripts import Said, normalised

PEER_VERSION = "3.9.1"
STEP_TIMEOUT_S = 60
PATIENCE_S = 60.0
_FORMAT = r"-f '%t %p %o %k=%s (%K, %S) [%h] %T\n'"

STEPS = (
    Step("list a topic", "kcat -L -t parts"),
    Step("produce lines", "kcat -P -t lines", "one\ntwo\nthree\n"),
    Step("produce keys", "kcat -P -t parts -p 1 -K :", "a:1\nb:2\n:3\nc:\n"),
    Step("produce nulls", "kcat -P -t parts -p 1 -K : -Z", ":3\nc:\n"),
    Step("produce headers", "kcat -P -t parts -p 2 -k key -H trace=7 -H span=x -H trace=again", "value\n"),
    *(
        Step(f"produce by {codec}", f"kcat -P -t codecs -z {codec}", f"{codec} 1\n{codec} 2\n")
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    ),
    Step("produce without waiting", "kcat -P -t codecs -X acks=0", "careless\n"),
    Step("produce once", "kcat -P -t codecs -X enable.idempotence=true", "once 1\nonce 2\n"),
    Step("produce what is between marks", "kcat -P -t marked -D ;", "one;two;three"),
    Step("produce to a partition that is not there", "kcat -P -t parts -p 9 -X message.timeout.ms=3000", "lost\n"),
    Step("produce a record too large", "kcat -P -t lines -X message.max.bytes=9000000 -D ;", "x" * 3_000_000),
    Step("consume a topic", "kcat -C -q -e -t codecs -p 0 -o beginning"),
    Step("consume with everything", f"kcat -C -q -e -t parts -p 1 -o beginning {_FORMAT}"),
    Step("consume headers", f"kcat -C -q -e -t parts -p 2 -o beginning {_FORMAT}"),
    Step("consume all partitions", "kcat -C -q -e -t parts -o beginning -f '%p-%o\\n'"),
    Step("consume from an offset", "kcat -C -q -e -t codecs -p 0 -o 4 -c 3 -f '%o %s\\n'"),
    Step("consume the last", "kcat -C -q -e -t codecs -p 0 -o -2 -f '%o %s\\n'"),
    Step("consume from a time", "kcat -C -q -e -t lines -p 0 -o s@1600000000000 -f '%o %s\\n'"),
    Step("consume what is committed", "kcat -C -q -e -t lines -p 0 -o beginning -X isolation.level=read_committed"),
    Step("consume JSON", "kcat -C -q -e -J -t parts -p 2 -o beginning"),
    Step("consume with checks", "kcat -C -q -e -t codecs -p 0 -o beginning -X check.crcs=true -f '%o '"),
    Step("consume a topic that is not there", "kcat -C -q -e -t nowhere -p 0 -X allow.auto.create.topics=false"),
    Step("ask for the end", "kcat -Q -t codecs:0:-1"),
    Step("ask for the beginning", "kcat -Q -t codecs:0:-2"),
    Step("ask for a time", "kcat -Q -t codecs:0:1600000000000"),
    Step("ask for a time to come", "kcat -Q -t codecs:0:1900000000000"),
    Step("ask for two", "kcat -Q -t codecs:0:-1 -t parts:1:-1"),
    Step("list all", "kcat -L"),
    Step("list JSON", "kcat -L -J -t parts"),
)


def run_kcat(place: Path) -> dict[str, Said]:
    kcat = shutil.which("kcat")
    if kcat is None:
        raise RuntimeError("kcat is needed and not installed; on Debian and Ubuntu: `apt-get install kcat`")
    transcript = {}
    with peer(PEER_VERSION, place) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("parts", 3, 1)]).values():
            created.result(PATIENCE_S)
        for step in STEPS:
            transcript[step.name] = _run(kcat, step, broker)
    return transcript


def _run(kcat: str, step: Step, broker: Peer) -> Said:
    command = [kcat, "-b", broker.bootstrap, *shlex.split(step.command)[1:]]
    result = subprocess.run(
        command,
        input=step.given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=STEP_TIMEOUT_S,
    )
    text = normalised(result.stdout, broker)
    # What it logs depends on how quick the broker is; a broker may be known by its address alone yet.
    text = re.sub(r"^%\d\|.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"from broker [^)]*\)", "from BROKER)", text)
    text = re.sub(r'"originating_broker":\{[^}]*\}', '"originating_broker":BROKER', text)
    # The order of a hash map.
    if step.name in ("list all", "ask for two"):
        text = "".join(sorted(text.splitlines(keepends=True)))
    return Said(step.command, text, result.returncode)
