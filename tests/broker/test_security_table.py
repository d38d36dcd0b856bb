"""Every API at every stage of a login, on the long and on the quick way: answered, or cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shoal.broker.config import BrokerConfig, BrokerLimits, Listener
from shoal.broker.handlers import SERVED
from shoal.errors import ErrorCode
from shoal.machine.internal_topic import partition_for
from shoal.testing.broker import Broker
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from shoal.wire.frames import encode_request
from tests.broker.asking import commit, topic_id
from tests.broker.messages import minimal
from tests.broker.raw_client import RawClient, batch

WAY_IN = (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
SECRET = "canary-pa55word"
AT_ONCE = BrokerLimits(failed_authentication_delay_seconds=0.0)
GUARDED = Listener(port=0, sasl=("PLAIN", "SCRAM-SHA-256"))
TOKEN = b"\0ada\0" + SECRET.encode()


def ask_for(mechanism: str, version: int = 1) -> Callable[[RawClient], None]:
    def ask(client: RawClient) -> None:
        client.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    return ask


def begin_scram(client: RawClient) -> None:
    ask_for("SCRAM-SHA-256")(client)
    first = SaslAuthenticateRequest(auth_bytes=b"n,,n=ada,r=clientnonce")
    assert client.ask(first, 2).error_code == 0


def guess(client: RawClient, user: str) -> None:
    """Wrongly, and without waiting for the answer. Who guesses again has to wait for a turn."""
    ask_for("PLAIN")(client)
    client.send(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0wrong".encode()), 2)


def log_in(client: RawClient) -> None:
    ask_for("PLAIN")(client)
    assert client.ask(SaslAuthenticateRequest(auth_bytes=TOKEN), 2).error_code == 0


# How far a client came, and what it is told to another handshake and to a token of no bytes.
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
STAGES = {
    "nothing said": (lambda _: None, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ILLEGAL),
    "unknown mechanism": (ask_for("GSSAPI"), ErrorCode.UNSUPPORTED_SASL_MECHANISM, ILLEGAL),
    "handshake": (ask_for("PLAIN"), ILLEGAL, FAILED),
    "half of SCRAM": (begin_scram, ILLEGAL, FAILED),
}
OLDEST_AND_NEWEST = sorted(
    {
        (key, version)
        for key, how in SERVED.items()
        for version in (min(how.versions(key)), max(how.versions(key)))
    }
)


@pytest.fixture(scope="module", params=["os", "group"])
def guarded(request: pytest.FixtureRequest) -> Iterator[Broker]:
    config = BrokerConfig(limits=AT_ONCE)
    with Broker(
        config=config,
        listeners=(GUARDED, Listener(port=0)),
        users={"ada": SECRET},
        topics=["t"],
        durability=request.param,
        metrics=True,  # or not every API is served
    ) as broker:
        yield broker


def frame_of(key: int, version: int) -> bytes:
    message = minimal(API[key].request, version)
    return b"".join(encode_request(key, version, 7, "stranger", message))


def served(broker: Broker) -> set[str]:
    return set(broker.counters()["requests"])


@pytest.mark.parametrize("stage", STAGES)
def test_whoever_is_not_in_gets_nothing_but_a_way_in(guarded, stage):
    enter, _, _ = STAGES[stage]
    before = served(guarded), guarded.on_loop(lambda live: sorted(t.name for t in live.catalogue))
    for key, version in OLDEST_AND_NEWEST:
        if key in WAY_IN:
            continue
        with RawClient(guarded.port) as client:
            enter(client)
            client.sock.sendall(frame_of(key, version) * 2)
            assert client.is_cut(), API[key].name
    after = served(guarded), guarded.on_loop(lambda live: sorted(t.name for t in live.catalogue))
    assert after[1] == before[1] == ["t"]
    assert after[0] - before[0] <= {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}


@pytest.mark.parametrize("stage", STAGES)
def test_the_way_in_answers_at_every_stage(guarded, stage):
    enter, to_handshake, to_token = STAGES[stage]
    expected = dict(zip(WAY_IN, (to_handshake, ErrorCode.NONE, to_token), strict=True))
    for key, version in OLDEST_AND_NEWEST:
        if key in expected:
            with RawClient(guarded.port) as client:
                enter(client)
                client.sock.sendall(frame_of(key, version))
                assert client.receive(key, version).error_code == expected[ApiKey(key)], (
                    key,
                    version,
                )


def test_what_comes_behind_a_wrong_password_or_instead_of_a_bare_token_is_not_looked_at(guarded):
    for key, version in OLDEST_AND_NEWEST:
        with RawClient(guarded.port) as client:
            guess(client, f"user-{key}-{version}")
            client.sock.sendall(frame_of(key, version) * 2)
            assert client.receive(ApiKey.SASL_AUTHENTICATE, 2).error_code == FAILED
            assert client.is_cut(), API[key].name
        with RawClient(guarded.port) as client:
            ask_for("PLAIN", 0)(client)
            client.sock.sendall(frame_of(key, version) * 2)
            assert client.is_cut(), API[key].name


def test_whoever_is_in_is_answered_by_every_api_and_cannot_log_in_again(guarded):
    for key, version in OLDEST_AND_NEWEST:
        with RawClient(guarded.port) as client:
            log_in(client)
            client.sock.sendall(frame_of(key, version))
            answer = client.receive(key, version)
            if key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                assert answer.error_code == ILLEGAL


# --- the quick way ----------------------------------------------------------------------------


def produced(name: str, identity: bytes, version: int, index: int = 0) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=index, records=batch(b"v"))
    topic = ProduceRequest.TopicProduceData(
        name="" if version >= 13 else name,
        topic_id=identity if version >= 13 else bytes(16),
        partition_data=[data],
    )
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def code_of(answer: object) -> int:
    (topic,) = answer.responses  # type: ignore[attr-defined]  # of ProduceResponse
    code: int = topic.partition_responses[0].error_code
    return code


def end_of(broker: Broker, name: str, index: int) -> int:
    def find(live) -> int:
        found = live.partitions.opened(name, index)
        return 0 if found is None else found.log.end_offset

    return broker.on_loop(find)


@pytest.mark.parametrize("stage", STAGES)
def test_the_quick_way_is_closed_to_strangers(guarded, stage):
    with RawClient(guarded.port) as client:
        log_in(client)
        request = produced("t", b"", 9)
        for _ in range(3):
            assert code_of(client.ask(request, 9)) == 0
        end = end_of(guarded, "t", 0)
        with RawClient(guarded.port) as stranger:
            STAGES[stage][0](stranger)
            stranger.sock.sendall(b"".join(encode_request(0, 9, 1, "raw", request)) * 3)
            assert stranger.is_cut()
        assert end_of(guarded, "t", 0) == end
        # Nor does the one who knows it lose or win anything by trying the door again.
        again = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ILLEGAL
        assert code_of(client.ask(request, 9)) == 0


@pytest.mark.parametrize("port", [0, 1], ids=["logged in", "anonymous"])
@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_no_produce_of_a_connection_may_write_to_internal_topics(guarded, version, port):
    name, group = "__consumer_offsets", "g"
    with RawClient(guarded.on_loop(lambda live: live.listeners[port].port)) as client:
        if port == 0:
            log_in(client)
        assert commit(client, group, "t", 0, 5) == 0
        count = guarded.on_loop(lambda live: live.config.groups.offsets_partitions)
        index = partition_for(group, count)
        end = end_of(guarded, name, index)
        assert end > 0
        request = produced(name, topic_id(client, name), version, index)
        for _ in range(4):
            assert code_of(client.ask(request, version)) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert end_of(guarded, name, index) == end
