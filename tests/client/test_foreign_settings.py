"""Settings of confluent-kafka, kafka-python and aiokafka: taken, left out or refused, each told."""

from __future__ import annotations

import inspect
import logging
import re
from dataclasses import fields

import pytest
from docs.generate_foreign_settings import PAGE, page
from hypothesis import given
from hypothesis import strategies as st

from shoal import Consumer, ConsumerConfig, Producer, ProducerConfig
from shoal.client import foreign_settings
from shoal.client.config import AdminConfig
from shoal.client.foreign_settings import dotted
from shoal.client.partitioner import HashedKeys, Sticky
from shoal.errors import ConfigError
from tests.client import librdkafka
from tests.client.conftest import take

pytestmark = pytest.mark.peer

CONFIGS = (ConsumerConfig, ProducerConfig, AdminConfig)


def outcomes(config, properties):
    return {one.name: one for one in config.explain_properties(properties).outcomes}


def kafka_python():
    kafka = pytest.importorskip("kafka")
    return {
        ConsumerConfig: kafka.KafkaConsumer.DEFAULT_CONFIG,
        ProducerConfig: kafka.KafkaProducer.DEFAULT_CONFIG,
        AdminConfig: kafka.KafkaAdminClient.DEFAULT_CONFIG,
    }


def aiokafka():
    package = pytest.importorskip("aiokafka")
    from aiokafka.admin import AIOKafkaAdminClient

    clients = {
        ConsumerConfig: package.AIOKafkaConsumer,
        ProducerConfig: package.AIOKafkaProducer,
        AdminConfig: AIOKafkaAdminClient,
    }
    return {
        config: {
            name: parameter.default
            for name, parameter in inspect.signature(client.__init__).parameters.items()
            if name != "self"
        }
        for config, client in clients.items()
    }


def has_a_row(name):
    own = {dotted(field.name) for config in CONFIGS for field in fields(config)}
    tables = foreign_settings
    return dotted(name) in {
        *own,
        *tables.TAKEN,
        *tables.LEFT_OUT,
        *tables.UNLESS,
        *tables.REFUSED,
    }


# --- every setting has a row ---


def test_every_setting_of_librdkafka_has_a_row():
    names = [setting.name for setting in librdkafka.settings()]
    assert len(names) > 150
    assert [name for name in names if not has_a_row(name)] == []


# What the Python package adds to librdkafka's, from its documentation.
@pytest.mark.parametrize(
    "name",
    ["error_cb", "throttle_cb", "stats_cb", "oauth_cb", "logger", "on_commit", "on_delivery"],
)
def test_every_setting_of_confluent_kafka_itself_has_a_row(name):
    assert has_a_row(name)


@pytest.mark.parametrize("client", [kafka_python, aiokafka])
def test_every_setting_of_the_python_clients_has_a_row(client):
    for settings in client().values():
        assert len(settings) > 10
        assert [name for name in settings if not has_a_row(name)] == []


def test_no_setting_has_two_rows_and_each_leads_to_one_of_ours():
    tables = foreign_settings
    ours = {field.name for config in CONFIGS for field in fields(config)}
    names = [*tables.TAKEN, *tables.LEFT_OUT, *tables.UNLESS, *tables.REFUSED]
    assert sorted(set(names)) == sorted(names)
    assert {setting.ours for setting in tables.TAKEN.values()} <= ours
    assert not set(names) & {dotted(name) for name in ours}
    said = " ".join([*tables.LEFT_OUT.values(), *(one.why for one in tables.UNLESS.values())])
    for word in re.findall(r"`(\w+_\w+)`", said):
        assert word in ours or word == "oauth_cb", word


def test_the_page_of_other_clients_settings_is_made_from_the_tables():
    assert PAGE.read_text() == page(), "run: python -m docs.generate_foreign_settings"


# --- whole dicts ---


@pytest.mark.parametrize("config", CONFIGS)
def test_all_defaults_of_librdkafka_are_fine(config):
    given = {one.name: one.default for one in librdkafka.settings() if one.default}
    given = {name: value for name, value in given.items() if not name.startswith("sasl.mechanism")}
    explained = config.explain_properties(given)
    assert {o.name: o.why for o in explained.outcomes if o.outcome == "refused"} == {}
    assert explained.problem == ""
    assert len(explained.outcomes) == len(given)


@pytest.mark.parametrize("config", CONFIGS)
def test_all_defaults_of_kafka_python_are_fine(config):
    explained = config.explain_properties(kafka_python()[config])
    assert {o.name: o.why for o in explained.outcomes if o.outcome == "refused"} == {}
    assert explained.config is not None, explained.problem


@pytest.mark.parametrize("config", CONFIGS)
def test_all_defaults_of_aiokafka_are_fine(config):
    given = aiokafka()[config]
    given.pop("topics", None)
    given.pop("consumer_timeout_ms", None)  # kafka-python has it too, and means the iterator
    given.pop("acks", None)  # an object of its own that says "not given"
    explained = config.explain_properties(given)
    assert {o.name: o.why for o in explained.outcomes if o.outcome == "refused"} == {}
    assert explained.config is not None, explained.problem


def test_a_dict_that_works_with_confluent_kafka_works_here(shoal_broker):
    confluent = pytest.importorskip("confluent_kafka")
    shoal_broker.create_topic("t", partitions=4)
    shared = {
        "bootstrap.servers": shoal_broker.bootstrap_servers,
        "client.id": "billing",
        "security.protocol": "plaintext",
        "socket.keepalive.enable": True,
        "socket.timeout.ms": 20000,
        "broker.address.family": "v4",
        "statistics.interval.ms": 0,
        "log_level": 3,
        "error_cb": print,
    }
    writing = shared | {
        "acks": -1,
        "linger.ms": 0.5,
        "partitioner": "consistent",
        "queue.buffering.max.kbytes": 10240,
        "compression.codec": "lz4",
        "message.timeout.ms": 30000,
    }
    reading = shared | {
        "group.id": "g",
        "auto.offset.reset": "smallest",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "queued.max.messages.kbytes": 2048,
        "fetch.wait.max.ms": 50,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": "6000",
    }
    keys = [f"k{number}".encode() for number in range(12)]
    theirs, ours = {}, {}
    producer = confluent.Producer(writing)
    for key in keys:
        producer.produce("t", b"v", key, on_delivery=lambda _, m: theirs.update({m.key(): m}))
    producer.flush(20)
    with Producer.from_properties(writing) as mine:
        assert mine.config.compression_type == "lz4"
        for key in keys:
            ours[key] = mine.send("t", b"v", key).result(20).partition
    assert ours == {key: message.partition() for key, message in theirs.items()}

    consumer = confluent.Consumer(reading)
    consumer.subscribe(["t"])
    count = 0
    while count < 24:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        count += 1
    consumer.close()
    with Consumer.from_properties(reading | {"group.id": "g2"}) as mine:
        assert mine.config.fetch_buffer_bytes == 2048 * 1024
        mine.subscribe(["t"])
        assert sorted(record.key for record in take(mine, 24)) == sorted([*keys, *keys])


def test_keywords_of_kafka_python_and_aiokafka_work_here(shoal_broker):
    kafka = pytest.importorskip("kafka")
    shoal_broker.create_topic("t")
    strategy = [kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor]
    keywords = {
        "bootstrap_servers": [shoal_broker.bootstrap_servers],
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": strategy,
        "consumer_timeout_ms": float("inf"),
        "api_version": None,
        "max_poll_records": None,
        "value_deserializer": bytes.decode,
    }
    of_aiokafka = ("max_poll_records", "value_deserializer")
    theirs = {name: value for name, value in keywords.items() if name not in of_aiokafka}
    kafka.KafkaConsumer(**theirs).close()
    with Producer.from_properties({"bootstrap_servers": shoal_broker.bootstrap_servers}) as one:
        one.send("t", b"herring").result(20)
    with Consumer.from_properties(keywords) as mine:
        assert mine.config.assignors == ("roundrobin",)
        assert mine.config.max_poll_records == 2**31 - 1
        mine.subscribe(["t"])
        assert take(mine, 1)[0].value == "herring"


# --- values ---


@pytest.mark.parametrize(
    ("config", "given", "ours", "value"),
    [
        (ConsumerConfig, {"auto.offset.reset": "largest"}, "auto_offset_reset", "latest"),
        (ConsumerConfig, {"auto.offset.reset": "error"}, "auto_offset_reset", "none"),
        (ConsumerConfig, {"max_poll_records": None}, "max_poll_records", 2**31 - 1),
        (ConsumerConfig, {"security.protocol": "ssl"}, "security_protocol", "SSL"),
        (
            ConsumerConfig,
            {"ssl.endpoint.identification.algorithm": "none"},
            "ssl_check_hostname",
            False,
        ),
        (
            ConsumerConfig,
            {"ssl.endpoint.identification.algorithm": "https"},
            "ssl_check_hostname",
            True,
        ),
        (ConsumerConfig, {"connections.max.idle.ms": 0}, "connections_max_idle_ms", 2**31 - 1),
        (
            ConsumerConfig,
            {"topic.metadata.refresh.interval.ms": "-1"},
            "metadata_max_age_ms",
            2**31 - 1,
        ),
        (
            AdminConfig,
            {"bootstrap.servers": "a, b:1,[::1]"},
            "bootstrap_servers",
            "a:9092,b:1,[::1]:9092",
        ),
        (
            AdminConfig,
            {"bootstrap_servers": ["a", "SSL://b"]},
            "bootstrap_servers",
            ["a:9092", "SSL://b:9092"],
        ),
        (ProducerConfig, {"linger.ms": "0.5"}, "linger_ms", 1),
        (ProducerConfig, {"retries": float("inf")}, "retries", 2**31 - 1),
        (ProducerConfig, {"message.timeout.ms": 0}, "delivery_timeout_ms", 2**31 - 1),
        (ProducerConfig, {"compression_type": None}, "compression_type", "none"),
        (ProducerConfig, {"compression.level": "-1"}, "compression_level", None),
        (ProducerConfig, {"partitioner": "murmur2_random"}, "partitioner", "sticky"),
        (ProducerConfig, {"queue.buffering.max.kbytes": "1024"}, "buffer_memory", 1 << 20),
    ],
)
def test_values_are_put_into_our_words(config, given, ours, value):
    assert getattr(config.from_properties(given), ours) == value


@pytest.mark.parametrize(
    ("config", "given", "said"),
    [
        (ConsumerConfig, {"enable.auto.offset.store": False}, "enable_auto_commit=False and"),
        (ConsumerConfig, {"enable.partition.eof": "true"}, "compare position()"),
        (ConsumerConfig, {"consumer_timeout_ms": 500}, "here it is the timeout of poll()"),
        (ConsumerConfig, {"enable.ssl.certificate.verification": "false"}, "ssl.SSLContext"),
        (ConsumerConfig, {"ssl_crlfile": "revoked.pem"}, "ssl.SSLContext"),
        (ConsumerConfig, {"ssl.ca.pem": "-----BEGIN"}, "name that in ssl_cafile"),
        (ConsumerConfig, {"ssl.keystore.location": "me.p12"}, "openssl pkcs12"),
        (ConsumerConfig, {"ssl.endpoint.identification.algorithm": "x"}, "give https, or none"),
        (ConsumerConfig, {"on_commit": print}, "commit_async(callback)"),
        (ConsumerConfig, {"socks5_proxy": "socks5://u:p@h"}, "socks5_proxy=*** is not supported"),
        (ConsumerConfig, {"topics": ["t"]}, "call subscribe"),
        (ProducerConfig, {"on_delivery": print}, "send(on_delivery=...)"),
        (ProducerConfig, {"queuing.strategy": "lifo"}, "in their order"),
        (ProducerConfig, {"linger.ms": "soon"}, "linger.ms=soon is not supported: give a number"),
        (ProducerConfig, {"sasl.oauthbearer.grant.type": "jwt"}, "sasl_oauthbearer_token"),
        (AdminConfig, {"client.idd": "x"}, "did you mean 'client.id'"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_do(config, given, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        config.from_properties(given)
    assert next(iter(outcomes(config, given).values())).outcome == "refused"


def test_what_has_no_effect_is_told_once_in_the_log(caplog):
    with caplog.at_level(logging.WARNING):
        ConsumerConfig.from_properties({"debug": "all", "acks": "1", "group.id": "g"})
    assert caplog.messages == ["settings without effect in ConsumerConfig: acks, debug"]
    told = outcomes(ConsumerConfig, {"debug": "all", "acks": "1"})
    assert told["acks"].why == "a setting of producers"
    assert "logger" in told["debug"].why


def test_our_own_name_counts_more_than_another_for_the_same():
    given = {"metadata.max.age.ms": 1000, "topic.metadata.refresh.interval.ms": 2000}
    for order in (given, dict(reversed(given.items()))):
        assert ConsumerConfig.from_properties(order).metadata_max_age_ms == 1000
        why = outcomes(ConsumerConfig, order)["topic.metadata.refresh.interval.ms"].why
        assert why == "metadata.max.age.ms says it"


def test_settings_that_do_not_go_together_are_told_apart_from_those_that_are_refused():
    explained = ConsumerConfig.explain_properties(
        {"heartbeat.interval.ms": "9000", "session.timeout.ms": "6000"}
    )
    assert [one.outcome for one in explained.outcomes] == ["taken", "taken"]
    assert explained.config is None
    assert "must be less than session_timeout_ms" in explained.problem


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl_plain_password",
        "ssl.key.password",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.config",
        "ssl.key.pem",
        "sasl.jaas.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "proxy_url",
        "sasl.pasword",
    ],
)
def test_no_secret_is_shown_whatever_becomes_of_it(name):
    for config in CONFIGS:
        one = outcomes(config, {name: "hush-hush"})[name]
        assert "hush" not in f"{one}" or name == "sasl.pasword"
        assert one.shown in ("***", "hush-hush" if name == "sasl.pasword" else "***")


def test_the_callback_of_confluent_kafka_brings_the_token():
    asked = []

    def callback(config):
        asked.append(config)
        return "token", 12.5, "principal", {}

    config = AdminConfig.from_properties(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "oauthbearer",
            "oauth_cb": callback,
            "sasl.oauthbearer.config": "who=me",
        }
    )
    assert config.sasl_oauthbearer_token is not None
    assert config.sasl_oauthbearer_token() == ("token", 12.5)
    assert asked == ["who=me"]


# --- hashes ---

KEYED = ("consistent", "consistent_random", "murmur2", "fnv1a", "fnv1a_random")


@pytest.mark.parametrize("name", KEYED)
@given(key=st.binary(min_size=1, max_size=40), count=st.integers(1, 64))
def test_keys_land_where_librdkafka_puts_them(name, key, count):
    assert HashedKeys(name)("t", key, count) == librdkafka.partition(name, key, count)


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
def test_records_without_a_key_share_one_partition_where_librdkafka_says_so(name):
    assert HashedKeys(name)("t", None, 7) == librdkafka.partition(name, None, 7)


@pytest.mark.parametrize("name", ["consistent_random", "fnv1a_random", "random"])
def test_records_without_a_key_go_on_when_a_batch_is_full(name):
    chosen = HashedKeys(name)
    first = chosen("t", None, 8)
    assert chosen("t", None, 8) == first
    chosen.batch_done("t", first, 8)
    assert chosen("t", None, 8) != first
    if name == "consistent_random":
        assert chosen("t", b"", 8) == chosen("t", None, 8)
    assert not isinstance(chosen, Sticky)
