"""kcat (librdkafka of Debian) against our broker."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from tests.conformance.python_clients import Door
from tests.peers import need
from tests.peers.clients import kcat

pytestmark = pytest.mark.slow
every = pytest.mark.parametrize("client", ["kcat"])


def run(door: Door, *arguments: str, stdin: str | None = None) -> str:
    command = [*need(kcat), "-b", door.servers, *arguments]
    if door.ca_file is not None:
        for setting in (
            "security.protocol=SASL_SSL",
            f"ssl.ca.location={door.ca_file}",
            f"sasl.mechanism={door.mechanism}",
            f"sasl.username={door.user}",
            f"sasl.password={door.password}",
        ):
            command += ["-X", setting]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@every
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produces_and_consumes(client, codec, door, topic):
    sent = "".join(f"value-{n}\n" for n in range(50))
    run(door, "-P", "-t", topic, "-z", codec, stdin=sent)
    read = run(door, "-C", "-t", topic, "-e", "-q")
    assert sorted(read.split()) == sorted(sent.split())


@every
def test_commits_and_resumes(client, door, topic):
    group = f"g-{topic}"
    run(door, "-P", "-t", topic, stdin="a\nb\nc\n")
    first = run(door, "-G", group, "-X", "auto.offset.reset=earliest", "-e", "-q", topic)
    assert sorted(first.split()) == ["a", "b", "c"]
    run(door, "-P", "-t", topic, stdin="d\n")
    assert run(door, "-G", group, "-e", "-q", topic).split() == ["d"]


@every
def test_lists_metadata_and_offsets_by_time(client, door, topic):
    run(door, "-P", "-t", topic, "-p", "0", stdin="a\n")
    assert f'topic "{topic}" with 4 partitions' in run(door, "-L", "-t", topic)
    assert f"{topic} [0] offset 0" in run(door, "-Q", "-t", f"{topic}:0:0")


@every
def test_uses_tls_and_plain(client, guarded_door, topic):
    door = replace(guarded_door, mechanism="PLAIN")
    run(door, "-P", "-t", topic, stdin="a\n")
    assert run(door, "-C", "-t", topic, "-e", "-q") == "a\n"


@every
def test_uses_tls_and_scram(client, guarded_door, topic):
    """Debian's librdkafka doubles the client's half of the nonce; Kafka refuses that since 3.7.2
    (CVE-2024-56128), and so do we. A newer kcat must get in."""
    version = run(guarded_door, "-V")
    found = re.search(r"librdkafka (\d+)\.(\d+)", version)
    assert found is not None, version
    if (int(found[1]), int(found[2])) < (2, 6):
        pytest.skip("librdkafka before 2.6 sends a SCRAM nonce that Kafka refuses since 3.7.2")
    run(guarded_door, "-P", "-t", topic, stdin="a\n")
    assert run(guarded_door, "-C", "-t", topic, "-e", "-q") == "a\n"
