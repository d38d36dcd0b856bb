"""One member of a classic group, and what follows from the protocols members offer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from shoal.errors import InvalidMessageError
from shoal.group.coordinator.java_hash import java_order
from shoal.group.coordinator.journal import GroupRecord, MemberRecord
from shoal.machine.decision import Ticket
from shoal.wire.consumer_protocol import subscribed_topics

CONSUMER_PROTOCOL_TYPE = "consumer"

NamedProtocol: TypeAlias = tuple[str, bytes]
"""A protocol a member can speak, and the metadata it sends for it."""


@dataclass(slots=True)
class ClassicGroupMember:
    """One member as the living coordinator sees it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[NamedProtocol, ...]
    joining: Ticket | None = None
    syncing: Ticket | None = None
    is_new: bool = False
    """It has never completed a join, so it may not know its id and cannot heartbeat."""

    def metadata(self, protocol: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol)

    @property
    def is_excused(self) -> bool:
        """While a request of a member is parked, its silence means nothing; but a new member may
        have gone away and tried again under another id (KAFKA-9752), so its patience is limited.
        """
        return not self.is_new and (self.joining is not None or self.syncing is not None)


def vote(protocol_lists: Sequence[tuple[NamedProtocol, ...]]) -> str:
    """Each member votes for the first of its protocols that all support; most votes win.

    Ties go to the name that comes first in the order of a Java ``HashMap``, as in Kafka.
    """
    support = Counter(name for each in protocol_lists for name in {name for name, _ in each})
    candidates = {name for name, count in support.items() if count == len(protocol_lists)}
    assert candidates, "a join without a common protocol is refused"
    votes = Counter(next(name for name, _ in each if name in candidates) for each in protocol_lists)
    return max(java_order(votes), key=votes.__getitem__)


def member_record(member: ClassicGroupMember, protocol: str, assignment: bytes) -> MemberRecord:
    return MemberRecord(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def replaced(
    member: ClassicGroupMember, member_id: str, protocols: tuple[NamedProtocol, ...]
) -> ClassicGroupMember:
    """The same static member under a new id, with nothing parked."""
    return replace(
        member, member_id=member_id, protocols=protocols, joining=None, syncing=None, is_new=False
    )


def member_of(each: MemberRecord, protocol: str | None) -> ClassicGroupMember:
    """A member of the journal: all it is known to speak is the protocol of its generation."""
    return ClassicGroupMember(
        member_id=each.member_id,
        instance_id=each.instance_id,
        client_id=each.client_id,
        client_host=each.client_host,
        rebalance_timeout_ms=each.rebalance_timeout_ms,
        session_timeout_ms=each.session_timeout_ms,
        protocols=((protocol or "", each.subscription),),
    )


def topics_of(record: GroupRecord | None) -> frozenset[str] | None:
    if record is None or record.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    try:
        return frozenset(
            topic for each in record.members for topic in subscribed_topics(each.subscription)
        )
    except InvalidMessageError:
        return None
