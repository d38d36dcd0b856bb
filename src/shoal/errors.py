"""Error codes as one table, and the exception tree.

Inside the cores, the broker and the wire an error of the protocol is a *value*, ``ErrorCode``.
It becomes an exception only at the client's public edge, by ``error_for(code)``.

    ShoalError
    ├── BrokerError(code)                 a broker answered with an error code
    │   ├── RetriableError                the same request may succeed later
    │   ├── CommitFailedError             the group moved on; the commit was refused
    │   ├── RebalanceInProgressError      poll, then commit again
    │   ├── FencedInstanceIdError         another process uses this group_instance_id
    │   ├── AuthorizationError            the principal lacks a right
    │   └── AuthenticationError           the credentials were refused
    ├── ConnectionFailedError             no broker answered; also a ConnectionError
    ├── RequestTimeoutError               no answer in time; also a TimeoutError
    ├── TransactionAbortableError         abort_transaction(), then begin again
    ├── TransactionFatalError             no transaction is possible any more: close the producer
    │   └── ProducerFencedError           a newer producer has the same transactional_id
    ├── PartlySentError                   send_many: some records were not stored; says which
    ├── ProcessingError                   process: records failed for good; says which and why
    ├── WakeupError                       ``wakeup()`` was called from another thread
    ├── NoOffsetForPartitionError         nothing committed and auto_offset_reset="none"
    ├── OffsetOutOfRangeError             position outside the log and auto_offset_reset="none"
    ├── LogTruncatedError                 the log was cut before a position; names the cut
    ├── OffsetRangeMissingError           a range to be read is not in the log (any more)
    ├── RecordDeserializationError        a deserializer failed; names the offset
    ├── RebalanceListenerError            a rebalance listener raised; the cause is chained
    ├── InvalidAssignmentError            an assignor returned nonsense; names it
    ├── UpstreamFailureError              strict_upstream, and Apache Kafka itself fails here
    ├── CorruptDataError                  bytes on disk or in a batch fail a check; also ValueError
    │   └── UnsupportedFormatError        a batch format older than v2
    ├── BatchTooLargeError                a batch inflates past the configured limit
    ├── InvalidFrameError                 the peer does not speak Kafka
    │   └── InvalidMessageError           a message cannot be decoded
    ├── StorageError                      the log cannot be written; says which directory
    │   └── DataDirectoryInUseError       another process holds the directory
    └── ConfigError                       a setting is unknown or wrong; also ValueError

Mistakes of the caller are plain ``ValueError`` and ``TypeError``, raised at once. All of them can
be pickled and come back with the same text and attributes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.types import TopicPartition


_R, _F = True, False


class ErrorCode(IntEnum):
    """Every error code of Kafka's protocol: code, may the request be retried, what it means."""

    retriable: bool
    description: str

    def __new__(cls, code: int, retriable: bool, description: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.description = description
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member for a code off the wire; one not in this table is UNKNOWN_SERVER_ERROR."""
        try:
            return _BY_CODE[code]
        except KeyError:
            return cls.UNKNOWN_SERVER_ERROR

    # fmt: off
    UNKNOWN_SERVER_ERROR = -1, _F, "the broker met an error it has no code for; its log says more"
    NONE = 0, _F, "no error"
    OFFSET_OUT_OF_RANGE = 1, _F, "the offset lies outside the partition's log"
    CORRUPT_MESSAGE = 2, _R, "a batch failed its checksum, size or key check"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _R, "this broker does not host that topic or partition"
    INVALID_FETCH_SIZE = 4, _F, "the requested fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, _R, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, _R, "this broker does not lead or follow the partition"
    REQUEST_TIMED_OUT = 7, _R, "the broker could not finish the request in time"
    BROKER_NOT_AVAILABLE = 8, _F, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, _R, "the replica is not available for that partition"
    MESSAGE_TOO_LARGE = 10, _F, "a batch is larger than max.message.bytes"
    STALE_CONTROLLER_EPOCH = 11, _F, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, _F, "the note beside a committed offset is too long"
    NETWORK_EXCEPTION = 13, _R, "the connection broke before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _R, "the coordinator is still loading its groups"
    COORDINATOR_NOT_AVAILABLE = 15, _R, "the coordinator is not available"
    NOT_COORDINATOR = 16, _R, "this broker does not coordinate that group"
    INVALID_TOPIC_EXCEPTION = 17, _F, "the topic name is not allowed"
    RECORD_LIST_TOO_LARGE = 18, _F, "the batches are larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, _R, "fewer replicas are in sync than required"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _R, "written, but to fewer replicas than required"
    INVALID_REQUIRED_ACKS = 21, _F, "acks must be 0, 1 or all"
    ILLEGAL_GENERATION = 22, _F, "the group is at another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, _F, "no assignor or protocol type in common with the group"
    INVALID_GROUP_ID = 24, _F, "the group id is not allowed"
    UNKNOWN_MEMBER_ID = 25, _F, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, _F, "the session timeout lies outside the broker's bounds"
    REBALANCE_IN_PROGRESS = 27, _F, "the group is rebalancing"
    INVALID_COMMIT_OFFSET_SIZE = 28, _F, "the committed data is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, _F, "no right to use the topic"
    GROUP_AUTHORIZATION_FAILED = 30, _F, "no right to use the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _F, "no right to manage the cluster"
    INVALID_TIMESTAMP = 32, _F, "a timestamp lies outside the accepted range"
    UNSUPPORTED_SASL_MECHANISM = 33, _F, "the broker does not offer that SASL mechanism"
    ILLEGAL_SASL_STATE = 34, _F, "the request does not fit the state of authentication"
    UNSUPPORTED_VERSION = 35, _F, "the broker does not speak that version of the API"
    TOPIC_ALREADY_EXISTS = 36, _F, "a topic of that name exists"
    INVALID_PARTITIONS = 37, _F, "the number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = 38, _F, "the replication factor is not possible here"
    INVALID_REPLICA_ASSIGNMENT = 39, _F, "the replica assignment is not valid"
    INVALID_CONFIG = 40, _F, "a configuration value is not valid"
    NOT_CONTROLLER = 41, _R, "this broker is not the controller"
    INVALID_REQUEST = 42, _F, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _F, "the message format does not support this"
    POLICY_VIOLATION = 44, _F, "a policy of the broker forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _F, "the producer's sequence number leaves a gap"
    DUPLICATE_SEQUENCE_NUMBER = 46, _F, "the producer's sequence number was used before"
    INVALID_PRODUCER_EPOCH = 47, _F, "a newer producer with the same id exists"
    INVALID_TXN_STATE = 48, _F, "the transaction is not in a state for this"
    INVALID_PRODUCER_ID_MAPPING = 49, _F, "the producer id does not belong to that transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, _F, "the transaction timeout is above the broker's maximum"
    CONCURRENT_TRANSACTIONS = 51, _R, "the previous transaction of this producer is not finished"
    TRANSACTION_COORDINATOR_FENCED = 52, _F, "the transaction coordinator has moved"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _F, "no right to use the transactional id"
    SECURITY_DISABLED = 54, _F, "security features are switched off"
    OPERATION_NOT_ATTEMPTED = 55, _F, "not attempted because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, _R, "the broker cannot write to its disk"
    LOG_DIR_NOT_FOUND = 57, _F, "the log directory is not known"
    SASL_AUTHENTICATION_FAILED = 58, _F, "the credentials were refused"
    UNKNOWN_PRODUCER_ID = 59, _F, "the broker no longer knows this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, _F, "a partition reassignment is running"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _F, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, _F, "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _F, "the delegation token belongs to another principal"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _F, "delegation tokens are refused on this channel"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _F, "no right to use the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, _F, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, _F, "the principal type is not supported"
    NON_EMPTY_GROUP = 68, _F, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, _F, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, _R, "the fetch session is gone; start a new one"
    INVALID_FETCH_SESSION_EPOCH = 71, _R, "the fetch session is at another epoch; start a new one"
    LISTENER_NOT_FOUND = 72, _R, "the leader has no listener of this kind"
    TOPIC_DELETION_DISABLED = 73, _F, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, _R, "the client's leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, _R, "the client's leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _F, "the client does not support that compression"
    STALE_BROKER_EPOCH = 77, _F, "the broker registered again"
    OFFSET_NOT_AVAILABLE = 78, _R, "the new leader's high watermark has not caught up"
    MEMBER_ID_REQUIRED = 79, _F, "join again with the member id in this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _R, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, _F, "the group has as many members as it may have"
    FENCED_INSTANCE_ID = 82, _F, "another member uses this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _R, "no replica may become leader"
    ELECTION_NOT_NEEDED = 84, _R, "the partition already has that leader"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _F, "no partition reassignment is running"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _F, "the group is subscribed to the topic"
    INVALID_RECORD = 87, _F, "a record fails the broker's checks"
    UNSTABLE_OFFSET_COMMIT = 88, _R, "a transaction with offsets for this partition is open"
    THROTTLING_QUOTA_EXCEEDED = 89, _R, "over quota; wait as long as the answer says"
    PRODUCER_FENCED = 90, _F, "a newer producer with the same transactional id exists"
    RESOURCE_NOT_FOUND = 91, _F, "the named resource does not exist"
    DUPLICATE_RESOURCE = 92, _F, "the named resource exists"
    UNACCEPTABLE_CREDENTIAL = 93, _F, "the credential does not meet the rules"
    INCONSISTENT_VOTER_SET = 94, _F, "the voter set differs"
    INVALID_UPDATE_VERSION = 95, _F, "the feature version is not valid"
    FEATURE_UPDATE_FAILED = 96, _F, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _F, "a forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, _F, "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, _F, "the position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, _R, "this broker does not know the topic id"
    DUPLICATE_BROKER_REGISTRATION = 101, _F, "the broker id is in use"
    BROKER_ID_NOT_REGISTERED = 102, _F, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, _R, "the topic id does not belong to the topic name"
    INCONSISTENT_CLUSTER_ID = 104, _F, "the cluster id differs"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _F, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _R, "the fetch session mixes topic ids and names"
    INELIGIBLE_REPLICA = 107, _F, "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, _F, "the in-sync set changed the leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _F, "the offset lies in tiered storage"
    FENCED_MEMBER_EPOCH = 110, _F, "the member's epoch is not the coordinator's; rejoin"
    UNRELEASED_INSTANCE_ID = 111, _F, "the instance id is still used by another member"
    UNSUPPORTED_ASSIGNOR = 112, _F, "the coordinator does not have that assignor"
    STALE_MEMBER_EPOCH = 113, _F, "the member's epoch has moved on; heartbeat, then try again"
    MISMATCHED_ENDPOINT_TYPE = 114, _F, "the request went to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, _F, "the endpoint type is not supported"
    UNKNOWN_CONTROLLER_ID = 116, _F, "the controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, _F, "the telemetry subscription id is not known"
    TELEMETRY_TOO_LARGE = 118, _F, "the telemetry is too large"
    INVALID_REGISTRATION = 119, _F, "the broker registration is not valid"
    TRANSACTION_ABORTABLE = 120, _F, "the transaction must be aborted"
    INVALID_RECORD_STATE = 121, _F, "the record is not in a state for this"
    SHARE_SESSION_NOT_FOUND = 122, _R, "the share session is gone"
    INVALID_SHARE_SESSION_EPOCH = 123, _R, "the share session is at another epoch"
    FENCED_STATE_EPOCH = 124, _F, "the share state epoch is old"
    INVALID_VOTER_KEY = 125, _F, "the voter key does not match"
    DUPLICATE_VOTER = 126, _F, "the voter is already in the set"
    VOTER_NOT_FOUND = 127, _F, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, _F, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, _F, "the client's view of the cluster is stale; bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, _F, "the topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _F, "the topology epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, _F, "the topology epoch is old"
    SHARE_SESSION_LIMIT_REACHED = 133, _R, "no more share sessions may be opened"
    # fmt: on


_BY_CODE = {int(member): member for member in ErrorCode}


class ShoalError(Exception):
    """Root of everything Shoal raises for reasons outside the caller's code."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with ``args``, which is the text, not what the text was made
        # of: an error that cannot be unpickled hangs a multiprocessing.Pool, and Spark loses it.
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[ShoalError], arguments: tuple[Any, ...]) -> ShoalError:
    return kind.__new__(kind, *arguments)


class BrokerError(ShoalError):
    """A broker answered with an error code."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        text = f"{code.name} ({int(code)}): {code.description}"
        super().__init__(f"{text}; {detail}" if detail else text)


class RetriableError(BrokerError):
    """The same request may succeed later."""


class CommitFailedError(BrokerError):
    """The group gave the partitions to others before the commit came."""

    def __init__(self, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID, detail: str = "") -> None:
        super().__init__(
            code,
            detail
            or "the group rebalanced before this commit; poll more often (max_poll_interval_ms) "
            "or fetch less per poll (max_poll_records)",
        )


class RebalanceInProgressError(BrokerError):
    """The group is rebalancing: call poll, then commit again."""

    def __init__(self, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS, detail: str = "") -> None:
        super().__init__(code, detail or "call poll() to finish the rebalance, then commit again")


class FencedInstanceIdError(BrokerError):
    """Another process joined with the same group_instance_id."""


class AuthorizationError(BrokerError):
    """The principal lacks a right."""


class AuthenticationError(BrokerError):
    """The credentials were refused."""


class ConnectionFailedError(ShoalError, ConnectionError):
    """No broker answered at the given addresses."""


class RequestTimeoutError(ShoalError, TimeoutError):
    """No answer came in time."""


class TransactionAbortableError(ShoalError):
    """The transaction cannot be committed: ``abort_transaction``, then begin again.

    ``code`` is the broker's, if it was a broker that said so.
    """

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        self.reason = reason
        self.code = code
        super().__init__(f"{reason}; abort_transaction(), then begin a new one")


class TransactionFatalError(ShoalError):
    """This producer can have no more transactions: close it.

    ``code`` is the broker's, if it was a broker that said so.
    """

    advice = "close this producer"

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        self.reason = reason
        self.code = code
        advice = self.advice
        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            advice = (
                "make the producer again with a transaction_timeout_ms of at most the broker's "
                "transaction.max.timeout.ms (900000 by default)"
            )
        super().__init__(f"{reason}; {advice}")


class ProducerFencedError(TransactionFatalError):
    """Another producer took over this ``transactional_id``, or a transaction lasted too long."""

    advice = (
        "another producer has this transactional_id now, or the transaction lasted longer than "
        "transaction_timeout_ms: close this producer"
    )


class PartlySentError(ShoalError):
    """Some of the records given to one call were not stored.

    ``outcomes`` has, for each record in its place, where it was stored or the exception.
    """

    def __init__(self, outcomes: Sequence[object]) -> None:
        self.outcomes = list(outcomes)
        failed = [n for n, one in enumerate(self.outcomes) if isinstance(one, BaseException)]
        shown = ", ".join(str(n) for n in failed[:10]) + (", …" if len(failed) > 10 else "")
        first = f": {self.outcomes[failed[0]]}" if failed else ""
        super().__init__(
            f"{len(failed)} of {len(self.outcomes)} records were not stored, number {shown}{first}"
        )


class ProcessingError(ShoalError):
    """Handlers gave up on records. ``failures`` has each with its exception.

    None of them is committed: they come again, with all that lies behind them in their partition.
    """

    def __init__(self, failures: Sequence[tuple[Any, Exception]]) -> None:
        self.failures = list(failures)
        told = "; ".join(
            f"{one.topic}-{one.partition} offset {one.offset}: {type(error).__name__}: {error}"
            for one, error in self.failures[:5]
        )
        rest = f"; and {len(self.failures) - 5} more" if len(self.failures) > 5 else ""
        super().__init__(f"{told}{rest}; mend the handler, or give process() a dead_letter_topic")


class WakeupError(ShoalError):
    """``wakeup()`` interrupted this call."""


class _PartitionsError(ShoalError):
    def __init__(self, topic_partitions: Iterable[TopicPartition], advice: str) -> None:
        self.topic_partitions = tuple(sorted(topic_partitions))
        names = ", ".join(str(tp) for tp in self.topic_partitions)
        super().__init__(f"{advice}: {names}")


class NoOffsetForPartitionError(_PartitionsError):
    """Nothing is committed for a partition and auto_offset_reset is "none"."""

    def __init__(self, topic_partitions: Iterable[TopicPartition]) -> None:
        super().__init__(
            topic_partitions,
            'no committed offset and auto_offset_reset="none"; seek, or set it to '
            '"earliest" or "latest"',
        )


class OffsetOutOfRangeError(_PartitionsError):
    """A position lies outside the log and auto_offset_reset is "none"."""

    def __init__(self, topic_partitions: Iterable[TopicPartition]) -> None:
        super().__init__(
            topic_partitions,
            'position outside the log and auto_offset_reset="none"; seek to a valid offset',
        )


class LogTruncatedError(ShoalError):
    """The log lost records we have read, and auto_offset_reset is "none".

    ``divergent_offset`` is the first offset that is no longer what it was; ``None`` if not even
    the leader knows.
    """

    def __init__(
        self, topic_partition: TopicPartition, offset: int, divergent_offset: int | None
    ) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        self.divergent_offset = divergent_offset
        where = "before it" if divergent_offset is None else f"at offset {divergent_offset}"
        advice = "seek to a valid offset" if divergent_offset is None else "seek there"
        super().__init__(
            f"the log of {topic_partition} was cut {where}, and we stand at {offset}; "
            f'auto_offset_reset="none", so {advice} to go on'
        )


class OffsetRangeMissingError(ShoalError):
    """Offsets of a range that was to be read exactly are not in the log (any more)."""

    def __init__(self, topic_partition: TopicPartition, start: int, end: int, reason: str) -> None:
        self.topic_partition = topic_partition
        self.start = start
        self.end = end
        self.reason = reason
        super().__init__(f"offsets [{start}, {end}) of {topic_partition} are missing: {reason}")


class RecordDeserializationError(ShoalError):
    """A deserializer failed. ``seek`` to ``offset + 1`` to skip the record."""

    def __init__(self, topic_partition: TopicPartition, offset: int, part: str) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        self.part = part
        super().__init__(
            f"cannot deserialize the {part} of {topic_partition} offset {offset}; "
            f"seek to {offset + 1} to skip it"
        )


class RebalanceListenerError(ShoalError):
    """A rebalance listener raised; the first exception is the cause."""


class InvalidAssignmentError(ShoalError):
    """An assignor returned something a group must not adopt."""

    def __init__(self, assignor: str, reason: str) -> None:
        self.assignor = assignor
        self.reason = reason
        super().__init__(f"assignor {assignor!r} returned an invalid assignment: {reason}")


class UpstreamFailureError(ShoalError):
    """With ``strict_upstream``: on this input Apache Kafka throws, and so do we."""

    def __init__(self, java: str) -> None:
        self.java = java
        super().__init__(f"Apache Kafka fails on this input: {java}")


class CorruptDataError(ShoalError, ValueError):
    """Bytes fail a check. ``path`` is None when they did not come from a file."""

    def __init__(self, reason: str, *, path: str | None = None, position: int = 0) -> None:
        self.reason = reason
        self.path = path
        self.position = position
        where = f"{path} at byte {position}" if path else f"byte {position}"
        super().__init__(f"corrupt data in {where}: {reason}")


class UnsupportedFormatError(CorruptDataError):
    """A record batch in a format other than v2 (Kafka before 0.11)."""


class BatchTooLargeError(ShoalError):
    """A batch would inflate past the limit; nothing was allocated for it."""

    def __init__(self, limit_bytes: int, *, base_offset: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.base_offset = base_offset
        where = "a batch" if base_offset is None else f"the batch at offset {base_offset}"
        super().__init__(f"{where} inflates to more than {limit_bytes} bytes")


class InvalidFrameError(ShoalError):
    """The peer does not speak Kafka; ``hint`` names what it seems to speak."""

    def __init__(self, reason: str, *, hint: str = "") -> None:
        self.reason = reason
        self.hint = hint
        super().__init__(f"{reason}; {hint}" if hint else reason)


class InvalidMessageError(InvalidFrameError):
    """A request or response cannot be decoded."""


class StorageError(ShoalError):
    """A log cannot be written."""


class DataDirectoryInUseError(StorageError):
    """Another process holds the data directory."""


class ConfigError(ShoalError, ValueError):
    """A setting is unknown or has a wrong value."""


_CLASSES: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgressError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceIdError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
}


def error_for(code: int, detail: str = "") -> BrokerError:
    """The exception for a code off the wire."""
    known = ErrorCode.of(code)
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and code != known:
        unknown = f"the broker sent code {code}, which this version does not know"
        detail = f"{detail}; {unknown}" if detail else unknown
    kind = _CLASSES.get(known) or (RetriableError if known.retriable else BrokerError)
    return kind(known, detail)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """``; did you mean 'x'?`` to end an error about an unknown word, or ``otherwise``."""
    from difflib import get_close_matches  # a start without mistakes need not pay for it

    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else otherwise


def counted(count: int, noun: str) -> str:
    """``1 member``, ``1,200 members``: a number and what it counts, for people."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def missing_extra(what: str, extra: str) -> ConfigError:
    """The error for a package that is not there and comes with one of Shoal's extras."""
    return ConfigError(f"{what} is not installed; run: {install_command(extra)}")


def install_command(extra: str) -> str:
    """How to add an extra to the Shoal that is installed: to this clone, or to this wheel.

    Never by name from a package index: nobody can promise what is called ``shoal`` there.
    """
    import json  # a program that lacks nothing need not pay for these
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        read = distribution("shoal").read_text
        origin = json.loads(read("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    place = urlsplit(origin.get("url", ""))
    if place.scheme == "file":
        flag = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {flag}'{unquote(place.path)}[{extra}]'"
    return (
        f"pip install -e '.[{extra}]' (in a clone of Shoal), or "
        f"pip install 'shoal-VERSION-TAGS.whl[{extra}]' (with the name of your wheel)"
    )
