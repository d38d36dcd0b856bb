"""Who gets in: SASL, TLS, certificates; and that secrets stay secret."""

from __future__ import annotations

import socket
import ssl
import statistics
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from shoal.broker.broker import Broker as LiveBroker
from shoal.broker.config import BrokerConfig, BrokerLimits, Listener
from shoal.broker.sasl import SaslSession
from shoal.broker.scram import make_credential
from shoal.errors import ConfigError, ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from shoal.wire.frames import encode_request
from tests.broker.raw_client import RawClient
from tests.broker.test_scram import prove

SECRET = "canary-pa55word"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALL = MetadataRequest(topics=None)
ALERT = b"\x15\x03"
"""How a TLS record with an alert begins, in every version of TLS."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    listener = Listener(port=0, sasl=MECHANISMS)
    with Broker(listeners=(listener,), users={"ada": SECRET}) as broker:
        yield broker


def handshake(client: RawClient, mechanism: str, version: int = 1):
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client: RawClient, token: bytes):
    return client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


def scram(client: RawClient, mechanism: str, user: str, password: str):
    handshake(client, mechanism)
    first = f"n,,n={user},r=clientnonce".encode()
    challenge = authenticate(client, first)
    assert challenge.error_code == 0
    final, verifier = prove(mechanism, password, first, bytes(challenge.auth_bytes))
    return authenticate(client, final), verifier


def test_plain_lets_the_right_password_in(guarded):
    with RawClient(guarded.port) as client:
        assert list(handshake(client, "PLAIN").mechanisms) == list(MECHANISMS)
        assert authenticate(client, b"\0ada\0" + SECRET.encode()).error_code == 0
        assert client.ask(ALL).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_scram_lets_the_right_password_in_and_proves_the_server(guarded, mechanism):
    with RawClient(guarded.port) as client:
        answer, verifier = scram(client, mechanism, "ada", SECRET)
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, verifier)
        assert client.ask(ALL).brokers


@pytest.mark.parametrize("user", ["ada", "nobody"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_late_and_the_connection_closed(guarded, mechanism, user):
    with RawClient(guarded.port) as client:
        if mechanism == "PLAIN":
            handshake(client, mechanism)
            answer = authenticate(client, f"\0{user}\0wrong".encode())
        else:
            answer, _ = scram(client, mechanism, user, "wrong")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert user not in (answer.error_message or "")
        assert client.is_cut()


@pytest.mark.parametrize("version", [0, 1])
def test_only_the_first_of_many_guesses_at_once_is_looked_at(guarded, version):
    before = guarded.live.counters.refused["authentication"]
    with RawClient(guarded.port) as client:
        handshake(client, "PLAIN", version)
        tokens = [f"\0ada\0{password}".encode() for password in ("wrong", "wrong too", SECRET)]
        if version:
            asked = [SaslAuthenticateRequest(auth_bytes=token) for token in tokens]
            frames = [
                b"".join(encode_request(ApiKey.SASL_AUTHENTICATE, 2, 1, "raw", one))
                for one in asked
            ]
        else:
            frames = [len(token).to_bytes(4) + token for token in tokens]
        client.sock.sendall(b"".join(frames))
        if version:
            answer = client.receive(ApiKey.SASL_AUTHENTICATE, 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_cut()
    assert guarded.live.counters.refused["authentication"] == before + 1


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_only_the_first_of_many_guesses_by_scram_is_looked_at(guarded, mechanism):
    before = guarded.live.counters.refused["authentication"]
    with RawClient(guarded.port) as client:
        handshake(client, mechanism)
        first = b"n,,n=ada,r=clientnonce"
        challenge = bytes(authenticate(client, first).auth_bytes)
        proofs = [prove(mechanism, word, first, challenge)[0] for word in ("wrong", "no", SECRET)]
        asked = [SaslAuthenticateRequest(auth_bytes=proof) for proof in proofs]
        frames = [
            b"".join(encode_request(ApiKey.SASL_AUTHENTICATE, 2, 1, "raw", one)) for one in asked
        ]
        client.sock.sendall(b"".join(frames))
        answer = client.receive(ApiKey.SASL_AUTHENTICATE, 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_cut()
    assert guarded.live.counters.refused["authentication"] == before + 1


def test_a_login_by_scram_is_answered_as_it_is_read_and_is_no_task_of_its_own(guarded, monkeypatch):
    spawned = []
    spawn = guarded.live.spawn

    def counted(work):
        spawned.append(work)
        spawn(work)

    with RawClient(guarded.port) as client:
        # It ends the wait that wrong passwords before this have earned.
        assert scram(client, "SCRAM-SHA-512", "ada", SECRET)[0].error_code == 0
    monkeypatch.setattr(guarded.live, "spawn", counted)
    with RawClient(guarded.port) as client:
        assert scram(client, "SCRAM-SHA-512", "ada", SECRET)[0].error_code == 0
    assert spawned == []
    with RawClient(guarded.port) as client:
        handshake(client, "PLAIN")
        assert authenticate(client, b"\0ada\0" + SECRET.encode()).error_code == 0
    assert len(spawned) == 1, "its key is derived elsewhere, and that is waited for"


def test_an_unknown_user_is_refused_no_sooner_than_a_wrong_password():
    at_once = BrokerLimits()._replace(failed_authentication_delay_seconds=0.0)
    listener = Listener(port=0, sasl=MECHANISMS)

    def took(user):
        found = []
        for _ in range(7):
            with RawClient(broker.port) as client:
                handshake(client, "PLAIN")
                before = time.perf_counter()
                authenticate(client, f"\0{user}\0wrong".encode())
                found.append(time.perf_counter() - before)
        return statistics.median(found)

    config = BrokerConfig()._replace(limits=at_once)
    with Broker(config=config, listeners=(listener,), users={"ada": SECRET}) as broker:
        assert took("nobody") > took("ada") / 2


def test_a_challenge_to_an_unknown_user_is_like_those_of_the_others():
    def challenge(user):
        with RawClient(broker.port) as client:
            handshake(client, "SCRAM-SHA-256")
            answer = authenticate(client, f"n,,n={user},r=clientnonce".encode())
        fields = dict(part.split("=", 1) for part in bytes(answer.auth_bytes).decode().split(","))
        return len(fields["s"]), fields["i"], fields["s"]

    listener = Listener(port=0, sasl=MECHANISMS)
    with Broker(listeners=(listener,)) as broker:
        # As other tools make them: with a shorter salt, and as few iterations as are allowed.
        made = make_credential("SCRAM-SHA-256", SECRET, b"0123456789", 4096)
        broker.on_loop(lambda live: live.users.put("ada", made))
        assert challenge("nobody")[:2] == challenge("ada")[:2] == (16, "4096")
        assert challenge("nobody") == challenge("nobody")
        assert challenge("nobody")[2] != challenge("somebody")[2]


def test_nothing_but_api_versions_is_served_before(guarded):
    with RawClient(guarded.port) as client:
        assert client.ask(ApiVersionsRequest(), 0).api_keys
        client.send(ALL, 1)
        assert client.is_cut()


def test_a_token_before_the_handshake_is_an_illegal_state(guarded):
    with RawClient(guarded.port) as client:
        answer = authenticate(client, b"\0ada\0" + SECRET.encode())
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_an_unknown_mechanism_is_answered_with_those_there_are(guarded):
    with RawClient(guarded.port) as client:
        answer = handshake(client, "GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert list(answer.mechanisms) == list(MECHANISMS)


def test_bare_tokens_follow_a_handshake_of_version_0(guarded):
    with RawClient(guarded.port) as client:
        handshake(client, "PLAIN", 0)
        token = b"\0ada\0" + SECRET.encode()
        client.sock.sendall(len(token).to_bytes(4) + token)
        assert client.receive_frame() == b""
        assert client.ask(ALL).brokers


def test_large_frames_are_refused_before_authentication(guarded):
    with RawClient(guarded.port) as client:
        client.sock.sendall((600 << 10).to_bytes(4))
        assert client.is_cut()


def test_users_are_managed_by_the_api_too(guarded):
    from shoal.broker.scram import salted_password

    with RawClient(guarded.port) as client:
        scram(client, "SCRAM-SHA-256", "ada", SECRET)
        salt = b"0123456789abcdef"
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="bob",
            mechanism=1,
            iterations=4096,
            salt=salt,
            salted_password=salted_password("SCRAM-SHA-256", b"bobs", salt, 4096),
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        assert client.ask(request).results[0].error_code == 0
        described = client.ask(DescribeUserScramCredentialsRequest(users=None)).results
        assert {r.user: len(r.credential_infos) for r in described} == {"ada": 2, "bob": 1}
    with RawClient(guarded.port) as client:
        answer, _ = scram(client, "SCRAM-SHA-256", "bob", "bobs")
        assert answer.error_code == 0
        deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="bob", mechanism=1)
        request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
        assert client.ask(request).results[0].error_code == 0
        again = client.ask(request).results[0].error_code
        assert again == ErrorCode.RESOURCE_NOT_FOUND


def test_refusals_are_audited_and_no_file_or_log_holds_the_password(guarded, caplog):
    caplog.set_level("DEBUG")
    with RawClient(guarded.port) as client:
        handshake(client, "PLAIN")
        authenticate(client, b"\0ada\0wrong-" + SECRET.encode())
    audit = (guarded.data_dir / "access.log").read_text()
    assert '"authentication refused"' in audit
    for path in guarded.data_dir.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in caplog.text
    assert SECRET not in repr(guarded.live.users)


# --- TLS -----------------------------------------------------------------------------------


class Certificates:
    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.authority_file = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.authority_file))
        self.certificate_file = directory / "server.pem"
        self.key_file = directory / "server.key"
        self.renew()

    def renew(self) -> bytes:
        made = self.authority.issue_cert("localhost", "127.0.0.1")
        self.certificate_file.write_bytes(b"".join(c.bytes() for c in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(self.key_file))
        self.key_file.chmod(0o600)
        return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())


class TlsClient(RawClient):
    sock: ssl.SSLSocket

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost")


def principals(live: LiveBroker) -> list[str]:
    """Who is connected, by the sessions of all connections."""
    sessions = [one.session for one in live.server.connections]
    return [str(one.principal) for one in sessions if isinstance(one, SaslSession)]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def tls_listener(certificates: Certificates, **fields) -> Listener:
    return Listener(
        port=0,
        certificate_file=str(certificates.certificate_file),
        key_file=str(certificates.key_file),
        **fields,
    )


def client_context(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates.authority_file))


def test_tls_serves_large_replies_and_large_requests(certificates):
    from tests.broker.asking import fetch, produce
    from tests.broker.raw_client import batch, values_of

    context = client_context(certificates)
    with (
        Broker(listeners=(tls_listener(certificates),), topics=["t"]) as broker,
        TlsClient(broker.port, context) as client,
    ):
        value = bytes(range(256)) * 3900
        assert produce(client, "t", batch(value)).error_code == 0
        assert values_of(fetch(client, "t", 0, partition_max_bytes=4 << 20).records) == [value]


def test_a_request_in_one_tls_record_with_the_end_of_a_parked_one_is_answered(certificates):
    from tests.broker.asking import fetch_request

    config = BrokerConfig()._replace(limits=BrokerLimits(in_flight_requests_per_connection=1))
    listeners = (tls_listener(certificates),)
    topics = [MetadataRequest.Topic(name="x" * 200) for _ in range(280)]
    large = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    frame = b"".join(encode_request(ApiKey.METADATA, 9, 2, "raw", large))
    small = b"".join(encode_request(ApiKey.API_VERSIONS, 0, 3, "raw", ApiVersionsRequest()))
    with (
        Broker(listeners=listeners, topics=["t"], config=config) as broker,
        TlsClient(broker.port, client_context(certificates)) as client,
    ):
        # It waits at the broker, so what follows is parked: some of it, then the rest.
        client.send(fetch_request("t", 0, max_wait_ms=500, min_bytes=1), 12)
        while not broker.counters()["fetches_waiting"]:
            pass
        before = broker.counters()["received_bytes"]
        client.sock.sendall(frame[:-5000])
        while broker.counters()["received_bytes"] < before + len(frame) - 5000:
            pass
        client.sock.sendall(frame[-5000:] + small)
        assert [client.receive_frame() is not None for _ in range(3)] == [True] * 3


def test_a_plaintext_client_on_a_tls_listener_is_cut(certificates):
    with (
        Broker(listeners=(tls_listener(certificates),)) as broker,
        RawClient(broker.port) as client,
    ):
        client.send(ALL, 1)
        said = b""
        with suppress(ConnectionError):
            while more := client.sock.recv(4096):
                said += more
        # OpenSSL answers with an alert or nothing; then the connection ends. No word of Kafka.
        assert said == b"" or said[:2] == ALERT


def old_tls(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context, speaking TLS 1.1 and nothing else, and with no scruples of its own."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def test_old_tls_is_refused_by_the_broker(certificates):
    context = client_context(certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with Broker(listeners=(tls_listener(certificates),)) as broker:
        with TlsClient(broker.port, context) as client:
            assert client.ask(ALL).brokers
        with pytest.raises(ssl.SSLError) as caught:
            TlsClient(broker.port, old_tls(client_context(certificates)))
    # The broker's word, not this client's own: OpenSSL's name for the alert that came.
    assert caught.value.reason == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_the_client_of_the_test_above_could_speak_old_tls(certificates):
    """Else it would refuse itself, and the broker's limit would not be tested."""
    willing = old_tls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    willing.load_cert_chain(certificates.certificate_file, certificates.key_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = willing.wrap_bio(to_server, to_client, server_side=True)
    client = old_tls(client_context(certificates)).wrap_bio(
        to_client, to_server, server_hostname="localhost"
    )
    for _ in range(4):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert client.version() == server.version() == "TLSv1.1"


def test_a_new_certificate_is_served_after_a_reload_and_old_connections_go_on(certificates):
    context = client_context(certificates)
    with Broker(listeners=(tls_listener(certificates),)) as broker:
        with TlsClient(broker.port, context) as old:
            assert old.ask(ALL).brokers
            renewed = certificates.renew()
            broker.on_loop(lambda live: live.reload_certificates())
            assert old.ask(ALL).brokers
            with TlsClient(broker.port, context) as new:
                assert new.sock.getpeercert(binary_form=True) == renewed
        certificates.certificate_file.write_text("broken")
        broker.on_loop(lambda live: live.reload_certificates())
        with TlsClient(broker.port, context) as new:
            assert new.sock.getpeercert(binary_form=True) == renewed


def test_a_client_certificate_gives_the_name(certificates):
    listener = tls_listener(certificates, client_ca_file=str(certificates.authority_file))
    context = client_context(certificates)
    with Broker(listeners=(listener,)) as broker:
        with (
            TlsClient(broker.port, context) as client,
            pytest.raises((ssl.SSLError, ConnectionError, AssertionError)),
        ):
            client.ask(ALL)
        made = certificates.authority.issue_cert("reports.example", common_name="reports")
        made.configure_cert(context)
        with TlsClient(broker.port, context) as client:
            assert client.ask(ALL).brokers
            names = broker.on_loop(principals)
            assert len(names) == 1
            assert names[0].startswith("User:CN=reports")


def test_an_authority_that_was_taken_out_is_not_trusted_after_a_reload(certificates, tmp_path):
    trusted = tmp_path / "clients.pem"
    certificates.authority.cert_pem.write_to_path(str(trusted))
    context = client_context(certificates)
    certificates.authority.issue_cert("reports.example").configure_cert(context)
    listener = tls_listener(certificates, client_ca_file=str(trusted))
    with Broker(listeners=(listener,)) as broker:
        with TlsClient(broker.port, context) as client:
            assert client.ask(ALL).brokers
        trustme.CA().cert_pem.write_to_path(str(trusted))
        broker.on_loop(lambda live: live.reload_certificates())
        with (
            TlsClient(broker.port, context) as refused,
            pytest.raises((ssl.SSLError, ConnectionError, AssertionError)),
        ):
            refused.ask(ALL)


def test_a_name_in_a_certificate_cannot_pass_for_several(certificates):
    listener = tls_listener(certificates, client_ca_file=str(certificates.authority_file))
    context = client_context(certificates)
    name = "reports,OU=admins"
    certificates.authority.issue_cert("reports.example", common_name=name).configure_cert(context)
    with Broker(listeners=(listener,)) as broker, TlsClient(broker.port, context) as client:
        assert client.ask(ALL).brokers
        (principal,) = broker.on_loop(principals)
    assert principal.startswith(r"User:CN=reports\,OU\=admins,")


def test_sasl_inside_tls(certificates):
    listener = tls_listener(certificates, sasl=("SCRAM-SHA-512",))
    context = client_context(certificates)
    with (
        Broker(listeners=(listener,), users={"ada": SECRET}) as broker,
        TlsClient(broker.port, context) as client,
    ):
        answer, _ = scram(client, "SCRAM-SHA-512", "ada", SECRET)
        assert answer.error_code == 0
        assert client.ask(ALL).brokers


def test_a_client_that_is_gone_before_it_was_accepted_is_no_failure(certificates, caplog):
    """The loop is busy while it connects, so that it is gone when its turn comes."""
    busy, gone = threading.Event(), threading.Event()
    with Broker(listeners=(tls_listener(certificates),)) as broker:

        def keep_busy():
            busy.set()
            gone.wait(10)

        broker.on_loop(lambda live: live.loop.call_later(0.01, keep_busy))
        assert busy.wait(10)
        for _ in range(3):
            sock = socket.create_connection(("127.0.0.1", broker.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()  # with a reset
        gone.set()
        with TlsClient(broker.port, client_context(certificates)) as client:
            assert client.ask(ALL).brokers
    assert caplog.records == []


def test_rules_make_a_name_of_a_certificate_and_without_one_nobody_is_let_in(certificates):
    rules = (r"RULE:^CN=([a-z]+),.*$/svc-$1/U",)
    listener = tls_listener(
        certificates,
        client_ca_file=str(certificates.authority_file),
        principal_mapping_rules=rules,
    )
    context, other = client_context(certificates), client_context(certificates)
    issue = certificates.authority.issue_cert
    issue("reports.example", common_name="reports").configure_cert(context)
    issue("other.example", common_name="OTHER").configure_cert(other)
    with Broker(listeners=(listener,)) as broker:
        with TlsClient(broker.port, context) as client:
            assert client.ask(ALL).brokers
            (principal,) = broker.on_loop(principals)
        assert principal == "User:SVC-REPORTS"
        with TlsClient(broker.port, other) as client:
            client.send(ALL, 1)
            assert client.is_cut()
        assert '"certificate refused"' in (broker.data_dir / "access.log").read_text()


def test_a_rule_that_is_none_is_refused_at_the_start():
    for rules in (("RULE:(/x/",), ("everything",), ()):
        with pytest.raises(ConfigError, match="principal_mapping_rules"):
            BrokerConfig(listeners=(Listener(principal_mapping_rules=rules),)).checked()
