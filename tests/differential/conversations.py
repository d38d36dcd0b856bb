"""Conversations of several steps: rebalances, fetch sessions, pipelines, bad bytes, passwords."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Iterator
from typing import Any

from shoal.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.differential.catalogue import (
    ASSIGNMENT,
    LIVELY,
    RESTED,
    SEEN,
    SUBSCRIPTION,
    join_request,
    records,
)
from tests.differential.place import PASSWORD, USER, Place
from tests.differential.steps import Ask, Case, Raw, Receive, Send, Talk, Together


def conversation_cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    yield from _group_cases(versions)
    yield from _session_cases(versions)
    yield from _pipeline_cases(versions)
    yield from _hostile_cases(versions)
    yield from _sasl_cases(versions)


# ---------------------------------------------------------------------- groups


def _group_cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    low, high = versions[ApiKey.JOIN_GROUP]
    for version in range(low, high + 1):
        yield Case(f"a group lives v{version}", "JoinGroup", version, _life(version))
        yield Case(f"two members v{version}", "JoinGroup", version, _two_members(version))
        if version >= 5:
            yield Case(f"a static member v{version}", "JoinGroup", version, _static(version))


def _beside(version: int, key: ApiKey) -> int:
    """The version of another group API that goes with a JoinGroup of this one."""
    return min(version, API[key].max_version)


def _joining(place: Place, group: str, version: int, on: str = "main") -> Any:
    """Join in one or two steps (KIP-394); returns the answer."""
    request = join_request(group)
    answer = yield Ask(request, version, on)
    if answer is not None and answer.error_code == 79:
        answer = yield Ask(join_request(group, answer.member_id), version, on)
    return answer


def _syncing(group: str, joined: Any, version: int, assignments: dict[str, bytes]) -> Ask:
    at = _beside(version, ApiKey.SYNC_GROUP)
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            SyncGroupRequest.Assignment(member_id=member_id, assignment=data)
            for member_id, data in assignments.items()
        ],
    )
    if at >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return Ask(request, at)


def _life(version: int) -> Any:
    def talk(place: Place) -> Talk:
        group = place.fresh("life")
        joined = yield from _joining(place, group, version)
        if joined is None or joined.error_code:
            return
        at = _beside(version, ApiKey.HEARTBEAT)
        beat = HeartbeatRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        yield Ask(beat, at)
        yield Ask(DescribeGroupsRequest(groups=[group]), 5)
        # Without the leader's assignment nobody has one.
        yield _syncing(group, joined, version, {joined.member_id: ASSIGNMENT})
        yield Ask(beat, at)
        yield Ask(DescribeGroupsRequest(groups=[group]), _beside(version, ApiKey.DESCRIBE_GROUPS))
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            topics=[
                OffsetCommitRequest.Topic(
                    name=SEEN,
                    partitions=[
                        OffsetCommitRequest.Partition(
                            partition_index=n, committed_offset=n, committed_metadata=None
                        )
                        for n in (2, 0, 9)
                    ],
                )
            ],
        )
        yield Ask(commit, max(2, min(version, 9)))
        yield Ask(OffsetFetchRequest(group_id=group, topics=None), 7)
        yield Ask(join_request(group, joined.member_id), version)
        yield Ask(DescribeGroupsRequest(groups=[group]), 5)
        leaving = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
        if _beside(version, ApiKey.LEAVE_GROUP) >= 3:
            member = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
            leaving = LeaveGroupRequest(group_id=group, members=[member])
        yield Ask(leaving, _beside(version, ApiKey.LEAVE_GROUP))
        yield Ask(leaving, _beside(version, ApiKey.LEAVE_GROUP))
        yield Ask(beat, at)
        yield Ask(DescribeGroupsRequest(groups=[group]), 6)

    return talk


def _two_members(version: int) -> Any:
    def talk(place: Place) -> Talk:
        group = place.fresh("pair")
        first = yield from _joining(place, group, version)
        if first is None or first.error_code:
            return
        yield _syncing(group, first, version, {first.member_id: ASSIGNMENT})
        second_id = ""
        if version >= 4:
            answer = yield Ask(join_request(group), version, "second")
            second_id = answer.member_id
        yield Send(join_request(group, second_id), version, "second")
        yield Receive(ApiKey.JOIN_GROUP, version, "second", 0.3)
        beat = HeartbeatRequest(
            group_id=group, generation_id=first.generation_id, member_id=first.member_id
        )
        yield Ask(beat, 3)
        yield Ask(DescribeGroupsRequest(groups=[group]), 5)
        other = join_request(group)
        other.protocols = [JoinGroupRequest.Protocol(name="sticky", metadata=SUBSCRIPTION)]
        yield Ask(other, 3, "third")
        other.protocol_type = "connect"
        yield Ask(other, 3, "third")
        again = yield Ask(join_request(group, first.member_id), version)
        if again is None or again.error_code:
            return
        shares = {member.member_id: ASSIGNMENT for member in again.members}
        yield _syncing(group, again, version, shares)

    return talk


def _static(version: int) -> Any:
    def talk(place: Place) -> Talk:
        group = place.fresh("static")
        request = join_request(group)
        request.group_instance_id = "one"
        joined = yield Ask(request, version)
        if joined is None or joined.error_code:
            return
        yield _syncing(group, joined, version, {joined.member_id: ASSIGNMENT})
        back = yield Ask(request, version, "back")
        beat = HeartbeatRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="one",
        )
        yield Ask(beat, 4)
        beat.group_instance_id = "two"
        yield Ask(beat, 4)
        yield Ask(DescribeGroupsRequest(groups=[group]), 5)
        members = [
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in (
                ("", "one"),
                ("", "two"),
                ("nobody", None),
                (back.member_id if back else "", "one"),
            )
        ]
        yield Ask(LeaveGroupRequest(group_id=group, members=members[1:]), 4)
        yield Ask(LeaveGroupRequest(group_id=group, members=members[:1]), 5)
        yield Ask(DescribeGroupsRequest(groups=[group]), 5)

    return talk


# ---------------------------------------------------------------------- fetch sessions


def _session_cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    low, high = versions[ApiKey.FETCH]
    for version in range(max(7, low), high + 1):
        yield Case(f"a fetch session v{version}", "Fetch", version, _session(version))


def _session(version: int) -> Any:
    def fetch(place: Place, topic: str, numbers: tuple[int, ...], **fields: Any) -> FetchRequest:
        parts = [
            FetchRequest.Partition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
            for n in numbers
        ]
        named = FetchRequest.Topic(topic=topic, partitions=parts)
        if version >= 13:
            named.topic_id = place.topic_id(topic)
        return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[named] if numbers else [], **fields)

    def talk(place: Place) -> Talk:
        topic = place.new_topic()
        opened = yield Ask(fetch(place, topic, (0, 1, 5), session_epoch=0), version)
        if opened is None:
            return
        number = opened.session_id
        yield Ask(fetch(place, topic, (), session_id=number, session_epoch=1), version)
        data = ProduceRequest.PartitionProduceData(index=1, records=records(b"a"))
        named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        yield Ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[named]), 9)
        yield Ask(fetch(place, topic, (), session_id=number, session_epoch=2), version)
        # An epoch that was used, one that is far ahead, a session nobody has.
        yield Ask(fetch(place, topic, (), session_id=number, session_epoch=2), version)
        yield Ask(fetch(place, topic, (), session_id=number, session_epoch=9), version)
        yield Ask(fetch(place, topic, (), session_id=12345, session_epoch=1), version)
        gone = fetch(place, topic, (), session_id=number, session_epoch=3)
        forgotten = FetchRequest.ForgottenTopic(topic=topic, partitions=[1])
        if version >= 13:
            forgotten.topic_id = place.topic_id(topic)
        gone.forgotten_topics_data = [forgotten]
        yield Ask(gone, version)
        yield Ask(fetch(place, topic, (0,), session_id=number, session_epoch=-1), version)
        yield Ask(fetch(place, topic, (), session_id=number, session_epoch=4), version)

    return talk


# ---------------------------------------------------------------------- pipelines


def _pipeline_cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    for number in range(20):
        yield Case(f"a pipeline, {number}", "pipelined", None, _pipeline(number))


def _pipeline(number: int) -> Any:
    def talk(place: Place) -> Talk:
        topic, group = place.new_topic(), place.fresh("piped")
        data = ProduceRequest.PartitionProduceData(index=0, records=records(b"a", b"b"))
        named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        store = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[named])
        silent = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[named])
        part = FetchRequest.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        read = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchRequest.Topic(topic=topic, partitions=[part])],
        )
        end = ListOffsetsRequest.Partition(partition_index=0, timestamp=-1)
        where = ListOffsetsRequest(topics=[ListOffsetsRequest.Topic(name=topic, partitions=[end])])
        commit = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=[
                OffsetCommitRequest.Topic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.Partition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        pool: list[tuple[Any, int]] = [
            (store, 9),
            (where, 7),
            (read, 12),
            (commit, 8),
            (OffsetFetchRequest(group_id=group, topics=None), 7),
            (ApiVersionsRequest(), 0),
            (MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 9),
            (silent, 7),
            (FindCoordinatorRequest(key=RESTED), 3),
            (DescribeGroupsRequest(groups=[LIVELY]), 5),
            (ListGroupsRequest(), 0),
        ]
        order = [pool[(number * 7 + n * (1 + number % 5)) % len(pool)] for n in range(8)]
        yield Together(tuple((r, v) for r, v in order if not isinstance(r, ListGroupsRequest)))

    return talk


# ---------------------------------------------------------------------- bytes no client sends


def _frame(key: int, version: int, body: bytes, *, client_id: bytes | None = b"raw") -> bytes:
    spec = API.get(key)
    tags = b"\0" if spec is not None and spec.is_flexible(version) else b""
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    data = struct.pack(">hhi", key, version, 0) + name + tags + body
    return struct.pack(">i", len(data)) + data


def _hostile_cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    metadata = MetadataRequest(topics=[MetadataRequest.Topic(name=SEEN)])
    metadata.allow_auto_topic_creation = False
    whole = metadata.encode(12)
    old = MetadataRequest(topics=[MetadataRequest.Topic(name=SEEN)]).encode(1)
    frames = {
        "an API nobody knows": _frame(999, 0, b""),
        "a negative API": _frame(-1, 0, b""),
        "a version too new": _frame(ApiKey.METADATA, 99, whole),
        "a negative version": _frame(ApiKey.METADATA, -1, old),
        "ApiVersions too new": _frame(ApiKey.API_VERSIONS, 99, b"\0\2x\0021\0"),
        "ApiVersions with a negative version": _frame(ApiKey.API_VERSIONS, -1, b""),
        "no client id": _frame(ApiKey.METADATA, 1, old, client_id=None),
        "an empty client id": _frame(ApiKey.METADATA, 1, old, client_id=b""),
        "a long client id": _frame(ApiKey.METADATA, 1, old, client_id=b"x" * 5000),
        "a client id that is no UTF-8": _frame(ApiKey.METADATA, 1, old, client_id=b"\xff\xfe"),
        "nothing behind the header": _frame(ApiKey.METADATA, 12, b""),
        "half a body": _frame(ApiKey.METADATA, 12, whole[: len(whole) // 2]),
        "a byte too few": _frame(ApiKey.METADATA, 1, old[:-1]),
        "a byte too many": _frame(ApiKey.METADATA, 1, old + b"\0"),
        "three bytes too many": _frame(ApiKey.METADATA, 12, whole + b"abc"),
        "a tag nobody knows": _frame(ApiKey.METADATA, 12, whole[:-1] + b"\1\x63\2ab"),
        "a tag cut short": _frame(ApiKey.METADATA, 12, whole[:-1] + b"\1\x63\x40ab"),
        "an array of a billion": _frame(ApiKey.METADATA, 1, b"\x3b\x9a\xca\x00"),
        "an array of minus two": _frame(ApiKey.METADATA, 1, b"\xff\xff\xff\xfe"),
        "a compact array too long": _frame(ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x0f"),
        "a string longer than its frame": _frame(ApiKey.METADATA, 1, b"\0\0\0\1\x7f\xffab"),
        "a name that is no UTF-8": _frame(ApiKey.METADATA, 1, b"\0\0\0\1\0\2\xff\xfe"),
        "no bytes": b"\0\0\0\0",
        "a frame of one byte": b"\0\0\0\1\0",
        "a frame without a client id": struct.pack(">ihhi", 8, 18, 0, 0),
        "a negative size": b"\xff\xff\xff\xff",
        "a size above the limit": b"\x7f\xff\xff\xff",
        "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    }
    for name, data in frames.items():
        key, version = (18, 0) if name.startswith(("ApiVersions", "a frame")) else (3, 1)
        if data[4:8] == struct.pack(">hh", 3, 12):
            version = 12
        yield Case(f"bad bytes: {name}", "bytes", None, _raw(data, key, version))
    for key, (low, high) in sorted(versions.items()):
        yield Case(f"bad bytes: {API[key].name} v{high + 1}", "bytes", None, _too_new(key, high))
        if low > API[key].min_version or low > 0:
            yield Case(
                f"bad bytes: {API[key].name} v{low - 1}", "bytes", None, _too_new(key, low - 2)
            )


def _raw(data: bytes, key: int, version: int) -> Any:
    def talk(place: Place) -> Talk:
        yield Raw(data, key, version)

    return talk


def _too_new(key: int, high: int) -> Any:
    def talk(place: Place) -> Talk:
        yield Raw(_frame(key, high + 1, b"\0" * 40), 18 if key == 18 else 3, 0)

    return talk


# ---------------------------------------------------------------------- passwords


def _sasl_cases(versions: dict[int, tuple[int, int]]) -> Iterator[Case]:
    talks = {
        "a request before authentication": _early,
        "ApiVersions before authentication": _versions_first,
        "a mechanism nobody has": _no_mechanism,
        "authentication without a handshake": _no_handshake,
        "a handshake on a plain listener": _plain_handshake,
        "two handshakes": _two_handshakes,
        "a handshake and a request": _handshake_only,
        "authentication again": _again,
        "a stranger makes a user": _stranger,
    }
    for name, talk in talks.items():
        yield Case(f"SASL: {name}", "SaslHandshake", None, talk)
    low, high = versions[ApiKey.SASL_AUTHENTICATE]
    tokens = {
        "a good password": b"\0ada\0correct horse",
        "a wrong password": b"\0ada\0wrong",
        "an unknown user": b"\0eve\0correct horse",
        "another identity": b"bob\0ada\0correct horse",
        "the same identity": b"ada\0ada\0correct horse",
        "no separators": b"ada",
        "too many separators": b"\0ada\0correct\0horse",
        "no user": b"\0\0correct horse",
        "no password": b"\0ada\0",
        "nothing": b"",
        "no UTF-8": b"\0\xff\xfe\0x",
    }
    for version in range(low, high + 1):
        for name, token in tokens.items():
            yield Case(
                f"SASL PLAIN v{version}: {name}",
                "SaslAuthenticate",
                version,
                _plain(version, token),
            )
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for password in (PASSWORD, "wrong"):
                yield Case(
                    f"SASL {mechanism} v{version}: {password}",
                    "SaslAuthenticate",
                    version,
                    _scram(version, mechanism, password),
                )
            for first in (b"", b"n,,n=eve,r=x", b"y,,n=ada,r=x", b"p=x,,n=ada,r=x", b"n,,r=x"):
                yield Case(
                    f"SASL {mechanism} v{version}: first message {first.decode()!r}",
                    "SaslAuthenticate",
                    version,
                    _first(version, mechanism, first),
                )


_SCRAM = "sasl"


def _hello(mechanism: str, version: int = 1) -> Ask:
    return Ask(SaslHandshakeRequest(mechanism=mechanism), version, _SCRAM)


def _early(place: Place) -> Talk:
    yield Ask(MetadataRequest(topics=[]), 1, _SCRAM)


def _versions_first(place: Place) -> Talk:
    yield Ask(ApiVersionsRequest(), 2, _SCRAM)
    yield Ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, _SCRAM)
    yield _hello("PLAIN")
    yield Ask(ApiVersionsRequest(), 0, _SCRAM)


def _no_mechanism(place: Place) -> Talk:
    yield _hello("GSSAPI")
    yield _hello("PLAIN")


def _no_handshake(place: Place) -> Talk:
    yield Ask(SaslAuthenticateRequest(auth_bytes=b"\0ada\0correct horse"), 1, _SCRAM)


def _plain_handshake(place: Place) -> Talk:
    yield Ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    yield Ask(SaslAuthenticateRequest(auth_bytes=b"\0ada\0correct horse"), 1)


def _two_handshakes(place: Place) -> Talk:
    yield _hello("PLAIN")
    yield _hello("PLAIN")


def _handshake_only(place: Place) -> Talk:
    yield _hello("PLAIN")
    yield Ask(MetadataRequest(topics=[]), 1, _SCRAM)


def _again(place: Place) -> Talk:
    for _ in range(2):
        yield _hello("PLAIN")
        yield Ask(SaslAuthenticateRequest(auth_bytes=b"\0ada\0correct horse"), 1, _SCRAM)
    yield Ask(MetadataRequest(topics=[]), 1, _SCRAM)
    # Without re-authentication in force a second exchange is an error; the line may be gone.
    yield Ask(SaslAuthenticateRequest(auth_bytes=b"\0ada\0correct horse"), 1, _SCRAM)


def _stranger(place: Place) -> Talk:
    mine = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=place.fresh("user"),
        mechanism=1,
        iterations=8192,
        salt=b"0123456789",
        salted_password=b"x" * 32,
    )
    yield Ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[mine]), 0)
    asked = DescribeUserScramCredentialsRequest.UserName(name=mine.name)
    yield Ask(DescribeUserScramCredentialsRequest(users=[asked]), 0, settles=True)


def _plain(version: int, token: bytes) -> Any:
    def talk(place: Place) -> Talk:
        yield _hello("PLAIN")
        yield Ask(SaslAuthenticateRequest(auth_bytes=token), version, _SCRAM)
        yield Ask(MetadataRequest(topics=[]), 1, _SCRAM)

    return talk


def _first(version: int, mechanism: str, message: bytes) -> Any:
    def talk(place: Place) -> Talk:
        yield _hello(mechanism)
        yield Ask(SaslAuthenticateRequest(auth_bytes=message), version, _SCRAM)

    return talk


def _scram(version: int, mechanism: str, password: str) -> Any:
    digest = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"

    def talk(place: Place) -> Talk:
        yield _hello(mechanism)
        bare = f"n={USER},r=differential"
        # The server's part is random, so it is looked at and not compared.
        yield Send(SaslAuthenticateRequest(auth_bytes=b"n,," + bare.encode()), version, _SCRAM)
        answer = place.read(ApiKey.SASL_AUTHENTICATE, version, _SCRAM)
        server = bytes(answer.auth_bytes).decode()
        parts = dict(item.split("=", 1) for item in server.split(","))
        salted = hashlib.pbkdf2_hmac(
            digest, password.encode(), base64.b64decode(parts["s"]), int(parts["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored = hashlib.new(digest, client_key).digest()
        final = f"c=biws,r={parts['r']}"
        signed = hmac.digest(stored, f"{bare},{server},{final}".encode(), digest)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signed, strict=True)))
        token = f"{final},p={proof.decode()}".encode()
        yield Ask(SaslAuthenticateRequest(auth_bytes=token), version, _SCRAM)
        yield Ask(MetadataRequest(topics=[]), 1, _SCRAM)

    return talk
