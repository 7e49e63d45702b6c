"""Mutated frames against the wire codec: `python -m fuzz.wire`.

Each frame is read by the compiled codec and by the plain one. They must agree: the same value, or a `ProtocolError`
from both; and what was read can be written. Anything else that is raised ends the run with the seed and the frame.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from fuzz import driver
from fuzz.mutation import mutate
from ottla.wire import codec, plain
from ottla.wire.errors import ProtocolError
from ottla.wire.registry import all_messages
from ottla.wire.schema import Message
from support.strategies.messages import random_message

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


def describe(case: Case) -> str:
    message, version, data = case
    return f"{message.__name__} v{version}: {data.hex()}"


def run(seed: int, frames: int) -> Counter[str]:
    """How often each outcome came."""
    source = random.Random(seed)
    cases = mutated(source, corpus(source, each=3))
    return driver.fuzz(seed, frames, cases, lambda case: check(*case), describe)


if __name__ == "__main__":
    driver.main("frames", run)
