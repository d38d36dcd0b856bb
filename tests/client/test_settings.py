"""The constructors' keyword arguments: the same for people, type checkers and at run time."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import MISSING, fields
from html import unescape
from pathlib import Path

import pytest

from shoal import Admin, AsyncConsumer, Consumer, Producer
from shoal.client.config import AdminConfig, ConnectionConfig, ConsumerConfig, ProducerConfig
from shoal.client.settings import ConnectionSettings, ConsumerSettings, ProducerSettings
from shoal.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (ConnectionConfig, ConnectionSettings),
        (AdminConfig, ConnectionSettings),
        (ConsumerConfig, ConsumerSettings),
        (ProducerConfig, ProducerSettings),
    ],
)
def test_every_field_is_a_typed_keyword_and_no_keyword_is_missing(config, settings):
    keywords = {**ConnectionSettings.__annotations__, **settings.__annotations__}
    assert {field.name: field.type for field in fields(config)} == {
        name: reference.__forward_arg__ for name, reference in keywords.items()
    }


@pytest.mark.parametrize("config", [AdminConfig, ConsumerConfig, ProducerConfig])
def test_every_setting_has_a_default_and_stands_in_the_reference_with_it(config):
    page = (ROOT / "docs/reference/settings.md").read_text()
    for field in fields(config):
        assert field.default is not MISSING, field.name
        row = next(line for line in page.splitlines() if line.startswith(f"| `{field.name}` |"))
        _, kind, default, meaning = row.strip("|").split("|")
        assert unescape(re.sub(r"</?code>|`", "", kind)).strip() == field.type
        assert eval(default.strip(" `"), {"MiB": 1024 * 1024}) == field.default, row
        assert len(meaning) > 5, row


@pytest.mark.parametrize("client", [Consumer, AsyncConsumer, Producer, Admin])
def test_a_misspelt_keyword_is_refused_with_the_right_one(client):
    with pytest.raises(ConfigError, match="unknown setting 'client_idd'; did you mean 'client_id'"):
        client(client_idd="me")


@pytest.mark.parametrize("client", [Consumer, AsyncConsumer, Producer, Admin])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"bootstrap.servers": "x:1"}, r"\w+\.from_properties takes Kafka's names"),
        ("x:1", r"\w+\(bootstrap_servers='x:1'\)"),
        (["t"], "not list: settings go by keyword"),
    ],
)
def test_what_other_clients_take_by_position_is_refused_with_advice(client, given, why):
    with pytest.raises(TypeError, match=why):
        client(given)
    with pytest.raises(TypeError, match="not both"):
        client(AdminConfig(), client_id="x")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("group_id", 7, "group_id=7 must be a string, not int"),
        ("enable_auto_commit", "no", "must be True or False, not str"),
        ("max_poll_records", "500", "must be a whole number, not str"),
        ("max_poll_records", True, "must be a whole number, not bool"),
        ("session_timeout_ms", 6e3, "must be a whole number, not float"),
        ("fetch_min_bytes", -1, "must be a whole number of at least 0"),
        ("bootstrap_servers", 9092, "must be a string or a list of strings, not int"),
        ("bootstrap_servers", [9092], "must be a string or a list of strings, not list"),
        ("assignors", "range", "must be a list of names and assignors, not str"),
        ("interceptors", object(), "must be a list, not object"),
        ("value_deserializer", "utf-8", "must be callable, not str"),
        ("ssl_context", "x.pem", "must be an ssl.SSLContext, not str"),
        ("sasl_password", 12345, r"sasl_password=\*\*\* must be a string, not int"),
        ("client_id", None, "client_id=None must be a string, not NoneType"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_one_line(name, value, why):
    with pytest.raises(ConfigError, match=why) as caught:
        Consumer(**{name: value})
    assert "\n" not in str(caught.value)


PROGRAM = """
from shoal import Admin, AsyncConsumer, Consumer, Producer

Consumer(group_id="g", assignors=["sticky"], value_deserializer=bytes.decode)  # fine
AsyncConsumer(group_id="g", auto_offset_reset="earliest")  # fine
Producer(acks="all", partitioner=lambda topic, key, count: 0)  # fine
Admin(bootstrap_servers=["a:1", "b:2"])  # fine
Consumer(grop_id="g")  # grop_id
AsyncConsumer(grop_id="g")  # grop_id
Producer(linger="5")  # linger
Admin(group_id="g")  # group_id
Consumer(max_poll_records="500")  # max_poll_records
AsyncConsumer(enable_auto_commit="no")  # enable_auto_commit
Producer(linger_ms="5")  # linger_ms
Admin(bootstrap_servers=9092)  # bootstrap_servers
"""


@pytest.mark.slow
def test_a_type_checker_refuses_what_the_constructors_refuse(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    found = [line.split(":", 3) for line in done.stdout.splitlines() if "error:" in line]
    refused = {int(line): message for _, line, _, message in found}
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        name = line.partition("# ")[2]
        if name == "fine" or not name:
            assert number not in refused, refused
        else:
            assert name in refused[number], line
