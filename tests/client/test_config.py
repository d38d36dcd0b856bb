"""Settings: names, defaults, conversions, refusals."""

from __future__ import annotations

from typing import Any

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
        ({"isolation_level": "serializable"}, "isolation_level"),
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
    java: Any = "io.confluent.kafka.serializers.KafkaAvroDeserializer"
    with pytest.raises(ConfigError, match="not str; take one of shoal"):
        ConsumerConfig(value_deserializer=java)
    for properties, said in (
        ({"value.deserializer": java}, "there is no Python module 'io.confluent"),
        ({"interceptor.classes": "com.example.Audit"}, "there is no Python module 'com.example'"),
    ):
        with pytest.raises(ConfigError, match=said):
            ConsumerConfig.from_properties(properties)


@pytest.mark.parametrize("host", ["broker.example", "10.0.0.1", "127.0.0.1.evil.example"])
def test_a_password_goes_readably_to_another_machine_only_if_somebody_says_so(host):
    settings: dict[str, Any] = {
        "bootstrap_servers": f"localhost:9092,{host}:9092",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_username": "ada",
        "sasl_password": "secret",
    }
    with pytest.raises(ConfigError, match=f"readably to {host}"):
        AdminConfig(**settings)
    AdminConfig(**settings, sasl_plain_without_tls=True)
    AdminConfig(**settings | {"sasl_mechanism": "SCRAM-SHA-256"})
    AdminConfig(**settings | {"security_protocol": "SASL_SSL"})
    with pytest.raises(ConfigError, match="readably"):
        AdminConfig(
            **settings | {"bootstrap_servers": "127.0.0.1:1,[::1]:1,LOCALHOST:1"}
        ).check_readable_secret(host)


# --- the group's protocol ---


def test_groups_are_classic_unless_somebody_asks_for_the_new_protocol():
    assert ConsumerConfig().group_protocol == "classic"
    config = ConsumerConfig.from_properties(
        {"group.id": "g", "group.protocol": "consumer", "group.remote.assignor": "range"}
    )
    assert (config.group_protocol, config.group_remote_assignor) == ("consumer", "range")
    with pytest.raises(ConfigError, match="group_protocol='new' is not one of classic, consumer"):
        ConsumerConfig(group_protocol="new")


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("assignors", ("range",), "the broker assigns, see group_remote_assignor"),
        ("session_timeout_ms", 30_000, r"consumer\.session\.timeout\.ms at the broker"),
        ("heartbeat_interval_ms", 1_000, r"consumer\.heartbeat\.interval\.ms at the broker"),
    ],
)
def test_what_the_new_protocol_leaves_to_the_broker_is_refused_by_name(protocol, name, value, said):
    refusal = f"^{name} is not for group_protocol='{protocol}': .*{said}"
    with pytest.raises(ConfigError, match=refusal):
        ConsumerConfig(group_id="g", group_protocol=protocol, **{name: value})


def test_such_a_setting_is_refused_with_the_default_too_if_somebody_gives_it():
    with pytest.raises(ConfigError, match="session_timeout_ms is not for"):
        ConsumerConfig.from_settings({"group_protocol": "consumer", "session_timeout_ms": 45_000})
    with pytest.raises(ConfigError, match="assignors is not for"):
        ConsumerConfig.from_properties(
            {"group.protocol": "consumer", "partition.assignment.strategy": "range"}
        )


def test_an_assignor_of_the_brokers_is_refused_for_a_classic_group():
    said = "group_remote_assignor is not for group_protocol='classic': brokers assign in consumer"
    with pytest.raises(ConfigError, match=said):
        ConsumerConfig(group_id="g", group_remote_assignor="uniform")
