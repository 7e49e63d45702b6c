"""Mutated frames against the wire codec: `python -m fuzz.wire --frames 1000000`.

Each frame is read by the compiled codec and by the plain one. They must agree: the same value, or a `ProtocolError`
from both; and what was read can be written. Anything else that is raised ends the run with the seed and the frame.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from fuzz.mutation import mutate
from ottla.wire import codec, plain
from ottla.wire.errors import ProtocolError
from ottla.wire.registry import all_messages
from ottla.wire.schema import Message
from strategies.messages import random_message

Case = tuple[type[Message], int, bytes]


def corpus(source: random.Random, each: int) -> list[Case]:
    """Valid bytes of every message in every version."""
    return [
        (message, version, codec.encode(random_message(source, message, version), version))
        for message in all_messages().values()
        for version in message.versions
        for _ in range(each)
    ]


def mutated(source: random.Random, seeds: list[Case]) -> Iterator[Case]:
    """Without end: every version in turn, damaged."""
    while True:
        for message, version, data in seeds:
            other = source.choice(seeds)[2]
            yield message, version, mutate(source, data, other)


def check(message: type[Message], version: int, data: bytes) -> str:
    """The outcome on which both codecs agree: `read`, or the name of the error."""
    try:
        expected = plain.read(message, version, data)
    except ProtocolError as error:
        expected_error = error
    else:
        value = codec.decode(message, version, data)
        again = codec.encode(value, version)
        # Compared as bytes: a damaged double may be NaN, which is not equal to itself.
        if again != codec.encode(expected, version):
            raise AssertionError(f"compiled reads {value!r}, plain reads {expected!r}")
        codec.decode(message, version, again)
        return "read"
    try:
        value = codec.decode(message, version, data)
    except ProtocolError as error:
        if (type(error), str(error)) != (type(expected_error), str(expected_error)):
            raise AssertionError(f"compiled says {error!r}, plain says {expected_error!r}") from error
        return type(error).__name__
    raise AssertionError(f"compiled reads {value!r}, plain says {expected_error!r}")


def run(seed: int, frames: int, *, progress: bool = False) -> Counter[str]:
    """How often each outcome came."""
    source = random.Random(seed)
    outcomes: Counter[str] = Counter()
    seeds = corpus(source, each=3)
    for number, (message, version, data) in enumerate(islice(mutated(source, seeds), frames), start=1):
        try:
            outcomes[check(message, version, data)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, frame {number}: {message.__name__} v{version}: {data.hex()}")
            raise
        if progress and number % 50_000 == 0:
            sys.stderr.write(f"\r{number:,} of {frames:,} frames")
            sys.stderr.flush()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description="Read mutated frames with both codecs; stop at any disagreement.")
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many (default: a million)")
    parser.add_argument("--seed", type=int, default=None, help="where the damage comes from (default: a new one)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    outcomes = run(seed, options.frames, progress=True)
    sys.stdout.write("\n" + "".join(f"{count:>9,}  {outcome}\n" for outcome, count in outcomes.most_common()))


if __name__ == "__main__":
    main()
