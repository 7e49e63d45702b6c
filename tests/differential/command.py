"""The command: how long, from which seed, beside which Kafka; or one dialogue again."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from differential import dialogue, peers
from differential.generate import THEMES
from differential.on_purpose import ENTRIES, Explanations
from differential.player import play
from differential.run import Options, run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="differential", description="Compare an Ottla broker with Apache Kafka, by random dialogues."
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on (default: %(default)s)")
    parser.add_argument("--dialogues", type=int, default=None, help="stop after this many dialogues")
    parser.add_argument("--seed", type=int, default=None, help="where the dialogues come from (default: a new one)")
    parser.add_argument("--first", type=int, default=0, help="number of the first dialogue (default: %(default)s)")
    parser.add_argument(
        "--peer", choices=peers.VERSIONS, default="4.3.1", help="Kafka's version (default: %(default)s)"
    )
    parser.add_argument("--theme", choices=sorted(THEMES), default=None, help="play dialogues of this theme only")
    parser.add_argument("--jobs", type=int, default=5, help="dialogues at the same time (default: %(default)s)")
    parser.add_argument(
        "--restarts", type=int, default=1, help="restart both brokers this often (default: %(default)s)"
    )
    parser.add_argument("--keep", type=Path, default=None, help="folder for the dialogues that show differences")
    parser.add_argument(
        "--replay", type=Path, default=None, help="play the dialogue in this file, and show every answer"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    with tempfile.TemporaryDirectory(prefix="differential-") as place, peers.running(Path(place), options.peer) as both:
        summary = run(
            both,
            Options(
                seed=seed,
                seconds=options.seconds,
                dialogues=options.dialogues,
                first=options.first,
                theme=options.theme,
                jobs=options.jobs,
                restarts=options.restarts,
                keep=options.keep,
            ),
            sys.stdout.write,
        )
    sys.stdout.write(summary.text())
    return 1 if summary.found else 0


def _replay(path: Path) -> int:
    spoken = dialogue.load(path)
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as place,
        peers.running(Path(place), spoken.peer or "4.3.1") as both,
    ):
        played = play(spoken, both.ports, Explanations(ENTRIES), both.restart)
    for each in played.transcript:
        sys.stdout.write(
            f"{json.dumps(each.step)}\n  Ottla {json.dumps(each.ours)}\n  Kafka {json.dumps(each.theirs)}\n"
        )
    if played.problem is not None:
        sys.stdout.write(f"{played.problem}\n")
    if played.difference is None:
        sys.stdout.write("No unexplained difference.\n")
        return 0
    sys.stdout.write(f"Difference: {played.difference.kind} at {played.difference.path}\n")
    return 1
