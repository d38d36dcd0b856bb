"""TLS, client certificates, SASL PLAIN and SCRAM, against our broker."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization as write

from shoal import Admin, Consumer, Producer, TopicPartition
from shoal.broker.config import Listener
from shoal.client.broker_links import Lane
from shoal.client.config import AdminConfig
from shoal.client.security import tls_context
from shoal.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionFailedError,
    RequestTimeoutError,
    ShoalError,
)
from shoal.testing.broker import Broker
from tests.client.conftest import poll_until, take

pytestmark = pytest.mark.slow

REFUSED = (AuthenticationError, ConnectionFailedError, RequestTimeoutError)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of an authority, of a server it vouches for, and of a client."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    client = authority.issue_cert("client@example.org")
    elsewhere = authority.issue_cert("kafka.example.org")
    names = ("ca", "cert", "key", "client", "other", "elsewhere")
    paths = {name: str(folder / f"{name}.pem") for name in names}
    elsewhere.private_key_and_cert_chain_pem.write_to_path(paths["elsewhere"])
    authority.cert_pem.write_to_path(paths["ca"])
    server.cert_chain_pems[0].write_to_path(paths["cert"])
    server.private_key_pem.write_to_path(paths["key"])
    client.private_key_and_cert_chain_pem.write_to_path(paths["client"])
    trustme.CA().cert_pem.write_to_path(paths["other"])
    return paths


def send_and_read(settings):
    with Producer(linger_ms=0, **settings) as producer:
        producer.send("t", b"secret", partition=0).result(10)
    with Consumer(auto_offset_reset="earliest", **settings) as one:
        one.assign([TopicPartition("t", 0)])
        assert take(one, 1)[0].value == b"secret"


def test_tls_carries_records_and_checks_the_broker(files):
    listener = Listener(port=0, certificate_file=files["cert"], key_file=files["key"])
    with Broker(listeners=(listener,), topics=["t"]) as broker:
        servers = broker.bootstrap_servers
        tls: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": "SSL"}
        send_and_read({**tls, "ssl_cafile": files["ca"]})
        own = ssl.create_default_context(cafile=files["ca"])
        send_and_read({**tls, "ssl_context": own})
        refused = pytest.raises(AuthenticationError, match=r"(?i)certificate")
        with Admin(**tls, ssl_cafile=files["other"]) as admin, refused:
            admin.list_topics(timeout=5)
        with Admin(bootstrap_servers=servers) as admin, pytest.raises(ShoalError):
            admin.list_topics(timeout=1)


def test_a_certificate_of_another_host_is_refused_unless_its_name_is_not_to_be_checked(files):
    listener = Listener(port=0, certificate_file=files["elsewhere"], key_file=files["elsewhere"])
    with Broker(listeners=(listener,), topics=["t"]) as broker:
        tls = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": files["ca"],
        }
        refused = pytest.raises(AuthenticationError, match="certificate is not valid for '127")
        with Admin(**tls) as admin, refused:
            admin.list_topics(timeout=5)
        with Producer(**tls) as producer, refused:
            producer.send("t", b"secret")
        with Consumer(**tls) as one, refused:
            one.partitions_for("t", timeout=5)
        send_and_read({**tls, "ssl_check_hostname": False})


def test_a_client_certificate_is_shown_where_one_is_asked_for(files):
    listener = Listener(
        port=0,
        certificate_file=files["cert"],
        key_file=files["key"],
        client_ca_file=files["ca"],
    )
    with Broker(listeners=(listener,), topics=["t"]) as broker:
        tls = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": files["ca"],
        }
        send_and_read({**tls, "ssl_certfile": files["client"]})
        with Admin(**tls) as admin, pytest.raises(REFUSED):
            admin.list_topics(timeout=1)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_opens_and_a_wrong_one_does_not(files, mechanism):
    listener = Listener(
        port=0,
        certificate_file=files["cert"],
        key_file=files["key"],
        sasl=(mechanism,),
    )
    with Broker(listeners=(listener,), topics=["t"], users={"ann": "pa,ss=word"}) as broker:
        settings = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": files["ca"],
            "sasl_mechanism": mechanism,
            "sasl_username": "ann",
        }
        send_and_read({**settings, "sasl_password": "pa,ss=word"})
        wrong = {**settings, "sasl_password": "wrong"}
        with Admin(**wrong) as admin, pytest.raises(AuthenticationError):
            admin.list_topics(timeout=5)
        with Consumer(**wrong, group_id="g") as one:
            one.subscribe(["t"])
            with pytest.raises(AuthenticationError):
                take(one, 1, timeout=5)
        another = "PLAIN" if mechanism != "PLAIN" else "SCRAM-SHA-256"
        other = {**settings, "sasl_mechanism": another, "sasl_password": "pa,ss=word"}
        with Admin(**other) as admin, pytest.raises(AuthenticationError, match=mechanism):
            admin.list_topics(timeout=5)


def test_a_member_that_is_not_let_in_any_more_says_so():
    listener = Listener(port=0, sasl=("SCRAM-SHA-256",))
    named: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "ada",
        "sasl_password": "s3cret",
    }
    with (
        Broker(listeners=(listener,), users={"ada": "s3cret"}, topics=["t"]) as broker,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            heartbeat_interval_ms=50,
            **named,
        ) as member,
    ):
        member.subscribe(["t"])
        poll_until(member, member.assignment)
        broker.on_loop(lambda live: live.users.set_password("ada", "another"))
        links = member._session._cluster._links

        async def cut_the_way_of_the_group():
            for (_, lane), link in links._links.items():
                if lane is Lane.GROUP:
                    link.disconnect()

        member._engine.call(cut_the_way_of_the_group())
        with pytest.raises(AuthenticationError):
            poll_until(member, lambda: False)


def test_an_encrypted_key_without_its_password_is_named_and_nobody_is_asked_for_it(tmp_path):
    made = trustme.CA().issue_cert("client@example.org")
    key = write.load_pem_private_key(made.private_key_pem.bytes(), None)
    pem, encrypted = write.Encoding.PEM, write.BestAvailableEncryption(b"open")
    (tmp_path / "key").write_bytes(key.private_bytes(pem, write.PrivateFormat.PKCS8, encrypted))
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    files: dict[str, Any] = {
        "ssl_certfile": str(tmp_path / "cert"),
        "ssl_keyfile": str(tmp_path / "key"),
    }
    with pytest.raises(ConfigError, match="ssl_key_password is missing"):
        tls_context(AdminConfig(security_protocol="SSL", **files))
    with pytest.raises(ConfigError, match="cannot load TLS files"):
        tls_context(AdminConfig(security_protocol="SSL", ssl_key_password="no", **files))
    assert tls_context(AdminConfig(security_protocol="SSL", ssl_key_password="open", **files))
