"""OAUTHBEARER listeners: who gets in by a token, where keys come from; nothing fails open."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.broker.config import BrokerConfig, Listener, OAuthSettings, from_toml
from shoal.errors import ConfigError, ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from tests.broker.raw_client import RawClient
from tests.peers.identity_provider import (
    AUDIENCE,
    ISSUER,
    IdentityProvider,
    key_set,
    shared_key,
    unsecured,
)

KEY = shared_key()
ALL = MetadataRequest(topics=None)
LISTENER = Listener(port=0, sasl=("OAUTHBEARER",))


def settings(jwks: object, **more) -> BrokerConfig:
    oauth = OAuthSettings(jwks=str(jwks), issuer=ISSUER, audience=(AUDIENCE,))._replace(**more)
    return BrokerConfig(listeners=(LISTENER,), oauth=oauth)


def serve(config: BrokerConfig) -> Broker:
    return Broker(config=config, listeners=config.listeners)


def log_in(client: RawClient, token: str, first: bytes = b"n,,"):
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    message = first + b"\x01auth=Bearer " + token.encode() + b"\x01\x01"
    return client.ask(SaslAuthenticateRequest(auth_bytes=message), 2)


def is_in(broker: Broker, token: str) -> bool:
    with RawClient(broker.port) as client:
        answer = log_in(client, token)
        assert answer.error_code == 0
        return not answer.auth_bytes and bool(client.ask(ALL).brokers)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(KEY))
    return path


@pytest.fixture
def broker(keys) -> Iterator[Broker]:
    with serve(settings(keys)) as broker:
        yield broker


def reasons(broker: Broker) -> list[str]:
    lines = (broker.data_dir / "access.log").read_text().splitlines()
    return [line.get("reason", "") for line in map(json.loads, lines)]


def test_a_good_token_lets_in_as_its_subject_until_it_expires(broker):
    with RawClient(broker.port) as client:
        answer = log_in(client, KEY.token(sub="billing", exp=int(time.time()) + 100))
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
        assert 90_000 < answer.session_lifetime_ms <= 100_000
        assert client.ask(ALL).brokers
        sessions = broker.on_loop(lambda live: [one.session for one in live.server.connections])
        assert [one.principal for one in sessions] == ["User:billing"]


def test_a_bad_token_is_told_its_status_and_refused_with_the_next_message(broker):
    with RawClient(broker.port) as client:
        answer = log_in(client, KEY.token(iss="elsewhere"))
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        assert answer.session_lifetime_ms == 0
        heard = client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert heard.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert heard.error_message == '{"status":"invalid_token"}'
        assert client.is_cut()
    assert f"iss is 'elsewhere', not '{ISSUER}'" in reasons(broker)


def test_after_a_refusal_not_even_a_good_token_is_looked_at(broker):
    with RawClient(broker.port) as client:
        log_in(client, KEY.token(aud="other"))
        message = b"n,,\x01auth=Bearer " + KEY.token().encode() + b"\x01\x01"
        again = client.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_cut()


def test_nothing_is_served_between_a_refusal_and_its_end(broker):
    with RawClient(broker.port) as client:
        log_in(client, KEY.token(aud="other"))
        client.send(ALL, 1)
        assert client.is_cut()


def test_a_token_is_for_its_owner_alone(broker):
    with RawClient(broker.port) as client:
        assert not log_in(client, KEY.token(sub="ann"), b"n,a=ann,").auth_bytes
    with RawClient(broker.port) as client:
        assert log_in(client, KEY.token(sub="ann"), b"n,a=admin,").auth_bytes


def test_no_log_holds_a_token(broker, caplog):
    caplog.set_level("DEBUG")
    good, bad = KEY.token(), KEY.token(aud="other")
    assert is_in(broker, good)
    with RawClient(broker.port) as client:
        log_in(client, bad)
    for path in broker.data_dir.rglob("*"):
        if path.is_file():
            found = path.read_bytes()
            assert not any(part.encode() in found for part in (*good.split("."), *bad.split(".")))
    assert bad.split(".")[2] not in caplog.text


def test_a_token_that_was_checked_is_not_checked_again_until_keys_change(broker, keys):
    token = KEY.token()
    assert is_in(broker, token)
    assert is_in(broker, token)
    assert broker.on_loop(lambda live: len(live.oauth._checked)) == 1
    # The same key id, another key: what was right is wrong now.
    keys.write_bytes(key_set(shared_key("RS256", "foreign").jwk | {"kid": "one"}))
    with RawClient(broker.port) as client:
        assert log_in(client, token).auth_bytes


def test_a_cached_token_expires(broker):
    token = KEY.token(exp=int(time.time()) + 100)
    assert is_in(broker, token)
    broker.advance(131)
    with RawClient(broker.port) as client:
        assert log_in(client, token).auth_bytes


def test_keys_are_read_again_when_their_file_changes(broker, keys):
    new = shared_key("ES256", "two")
    with RawClient(broker.port) as client:
        assert log_in(client, new.token()).auth_bytes
    keys.write_bytes(key_set(new))
    assert is_in(broker, new.token())
    with RawClient(broker.port) as client:
        assert log_in(client, KEY.token()).auth_bytes


def test_a_half_written_key_file_keeps_the_keys_and_one_that_is_gone_takes_them(broker, keys):
    keys.write_bytes(key_set(KEY)[:40])
    assert is_in(broker, KEY.token())
    keys.unlink()
    with RawClient(broker.port) as client:
        assert log_in(client, KEY.token(sub="bob")).auth_bytes
    assert any("no key" in reason for reason in reasons(broker))


def test_keys_come_from_a_url_and_an_unknown_key_makes_us_look_again():
    new = shared_key("ES256", "two")
    with IdentityProvider() as provider, serve(settings(provider.jwks_url)) as broker:
        assert is_in(broker, provider.token())
        assert provider.asked == ["jwks"]
        provider.keys = [new]
        assert is_in(broker, new.token())
        assert provider.asked == ["jwks"] * 2
        # Strangers can write tokens with keys nobody knows: we do not ask for each.
        for number in range(3):
            with RawClient(broker.port) as client:
                assert log_in(client, new.token({"kid": f"unknown-{number}"})).auth_bytes
        assert provider.asked == ["jwks"] * 2


def test_a_url_is_asked_again_in_time_and_its_failure_keeps_the_keys():
    with IdentityProvider() as provider:
        config = settings(provider.jwks_url, jwks_refresh_seconds=0.05)
        with serve(config) as broker:
            provider.fails = True
            seen = len(provider.asked)
            while len(provider.asked) < seen + 3:
                time.sleep(0.01)
            assert is_in(broker, KEY.token())
            provider.keys, provider.fails = [shared_key("ES256", "two")], False
            oauth = broker.on_loop(lambda live: live.oauth)
            assert oauth is not None
            source = oauth.source
            assert source is not None
            while broker.on_loop(lambda _: source.keys.knows("one")):
                time.sleep(0.01)
            with RawClient(broker.port) as client:
                assert log_in(client, KEY.token()).auth_bytes


def test_keys_that_were_moved_are_not_followed():
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    with IdentityProvider() as provider:

        class Elsewhere(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(302)
                self.send_header("Location", provider.jwks_url)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/"
            with pytest.raises(ConfigError, match="the server answered 302"):
                serve(settings(url)).start()
            server.shutdown()
        assert provider.asked == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"nonsense", 'is not a JSON object with a list "keys"'),
        (b'{"keys": []}', "it has no keys"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "kty 'oct'"),
    ],
)
def test_a_listener_without_keys_does_not_start(tmp_path, content, reason):
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"no keys to check tokens with, .*{reason}"):
        serve(settings(path)).start()


def test_a_listener_whose_url_does_not_answer_does_not_start():
    with IdentityProvider() as provider:
        url = provider.jwks_url
    with pytest.raises(ConfigError, match="no keys to check tokens with"):
        serve(settings(url)).start()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"jwks": ""}, "oauth.jwks is missing"),
        ({"issuer": ""}, "oauth.issuer is missing"),
        ({"audience": ()}, "oauth.audience is missing"),
        ({"jwks": "http://login.example.org/keys"}, "by https"),
        ({"jwks": "ftp://localhost/keys"}, "by https"),
        ({"jwks": "http://localhost.example.org/keys"}, "by https"),
        ({"algorithms": ("HS256",)}, "'HS256' is not one of"),
        ({"algorithms": ("none",)}, "'none' is not one of"),
        ({"clock_skew_seconds": -1}, "must be positive"),
        ({"unsecured": True}, "need no jwks"),
    ],
)
def test_settings_that_would_let_strangers_in_are_refused(change, reason):
    with pytest.raises(ConfigError, match=reason):
        settings(**{"jwks": "keys.json"} | change).checked()


def test_tokens_without_any_settings_are_refused():
    with pytest.raises(ConfigError, match=r"add \[oauth\] with jwks, issuer and audience"):
        BrokerConfig(listeners=(LISTENER,)).checked()


def test_tokens_do_not_travel_readably():
    public = Listener("0.0.0.0", 9092, sasl=("OAUTHBEARER",))
    with pytest.raises(ConfigError, match="OAUTHBEARER sends tokens readably"):
        settings("keys.json")._replace(listeners=(public,)).checked()


def test_unsecured_tokens_are_for_this_machine_alone():
    unsafe = OAuthSettings(unsecured=True)
    public = Listener(
        "0.0.0.0", 9092, sasl=("OAUTHBEARER",), certificate_file="c.pem", key_file="k.pem"
    )
    with pytest.raises(ConfigError, match="lets anybody in"):
        BrokerConfig(listeners=(public,), oauth=unsafe).checked()
    with serve(BrokerConfig(listeners=(LISTENER,), oauth=unsafe)) as broker:
        assert is_in(broker, unsecured())
        with RawClient(broker.port) as client:
            assert log_in(client, KEY.token()).auth_bytes


def test_a_signed_listener_takes_no_unsecured_token(broker):
    with RawClient(broker.port) as client:
        assert log_in(client, unsecured(iss=ISSUER, aud=AUDIENCE)).auth_bytes


def test_a_file_sets_what_tokens_are_good():
    config = from_toml(
        """
        [[listener]]
        address = "127.0.0.1:9093"
        sasl = ["OAUTHBEARER"]
        max_reauth_ms = 60000
        [oauth]
        jwks = "https://login.example.org/keys"
        issuer = "https://login.example.org"
        audience = ["kafka"]
        required_scope = ["kafka.read"]
        clock_skew_seconds = 5
        """
    ).checked()
    assert config.listeners[0].max_reauth_ms == 60_000
    assert config.oauth is not None
    assert config.oauth.audience == ("kafka",)
    assert config.oauth.required_scope == ("kafka.read",)


def test_a_flag_opens_a_listener_for_unsecured_tokens(tmp_path):
    from shoal.broker.flags import build_config

    built = build_config(sasl=["OAUTHBEARER"], insecure_tokens=True)
    assert built.oauth == OAuthSettings(unsecured=True)
    file = tmp_path / "broker.toml"
    file.write_text('[oauth]\njwks = "k"\nissuer = "i"\naudience = ["a"]\n')
    with pytest.raises(ConfigError, match="contradicts"):
        build_config(config_file=str(file), sasl=["OAUTHBEARER"], insecure_tokens=True)


def test_ten_thousand_tokens_do_not_stay_in_memory(broker, monkeypatch):
    monkeypatch.setattr("shoal.broker.oauth._CHECKED_MAX", 3)
    for number in range(5):
        assert is_in(broker, KEY.token(jti=str(number)))
    assert broker.on_loop(lambda live: len(live.oauth._checked)) == 3


def test_a_login_with_a_checked_token_takes_less_than_a_millisecond(broker):
    token = KEY.token()
    assert is_in(broker, token)

    async def spent(oauth, times):
        began = time.thread_time()
        for _ in range(times):
            await oauth.owner(token)
        return (time.thread_time() - began) / times

    assert broker._run(spent(broker.live.oauth, 50)) < 0.001
