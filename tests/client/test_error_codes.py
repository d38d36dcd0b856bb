"""Every error code of the protocol, at its place in an answer, means what it means in Kafka."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shoal import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from shoal.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RequestTimeoutError,
)
from shoal.wire.apis.registry import ApiKey
from tests.client.conftest import poll_until, take
from tests.client.expected_reactions import ANOTHER_COORDINATOR, ANOTHER_LEADER, RETRIABLE, passes
from tests.client.scripted import RECORDS, VERSIONS, ScriptedBroker
from tests.patience import PATIENCE_S, reason_in_time

T0 = TopicPartition("t", 0)
CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]
FAST: dict[str, Any] = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


@pytest.fixture
def broker():
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def one(broker):
    settings = {"bootstrap_servers": broker.servers, "auto_offset_reset": "earliest", **FAST}
    with Consumer(group_id="g", enable_auto_commit=False, **settings) as consumer:
        yield consumer


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_fetch(broker, one, code):
    one.partitions_for("t")
    known = broker.asked["Metadata"]
    broker.fail("Fetch", code)
    one.assign([T0])
    if not passes("Fetch", code):
        # On a busy machine what the next fetch brought may be returned before the error.
        with pytest.raises(BrokerError) as caught:
            take(one, RECORDS + 1)
        assert caught.value.code is code
        one.seek(T0, 0)
    assert [record.offset for record in take(one, RECORDS)] == [*range(RECORDS)]
    if code.name in ANOTHER_LEADER:
        # Asked for at once, but beside the next fetch, which may be answered first.
        poll_until(one, lambda: broker.asked["Metadata"] > known)
    else:
        assert broker.asked["Metadata"] == known


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_list_offsets(broker, one, code):
    one.partitions_for("t")
    known = broker.asked["Metadata"]
    broker.fail("ListOffsets", code)
    outcome(lambda: one.end_offsets([T0]), "ListOffsets", code)
    assert one.end_offsets([T0]) == {T0: RECORDS}
    assert (broker.asked["Metadata"] > known) == (code.name in ANOTHER_LEADER)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_offset_fetch(broker, one, code):
    broker.fail("OffsetFetch", code)
    outcome(lambda: one.committed(T0), "OffsetFetch", code)
    assert one.committed(T0) == {T0: None}
    assert (broker.asked["FindCoordinator"] > 1) == (code.name in ANOTHER_COORDINATOR)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_find_coordinator(broker, one, code):
    broker.fail("FindCoordinator", code)
    outcome(lambda: one.committed(T0), "FindCoordinator", code)
    assert one.committed(T0) == {T0: None}


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_offset_commit(broker, one, code):
    broker.fail("OffsetCommit", code)
    commit = {T0: OffsetAndMetadata(1)}
    outcome(lambda: one.commit_sync(commit), "OffsetCommit", code)
    one.commit_sync(commit)
    assert (broker.asked["FindCoordinator"] > 1) == (code.name in ANOTHER_COORDINATOR)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_metadata(broker, one, code):
    broker.fail("Metadata", code)
    outcome(lambda: one.partitions_for("t"), "Metadata", code)
    assert len(one.partitions_for("t")) == 1


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_produce(broker, code):
    with Producer(bootstrap_servers=broker.servers, linger_ms=0, **FAST) as producer:
        broker.fail("Produce", code)
        error = producer.send("t", b"x").exception(10)
        if passes("Produce", code):
            assert error is None
        else:
            assert isinstance(error, BrokerError)
            assert error.code is code
        assert producer.send("t", b"y").exception(10) is None


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_init_producer_id(broker, code):
    with Producer(bootstrap_servers=broker.servers, linger_ms=0, **FAST) as producer:
        broker.fail("InitProducerId", code)
        error = producer.send("t", b"x").exception(10)
        if passes("InitProducerId", code):
            assert error is None
        else:
            assert isinstance(error, BrokerError)
            assert error.code is code
        assert producer.send("t", b"y").exception(10) is None


def outcome(call, api, code):
    if passes(api, code):
        call()
        return
    with pytest.raises(BrokerError) as caught:
        call()
    assert caught.value.code is code


def test_what_is_tried_again_is_what_apache_kafka_calls_retriable():
    assert {code.name for code in ErrorCode if code.retriable} == RETRIABLE


def test_a_code_from_the_future_is_an_error_that_names_its_number(broker, one):
    broker.fail("OffsetFetch", 9999)
    with pytest.raises(BrokerError, match="9999"):
        one.committed(T0)


# --- bad manners ---


SPOILS = {
    "cut": lambda frame: frame[:-3],
    "too long": lambda frame: frame + b"xx",
    "wrong correlation id": lambda frame: b"\xff\xff\xff\xff" + frame[4:],
    "almost nothing": lambda frame: frame[:5],
    "http": lambda frame: b"HTTP/1.1 400 Bad Request",
}


@pytest.mark.parametrize(
    "spoil", [*SPOILS.values(), lambda frame: None], ids=[*SPOILS, "no answer"]
)
@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "Metadata", "OffsetFetch"])
def test_an_answer_that_is_no_answer_costs_the_connection_and_no_record(broker, one, api, spoil):
    broker.spoil(api, spoil)
    one.assign([T0])
    assert [record.offset for record in take(one, RECORDS)] == [*range(RECORDS)]


@pytest.mark.parametrize("how", sorted(SPOILS.keys() - {"too long"}))
def test_one_who_does_not_speak_kafka_at_all_is_told_to_the_user(broker, one, how):
    broker.spoil("ApiVersions", SPOILS[how])
    with pytest.raises(InvalidFrameError, match=broker.servers):
        one.partitions_for("t", timeout=5)
    assert one.partitions_for("t", timeout=5)


def test_surplus_bytes_behind_an_answer_are_ignored(broker, one):
    broker.spoil("ApiVersions", SPOILS["too long"])
    assert one.partitions_for("t", timeout=5)
    assert broker.connections == 1


def test_an_answer_of_impossible_size_is_refused(broker):
    for _ in range(1000):
        broker.spoil("Metadata", lambda frame: bytes(2_000_000))
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.servers,
        "receive_message_max_bytes": 1_000_000,
    }
    told: list[Any] = []
    with Admin(**settings, **FAST) as admin:
        # On a busy machine the time may end in the middle of an attempt, which says only that.
        while not any("1000000" in text for text in told):
            assert len(told) < 20, told
            with pytest.raises(RequestTimeoutError) as caught:
                admin.list_topics(timeout=0.1 * (1 + len(told)))
            told.append(str(caught.value))


def test_a_broker_too_old_for_a_request_is_named(broker, one):
    with Admin(bootstrap_servers=broker.servers) as admin:
        with pytest.raises(BrokerError, match="DescribeConfigs") as caught:
            admin.describe_configs(topic="t", timeout=PATIENCE_S)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("version", "wanted"), [(3, {"states": ["Empty"]}), (4, {"kinds": ["consumer"]})]
)
def test_what_a_broker_is_too_old_to_choose_by_is_named(broker, monkeypatch, version, wanted):
    monkeypatch.setitem(VERSIONS, ApiKey.LIST_GROUPS, version)
    (what,) = wanted
    with (
        Admin(bootstrap_servers=broker.servers) as admin,
        pytest.raises(BrokerError, match=f"UNSUPPORTED_VERSION.*by their {what}"),
    ):
        admin.list_groups(**wanted, timeout=5)


def test_a_broker_that_refuses_our_api_versions_is_asked_in_its_own(broker):
    broker.fail("ApiVersions", ErrorCode.UNSUPPORTED_VERSION)
    broker.spoil("ApiVersions", as_version_zero)
    with Admin(bootstrap_servers=broker.servers) as admin:
        assert admin.list_topics(timeout=5) == ["t"]


def as_version_zero(frame):
    """KIP-511: the code, then one entry, without tags or compact lengths."""
    return frame[:4] + b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\3"


def test_a_silent_broker_times_out_and_is_left(broker):
    with Admin(
        bootstrap_servers=broker.servers, request_timeout_ms=50, retry_backoff_ms=1
    ) as admin:
        admin.describe_cluster()
        asked, connections = broker.asked["Metadata"], broker.connections
        end = threading.Event()
        broker.spoil("Metadata", lambda frame: end.wait() and None)
        try:
            admin.describe_cluster(timeout=20)
        finally:
            end.set()
        # The first one says nothing until the call is over: only another one can have answered.
        assert broker.asked["Metadata"] > asked + 1
        assert broker.connections > connections


@pytest.mark.slow
def test_nobody_at_home_is_said_with_the_address():
    with Admin(bootstrap_servers="127.0.0.1:9", **FAST) as admin:
        with pytest.raises(
            RequestTimeoutError, match=r"cannot connect to 127\.0\.0\.1:9"
        ) as caught:
            admin.list_topics(timeout=3)
        # At the end of the time an attempt may be under way, which gives up as well.
        causes = [caught.value.__cause__]
        while causes[-1] is not None:
            causes.append(causes[-1].__cause__)
        assert any(isinstance(one, ConnectionFailedError) for one in causes)


def test_a_group_call_says_too_that_nobody_is_at_home():
    refused = r"cannot connect to 127\.0\.0\.1:9: Connection refused"
    with Admin(bootstrap_servers="127.0.0.1:9", **FAST) as admin:
        reason_in_time(lambda s: admin.describe_group("g", timeout=s), RequestTimeoutError, refused)


def test_an_address_with_several_meanings_is_refused_in_few_words():
    refused = "cannot connect to localhost:9: Connection refused$"
    with Admin(bootstrap_servers="localhost:9", **FAST) as admin:
        reason_in_time(lambda s: admin.list_topics(timeout=s), RequestTimeoutError, refused)


def test_metadata_without_any_age_is_not_asked_for_all_the_time(broker):
    with Producer(bootstrap_servers=broker.servers, metadata_max_age_ms=0) as producer:
        for _ in range(5):
            producer.send("t", b"v").result(5)
            threading.Event().wait(0.04)
    assert broker.asked["Metadata"] <= 10


def test_a_broker_that_is_away_is_not_stormed(broker):
    with Admin(
        bootstrap_servers=broker.servers, reconnect_backoff_ms=20, reconnect_backoff_max_ms=40
    ) as admin:
        for _ in range(200):
            broker.spoil("ApiVersions", lambda frame: None)
        with pytest.raises(RequestTimeoutError):
            admin.list_topics(timeout=0.3)
        assert 2 <= broker.connections <= 20


def test_tls_where_the_broker_speaks_none_is_an_authentication_error(broker):
    settings = {"bootstrap_servers": broker.servers, "security_protocol": "SSL"}
    refused = (AuthenticationError, RequestTimeoutError)
    with Admin(**settings) as admin, pytest.raises(refused):
        admin.list_topics(timeout=0.3)
