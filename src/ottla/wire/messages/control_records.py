"""Keys and values of control records: batches in a log that are about the log, and never reach an application.

Ends of transactions (KIP-98) are what a broker writes among data. The others belong to KRaft's metadata log; they are
declared so that any batch of a Kafka log can be shown.
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import Data, Struct, array, int16, int32, int64, nested, string, uint16, uuid


class ControlRecordTypeSchema(Data, versions="0"):
    """A key, after its version: 0 aborts, 1 commits, 2 is a change of leader, and so on in KRaft."""

    type: int = int16()


class EndTxnMarker(Data, versions="0"):
    """The value of an abort or a commit, after its version."""

    coordinator_epoch: int = int32()


class LeaderChangeVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    """Directory ids since v1 (KIP-853)."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    version: int = int16()


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    version: int = int16()
    k_raft_version: int = int16()


class VoterEndpoint(Struct):
    name: str = string(key=True)
    host: str = string()
    port: int = uint16()


class VoterKRaftVersions(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    k_raft_version_feature: VoterKRaftVersions = nested(VoterKRaftVersions)


class VotersRecord(Data, versions="0", flexible="0+"):
    version: int = int16()
    voters: list[Voter] = array(Voter)
