"""Our codec against kio's, an independent one, for every message and version that either of two kios has.

kio has a class for each version and derives its readers and writers from them; none of its code is ours. Both sides
must write the same bytes for the same values: no message leaves kio a legal choice of its own. Tags that a version
does not know are left out: kio refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ottla.wire import codec
from ottla.wire.registry import all_messages
from ottla.wire.schema import Message
from support.examples import examples
from support.oracles.kio_process import OLD_HOME, OLD_VERSION, KioProcess, newest_messages, old_messages
from support.oracles.kio_trees import FullChooser, Pair, bare, confine, differences, pairs, trees
from support.strategies.messages import build, messages

# kio is made from the definitions of Kafka's clients; records of internal topics are defined by its coordinators.
NOT_IN_KIO = {
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TransactionLogKey",
    "TransactionLogValue",
}
EXERCISED = [
    (message, version)
    for name, message in all_messages().items()
    for version in message.versions
    if (name, version) in newest_messages() | old_messages()
]
EVERY_SHARED_VERSION = [pytest.param(*shared, id=f"{shared[0].__name__}-v{shared[1]}") for shared in EXERCISED]
# A mistake in the codec fails hundreds of these tests: each shows one small example, and is not explained at length.
EXAMPLES = settings(
    max_examples=examples(4),
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
)


class Oracles:
    """Both kios, and what was found out about a message once."""

    def __init__(self, newest: KioProcess, old: KioProcess) -> None:
        self.newest, self.old = newest, old
        self._pairs: dict[tuple[type[Message], int], tuple[Pair, ...]] = {}

    def kio(self, message: type[Message], version: int) -> KioProcess:
        return self.newest if (message.__name__, version) in newest_messages() else self.old

    def pairs(self, message: type[Message], version: int) -> tuple[Pair, ...]:
        key = (message, version)
        if key not in self._pairs:
            described = self.kio(message, version).describe((message.__name__, version))
            self._pairs[key] = pairs(message, version, described)
        return self._pairs[key]


@pytest.fixture(scope="session")
def oracles() -> Iterator[Oracles]:
    with ExitStack() as stack:
        yield Oracles(stack.enter_context(KioProcess(None)), stack.enter_context(KioProcess(OLD_HOME)))


def check_what_we_write(oracles: Oracles, message: type[Message], version: int, value: Message) -> None:
    kio, paired = oracles.kio(message, version), oracles.pairs(message, version)
    confine(value, paired, kio.error_codes)
    tree = bare(value, paired)
    encoded = codec.encode(value, version)
    written, read, size = kio.exchange((message.__name__, version), tree, encoded)
    assert written == encoded
    assert read == tree
    assert size == len(encoded)


def test_every_message_that_kio_has_is_exercised(oracles: Oracles) -> None:
    assert oracles.old.version == OLD_VERSION != oracles.newest.version
    assert oracles.newest.paths.keys() == newest_messages()
    assert oracles.old.paths.keys() - oracles.newest.paths.keys() == old_messages()
    declared = {(name, version) for name, message in all_messages().items() for version in message.versions}
    exercised = {(message.__name__, version) for message, version in EXERCISED}
    assert exercised == declared & (oracles.newest.paths.keys() | oracles.old.paths.keys())
    assert {name for name, _ in declared - exercised} == NOT_IN_KIO
    assert NOT_IN_KIO.isdisjoint(name for name, _ in exercised)
    assert len(exercised & newest_messages()) >= 533
    assert len(exercised & old_messages()) >= 111


@pytest.mark.parametrize(("message", "version"), EVERY_SHARED_VERSION)
def test_both_declare_the_same_fields(oracles: Oracles, message: type[Message], version: int) -> None:
    paired = oracles.pairs(message, version)
    assert [difference for pair in paired for difference in differences(pair, version)] == []


@pytest.mark.parametrize(("message", "version"), EVERY_SHARED_VERSION)
def test_every_field_arrives(oracles: Oracles, message: type[Message], version: int) -> None:
    value = build(FullChooser(), message, version, unknown_tags=False)
    check_what_we_write(oracles, message, version, value)


@pytest.mark.parametrize(("message", "version"), EVERY_SHARED_VERSION)
@EXAMPLES
@given(data=st.data())
def test_kio_reads_and_writes_what_we_write(
    oracles: Oracles, message: type[Message], version: int, data: st.DataObject
) -> None:
    check_what_we_write(oracles, message, version, data.draw(messages(message, version)))


@pytest.mark.parametrize(("message", "version"), EVERY_SHARED_VERSION)
@EXAMPLES
@given(data=st.data())
def test_we_read_and_write_what_kio_writes(
    oracles: Oracles, message: type[Message], version: int, data: st.DataObject
) -> None:
    kio, paired = oracles.kio(message, version), oracles.pairs(message, version)
    tree = data.draw(trees([pair.kio for pair in paired], kio.error_codes))
    written = kio.encode((message.__name__, version), tree)
    decoded = codec.decode(message, version, written)
    assert bare(decoded, paired) == tree
    assert codec.encode(decoded, version) == written
