"""A configuration is right or an error that says what to do; nothing is ignored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.broker.config import (
    AuthorizationSettings,
    BrokerConfig,
    BrokerLimits,
    GroupSettings,
    Listener,
    TopicDefaults,
    TransactionSettings,
    from_toml,
    parse_address,
)
from shoal.errors import ConfigError


def test_a_file_sets_every_part():
    config = from_toml(
        """
        data_dir = "data"
        durability = "os"
        node_id = 7
        [[listener]]
        address = "127.0.0.1:9092"
        [[listener]]
        address = "0.0.0.0:9093"
        advertised = "kafka.example:9093"
        certificate_file = "c.pem"
        key_file = "k.pem"
        sasl = ["SCRAM-SHA-512"]
        [limits]
        connections = 10
        idle_seconds = 5
        [groups]
        initial_rebalance_delay_ms = 3000
        [topics]
        partitions = 4
        auto_create = false
        retention_ms = 1000
        preallocate = true
        """
    ).checked()
    assert config.data_dir == "data"
    assert config.node_id == 7
    assert config.listeners[0] == Listener("127.0.0.1", 9092)
    assert config.listeners[1].advertised == ("kafka.example", 9093)
    assert config.listeners[1].protocol == "SASL_SSL"
    assert config.limits.connections == 10
    assert config.limits.idle_seconds == 5.0
    assert config.groups.initial_rebalance_delay_ms == 3000
    assert config.topics.partitions == 4
    assert not config.topics.auto_create
    assert config.topics.configs == {"retention.ms": "1000", "preallocate": "true"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datadir = 'x'", "unknown key 'datadir'; did you mean 'data_dir'"),
        ("[limits]\nconections = 1", "unknown key 'conections'; did you mean 'connections'"),
        ("[topics]\nretention_mss = 1", "did you mean 'retention_ms'"),
        ("[[listener]]\nadress = ':1'", "did you mean 'address'"),
        ("[listener]\naddress = ':1'", "two brackets"),
        ("node_id = 'one'", "node_id must be of type int"),
        ("node_id = true", "node_id must be of type int"),
        ("[limits]\nidle_seconds = 'x'", "must be of type float"),
        ("a = ", "not valid TOML"),
        ("[[listener]]\naddress = 'nowhere'", "is not an address"),
        ("listeners = []", "unknown key 'listeners'; did you mean 'listener'"),
    ],
)
def test_a_mistake_in_a_file_is_named(text, message):
    with pytest.raises(ConfigError, match=message):
        from_toml(text)


@pytest.mark.parametrize(
    ("listener", "message"),
    [
        (Listener("0.0.0.0", 1), "--insecure-public"),
        (Listener("192.0.2.1", 1, sasl=("PLAIN",)), "use TLS or a SCRAM mechanism"),
        (Listener(sasl=("SCRAM-SHA-25",)), "did you mean 'SCRAM-SHA-256'"),
        (Listener(certificate_file="x"), "belong together"),
        (Listener(client_ca_file="x"), "needs certificate_file"),
        (Listener(port=70000), "between 0 and 65535"),
        (
            Listener("0.0.0.0", 1, None, "c", "k", "ca", client_certificate="optional"),
            "--insecure-public",
        ),
    ],
)
def test_an_unsafe_or_impossible_listener_is_refused(listener, message):
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(listeners=(listener,)).checked()


@pytest.mark.parametrize(
    "listener",
    [
        Listener("0.0.0.0", 1, sasl=("SCRAM-SHA-256",)),
        Listener("0.0.0.0", 1, None, "c", "k", "ca"),
        Listener("127.0.0.1", 1, sasl=("PLAIN",)),
        Listener("::1", 1),
    ],
)
def test_a_safe_listener_is_accepted(listener):
    BrokerConfig(listeners=(listener,)).checked()


def test_a_public_listener_without_authentication_starts_when_told():
    BrokerConfig(listeners=(Listener("0.0.0.0", 1),), insecure_public=True).checked()


def test_durability_is_checked():
    with pytest.raises(ConfigError, match="did you mean 'group'"):
        BrokerConfig(durability="grup").checked()


def test_addresses():
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_address(":9092") == ("127.0.0.1", 9092)
    assert parse_address("[::1]:9092") == ("::1", 9092)
    assert parse_address("host", default_port=0) == ("host", 0)
    for wrong in ("", "host", "host:port", "a:b:c", "[::1]"):
        with pytest.raises(ConfigError):
            parse_address(wrong)


@pytest.mark.parametrize("page", ["serve.md", "secure.md"])
def test_the_files_in_the_documentation_are_valid(page):
    text = (Path(__file__).parents[2] / "docs" / "howto" / page).read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        from_toml(block).checked()


def test_every_setting_is_explained():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
    parts = (Listener, BrokerLimits, GroupSettings, TransactionSettings, TopicDefaults)
    for part in (*parts, AuthorizationSettings, BrokerConfig):
        section = text.partition(f"### {part.__name__}\n")[2].partition("\n### ")[0]
        for name in part._fields:
            assert re.search(rf"^\| `{name}` \|.*\| \S.* \|$", section, re.MULTILINE), name
