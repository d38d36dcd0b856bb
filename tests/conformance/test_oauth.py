"""OAUTHBEARER between others and us: their clients at our broker, our client at Apache Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import Admin, Consumer, Producer, TopicPartition
from shoal.broker.config import BrokerConfig, Listener, OAuthSettings
from shoal.errors import AuthenticationError
from shoal.testing.broker import Broker
from tests.peers import need
from tests.peers.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ALLOWED_URLS, ApacheKafka, tool

pytestmark = pytest.mark.peer

SECRET = "client-s3cret"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture
def broker(provider) -> Iterator[Broker]:
    oauth = OAuthSettings(jwks=provider.jwks_url, issuer=ISSUER, audience=(AUDIENCE,))
    listener = Listener(port=0, sasl=("OAUTHBEARER",))
    config = BrokerConfig(oauth=oauth)
    with Broker(config=config, listeners=(listener,), topics=["t"]) as broker:
        yield broker


def end_offset(broker: Broker) -> int:
    partition = broker.on_loop(lambda live: live.partitions.opened("t", 0))
    assert partition is not None
    return broker.on_loop(lambda _: partition.log.end_offset)


@pytest.mark.parametrize("how", ["callback", "oidc"])
def test_confluent_kafka_logs_in_by_a_token(broker, provider, how):
    confluent = pytest.importorskip("confluent_kafka")
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "log_level": 2,
    }
    if how == "callback":
        settings["oauth_cb"] = lambda _: (provider.token(), time.time() + provider.lifetime_s)
    else:
        settings |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": provider.token_url,
            "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
        }
    producer = confluent.Producer(settings)
    producer.produce("t", b"x")
    assert producer.flush(20) == 0
    assert end_offset(broker) == 1


def test_confluent_kafka_proves_it_again_on_the_same_connection(broker, provider):
    confluent = pytest.importorskip("confluent_kafka")
    provider.lifetime_s = 12

    def token(_):
        # It is renewed at 80 % of the first number and shown at 90 % of the second.
        return provider.token(), time.time() + 6

    producer = confluent.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": token,
            "log_level": 2,
        }
    )
    producer.produce("t", b"x")
    assert producer.flush(20) == 0
    before = broker.counters()
    deadline = time.monotonic() + 30
    sent = 1
    while time.monotonic() < deadline:
        producer.produce("t", b"x")
        sent += 1
        assert producer.flush(20) == 0
        now = broker.counters()
        if now["requests"]["SaslHandshake"] > before["requests"]["SaslHandshake"] + 1:
            break
        time.sleep(0.1)
    assert now["requests"]["SaslHandshake"] > before["requests"]["SaslHandshake"]
    assert not now["refused"]
    assert end_offset(broker) == sent


def test_kafka_python_logs_in_by_a_token(broker, provider):
    kafka = pytest.importorskip("kafka")
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self):
            return provider.token()

    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    assert producer.send("t", b"x").get(20).offset == 0
    producer.close()


def test_aiokafka_logs_in_by_a_token(broker, provider):
    aiokafka = pytest.importorskip("aiokafka")
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        async def token(self):
            return provider.token()

    async def send() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        await producer.start()
        try:
            return (await producer.send_and_wait("t", b"x")).offset
        finally:
            await producer.stop()

    assert asyncio.run(send()) == 0


def test_providers_of_other_clients_work_in_ours_as_they_are(broker, provider):
    pytest.importorskip("aiokafka")
    pytest.importorskip("kafka")
    from aiokafka.abc import AbstractTokenProvider as OfAiokafka
    from kafka.net.sasl.oauth import AbstractTokenProvider as OfKafkaPython

    class One(OfAiokafka):
        async def token(self):
            return provider.token()

    class Two(OfKafkaPython):
        def token(self):
            return provider.token()

    for found in (One(), Two()):
        with Admin(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token=found,
        ) as admin:
            assert "t" in admin.list_topics(timeout=10)


@pytest.mark.slow
def test_javas_tools_log_in_by_the_client_credentials_grant(
    broker, provider, tmp_path: Path, monkeypatch
):
    need(kafka_jars)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-D{ALLOWED_URLS}={provider.token_url}")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin"
    lines = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{module}CallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.jaas.config": f'{module}Module required clientId="app" clientSecret="{SECRET}";',
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    shown = tool("TopicCommand", *servers, "--list", "--command-config", str(file))
    assert shown.stdout.split() == ["t"], shown.stderr[-500:]


@pytest.mark.kafka
@pytest.mark.slow
def test_our_client_logs_in_at_apache_kafka_and_proves_it_again(provider):
    need(kafka_jars)
    provider.lifetime_s = 6
    tokens = {"jwks": provider.jwks_url, "issuer": ISSUER, "audience": AUDIENCE}
    with ApacheKafka(tokens=tokens, heap="512m") as kafka:
        settings = {
            "bootstrap_servers": f"127.0.0.1:{kafka.guarded_port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": provider.token_url,
            "sasl_oauthbearer_client_id": "app",
            "sasl_oauthbearer_client_secret": SECRET,
        }
        with Admin(**settings) as admin:
            admin.create_topic("t", partitions=1)
        with Producer(linger_ms=0, **settings) as producer:
            sent, began = 0, time.monotonic()
            # Over three lives of a token: each is shown on the open connection.
            while time.monotonic() - began < 18:
                producer.send("t", b"%d" % sent).result(20)
                sent += 1
                time.sleep(0.05)
        with Consumer(auto_offset_reset="earliest", **settings) as one:
            one.assign([TopicPartition("t", 0)])
            read: list[bytes] = []
            while len(read) < sent:
                read += [record.value for record in one.poll(1.0)]
        assert read == [b"%d" % number for number in range(sent)]
        granted = len([asked for asked in provider.asked if asked != "jwks"])
        assert granted >= 5
        wrong = settings | {
            "sasl_oauthbearer_token_endpoint_url": None,
            "sasl_oauthbearer_client_id": None,
            "sasl_oauthbearer_client_secret": None,
            "sasl_oauthbearer_token": lambda: provider.token(aud="other"),
        }
        with Admin(**wrong) as admin, pytest.raises(AuthenticationError, match="invalid_token"):
            admin.list_topics(timeout=10)
