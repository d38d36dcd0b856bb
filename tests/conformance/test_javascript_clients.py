"""kafkajs and @platformatic/kafka against our broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.python_clients import Door
from tests.peers import need
from tests.peers.clients import npm_clients, run_node

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).parent / "scripts"
kafkajs = pytest.mark.parametrize("client", ["kafkajs"])
platformatic = pytest.mark.parametrize("client", ["@platformatic/kafka"])


def run(script: str, door: Door, topic: str, step: str) -> None:
    need(npm_clients)
    secrets = [door.ca_file, door.user, door.password or ""] if door.ca_file else []
    group = f"g-{topic}"
    found = run_node(SCRIPTS / script, door.servers, topic, group, step, *map(str, secrets))
    assert found.strip().endswith("ok")


@kafkajs
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_produces_and_consumes(client, codec, door, topic):
    run("kafkajs.js", door, topic, "plain" if codec == "none" else codec)


@kafkajs
def test_produces_idempotently(client, door, topic):
    run("kafkajs.js", door, topic, "idempotent")


@kafkajs
def test_shares_a_topic_by_roundrobin(client, door, topic):
    run("kafkajs.js", door, topic, "share")


@kafkajs
def test_resets_offsets(client, door, topic):
    run("kafkajs.js", door, topic, "offsets")


@kafkajs
def test_uses_tls_and_scram(client, guarded_door, topic):
    run("kafkajs.js", guarded_door, topic, "plain")


@platformatic
@pytest.mark.parametrize("codec", ["none"])
def test_produces_consumes_and_describes(client, codec, door, topic):
    run("platformatic.js", door, topic, "plain")
