"""What somebody may do who has not said who they are, seen from their side."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest

from shoal.broker import users as users_module
from shoal.broker.config import BrokerConfig, BrokerLimits, Listener
from shoal.broker.scram import HASHES, make_credential
from shoal.broker.users import Users
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.broker.raw_client import RawClient
from tests.broker.test_security import (
    ALL,
    MECHANISMS,
    SECRET,
    Certificates,
    authenticate,
    handshake,
    scram,
    tls_listener,
)

GUARDED = Listener(port=0, sasl=MECHANISMS)
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


def broker_with(*listeners: Listener, **limits: Any) -> Broker:
    config = BrokerConfig(limits=BrokerLimits()._replace(**limits))
    return Broker(config=config, listeners=listeners, users={"ada": SECRET})


def log_in(client: RawClient) -> None:
    handshake(client, "PLAIN")
    assert authenticate(client, b"\0ada\0" + SECRET.encode()).error_code == 0


def test_idle_sockets_of_one_address_keep_nobody_from_logging_in():
    with broker_with(GUARDED, unauthenticated_connections=5) as broker:
        began = RawClient(broker.port)
        handshake(began, "PLAIN")
        idle = [RawClient(broker.port) for _ in range(4)]
        with RawClient(broker.port) as late:
            log_in(late)
            assert late.ask(ALL).brokers
        assert idle[0].is_cut(), "the oldest of those who said nothing gave way"
        assert authenticate(began, b"\0ada\0" + SECRET.encode()).error_code == 0
        for client in (began, *idle):
            client.sock.close()


def test_a_tls_handshake_has_a_deadline_and_ends_it(tmp_path):
    certificates = Certificates(tmp_path)
    with (
        broker_with(tls_listener(certificates), authentication_seconds=0.0) as broker,
        socket.create_connection(("127.0.0.1", broker.port), timeout=10) as silent,
        socket.create_connection(("127.0.0.1", broker.port), timeout=10) as sock,
    ):
        context = ssl.create_default_context(cafile=str(certificates.authority_file))
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as done:
            broker.on_loop(lambda live: live.server.check_deadlines())
            assert silent.recv(1) == b""
            done.settimeout(0.2)
            with pytest.raises(TimeoutError):
                done.recv(1)


@pytest.mark.parametrize("version", [0, 1])
def test_requests_before_a_login_are_counted(version):
    with broker_with(GUARDED) as broker, RawClient(broker.port) as client:
        for _ in range(19):
            assert client.ask(ApiVersionsRequest(), 0).api_keys
        if version:
            assert client.ask(ApiVersionsRequest(), 0).api_keys
            client.send(ApiVersionsRequest(), 0)
        else:
            handshake(client, "SCRAM-SHA-256", 0)
            client.sock.sendall(b"\0\0\0\1x")
        assert client.is_cut()
    with (
        broker_with(GUARDED, requests_before_authentication=3) as broker,
        RawClient(broker.port) as client,
    ):
        log_in(client)
        for _ in range(5):
            assert client.ask(ALL).brokers


def challenge(port: int, user: str, mechanism: str) -> dict[str, str]:
    with RawClient(port) as client:
        handshake(client, mechanism)
        answer = authenticate(client, f"n,,n={user},r=clientnonce".encode())
    return dict(part.split("=", 1) for part in bytes(answer.auth_bytes).decode().split(","))


@pytest.mark.parametrize("user", ["ada", "nobody"])
def test_salts_of_names_that_are_there_and_that_are_not_behave_alike(tmp_path, user):
    with Broker(data_dir=tmp_path, listeners=(GUARDED,), users={"ada": SECRET}) as broker:
        salts = {each: challenge(broker.port, user, each)["s"] for each in HASHES}
        assert len(set(salts.values())) == 2, "each mechanism has its own"
    with Broker(data_dir=tmp_path, listeners=(GUARDED,)) as broker:
        again = {each: challenge(broker.port, user, each)["s"] for each in HASHES}
        assert again == salts, "and keeps it after a restart"


def test_a_decoy_of_a_plain_password_costs_what_the_others_cost(tmp_path):
    users = Users(tmp_path / "users.json")
    users.put("ann", make_credential("SCRAM-SHA-512", "secret", b"salt", 4096))
    users.set_password("ben", "secret", iterations=8192)
    found = {(one.mechanism, one.iterations) for one in users.alike("PLAIN")}
    assert found == {("SCRAM-SHA-512", 4096), ("SCRAM-SHA-256", 8192)}


def test_users_go_with_their_file(tmp_path):
    with Broker(data_dir=tmp_path, listeners=(GUARDED,), users={"ada": SECRET}) as broker:
        with RawClient(broker.port) as client:
            log_in(client)
        (tmp_path / "users.json").unlink()
        with RawClient(broker.port) as client:
            answer, _ = scram(client, "SCRAM-SHA-256", "ada", SECRET)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_passwords_slow_their_sender_down_and_the_right_one_passes(mechanism):
    with broker_with(GUARDED, failed_authentication_delay_seconds=0.0) as broker:
        for _ in range(7):
            with RawClient(broker.port) as client:
                answer, _ = scram(client, "SCRAM-SHA-256", "ada", "wrong")
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        now = broker.on_loop(lambda live: live.loop.time())
        wait_s = broker.on_loop(lambda live: live.guesses.turn_in("ada", "127.0.0.1", now))
        assert wait_s is not None
        assert wait_s > 0
        with RawClient(broker.port) as client:
            if mechanism == "PLAIN":
                log_in(client)
            else:
                assert scram(client, mechanism, "ada", SECRET)[0].error_code == 0
        assert broker.on_loop(lambda live: live.loop.time()) > now + wait_s, "its turn came later"
        assert broker.on_loop(lambda live: live.guesses.turn_in("ada", "127.0.0.1", now)) == 0


def upsertion(name: str, *, salt: bytes = b"salt", iterations: int = 4096) -> Upsertion:
    return Upsertion(
        name=name, mechanism=1, iterations=iterations, salt=salt, salted_password=b"x" * 32
    )


def altered(client: RawClient, *upsertions: Upsertion) -> list[int]:
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=list(upsertions))
    return [one.error_code for one in client.ask(request).results]


def test_many_users_are_one_write_and_too_much_is_refused(monkeypatch):
    written = []
    store = Users._store

    def counted(*args):
        written.append(1)
        return store(*args)

    monkeypatch.setattr(users_module.Users, "_store", counted)
    with broker_with(GUARDED) as broker, RawClient(broker.port) as client:
        log_in(client)
        written.clear()
        assert set(altered(client, *(upsertion(f"user-{n}") for n in range(500)))) == {0}
        assert len(written) == 1
        too_many = altered(client, *(upsertion(f"many-{n}") for n in range(1001)))
        assert set(too_many) == {ErrorCode.INVALID_REQUEST}
        wrong = ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert altered(client, upsertion("bob", salt=bytes(257)), upsertion("cid")) == [wrong, 0]
        assert altered(client, upsertion("b" * 257)) == [wrong]
        assert len(written) == 2


def test_nobody_without_a_name_makes_logins_for_another_listener():
    with (
        broker_with(Listener(port=0), GUARDED) as broker,
        RawClient(broker.port) as nobody,
    ):
        assert altered(nobody, upsertion("intruder")) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        told = nobody.ask(DescribeUserScramCredentialsRequest(users=None))
        assert told.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not told.results
        assert broker.on_loop(lambda live: live.users.names()) == ["ada"]


@pytest.mark.parametrize(("mode", "lines"), [(0o644, 1), (0o640, 0), (0o600, 0)])
def test_a_key_that_everybody_can_read_is_named(tmp_path, caplog, mode, lines):
    certificates = Certificates(tmp_path)
    certificates.key_file.chmod(mode)
    with caplog.at_level("WARNING", "shoal"), broker_with(tls_listener(certificates)):
        pass
    assert sum("can be read by others" in each for each in caplog.messages) == lines
