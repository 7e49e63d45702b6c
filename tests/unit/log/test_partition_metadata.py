from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, parse_uuid, random_uuid
from ottla.log.errors import CorruptCheckpointError
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_metadata import InconsistentTopicIdError, PartitionMetadata

TOPIC_ID = parse_uuid("n7EWTiunQuiBqUJV2_i6Nw")

# Written by PartitionMetadataFile of Apache Kafka 3.9.1.
OF_KAFKA = bytes.fromhex("76657273696f6e3a20300a746f7069635f69643a206e3745575469756e5175694271554a56325f69364e77")


def test_reads_and_writes_the_bytes_of_kafka(tmp_path: Path) -> None:
    metadata = PartitionMetadata.load(LocalDisk(), tmp_path)
    assert metadata.topic_id is None
    metadata.assign(TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_bytes() == OF_KAFKA
    read = PartitionMetadata.load(LocalDisk(), tmp_path)
    assert (read.topic_id, read.version) == (TOPIC_ID, 0)


def test_the_same_id_is_not_written_twice(tmp_path: Path) -> None:
    PartitionMetadata.load(LocalDisk(), tmp_path).assign(TOPIC_ID)
    metadata = PartitionMetadata.load(LocalDisk(), tmp_path)
    metadata.path.unlink()
    metadata.assign(TOPIC_ID)
    assert not metadata.path.exists()


def test_another_id_is_refused(tmp_path: Path) -> None:
    metadata = PartitionMetadata.load(LocalDisk(), tmp_path)
    metadata.assign(TOPIC_ID)
    with pytest.raises(InconsistentTopicIdError, match="belongs to topic id n7EWTiunQuiBqUJV2_i6Nw, not") as refused:
        metadata.assign(random_uuid())
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert metadata.path.read_bytes() == OF_KAFKA


def test_the_id_of_no_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zeros"):
        PartitionMetadata.load(LocalDisk(), tmp_path).assign(ZERO_UUID)


@pytest.mark.parametrize(
    "content",
    [
        b"version: 0\r\ntopic_id: n7EWTiunQuiBqUJV2_i6Nw\r\n",
        b"version: 7\ntopic_id: n7EWTiunQuiBqUJV2_i6Nw\nmore: to come",
        b"version:\t0\nid:  n7EWTiunQuiBqUJV2_i6Nw==",
    ],
)
def test_what_kafka_reads_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    assert PartitionMetadata.load(LocalDisk(), tmp_path).topic_id == TOPIC_ID


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1, 'version: <number>', is missing"),
        (b"version 0\ntopic_id: n7EWTiunQuiBqUJV2_i6Nw", "line 1 is 'version 0'"),
        (b"version: -1\ntopic_id: n7EWTiunQuiBqUJV2_i6Nw", "line 1 is 'version: -1'"),
        (b"version: x\ntopic_id: n7EWTiunQuiBqUJV2_i6Nw", "line 1 is 'version: x'"),
        (b"version: 0", "line 2, 'topic_id: <id>', is missing"),
        (b"version: 0\ntopic_id:n7EWTiunQuiBqUJV2_i6Nw", "line 2 is"),
        (b"version: 0\ntopic_id: n7EWTiunQuiBqUJV", "line 2: 'n7EWTiunQuiBqUJV' is not a valid id"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: an id of all zeros"),
        (b"\xff\xfe\x00", "line 1 is"),
    ],
)
def test_what_cannot_be_read_names_file_line_and_remedy(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError) as corrupt:
        PartitionMetadata.load(LocalDisk(), tmp_path)
    text = str(corrupt.value)
    assert text.startswith(f"{path}: ")
    assert reason in text
    assert "delete it while the broker is stopped" in text


def test_follows_its_folder(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    metadata = PartitionMetadata.load(LocalDisk(), old)
    old.rename(new)
    metadata.move_to(new)
    metadata.assign(TOPIC_ID)
    assert (new / "partition.metadata").read_bytes() == OF_KAFKA
