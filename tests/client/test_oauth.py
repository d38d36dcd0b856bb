"""Tokens of our clients: where they come from, when they are renewed, that nobody reads them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal import Admin, AsyncConsumer, Consumer, Producer, TopicPartition
from shoal.broker.config import BrokerConfig, Listener, OAuthSettings
from shoal.client.config import AdminConfig
from shoal.client.oauth import TokenSource
from shoal.client.security import bearer
from shoal.errors import AuthenticationError, ConfigError, ConnectionFailedError
from shoal.testing.broker import Broker
from tests.client.conftest import take
from tests.patience import PATIENCE_S
from tests.peers.identity_provider import (
    AUDIENCE,
    ISSUER,
    IdentityProvider,
    text,
    unsecured,
)

SECRET = "client-s3cret"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


def start(provider: IdentityProvider, max_reauth_ms: int = 0) -> Broker:
    oauth = OAuthSettings(jwks=provider.jwks_url, issuer=ISSUER, audience=(AUDIENCE,))
    listener = Listener(port=0, sasl=("OAUTHBEARER",), max_reauth_ms=max_reauth_ms)
    return Broker(config=BrokerConfig(oauth=oauth), listeners=(listener,), topics=["t"])


def with_token(token, **more):
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token": token,
    } | more


def with_endpoint(provider, **more):
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": provider.token_url,
        "sasl_oauthbearer_client_id": "app",
        "sasl_oauthbearer_client_secret": SECRET,
    } | more


def source(settings, clock=time.time) -> TokenSource:
    return TokenSource(AdminConfig(**settings), clock)


# --- against a broker -------------------------------------------------------------------------


def test_every_client_logs_in_by_the_client_credentials_grant(provider):
    with start(provider) as broker:
        settings = with_endpoint(
            provider, bootstrap_servers=broker.bootstrap_servers, sasl_oauthbearer_scope="kafka"
        )
        with Producer(linger_ms=0, **settings) as producer:
            producer.send("t", b"hello").result(10)
        with Consumer(auto_offset_reset="earliest", **settings) as one:
            one.assign([TopicPartition("t", 0)])
            assert take(one, 1)[0].value == b"hello"
        with Admin(**settings) as admin:
            assert "t" in admin.list_topics()
        # A token per client, however many connections it has.
        assert [asked for asked in provider.asked if asked != "jwks"] == ["kafka"] * 3
        names = (broker.data_dir / "access.log").read_text()
        assert '"User:ann"' in names


class Provider:
    """As kafka-python and aiokafka want it, but for their base classes."""

    def __init__(self, token):
        self._token = token

    def token(self):
        return self._token

    def extensions(self):
        return {"logicalCluster": "lkc-1"}


class AsyncProvider(Provider):
    async def token(self):
        await asyncio.sleep(0)
        return self._token


@pytest.mark.parametrize(
    "kind", ["callable", "with expiry", "async callable", "object", "async object", "file"]
)
def test_a_token_comes_from_whatever_has_one(provider, tmp_path, kind):
    token = provider.token()

    async def later():
        return token

    file = tmp_path / "token"
    file.write_text(token + "\n")
    found = {
        "callable": lambda: token,
        "with expiry": lambda: (token, time.time() + 60),
        "async callable": later,
        "object": Provider(token),
        "async object": AsyncProvider(token),
        "file": None,
    }[kind]
    settings = with_token(found)
    if kind == "file":
        settings["sasl_oauthbearer_token_file"] = str(file)
    with (
        start(provider) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers, **settings) as admin,
    ):
        assert "t" in admin.list_topics(timeout=10)


def test_a_refused_token_is_an_authentication_error_and_the_next_login_brings_another(provider):
    tokens = [provider.token(aud="other"), provider.token()]
    with start(provider) as broker:
        settings = with_token(lambda: tokens.pop(0), bootstrap_servers=broker.bootstrap_servers)
        with Admin(**settings) as admin:
            with pytest.raises(AuthenticationError, match="invalid_token") as caught:
                admin.list_topics(timeout=10)
            assert "eyJ" not in str(caught.value)
            assert "t" in admin.list_topics(timeout=10)


def test_a_client_that_does_not_know_the_secret_says_who_refused_it(provider):
    provider.secrets = {}
    with start(provider) as broker:
        settings = with_endpoint(provider, bootstrap_servers=broker.bootstrap_servers)
        with (
            Admin(**settings) as admin,
            pytest.raises(AuthenticationError, match="gave no token: 401 invalid_client") as caught,
        ):
            admin.list_topics(timeout=10)
        assert SECRET not in str(caught.value)


def test_an_endpoint_that_comes_back_is_waited_for(provider):
    with start(provider) as broker:
        provider.fails = True
        settings = with_endpoint(provider, bootstrap_servers=broker.bootstrap_servers)
        with Admin(**settings) as admin:

            def heal() -> None:
                while not [one for one in provider.asked if one != "jwks"]:
                    time.sleep(0.01)
                provider.fails = False

            thread = threading.Thread(target=heal)
            thread.start()
            assert "t" in admin.list_topics(timeout=20)
            thread.join()


# --- proving it again (KIP-368) ------------------------------------------------------------------


def renewals(broker) -> int:
    return broker.counters()["requests"].get("SaslHandshake", 0)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "SCRAM-SHA-256", "PLAIN"])
def test_producers_and_consumers_prove_again_who_they_are_and_lose_nothing(provider, mechanism):
    oauth = OAuthSettings(jwks=provider.jwks_url, issuer=ISSUER, audience=(AUDIENCE,))
    listener = Listener(port=0, sasl=(mechanism,), max_reauth_ms=1_500)
    settings = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "ann",
        "sasl_password": "s3cret",
    }
    if mechanism == "OAUTHBEARER":
        settings = with_endpoint(provider)
    config = BrokerConfig(oauth=oauth)
    users = {"ann": "s3cret"}
    with Broker(config=config, listeners=(listener,), topics=["t"], users=users) as broker:
        settings["bootstrap_servers"] = broker.bootstrap_servers
        with (
            Producer(linger_ms=0, **settings) as producer,
            Consumer(group_id="g", auto_offset_reset="earliest", **settings) as one,
        ):
            one.subscribe(["t"])
            producer.send("t", b"0").result(10)
            read = [record.value for record in take(one, 1)]
            accepted, shaken = broker.counters()["connections_accepted"], renewals(broker)
            sent = 1
            deadline = time.monotonic() + PATIENCE_S
            while renewals(broker) < shaken + 6 or len(read) < sent:
                for _ in range(20 if renewals(broker) < shaken + 6 else 0):
                    producer.send("t", b"%d" % sent)
                    sent += 1
                more = [record.value for record in one.poll(0.1)]
                read += more
                if more:
                    deadline = time.monotonic() + PATIENCE_S
                if time.monotonic() > deadline:
                    producer.close(0)
                    one.close(0)
                    break
            assert read == [b"%d" % number for number in range(sent)]
            assert renewals(broker) >= shaken + 6
            # On the connections that were open: nobody was cut off.
            assert broker.counters()["connections_accepted"] == accepted
            assert not broker.counters()["refused"]


@pytest.mark.slow
def test_a_member_that_only_waits_proves_it_too(provider):
    with start(provider, max_reauth_ms=1_500) as broker:

        async def wait() -> None:
            settings = with_endpoint(provider, bootstrap_servers=broker.bootstrap_servers)
            async with AsyncConsumer(group_id="g", **settings) as one:
                await one.subscribe(["t"])
                await one.poll(1)
                shaken, accepted = renewals(broker), broker.counters()["connections_accepted"]
                for _ in range(200):
                    await one.poll(0.1)
                    if renewals(broker) >= shaken + 4:
                        break
                assert renewals(broker) >= shaken + 4
                assert broker.counters()["connections_accepted"] == accepted

        asyncio.run(wait())


@pytest.mark.slow
def test_a_token_is_renewed_before_it_expires(provider):
    provider.lifetime_s = 4
    with start(provider) as broker:
        settings = with_endpoint(provider, bootstrap_servers=broker.bootstrap_servers)
        with Producer(linger_ms=0, **settings) as producer:
            producer.send("t", b"x").result(10)
            accepted = broker.counters()["connections_accepted"]
            deadline = time.monotonic() + 30
            while provider.asked.count("") < 3 and time.monotonic() < deadline:
                producer.send("t", b"x").result(10)
                time.sleep(0.05)
            assert provider.asked.count("") >= 3
            assert broker.counters()["connections_accepted"] == accepted


@pytest.mark.slow
def test_a_renewal_that_is_refused_ends_in_an_authentication_error(provider):
    listener = Listener(port=0, sasl=("PLAIN",), max_reauth_ms=1_200)
    with Broker(listeners=(listener,), topics=["t"], users={"ann": "before"}) as broker:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_username": "ann",
            "sasl_password": "before",
        }
        with Admin(**settings) as admin:
            admin.list_topics(timeout=10)
            broker.on_loop(lambda live: live.users.set_password("ann", "after"))

            def until_it_is_noticed() -> None:
                for _ in range(100):
                    admin.list_topics(timeout=10)
                    time.sleep(0.05)

            with pytest.raises(AuthenticationError):
                until_it_is_noticed()


# --- the source by itself ----------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_asked_for_again_when_most_of_its_life_is_over():
    clock, calls = Clock(), []

    def token():
        calls.append(clock.now)
        return f"token-{len(calls)}", clock.now + 100

    one = source(with_token(token), clock)
    assert one._current().text == one._current().text == "token-1"
    clock.now += 74
    assert one._current().text == "token-1"
    clock.now += 12
    assert one._current().text == "token-2"
    one.forget()
    assert one._current().text == "token-3"


def test_a_token_that_cannot_be_renewed_is_used_while_it_is_good(caplog):
    clock = Clock()
    answers = ["token-1"]

    def token():
        if not answers:
            raise ConnectionError("no network")
        return answers.pop(), clock.now + 100

    one = source(with_token(token), clock)
    assert one._current().text == "token-1"
    clock.now += 90
    with caplog.at_level(logging.WARNING):
        assert one._current().text == "token-1"
    assert "good for a while" in caplog.text
    clock.now += 10
    with pytest.raises(ConnectionFailedError, match="no network"):
        one._current()


def test_expiry_is_read_from_the_token_and_an_opaque_one_is_asked_for_each_time(tmp_path):
    clock = Clock()
    body = text(json.dumps({"exp": clock.now + 100}).encode())
    assert source(with_token(lambda: f"h.{body}.s"), clock)._current().expires_s == clock.now + 100
    file = tmp_path / "token"
    one = source(with_token(None, sasl_oauthbearer_token_file=str(file)), clock)
    for word in ("first", "second"):
        file.write_text(word)
        assert one._current().text == word
    file.unlink()
    with pytest.raises(AuthenticationError, match="cannot read sasl_oauthbearer_token_file"):
        one._current()


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (None, "must return a token as str"),
        (b"token", "must return a token as str"),
        (("a", "soon"), "must return a token as str"),
        (("a", True), "must return a token as str"),
        ("a b", "has something else"),
        ("", "has something else"),
        ("a\x01auth=Bearer b", "has something else"),
    ],
)
def test_what_is_no_token_is_refused_without_being_shown(result, reason):
    with pytest.raises(AuthenticationError, match=reason) as caught:
        source(with_token(lambda: result))._current()
    assert "Bearer b" not in str(caught.value)


def test_what_a_callable_raises_is_kept_as_the_cause():
    def token():
        raise RuntimeError("secret in here")

    with pytest.raises(AuthenticationError, match="raised RuntimeError") as caught:
        source(with_token(token))._current()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "secret in here" not in str(caught.value)


def test_extensions_go_with_the_token():
    one = source(with_token(Provider("a.b.c"), sasl_oauthbearer_extensions="identityPoolId=pool-1"))
    exchange = bearer(one._current())
    assert next(exchange) == (
        b"n,,\x01auth=Bearer a.b.c\x01identityPoolId=pool-1\x01logicalCluster=lkc-1\x01\x01"
    )


@pytest.mark.parametrize("extensions", ["novalue", "x-y=1", "auth=Bearer", "=1"])
def test_an_extension_that_cannot_be_sent_is_refused_at_once(extensions):
    with pytest.raises(ConfigError, match="sasl_oauthbearer_extensions has"):
        AdminConfig(**with_token(lambda: "x", sasl_oauthbearer_extensions=extensions))


def test_secrets_are_in_no_text(provider, caplog):
    caplog.set_level(logging.DEBUG)
    config = AdminConfig(**with_endpoint(provider))
    found = TokenSource(config)._current()
    assert SECRET not in repr(config)
    assert found.text not in repr(found)
    assert found.text not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sasl_oauthbearer_token": None}, "and none is given"),
        ({"sasl_oauthbearer_token_file": "f"}, "not sasl_oauthbearer_token and"),
        ({"sasl_oauthbearer_scope": "x"}, "needs sasl_oauthbearer_token_endpoint_url"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}, "OAUTHBEARER"),
        ({"bootstrap_servers": "kafka.example.org:9092"}, "send the token readably"),
        ({"sasl_oauthbearer_token": "a token"}, r"\*\*\* must be callable or an object"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        AdminConfig(**with_token(lambda: "x") | settings)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://login.example.org/token", "would send the secret readably"),
        ("https://app:s3cret@login.example.org/token", "is not https://host/path"),
        ("file:///etc/passwd", "is not https://host/path"),
        ("login.example.org", "is not https://host/path"),
    ],
)
def test_a_secret_goes_nowhere_readably(provider, url, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        AdminConfig(**with_endpoint(provider, sasl_oauthbearer_token_endpoint_url=url))
    assert "s3cret" not in str(caught.value)


def test_properties_of_java_and_librdkafka_mean_the_same():
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="app" clientSecret="s\\"cret" scope="kafka" extension_pool="p1";'
        ),
    }
    confluent = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": 's"cret',
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "pool=p1",
    }
    assert AdminConfig.from_properties(java) == AdminConfig.from_properties(confluent)


def test_a_callable_may_be_named_in_a_properties_file():
    config = AdminConfig.from_properties(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token": "tests.peers.identity_provider:unsecured",
        }
    )
    assert config.sasl_oauthbearer_token is unsecured


def test_a_redirect_is_not_followed_with_the_secret(provider):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(302)
            self.send_header("Location", provider.token_url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        with pytest.raises(AuthenticationError, match="gave no token: 302"):
            source(with_endpoint(provider, sasl_oauthbearer_token_endpoint_url=url))._current()
        server.shutdown()
    assert provider.asked == []
