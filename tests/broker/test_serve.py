"""``shoal serve`` as a process: the ready line, signals, refusals, and what stays after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.wire.apis.metadata import MetadataRequest
from tests.broker.asking import fetch, produce
from tests.broker.raw_client import RawClient, batch, values_of

pytestmark = pytest.mark.slow
ALL = MetadataRequest(topics=None)


def command(directory: Path, *flags: str, module: tuple[str, ...] = ("shoal.broker",)) -> list[str]:
    """``python -m shoal.broker`` is ``shoal serve`` without the libraries of the command line."""
    base = [sys.executable, "-m", *module, "--listen", "127.0.0.1:0"]
    return [*base, "--data-dir", str(directory), *flags]


@contextmanager
def serving(directory: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        command(directory, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready 127.0.0.1:"), process.stderr and process.stderr.read()
        yield process, int(line.rsplit(":", 1)[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


def refused(*arguments: str, directory: Path) -> str:
    done = subprocess.run(
        command(directory, *arguments), capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


def test_shoal_serve_takes_the_same_flags(tmp_path):
    flags: tuple[str, ...] = ("--json", "--durability", "os", "--partitions", "3")
    flags += ("--no-auto-create",)
    flags += ("--log-level", "info", "--log-format", "json", "--advertise", "localhost")
    process = subprocess.Popen(
        command(tmp_path, *flags, module=("shoal", "serve")), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    with RawClient(int(ready["ready"].rsplit(":", 1)[1])) as client:
        assert client.ask(ALL).brokers[0].host == "localhost"
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 0


def test_ready_is_the_first_line_and_the_port_answers(tmp_path):
    with serving(tmp_path / "data") as (_, port), RawClient(port) as client:
        assert client.ask(ALL).brokers[0].port == port


def test_the_ready_line_as_json_has_timings(tmp_path):
    process = subprocess.Popen(
        command(tmp_path, "--json", "--durability", "os"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    process.terminate()
    process.communicate(timeout=10)
    assert ready["ready"].startswith("127.0.0.1:")
    assert ready["durability"] == "os"
    assert ready["pid"] == process.pid
    assert 0 < ready["start_ms"] < ready["since_process_start_ms"]
    assert ready["replication"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_cleanly_and_the_next_start_scans_nothing(tmp_path, number):
    with serving(tmp_path) as (process, port):
        with RawClient(port) as client:
            client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]))
            assert produce(client, "t", batch(b"x")).error_code == 0
        process.send_signal(number)
        _, errors = process.communicate(timeout=10)
        assert process.returncode == 0, errors
        assert errors == ""
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with serving(tmp_path) as (_, port), RawClient(port) as client:
        assert values_of(fetch(client, "t", 0).records) == [b"x"]


def test_a_clean_stop_does_not_wait_for_long_polls(tmp_path):
    from tests.broker.asking import fetch_request

    with serving(tmp_path) as (process, port), RawClient(port) as client:
        client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]))
        client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        began = time.monotonic()
        process.terminate()
        assert client.receive(1, 12).responses
        process.communicate(timeout=10)
        assert time.monotonic() - began < 5


def test_what_was_acknowledged_is_there_after_kill_9(tmp_path):
    with serving(tmp_path) as (process, port):
        with RawClient(port) as client:
            client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]))
            for number in range(20):
                assert produce(client, "t", batch(b"%d" % number)).base_offset == number
        process.kill()
        process.wait(10)
    with serving(tmp_path) as (_, port), RawClient(port) as client:
        assert values_of(fetch(client, "t", 0).records) == [b"%d" % n for n in range(20)]
        assert produce(client, "t", batch(b"next")).base_offset == 20


def test_a_second_broker_on_the_directory_is_refused(tmp_path):
    with serving(tmp_path):
        assert "use" in refused(directory=tmp_path)


def test_a_directory_that_is_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert "'letter.txt'" in refused(directory=tmp_path)
    assert os.listdir(tmp_path) == ["letter.txt"]
    assert "choose another" in refused(directory=tmp_path / "letter.txt")
    assert "not a data directory" in refused(directory=Path("/"))


def test_a_second_interrupt_stops_at_once(tmp_path):
    with serving(tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) in (0, 130)
    with serving(tmp_path):
        pass


def test_a_taken_port_is_refused_with_advice(tmp_path):
    with serving(tmp_path / "a") as (_, port):
        text = refused("--listen", f"127.0.0.1:{port}", directory=tmp_path / "b")
        assert "--listen" in text


def test_a_public_address_without_authentication_is_refused(tmp_path):
    text = refused("--listen", "0.0.0.0:0", directory=tmp_path)
    assert "--insecure-public" in text


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (("--durability", "grup"), "did you mean 'group'"),
        (("--sasl", "SCRAM"), "SCRAM-SHA-256"),
        (("--config", "/nowhere.toml"), "cannot read"),
        (("--listen", "nonsense"), "nonsense"),
    ],
)
def test_a_wrong_flag_is_one_line_that_helps(tmp_path, flags, advice):
    assert advice in refused(*flags, directory=tmp_path)


def test_the_configuration_file_counts_and_flags_win(tmp_path):
    path = tmp_path / "shoal.toml"
    path.write_text('durability = "interval"\n[topics]\npartitions = 7\n')
    flags = ("--config", str(path), "--durability", "os")
    with serving(tmp_path / "d", *flags) as (_, port), RawClient(port) as client:
        wanted = MetadataRequest(topics=[MetadataRequest.Topic(name="t")])
        assert len(client.ask(wanted).topics[0].partitions) == 7


def test_counters_are_printed_on_a_signal(tmp_path):
    with serving(tmp_path) as (process, port):
        with RawClient(port) as client:
            client.ask(ALL)
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        counters = json.loads(process.stderr.readline())
        assert counters["requests"]["Metadata"] == 1
        assert "loop_lag_ms" in counters


def test_logs_can_be_json(tmp_path):
    with serving(tmp_path, "--log-level", "info", "--log-format", "json") as (process, port):
        with RawClient(port) as client:
            client.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.is_cut()
        assert process.stderr is not None
        while "HTTP" not in (line := process.stderr.readline()):
            json.loads(line)
        assert json.loads(line)["level"] in ("warning", "info")


@pytest.mark.parametrize("durability", ["group", "each", "interval", "os"])
def test_every_durability_stores_and_answers(tmp_path, durability):
    with serving(tmp_path, "--durability", durability) as (_, port), RawClient(port) as client:
        client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]))
        for number in range(5):
            assert produce(client, "t", batch(b"x")).base_offset == number
        assert len(values_of(fetch(client, "t", 0).records)) == 5


def test_users_are_set_by_the_command_line_while_the_broker_runs(tmp_path):
    from tests.broker.test_security import scram

    with serving(tmp_path, "--sasl", "SCRAM-SHA-256") as (_, port):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "shoal", "user", "set", "ada"),
                *("--data-dir", str(tmp_path), "--password-file", "-", "--iterations", "4096"),
            ],
            input="s3cret\n",
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "s3cret" not in done.stdout + done.stderr
        with RawClient(port) as client:
            answer, _ = scram(client, "SCRAM-SHA-256", "ada", "s3cret")
            assert answer.error_code == 0
            assert client.ask(ALL).brokers


def test_the_broker_loads_no_heavy_library(tmp_path):
    code = (
        "import sys, shoal.broker.process, shoal.broker.dispatch;"
        "heavy = {'numpy', 'pyarrow', 'typer', 'rich', 'pandas', 'pyspark'} & set(sys.modules);"
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"
