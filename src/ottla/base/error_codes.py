"""Kafka's error codes: what a response says went wrong, whether trying again can help, and what to do about it.

Names, numbers and retriability are those of Apache Kafka 4.3, because clients act on them. The descriptions are for
people, in logs and command lines; programs never match on them.
"""

from __future__ import annotations

from enum import IntEnum


def _retriable(code: int, description: str) -> tuple[int, bool, str]:
    """The same request may succeed later, or at another broker once metadata was refreshed."""
    return code, True, description


def _final(code: int, description: str) -> tuple[int, bool, str]:
    """Sending the same request again changes nothing."""
    return code, False, description


class ErrorCode(IntEnum):
    """An error as it travels: an int16 that knows what it means."""

    _value_: int
    retriable: bool
    description: str

    def __new__(cls, code: int, retriable: bool = False, description: str = "") -> ErrorCode:
        # The defaults only let a type checker accept the lookup `ErrorCode(3)`, which does not come here.
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.description = description
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The error with this code; one that a newer Kafka added is an unknown server error to us."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = _final(
        -1, "The broker failed in a way it has no code for; its log at the time of the request tells more."
    )
    NONE = _final(0, "No error.")
    OFFSET_OUT_OF_RANGE = _final(
        1,
        "The offset lies before the first record that is kept or after the last one; "
        "continue from the start or the end of the partition.",
    )
    CORRUPT_MESSAGE = _retriable(
        2, "A record batch arrived damaged or malformed; send it again, and check the producer if that does not help."
    )
    UNKNOWN_TOPIC_OR_PARTITION = _retriable(
        3, "The broker does not know this topic or partition; check the name, or wait a moment if it is new."
    )
    INVALID_FETCH_SIZE = _final(4, "A fetch asked for an impossible number of bytes; ask for a positive one.")
    LEADER_NOT_AVAILABLE = _retriable(
        5, "The partition has no leader at the moment; an election usually ends this within seconds."
    )
    NOT_LEADER_OR_FOLLOWER = _retriable(
        6, "The partition has moved away from the broker that was asked; refresh the metadata and ask its leader."
    )
    REQUEST_TIMED_OUT = _retriable(
        7,
        "The work was not done in the time given, and may still be done; "
        "try again, and look for slow brokers or replicas if it lasts.",
    )
    BROKER_NOT_AVAILABLE = _final(8, "The broker needed for this is down; start it, or ask another one.")
    REPLICA_NOT_AVAILABLE = _retriable(
        9, "The broker has no usable copy of the partition yet; wait until it has caught up, or ask another replica."
    )
    MESSAGE_TOO_LARGE = _final(
        10, "A record batch exceeds what the topic takes; send smaller batches or raise max.message.bytes."
    )
    STALE_CONTROLLER_EPOCH = _final(
        11, "The order came from a controller that has been replaced; only the present one is obeyed."
    )
    OFFSET_METADATA_TOO_LARGE = _final(
        12, "The note stored with a committed offset is too long; shorten it or raise offset.metadata.max.bytes."
    )
    NETWORK_EXCEPTION = _retriable(
        13, "The connection broke before the answer came, so it is unknown whether the request took effect; try again."
    )
    COORDINATOR_LOAD_IN_PROGRESS = _retriable(
        14, "The coordinator has just taken over and still reads its state from the log; try again shortly."
    )
    COORDINATOR_NOT_AVAILABLE = _retriable(
        15, "No broker coordinates this group or transactional id right now; look the coordinator up again shortly."
    )
    NOT_COORDINATOR = _retriable(
        16, "Another broker coordinates this group or transactional id by now; look it up and ask there."
    )
    INVALID_TOPIC_EXCEPTION = _final(
        17, "The topic's name is not allowed, or the topic is an internal one that must not be used like this."
    )
    RECORD_LIST_TOO_LARGE = _final(
        18, "A record batch does not fit into one segment of the log; send smaller batches or raise segment.bytes."
    )
    NOT_ENOUGH_REPLICAS = _retriable(
        19,
        "Nothing was written, because fewer replicas are in sync than min.insync.replicas asks for; "
        "bring the missing brokers back.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = _retriable(
        20,
        "The records were written, but replicas dropped out of sync before enough of them had a copy; "
        "sending them again can duplicate them unless the producer is idempotent.",
    )
    INVALID_REQUIRED_ACKS = _final(21, "The acks of a produce request can only be 0, 1 or -1 (all).")
    ILLEGAL_GENERATION = _final(
        22, "The group has rebalanced since this member last heard of it; rejoin before committing or syncing."
    )
    INCONSISTENT_GROUP_PROTOCOL = _final(
        23,
        "This member has no assignment strategy in common with the rest of the group; give all members one they share.",
    )
    INVALID_GROUP_ID = _final(24, "The group needs a name: set group.id to a text that is not empty.")
    UNKNOWN_MEMBER_ID = _final(
        25, "The group does not count this member any more, often because it was silent for too long; join anew."
    )
    INVALID_SESSION_TIMEOUT = _final(
        26,
        "The session timeout is outside what the broker allows; "
        "choose one between group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = _final(27, "The group is sharing out its partitions anew; rejoin it to take part.")
    INVALID_COMMIT_OFFSET_SIZE = _final(
        28, "The offsets committed at once make too large a record for the offsets topic; commit fewer at a time."
    )
    TOPIC_AUTHORIZATION_FAILED = _final(29, "The user may not do this with the topic; an ACL has to allow it.")
    GROUP_AUTHORIZATION_FAILED = _final(30, "The user may not do this with the group; an ACL has to allow it.")
    CLUSTER_AUTHORIZATION_FAILED = _final(31, "The user may not do this to the cluster; an ACL has to allow it.")
    INVALID_TIMESTAMP = _final(
        32, "A record's timestamp is too far from the broker's clock for this topic; check the clock of the producer."
    )
    UNSUPPORTED_SASL_MECHANISM = _final(
        33, "The broker does not offer this SASL mechanism; pick one of those it names in its answer."
    )
    ILLEGAL_SASL_STATE = _final(
        34,
        "The request came at the wrong moment of a SASL login; check that both sides agree on the security protocol.",
    )
    UNSUPPORTED_VERSION = _final(
        35, "The broker does not speak this version of the API; use one that it lists, or upgrade the older side."
    )
    TOPIC_ALREADY_EXISTS = _final(36, "There is a topic of this name already; use it, or choose another name.")
    INVALID_PARTITIONS = _final(
        37, "The number of partitions makes no sense here: it is at least one, and can only grow."
    )
    INVALID_REPLICATION_FACTOR = _final(
        38, "There cannot be so many replicas: ask for at least one and at most as many as brokers are up."
    )
    INVALID_REPLICA_ASSIGNMENT = _final(
        39,
        "The placement of replicas is not possible: check for unknown or repeated brokers and for missing partitions.",
    )
    INVALID_CONFIG = _final(40, "A configuration key or its value is not accepted; the answer's message names it.")
    NOT_CONTROLLER = _retriable(
        41, "Only the controller does this and another broker holds that office; refresh the metadata and ask there."
    )
    INVALID_REQUEST = _final(
        42, "The request contradicts itself or the rules of its API; the answer's message or the broker's log says how."
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = _final(
        43,
        "The partition's records are in an old format that lacks what is asked for; rewrite them in the present one.",
    )
    POLICY_VIOLATION = _final(
        44, "A policy set by the operators forbids this topic or configuration; the answer's message says which rule."
    )
    OUT_OF_ORDER_SEQUENCE_NUMBER = _final(
        45, "Batches of this producer are missing before this one, so it was refused; records may have been lost."
    )
    DUPLICATE_SEQUENCE_NUMBER = _final(
        46, "The batch had been written before; nothing was written twice, and it can count as sent."
    )
    INVALID_PRODUCER_EPOCH = _final(
        47, "The producer's epoch is no longer the current one; abort, and initialise the producer again."
    )
    INVALID_TXN_STATE = _final(
        48, "The transaction is not in a state that allows this, such as a commit of one that was never begun."
    )
    INVALID_PRODUCER_ID_MAPPING = _final(
        49, "The transactional id belongs to another producer id by now, or has expired; initialise the producer again."
    )
    INVALID_TRANSACTION_TIMEOUT = _final(
        50, "The transaction may not last that long; stay within transaction.max.timeout.ms of the broker."
    )
    CONCURRENT_TRANSACTIONS = _retriable(
        51, "The previous transaction of this id is still being finished; try again in a moment."
    )
    TRANSACTION_COORDINATOR_FENCED = _final(
        52, "A transaction marker came from a coordinator that has been replaced; the new one writes it."
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = _final(
        53, "The user may not use this transactional id; an ACL has to allow it."
    )
    SECURITY_DISABLED = _final(54, "The broker runs without an authorizer, so there are no ACLs to read or change.")
    OPERATION_NOT_ATTEMPTED = _final(
        55, "This part was left undone because another part of the same request failed; mend that one and send both."
    )
    KAFKA_STORAGE_ERROR = _retriable(
        56, "The broker's disk failed under the partition; another replica may take over, the disk needs care."
    )
    LOG_DIR_NOT_FOUND = _final(57, "The broker has no such log directory in its log.dirs.")
    SASL_AUTHENTICATION_FAILED = _final(58, "The login was refused; check user, password or token, and the mechanism.")
    UNKNOWN_PRODUCER_ID = _final(
        59, "Nothing of what this producer wrote is kept, so its sequence cannot be checked; initialise it again."
    )
    REASSIGNMENT_IN_PROGRESS = _final(
        60,
        "Replicas of the partition are being moved; wait for the end of it, or cancel it, before changing them again.",
    )
    DELEGATION_TOKEN_AUTH_DISABLED = _final(
        61, "The broker issues no delegation tokens; its operators switch them on by setting a secret key for them."
    )
    DELEGATION_TOKEN_NOT_FOUND = _final(62, "There is no such delegation token; it may have expired and been removed.")
    DELEGATION_TOKEN_OWNER_MISMATCH = _final(
        63, "Only the owner of a delegation token and those named as its renewers may do this."
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = _final(
        64,
        "Delegation tokens are only given over a connection with a full login, not over one made with a token itself.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = _final(
        65, "The user may not see or change this delegation token; an ACL has to allow it."
    )
    DELEGATION_TOKEN_EXPIRED = _final(66, "The delegation token has run out; ask for a new one.")
    INVALID_PRINCIPAL_TYPE = _final(67, "A principal of this type cannot be named here; name one of type User.")
    NON_EMPTY_GROUP = _final(68, "The group still has members; stop its consumers first.")
    GROUP_ID_NOT_FOUND = _final(69, "There is no such group, or it is not of the kind this request is for.")
    FETCH_SESSION_ID_NOT_FOUND = _retriable(
        70, "The broker has dropped this fetch session to make room; start a new one with a full fetch."
    )
    INVALID_FETCH_SESSION_EPOCH = _retriable(
        71, "Client and broker lost step within a fetch session; start a new one with a full fetch."
    )
    LISTENER_NOT_FOUND = _retriable(
        72, "The partition's leader lacks the listener the client came in by; give all brokers the same listeners."
    )
    TOPIC_DELETION_DISABLED = _final(
        73, "The cluster does not delete topics; delete.topic.enable would have to be true."
    )
    FENCED_LEADER_EPOCH = _retriable(
        74, "The client's knowledge of the partition's leader is out of date; refresh the metadata and ask again."
    )
    UNKNOWN_LEADER_EPOCH = _retriable(
        75, "The client knows of a newer leader than the broker does; the broker will hear of it shortly, so ask again."
    )
    UNSUPPORTED_COMPRESSION_TYPE = _final(
        76, "The records are compressed in a way this version of the request cannot carry; upgrade the client."
    )
    STALE_BROKER_EPOCH = _final(
        77, "The request speaks for a broker as it was before its restart; only its present registration counts."
    )
    OFFSET_NOT_AVAILABLE = _retriable(
        78, "A new leader does not know yet how far its replicas have come; ask for the offset again in a moment."
    )
    MEMBER_ID_REQUIRED = _final(
        79, "A new member joins in two steps: it was given an id by this answer and joins again with it."
    )
    PREFERRED_LEADER_NOT_AVAILABLE = _retriable(
        80, "The replica that should lead by preference is down or behind; try again when it is back in sync."
    )
    GROUP_MAX_SIZE_REACHED = _final(81, "The group is full; stop a member, or raise the limit on the size of groups.")
    FENCED_INSTANCE_ID = _final(
        82, "Another consumer has come up with the same group.instance.id and replaced this one; give each its own."
    )
    ELIGIBLE_LEADERS_NOT_AVAILABLE = _retriable(
        83, "No replica that may lead the partition is up; bring one of those in sync back."
    )
    ELECTION_NOT_NEEDED = _retriable(84, "The partition has the leader that was wished for; nothing had to be done.")
    NO_REASSIGNMENT_IN_PROGRESS = _final(
        85, "No replicas of this partition are being moved, so there is nothing to cancel."
    )
    GROUP_SUBSCRIBED_TO_TOPIC = _final(
        86, "Members of the group still read this topic, so its offsets stay; stop them or let them unsubscribe first."
    )
    INVALID_RECORD = _final(
        87, "The broker refused a record for what it holds; the answer says which one in the batch, and why."
    )
    UNSTABLE_OFFSET_COMMIT = _retriable(
        88, "Offsets of the group hang on a transaction that has not ended; ask again when it has."
    )
    THROTTLING_QUOTA_EXCEEDED = _retriable(
        89, "The user has spent the quota for changes of this kind; try again after the time told in the answer."
    )
    PRODUCER_FENCED = _final(90, "Another producer with the same transactional id has taken over; close this one.")
    RESOURCE_NOT_FOUND = _final(91, "What the request names does not exist.")
    DUPLICATE_RESOURCE = _final(92, "The request names one thing more than once; name it once.")
    UNACCEPTABLE_CREDENTIAL = _final(
        93,
        "The credential is not good enough, for instance by an empty name or too few iterations; make a stronger one.",
    )
    INCONSISTENT_VOTER_SET = _final(
        94, "One of the two controllers does not count the other among the voters; compare their quorum settings."
    )
    INVALID_UPDATE_VERSION = _final(
        95,
        "The change builds on an outdated state, or wants a level of a feature that is not supported; read both anew.",
    )
    FEATURE_UPDATE_FAILED = _final(96, "The level of a feature could not be stored; the controller's log says why.")
    PRINCIPAL_DESERIALIZATION_FAILURE = _final(
        97,
        "A forwarded request names its user in a form the receiving broker cannot read; "
        "give all brokers the same principal builder.",
    )
    SNAPSHOT_NOT_FOUND = _final(98, "The metadata snapshot asked for is not there any more; fetch a newer one.")
    POSITION_OUT_OF_RANGE = _final(99, "The position asked for lies outside the metadata snapshot; start it over.")
    UNKNOWN_TOPIC_ID = _retriable(
        100,
        "The broker knows no topic by this id: it is new, or was deleted, perhaps made again; refresh the metadata.",
    )
    DUPLICATE_BROKER_REGISTRATION = _final(
        101, "A live broker has this id already; give each broker its own, or wait until the old session has ended."
    )
    BROKER_ID_NOT_REGISTERED = _final(102, "No broker has registered under this id; check the number.")
    INCONSISTENT_TOPIC_ID = _retriable(
        103,
        "The id of the topic is not the one in the broker's log: it was deleted and made again; refresh the metadata.",
    )
    INCONSISTENT_CLUSTER_ID = _final(
        104,
        "The two sides belong to different clusters; check the addresses and the cluster ids in the log directories.",
    )
    TRANSACTIONAL_ID_NOT_FOUND = _final(
        105, "Nothing is known of this transactional id; it was never used here, or has expired."
    )
    FETCH_SESSION_TOPIC_ID_ERROR = _retriable(
        106, "A fetch session mixed topic names with topic ids; start a new one with a full fetch."
    )
    INELIGIBLE_REPLICA = _final(
        107, "A replica cannot be counted as in sync, because its broker is fenced, shutting down or has restarted."
    )
    NEW_LEADER_ELECTED = _final(
        108, "The change of the partition was made and brought it another leader; the one that asked has to step down."
    )
    OFFSET_MOVED_TO_TIERED_STORAGE = _final(
        109, "The records at this offset are kept in remote storage only; a follower starts from what is local."
    )
    FENCED_MEMBER_EPOCH = _final(
        110, "The group has gone on without this member; it lets go of all its partitions and joins again."
    )
    UNRELEASED_INSTANCE_ID = _final(
        111, "Another live member holds this instance id; stop it, or wait for its session to end."
    )
    UNSUPPORTED_ASSIGNOR = _final(
        112, "The broker cannot assign partitions in the way asked for; name one of its own assignors, or none."
    )
    STALE_MEMBER_EPOCH = _final(
        113,
        "The member's epoch is behind the group's; it takes the new one from its next heartbeat and then tries again.",
    )
    MISMATCHED_ENDPOINT_TYPE = _final(
        114, "A broker got what is meant for controllers, or the other way round; check the bootstrap addresses."
    )
    UNSUPPORTED_ENDPOINT_TYPE = _final(115, "The server does not know endpoints of this type; upgrade the older side.")
    UNKNOWN_CONTROLLER_ID = _final(116, "No controller has this id; check the number.")
    UNKNOWN_SUBSCRIPTION_ID = _final(
        117,
        "The metrics the broker wants have changed; the client asks for its subscription anew before it pushes again.",
    )
    TELEMETRY_TOO_LARGE = _final(
        118, "The client pushed more metrics than the broker takes at once; it has to send fewer."
    )
    INVALID_REGISTRATION = _final(
        119,
        "The controller refused to register the broker; its log says what is wrong with listeners, features or disks.",
    )
    TRANSACTION_ABORTABLE = _final(
        120, "The transaction cannot be finished; abort it, after which the same producer can begin the next one."
    )
    INVALID_RECORD_STATE = _final(
        121, "The record is no longer held by this consumer of the share group, so its acknowledgement does not count."
    )
    SHARE_SESSION_NOT_FOUND = _retriable(122, "The broker has dropped this share session; start a new one.")
    INVALID_SHARE_SESSION_EPOCH = _retriable(
        123, "Client and broker lost step within a share session; start a new one."
    )
    FENCED_STATE_EPOCH = _final(
        124, "The share group's state has a newer epoch than the request; only its present owner may write it."
    )
    INVALID_VOTER_KEY = _final(
        125, "The request is meant for a voter with another id or directory than the controller that got it."
    )
    DUPLICATE_VOTER = _final(126, "The controller is a voter already, so it cannot be added.")
    VOTER_NOT_FOUND = _final(127, "No voter has this id and directory; list the voters to see which there are.")
    INVALID_REGULAR_EXPRESSION = _final(
        128, "The pattern is not a valid regular expression in RE2's syntax, or is too large."
    )
    REBOOTSTRAP_REQUIRED = _final(
        129, "None of what the client knows of the cluster holds any more; it starts over from its bootstrap addresses."
    )
    STREAMS_INVALID_TOPOLOGY = _final(
        130, "The application's topology cannot be run by the group; the answer's message says which part of it."
    )
    STREAMS_INVALID_TOPOLOGY_EPOCH = _final(
        131, "The topology's epoch does not follow on the one the group has; all members have to run the same version."
    )
    STREAMS_TOPOLOGY_FENCED = _final(132, "The group runs a newer topology than this member; upgrade the application.")
    SHARE_SESSION_LIMIT_REACHED = _retriable(
        133, "The broker serves as many share sessions as it may; try again later, or raise the limit."
    )
