"""Names that have to be proved again (KIP-368): how long they count, what a renewal may be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.broker.config import BrokerConfig, Listener, OAuthSettings
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from tests.broker.asking import produce
from tests.broker.raw_client import RawClient, batch
from tests.broker.test_scram import prove
from tests.peers.identity_provider import unsecured

ALL = MetadataRequest(topics=None)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LIFE_MS = 60_000


def start(max_reauth_ms: int) -> Broker:
    listener = Listener(port=0, sasl=MECHANISMS, max_reauth_ms=max_reauth_ms)
    config = BrokerConfig(oauth=OAuthSettings(unsecured=True))
    users = {"ann": "s3cret", "bob": "b0bs"}
    return Broker(config=config, listeners=(listener,), users=users, topics=["t"])


@pytest.fixture(scope="module")
def limited() -> Iterator[Broker]:
    with start(LIFE_MS) as broker:
        yield broker


@pytest.fixture(scope="module")
def unlimited() -> Iterator[Broker]:
    with start(0) as broker:
        yield broker


def prove_name(broker, client, mechanism, user="ann", password="s3cret", life_s=3600):
    """Handshake and tokens; the last answer."""
    shaken = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    if shaken.error_code:
        return shaken
    tokens = [f"\0{user}\0{password}".encode()]
    if mechanism == "OAUTHBEARER":
        now = broker.live.now_ms() // 1000
        token = unsecured(sub=user, iat=now - 60, exp=now + life_s)
        tokens = [f"n,,\x01auth=Bearer {token}\x01\x01".encode()]
    elif mechanism.startswith("SCRAM"):
        first = f"n,,n={user},r=clientnonce".encode()
        challenge = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        assert challenge.session_lifetime_ms == 0
        tokens = [prove(mechanism, password, first, bytes(challenge.auth_bytes))[0]]
    return client.ask(SaslAuthenticateRequest(auth_bytes=tokens[0]), 2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_name_counts_as_long_as_it_is_said_and_can_be_proved_again(limited, mechanism):
    with RawClient(limited.port) as client:
        first = prove_name(limited, client, mechanism)
        assert LIFE_MS - 5_000 < first.session_lifetime_ms <= LIFE_MS
        limited.advance(50)
        assert client.ask(ALL).brokers
        again = prove_name(limited, client, mechanism)
        assert again.error_code == 0
        assert LIFE_MS - 5_000 < again.session_lifetime_ms <= LIFE_MS
        limited.advance(50)
        assert client.ask(ALL).brokers
        limited.advance(11)
        client.send(ALL, 1)
        assert client.is_cut()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_after_its_end_a_session_can_still_be_renewed_but_nothing_else(limited, mechanism):
    with RawClient(limited.port) as client, RawClient(limited.port) as silent:
        prove_name(limited, client, mechanism)
        prove_name(limited, silent, mechanism)
        limited.advance(61)
        assert prove_name(limited, client, mechanism).error_code == 0
        assert client.ask(ALL).brokers
        silent.send(ApiVersionsRequest(), 0)
        assert silent.is_cut()


def test_the_quick_way_of_producing_ends_with_the_session_too(limited):
    with RawClient(limited.port) as client:
        prove_name(limited, client, "PLAIN")
        for _ in range(3):
            assert produce(client, "t", batch(b"x")).error_code == 0
        end = limited.on_loop(lambda live: live.partitions.opened("t", 0).log.end_offset)
        limited.advance(61)
        with pytest.raises((AssertionError, ConnectionError)):
            produce(client, "t", batch(b"late"))
    after = limited.on_loop(lambda live: live.partitions.opened("t", 0).log.end_offset)
    assert after == end


def test_nothing_is_produced_in_the_middle_of_a_renewal(limited):
    with RawClient(limited.port) as client:
        prove_name(limited, client, "PLAIN")
        for _ in range(3):
            assert produce(client, "t", batch(b"x")).error_code == 0
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        with pytest.raises((AssertionError, ConnectionError)):
            produce(client, "t", batch(b"x"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_renewal_is_that_of_the_same_principal(limited, mechanism):
    with RawClient(limited.port) as client:
        prove_name(limited, client, mechanism)
        answer = prove_name(limited, client, mechanism, "bob", "b0bs")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "same principal" in answer.error_message
        assert client.is_cut()


def test_a_renewal_is_by_the_same_mechanism(limited):
    with RawClient(limited.port) as client:
        prove_name(limited, client, "SCRAM-SHA-256")
        answer = prove_name(limited, client, "PLAIN")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert list(answer.mechanisms) == ["SCRAM-SHA-256"]


def test_a_wrong_password_at_a_renewal_ends_the_connection(limited):
    with RawClient(limited.port) as client:
        prove_name(limited, client, "SCRAM-SHA-256")
        answer = prove_name(limited, client, "SCRAM-SHA-256", "ann", "old")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_cut()


def test_a_second_renewal_within_a_second_is_refused(limited):
    with RawClient(limited.port) as client:
        prove_name(limited, client, "PLAIN")
        assert prove_name(limited, client, "PLAIN").error_code == 0
        again = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(ALL).brokers
        limited.advance(2)
        assert prove_name(limited, client, "PLAIN").error_code == 0


def test_many_renewals_are_no_flood_before_authentication(limited):
    with RawClient(limited.port) as client:
        for _ in range(12):
            assert prove_name(limited, client, "SCRAM-SHA-256").error_code == 0
            limited.advance(2)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_without_the_setting_a_password_counts_for_ever(unlimited, mechanism):
    with RawClient(unlimited.port) as client:
        assert prove_name(unlimited, client, mechanism).session_lifetime_ms == 0
        unlimited.advance(10 * 24 * 3600)
        assert client.ask(ALL).brokers
        again = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_token_ends_its_session_without_the_setting(unlimited):
    with RawClient(unlimited.port) as client:
        life = prove_name(unlimited, client, "OAUTHBEARER", life_s=100).session_lifetime_ms
        assert 90_000 < life <= 100_000
        unlimited.advance(101)
        client.send(ALL, 1)
        assert client.is_cut()


def test_the_shorter_of_token_and_setting_counts(limited):
    with RawClient(limited.port) as client:
        life = prove_name(limited, client, "OAUTHBEARER", life_s=20).session_lifetime_ms
        assert 10_000 < life <= 20_000
    with RawClient(limited.port) as client:
        life = prove_name(limited, client, "OAUTHBEARER", life_s=200).session_lifetime_ms
        assert LIFE_MS - 5_000 < life <= LIFE_MS


def test_a_changed_password_is_noticed_at_the_renewal(limited):
    limited.on_loop(lambda live: live.users.set_password("eve", "before"))
    with RawClient(limited.port) as client:
        assert prove_name(limited, client, "PLAIN", "eve", "before").error_code == 0
        limited.on_loop(lambda live: live.users.set_password("eve", "after"))
        assert client.ask(ALL).brokers
        limited.advance(2)
        assert prove_name(limited, client, "PLAIN", "eve", "before").error_code
    with RawClient(limited.port) as client:
        assert prove_name(limited, client, "PLAIN", "eve", "after").error_code == 0


def test_a_clock_that_is_set_back_does_not_lengthen_a_session(limited, monkeypatch):
    with RawClient(limited.port) as client:
        prove_name(limited, client, "PLAIN")
        real = limited.live._platform.now_ms
        monkeypatch.setattr(limited.live._platform, "now_ms", lambda: real() - 3_600_000)
        limited.advance(61)
        client.send(ALL, 1)
        assert client.is_cut()
