from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import Buffer
from ottla.base.ids import TopicPartition, parse_uuid
from ottla.log import names
from ottla.log.checkpoints import (
    CleanShutdownFile,
    EpochEntry,
    LeaderEpochCheckpoint,
    MetaProperties,
    OffsetCheckpoint,
)
from ottla.log.errors import CorruptCheckpointError
from ottla.log.local_disk import LocalDisk

# All of these bytes were written by the classes of Apache Kafka 3.9.1: OffsetCheckpointFile, LeaderEpochFileCache,
# CleanShutdownFileHandler, and PropertiesUtils with MetaProperties.
OFFSETS_OF_KAFKA = bytes.fromhex(
    "300a330a6576656e7473203020313034350a5f5f636f6e73756d65725f6f66667365747320343920300a6d792e746f7069632d6e616d6520"
    "313220393232333337323033363835343737353830370a"
)
EPOCHS_OF_KAFKA = bytes.fromhex("300a330a3020300a322031370a3520393232333337323033363835343737353830360a")
NO_EPOCHS_OF_KAFKA = bytes.fromhex("300a300a")
CLEAN_SHUTDOWN_OF_KAFKA = bytes.fromhex("7b2276657273696f6e223a302c2262726f6b657245706f6368223a37377d")
META_V0_OF_KAFKA = bytes.fromhex(
    "230a2353756e204e6f762031352032313a30313a34322055544320323032360a62726f6b65722e69643d330a76657273696f6e3d300a636c75"
    "737465722e69643d713153682d395f495369615f7a7747494e7a527679510a"
)
META_V1_OF_KAFKA = bytes.fromhex(
    "230a2353756e204e6f762031352032313a30313a34322055544320323032360a6e6f64652e69643d330a6469726563746f72792e69643d6e37"
    "45575469756e5175694271554a56325f69364e770a76657273696f6e3d310a636c75737465722e69643d6120625c3d635c3a645c235c215c5c"
    "0a"
)

OFFSETS = {
    TopicPartition("events", 0): 1045,
    TopicPartition("__consumer_offsets", 49): 0,
    TopicPartition("my.topic-name", 12): 2**63 - 1,
}
EPOCHS = [EpochEntry(0, 0), EpochEntry(2, 17), EpochEntry(5, 2**63 - 2)]
DIRECTORY_ID = parse_uuid("n7EWTiunQuiBqUJV2_i6Nw")


class DiskInMemory(LocalDisk):
    """Files kept as bytes, for properties that would wear out a real disk."""

    __slots__ = ("contents",)

    def __init__(self) -> None:
        self.contents: dict[Path, bytes] = {}

    def read(self, path: Path) -> bytes:
        return self.contents[path]

    def write_atomically(self, path: Path, data: Buffer) -> None:
        self.contents[path] = bytes(data)


def test_offsets_are_kafkas_bytes(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(LocalDisk(), tmp_path / "recovery-point-offset-checkpoint")
    assert checkpoint.read() == {}
    checkpoint.write(OFFSETS)
    assert checkpoint.path.read_bytes() == OFFSETS_OF_KAFKA
    assert checkpoint.read() == OFFSETS
    checkpoint.write({})
    assert checkpoint.path.read_bytes() == b"0\n0\n"
    assert checkpoint.read() == {}


def test_epochs_are_kafkas_bytes(tmp_path: Path) -> None:
    checkpoint = LeaderEpochCheckpoint(LocalDisk(), tmp_path / "leader-epoch-checkpoint")
    assert checkpoint.read() == []
    checkpoint.write(EPOCHS)
    assert checkpoint.path.read_bytes() == EPOCHS_OF_KAFKA
    assert checkpoint.read() == EPOCHS
    checkpoint.write([])
    assert checkpoint.path.read_bytes() == NO_EPOCHS_OF_KAFKA


@pytest.mark.parametrize(
    "content",
    [
        b"0\r\n1\r\nevents 3 17\r\n",
        b"0\n1\nevents\t3  17  \n",
        b"+0\n01\nevents 3 +17",
        b"0\r1\revents 3 17\r",
    ],
)
def test_offsets_are_read_wherever_kafka_would_read_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    assert OffsetCheckpoint(LocalDisk(), path).read() == {TopicPartition("events", 3): 17}


@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n"])
def test_a_file_without_entries(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    assert OffsetCheckpoint(LocalDisk(), path).read() == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x\n0\n", "line 1 is 'x', not a version"),
        (b"\n0\n", "line 1 is '', not a version"),
        (b"1\n0\n", "line 1 says version 1, and only version 0 is known"),
        (b"0\nmany\n", "line 2 is 'many', not the number of entries"),
        (b"0\n1_0\n", "line 2 is '1_0', not the number of entries"),
        (b"0\n2\nevents 0 1\n", "line 2 promises 2 entries, 1 follow"),
        (b"0\n0\nevents 0 1\n", "line 2 promises 0 entries, 1 follow"),
        (b"0\n2\nevents 0 1\nevents 1\n", "line 4 is 'events 1', not 'topic partition offset'"),
        (b"0\n1\nevents 0 1 2\n", "line 3 is 'events 0 1 2', not"),
        (b"0\n1\nevents -1 1\n", "line 3 is 'events -1 1', not"),
        (b"0\n1\nevents 2147483648 1\n", "line 3 is 'events 2147483648 1', not"),
        (b"0\n1\nevents 0 9223372036854775808\n", "line 3 is 'events 0 9223372036854775808', not"),
        (b"0\n" + b"9" * 5000, "not the number of entries"),
        (b"0\n1\nevents 0 0x1\n", "line 3 is 'events 0 0x1', not"),
        (b"0\n1\n 0 1\n", "line 3 is ' 0 1', not"),
        (b"0\n1\n\n", "line 3 is '', not"),
        (b"0\n1\n\xff 0 1\n", "byte 4 is not UTF-8 text"),
        (b"\x00" * 64, "not a version"),
    ],
)
def test_bad_offsets_name_file_line_and_remedy(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "log-start-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as corrupt:
        OffsetCheckpoint(LocalDisk(), path).read()
    text = str(corrupt.value)
    assert text.startswith(f"{path}: ")
    assert reason in text
    assert "remove it while the broker is stopped: records that were deleted on request" in text
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", ["1", "1 2 3", "-1 2", "1 -2", "a 1", "1 b", "2147483648 1", " 1 2"])
def test_bad_epochs_name_their_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(f"0\n2\n0 0\n{line}\n")
    with pytest.raises(CorruptCheckpointError, match=f"line 4 is '{line}', not 'epoch offset'"):
        LeaderEpochCheckpoint(LocalDisk(), path).read()


topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


@settings(deadline=None)
@given(st.dictionaries(partitions, st.integers(-(2**63), 2**63 - 1)))
def test_offsets_come_back(offsets: dict[TopicPartition, int]) -> None:
    checkpoint = OffsetCheckpoint(DiskInMemory(), Path("checkpoint"))
    checkpoint.write(offsets)
    assert checkpoint.read() == offsets


@settings(deadline=None)
@given(st.binary(max_size=40) | st.text("0123456789 \n\ta-", max_size=40).map(str.encode))
def test_reading_garbage_gives_entries_or_the_named_error(content: bytes) -> None:
    disk, path = DiskInMemory(), Path("file")
    disk.contents = {path: content, path / ".kafka_cleanshutdown": content}
    with suppress(CorruptCheckpointError):
        OffsetCheckpoint(disk, path).read()
    with suppress(CorruptCheckpointError):
        LeaderEpochCheckpoint(disk, path).read()
    with suppress(CorruptCheckpointError):
        MetaProperties.read(disk, path)
    CleanShutdownFile(disk, path).read()


def test_clean_shutdown_is_kafkas_json(tmp_path: Path) -> None:
    file = CleanShutdownFile(LocalDisk(), tmp_path)
    assert (file.exists(), file.read()) == (False, None)
    file.write(77)
    content = json.loads((tmp_path / ".kafka_cleanshutdown").read_bytes())
    assert content.pop("ottlaCheckpointCrcs")  # Kafka ignores what it does not know
    assert content == json.loads(CLEAN_SHUTDOWN_OF_KAFKA)
    assert (file.exists(), file.is_whole(), file.read()) == (True, True, 77)
    file.remove()
    assert not file.exists()
    file.remove()
    file.write()
    assert file.read() == -1


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"brokerEpoch":null}', b'{"brokerEpoch":true}', b"\xff"])
def test_a_clean_shutdown_without_an_epoch_is_still_clean(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    file = CleanShutdownFile(LocalDisk(), tmp_path)
    assert (file.exists(), file.read()) == (True, None)


def test_a_checkpoint_that_changed_since_the_clean_stop_is_detected(tmp_path: Path) -> None:
    for name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS):
        OffsetCheckpoint(LocalDisk(), tmp_path / name).write({TopicPartition("topic", 0): 40})
    file = CleanShutdownFile(LocalDisk(), tmp_path)
    file.write()
    assert file.changed_checkpoints() == []
    OffsetCheckpoint(LocalDisk(), tmp_path / names.LOG_START_OFFSETS).write({TopicPartition("topic", 0): 48})
    assert file.changed_checkpoints() == [names.LOG_START_OFFSETS]
    file.path.write_bytes(CLEAN_SHUTDOWN_OF_KAFKA)
    assert (file.is_whole(), file.changed_checkpoints()) == (True, [])


@pytest.mark.parametrize("content", [b"{", b'{"version":', b"\xff", b"[]"])
def test_a_damaged_mark_of_a_clean_stop_is_not_believed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert not CleanShutdownFile(LocalDisk(), tmp_path).is_whole()


def test_a_newer_clean_shutdown_is_read(tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version": 9, "brokerEpoch": 5, "more": {}}')
    assert CleanShutdownFile(LocalDisk(), tmp_path).read() == 5


def test_meta_properties_of_kafka_are_read(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    assert MetaProperties.read(LocalDisk(), path) is None
    path.write_bytes(META_V0_OF_KAFKA)
    assert MetaProperties.read(LocalDisk(), path) == MetaProperties(3, "q1Sh-9_ISia_zwGINzRvyQ")
    path.write_bytes(META_V1_OF_KAFKA)
    assert MetaProperties.read(LocalDisk(), path) == MetaProperties(3, "a b=c:d#!\\", DIRECTORY_ID, version=1)


def test_meta_properties_are_written_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    MetaProperties(3, "q1Sh-9_ISia_zwGINzRvyQ", DIRECTORY_ID).write(LocalDisk(), path)
    assert path.read_text() == (
        "#\nversion=0\nbroker.id=3\ncluster.id=q1Sh-9_ISia_zwGINzRvyQ\ndirectory.id=n7EWTiunQuiBqUJV2_i6Nw\n"
    )
    MetaProperties(3, "a b=é", version=1).write(LocalDisk(), path)
    assert path.read_text() == "#\nversion=1\nnode.id=3\ncluster.id=a\\u0020b\\u003d\\u00e9\n"


@settings(deadline=None)
@given(st.integers(-(2**31), 2**31 - 1) | st.none(), st.text() | st.none(), st.sampled_from([None, DIRECTORY_ID]))
def test_meta_properties_come_back(broker_id: int | None, cluster_id: str | None, directory_id: bytes | None) -> None:
    disk = DiskInMemory()
    written = MetaProperties(broker_id, cluster_id, DIRECTORY_ID if directory_id else None)
    written.write(disk, Path("meta.properties"))
    assert MetaProperties.read(disk, Path("meta.properties")) == written


@pytest.mark.parametrize(
    "text",
    [
        "broker.id=3\ncluster.id=abc",
        "# a remark\n! another\n\n  broker.id : 3\r\n\tcluster.id   abc\n",
        "broker.id=1\nbroker.id=\\\n   3\ncluster\\.id=\\u0061b\\c",
        "version=0\nbroker.id=3\ncluster.id=abc\nother=thing\nnode.id=9",
    ],
)
def test_meta_properties_written_by_hand_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(text)
    assert MetaProperties.read(LocalDisk(), path) == MetaProperties(3, "abc")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=2\nnode.id=3", "version=2 is not known, only 0 and 1"),
        ("version=0\nbroker.id=three", "broker.id=three is not a number"),
        ("version=1\nnode.id=3", "cluster.id is missing"),
        ("version=1\ncluster.id=c\nbroker.id=3", "node.id is missing"),
        ("version=0\ndirectory.id=abc", "directory.id=abc: 'abc' is not a valid id"),
    ],
)
def test_bad_meta_properties_name_the_file_and_what_to_do(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(text)
    with pytest.raises(CorruptCheckpointError) as corrupt:
        MetaProperties.read(LocalDisk(), path)
    assert str(corrupt.value).startswith(f"{path}: {reason}")
    assert "log.dirs" in str(corrupt.value)
