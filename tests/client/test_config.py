"""Settings: names, defaults, conversions, refusals."""

from __future__ import annotations

import pytest

from shoal.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from shoal.errors import ConfigError


def test_the_defaults_are_kafkas():
    config = ConsumerConfig()
    assert config.session_timeout_ms == 45_000
    assert config.heartbeat_interval_ms == 3_000
    assert config.max_poll_interval_ms == 300_000
    assert config.max_poll_records == 500
    assert config.auto_commit_interval_ms == 5_000
    assert config.auto_offset_reset == "latest"
    assert config.fetch_max_bytes == 52_428_800
    assert config.max_partition_fetch_bytes == 1_048_576
    assert config.request_timeout_ms == 30_000
    assert config.default_api_timeout_ms == 60_000
    assert config.assignors == ("range", "cooperative-sticky")


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="did you mean 'group_id'"):
        ConsumerConfig.from_settings({"groupid": "g"})
    with pytest.raises(ConfigError, match=r"did you mean 'session\.timeout\.ms'"):
        ConsumerConfig.from_properties({"sesion.timeout.ms": "1"})
    with pytest.raises(ConfigError, match="lists the settings"):
        AdminConfig.from_settings({"zzz": 1})


def test_properties_convert_strings_as_a_file_holds_them():
    config = ConsumerConfig.from_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "group.id": "g",
            "enable.auto.commit": "false",
            "max.poll.records": "7",
            "partition.assignment.strategy": "sticky, range",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'x.ScramLoginModule required username="u" password="p\\"q";',
            "security.protocol": "SASL_PLAINTEXT",
        }
    )
    assert config.addresses() == [("a", 1), ("b", 2)]
    assert config.enable_auto_commit is False
    assert config.max_poll_records == 7
    assert config.assignors == ("sticky", "range")
    assert (config.sasl_username, config.sasl_password) == ("u", 'p"q')


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"bootstrap_servers": "nohost"}, "nohost"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"bootstrap_servers": "h:70000"}, "h:70000"),
        ({"bootstrap_servers": "h:\N{SUPERSCRIPT TWO}"}, "which is not host:port"),
        ({"bootstrap_servers": "a:1 b:2"}, "which is not host:port"),
        ({"max_poll_interval_ms": 2**31}, "max_poll_interval_ms=2147483648 must be at most"),
        ({"session_timeout_ms": 2**31}, "session_timeout_ms"),
        ({"fetch_max_bytes": 2**31}, "fetch_max_bytes"),
        ({"request_timeout_ms": 2**31}, "request_timeout_ms"),
        ({"auto_offset_reset": "newest"}, "auto_offset_reset"),
        ({"heartbeat_interval_ms": 45_000}, "heartbeat_interval_ms"),
        ({"group_id": ""}, "group_id"),
        ({"group_instance_id": "i"}, "group_instance_id"),
        ({"max_poll_records": 0}, "max_poll_records"),
        ({"max_poll_records": "5"}, "max_poll_records"),
        ({"isolation_level": "read_committed"}, "isolation_level"),
        ({"assignors": ()}, "assignors"),
        ({"security_protocol": "SASL_SSL"}, "sasl_username"),
        ({"security_protocol": "TLS"}, "security_protocol"),
    ],
)
def test_a_wrong_consumer_value_is_refused_by_name(settings, named):
    with pytest.raises(ConfigError, match=named):
        ConsumerConfig.from_settings(settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"acks": 2}, "acks"),
        ({"compression_type": "brotli"}, "compression_type"),
        ({"partitioner": "random"}, "partitioner"),
        ({"enable_idempotence": True, "acks": 1}, "enable_idempotence"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            "max_in_flight",
        ),
        ({"linger_ms": -1}, "linger_ms"),
        ({"compression_type": "gzip", "compression_level": 10}, "compression_level=10 is not"),
        ({"compression_type": "lz4", "compression_level": 18}, "compression_level"),
        ({"compression_type": "zstd", "compression_level": 23}, "between -131072 and 22"),
        ({"ssl_keyfile": "key.pem"}, "ssl_certfile"),
        ({"delivery_timeout_ms": 1000, "linger_ms": 1000}, "must be more than linger_ms=1000"),
    ],
)
def test_a_wrong_producer_value_is_refused_by_name(settings, named):
    with pytest.raises(ConfigError, match=named):
        ProducerConfig.from_settings(settings)


def test_idempotence_follows_acks_unless_said():
    assert ProducerConfig().is_idempotent
    assert not ProducerConfig(acks=1).is_idempotent
    assert not ProducerConfig(enable_idempotence=False).is_idempotent
    assert ProducerConfig(acks="all").required_acks == -1
    assert ProducerConfig.from_properties({"acks": "-1"}).required_acks == -1


def test_an_ipv6_address_keeps_its_colons():
    assert AdminConfig(bootstrap_servers="[::1]:9092").addresses() == [("::1", 9092)]


def test_a_protocol_before_an_address_is_left_out_as_in_java():
    config = AdminConfig(bootstrap_servers="PLAINTEXT://a:1, SASL_SSL://[::1]:2")
    assert config.addresses() == [("a", 1), ("::1", 2)]


def test_a_line_of_jaas_may_have_single_quotes():
    line = "x.PlainLoginModule required username='K\"EY' password='it\\'s';"
    config = AdminConfig.from_properties({"sasl.jaas.config": line})
    assert (config.sasl_username, config.sasl_password) == ('K"EY', "it's")
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config must hold"):
        AdminConfig.from_properties({"sasl.jaas.config": None})


def test_the_spaces_of_a_password_are_kept():
    properties = {"sasl.username": " u ", "sasl.password": " p ", "ssl.key.password": "k "}
    config = AdminConfig.from_properties(properties)
    assert (config.sasl_username, config.sasl_password) == ("u", " p ")
    assert config.ssl_key_password == "k "


def test_a_path_is_no_address():
    with pytest.raises(ConfigError, match="'http://kafka/a:9092', which is not host:port"):
        AdminConfig(bootstrap_servers="http://kafka/a:9092")


def test_a_repr_shows_what_was_set_and_no_secret():
    config = ConsumerConfig(
        group_id="g", security_protocol="SASL_SSL", sasl_username="u", sasl_password="hush"
    )
    assert "group_id='g'" in repr(config)
    assert "hush" not in repr(config)
    assert "fetch_max_bytes" not in repr(config)


def test_what_a_java_programs_file_names_is_refused_with_advice():
    java = "org.apache.kafka.common.serialization.StringDeserializer"
    for properties, said in (
        ({"value.deserializer": java}, "not str; take one of shoal.client.serializers, or your"),
        ({"interceptor.classes": "com.example.Audit"}, "'com.example.Audit', which is no object"),
        ({"group.protocol": "consumer"}, "'group.protocol' is not there: groups are classic ones"),
    ):
        with pytest.raises(ConfigError, match=said):
            ConsumerConfig.from_properties(properties)
    with pytest.raises(ConfigError, match="there are no transactions yet"):
        ProducerConfig.from_properties({"transactional.id": "orders"})
