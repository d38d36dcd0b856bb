"""KIP-714 in a broker: who is asked for what, when a push is taken, and where it is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal import Admin
from shoal.broker import client_telemetry as module
from shoal.broker.client_telemetry import NO_ID, PushedTelemetry
from shoal.broker.telemetry_subscriptions import TelemetryClient
from shoal.errors import BrokerError, ErrorCode
from shoal.records.compression import Codec, compress
from shoal.testing.broker import Broker
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from shoal.wire.apis.list_config_resources import ListConfigResourcesRequest
from shoal.wire.apis.push_telemetry import PushTelemetryRequest
from shoal.wire.apis.registry import ApiKey
from tests.broker.raw_client import RawClient
from tests.metrics.scraping import scrape
from tests.wire.test_otlp import gauge, point, push

CLIENT = TelemetryClient(b"i" * 16, "billing-1", "librdkafka", "2.6.0", "127.0.0.1", 5_000)
LAG = push(gauge("org.apache.kafka.consumer.lag", point(7.0)))
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def telemetry(**subscriptions: dict[str, str]) -> PushedTelemetry:
    return PushedTelemetry(subscriptions)


def offer(
    found: PushedTelemetry,
    client: TelemetryClient,
    subscription_id: int,
    now_ms: int,
    *,
    codec: int = 0,
    size_bytes: int = 10,
    is_last: bool = False,
) -> ErrorCode:
    return found.push(
        client,
        subscription_id=subscription_id,
        codec=codec,
        size_bytes=size_bytes,
        is_last=is_last,
        now_ms=now_ms,
    )


# --- what is wanted ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "is_wanted"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),
        ("client_software_name=librdkafka,client_software_version=2\\.6\\..*", True),
        ("client_software_name=librdkafka,client_software_version=2\\.5\\..*", False),
        ("client_source_address=127\\.0\\.0\\.1,client_source_port=5000", True),
        ("client_instance_id=aWlpaWlpaWlpaWlpaWlpaQ", True),
    ],
)
def test_a_subscription_is_for_the_clients_that_match_it(match: str, is_wanted: bool) -> None:
    found = telemetry(one={"metrics": "a.,b.", "interval.ms": "500", "match": match})
    wanted = found.get(CLIENT, 1_000_000)
    assert wanted.metrics == (("a.", "b.") if is_wanted else ())
    assert wanted.interval_ms == (500 if is_wanted else 300_000)


def test_several_subscriptions_make_one() -> None:
    found = telemetry(
        a={"metrics": "a.", "interval.ms": "5000"}, b={"metrics": "b., a.", "interval.ms": "700"}
    )
    assert found.get(CLIENT, 10**6)[3:] == (700, ("a.", "b."))
    found = telemetry(a={"metrics": "a."}, b={"metrics": "*"})
    assert found.get(CLIENT, 10**6).metrics == ("*",)


def test_a_client_without_an_id_gets_one_and_an_answer_has_an_id() -> None:
    found = telemetry(one={"metrics": "*"})
    first, second = (found.get(CLIENT._replace(instance_id=NO_ID), 10**6) for _ in range(2))
    assert NO_ID not in (first.instance_id, second.instance_id)
    assert first.instance_id != second.instance_id
    again = telemetry(one={"metrics": "*"}).get(CLIENT, 10**6)
    assert again.subscription_id == found.get(CLIENT, 10**6).subscription_id, "also after a restart"
    other = telemetry(one={"metrics": "b."}).get(CLIENT, 10**6)
    assert again.subscription_id != other.subscription_id
    assert -(1 << 31) <= again.subscription_id < 1 << 31


# --- when ----------------------------------------------------------------------------------------


def test_who_asks_or_pushes_too_early_is_told_to_wait() -> None:
    found = telemetry(one={"metrics": "*", "interval.ms": "1000"})
    wanted = found.get(CLIENT, 10_000)
    assert found.get(CLIENT, 10_999).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    key = wanted.subscription_id
    assert offer(found, CLIENT, key, 10_100) is ErrorCode.NONE, "at once after an answer"
    assert offer(found, CLIENT, key, 11_000) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert offer(found, CLIENT, key, 11_100) is ErrorCode.NONE
    assert found.get(CLIENT, 12_000).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert found.get(CLIENT, 12_100).error is ErrorCode.NONE


def test_the_last_push_may_come_early_and_is_the_last() -> None:
    found = telemetry(one={"metrics": "*", "interval.ms": "1000"})
    key = found.get(CLIENT, 10_000).subscription_id
    assert offer(found, CLIENT, key, 10_001) is ErrorCode.NONE
    assert offer(found, CLIENT, key, 10_002, is_last=True) is ErrorCode.NONE
    assert offer(found, CLIENT, key, 20_000, is_last=True) is ErrorCode.INVALID_REQUEST


def test_after_a_change_the_old_answer_is_unknown_and_a_new_one_comes_at_once() -> None:
    subscriptions = {"one": {"metrics": "*", "interval.ms": "60000"}}
    found = PushedTelemetry(subscriptions)
    key = found.get(CLIENT, 10_000).subscription_id
    assert offer(found, CLIENT, key, 10_001) is ErrorCode.NONE
    subscriptions["one"] = {"metrics": "a.", "interval.ms": "60000"}
    found.changed()
    assert offer(found, CLIENT, key, 70_001) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = found.get(CLIENT, 70_002)
    assert (again.error, again.metrics) == (ErrorCode.NONE, ("a.",))
    assert offer(found, CLIENT, again.subscription_id, 70_003) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size_bytes": (1 << 20) + 1}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"size_bytes": 1 << 20, "codec": 4}, ErrorCode.NONE),
    ],
)
def test_a_push_must_be_readable_and_of_a_size(changes: dict[str, Any], error: ErrorCode) -> None:
    found = telemetry(one={"metrics": "*"})
    key = found.get(CLIENT, 10_000).subscription_id
    assert offer(found, CLIENT, key, 10_001, **changes) is error
    assert offer(found, CLIENT._replace(instance_id=NO_ID), key, 1) is ErrorCode.INVALID_REQUEST


def test_clients_without_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 3)
    found = telemetry(one={"metrics": "*", "interval.ms": "100"})
    for number in range(10):
        found.get(CLIENT._replace(instance_id=bytes([number + 1]) * 16), 10_000)
    assert len(found) == 3
    found.expire(10_000 + 299_000)
    assert len(found) == 3
    found.expire(10_000 + 301_000)
    assert len(found) == 0


# --- in a broker -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker(metrics=True) as broker:
        yield broker


@pytest.fixture
def broker(running: Broker) -> Iterator[Broker]:
    with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
        admin.alter_configs({"metrics": "*", "interval.ms": "100"}, client_metrics="all")
        yield running
        for name in admin.list_client_metrics():
            admin.alter_configs(
                dict.fromkeys(("metrics", "interval.ms", "match")), client_metrics=name
            )


def push_once(client: RawClient, data: bytes, codec: int = 0) -> ErrorCode:
    wanted = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=NO_ID), 0)
    assert wanted.requested_metrics == ["*"]
    assert wanted.accepted_compression_types == (4, 3, 1, 2)
    assert (wanted.delta_temporality, wanted.telemetry_max_bytes) == (True, 1 << 20)
    request = PushTelemetryRequest(
        client_instance_id=wanted.client_instance_id,
        subscription_id=wanted.subscription_id,
        terminating=False,
        compression_type=codec,
        metrics=data,
    )
    return ErrorCode.of(client.ask(request, 0).error_code)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_push_is_seen_on_the_metrics_port_however_it_is_compressed(
    broker: Broker, codec: Codec
) -> None:
    with RawClient(broker.port) as client:
        assert push_once(client, compress(codec, LAG), codec) is ErrorCode.NONE
    found = scrape(broker.metrics_url)
    assert found["kafka_client_consumer_lag"] == {("raw", "", "", "", ""): 7}


@pytest.mark.parametrize(
    ("data", "codec", "error"),
    [
        (b"\xff\xff", Codec.NONE, ErrorCode.INVALID_RECORD),
        (b"not gzip", Codec.GZIP, ErrorCode.INVALID_RECORD),
        (compress(Codec.GZIP, b"\0" * (9 << 20)), Codec.GZIP, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(Codec.ZSTD, b"\0" * (9 << 20)), Codec.ZSTD, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"", Codec.NONE, ErrorCode.NONE),
    ],
)
def test_bytes_that_are_no_metrics_are_refused(
    broker: Broker, data: bytes, codec: Codec, error: ErrorCode
) -> None:
    with RawClient(broker.port) as client:
        assert push_once(client, data, codec) is error


def test_without_a_metrics_port_clients_are_not_asked(broker: Broker) -> None:
    def offered(port: int) -> set[int]:
        with RawClient(port) as client:
            request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
            return {one.api_key for one in client.ask(request, 3).api_keys}

    with Broker() as plain:
        assert not offered(plain.port) & TELEMETRY
        with RawClient(plain.port) as client:
            client.send(GetTelemetrySubscriptionsRequest(client_instance_id=NO_ID), 0)
            assert client.receive_frame() is None, "as an API that is not known"
    assert offered(broker.port) >= TELEMETRY


def test_subscriptions_are_settings_of_the_cluster_and_survive_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_configs({"metrics": "a.,b.", "match": "client_id=x"}, client_metrics="s")
            admin.alter_configs({"interval.ms": "100"}, client_metrics="t")
            admin.alter_configs({"interval.ms": None}, client_metrics="t")
        broker.restart()  # its journal is written anew
        broker.restart()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.list_client_metrics() == ["s"]
            found = admin.describe_configs(client_metrics="s")
            assert {name: (one.value, one.source) for name, one in found.items()} == {
                "interval.ms": ("300000", "default"),
                "match": ("client_id=x", "client metrics"),
                "metrics": ("a.,b.", "client metrics"),
            }
        with RawClient(broker.port) as client:
            request = ListConfigResourcesRequest(resource_types=[16])
            (one,) = client.ask(request, 1).config_resources
            assert (one.resource_name, one.resource_type) == ("s", 16)


@pytest.mark.parametrize(
    ("name", "changes", "error"),
    [
        ("", {"metrics": "*"}, ErrorCode.INVALID_REQUEST),
        ("s", {"odd": "1"}, ErrorCode.INVALID_REQUEST),
        ("s", {"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ("s", {"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ("s", {"interval.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ("s", {"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG),
        ("s", {"match": "client_name=x"}, ErrorCode.INVALID_CONFIG),
        ("s", {"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ("s", {"match": "client_id=["}, ErrorCode.INVALID_CONFIG),
        ("s", {"match": "client_id=(a+)+"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    broker: Broker, name: str, changes: dict[str, str], error: ErrorCode
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(BrokerError) as refused:
            admin.alter_configs(changes, client_metrics=name)
        assert refused.value.code is error
        assert admin.list_client_metrics() == ["all"]
