"""A pytest plugin for kafka-python's own integration tests: its broker fixture starts ours.

    pytest -p kafka_python_broker test/integration      (in an unpacked source distribution)

The fixture starts Apache Kafka from an installation and waits for lines of its log. Here the same
calls start ``shoal serve`` with the listener that was asked for; the tests are not touched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any


class _Service:
    """What the tests ask of the process behind a fixture. The published sources lack it."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def dump_logs(self) -> None: ...

    def stop(self) -> None: ...


# The sources have no test/__init__.py either, and Python has a package of that name.
_tests = types.ModuleType("test")
_tests.__path__ = [os.path.join(os.getcwd(), "test")]
_service = types.ModuleType("test.service")
_service.ExternalService = _service.SpawnedService = _Service  # type: ignore[attr-defined]  # kafka-python's own test module
os.environ["KAFKA_ROOT"] = os.getcwd()  # only asked whether it is there
sys.modules |= {"test": _tests, "test.service": _service}

from test.integration.fixtures import KafkaFixture  # noqa: E402 - their package must be found first


def _configuration(fixture: Any, directory: Path) -> str:
    lines = [f"data_dir = {json.dumps(str(directory / 'data'))}", f"node_id = {fixture.broker_id}"]
    lines += ["[groups]", "min_session_timeout_ms = 1000"]
    lines += ["[topics]", f"partitions = {fixture.partitions}"]
    # Its tests of access rules want an authorizer, all others everything.
    names = [f"User:{fixture.broker_user}"] if fixture.sasl_enabled else []
    lines += ["[authorization]", f"super_users = {json.dumps(['User:ANONYMOUS', *names])}"]
    lines += ["[[listener]]", 'address = "127.0.0.1:0"', f'advertised = "{fixture.host}"']
    if fixture.sasl_enabled:
        lines += [f'sasl = ["{fixture.sasl_mechanism}"]']
    if fixture.ssl_enabled:
        import trustme

        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(directory / "ca-cert"))
        made = authority.issue_cert("localhost", "127.0.0.1")
        made.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
        fixture.ssl_dir = str(directory)
        name = json.dumps(str(directory / "server.pem"))
        lines += [f"certificate_file = {name}", f"key_file = {name}"]
    return "\n".join(lines) + "\n"


def _open(fixture: Any) -> None:
    if fixture.running:
        return
    fixture.directory = tempfile.TemporaryDirectory(prefix="kafka-python-")
    directory = Path(fixture.directory.name)
    (directory / "data").mkdir()
    file = directory / "broker.toml"
    file.write_text(_configuration(fixture, directory))
    if fixture.sasl_enabled:
        subprocess.run(
            [
                *(sys.executable, "-m", "shoal", "user", "set", fixture.broker_user),
                *("--data-dir", str(directory / "data"), "--password-file", "-"),
            ],
            input=fixture.broker_password,
            text=True,
            check=True,
        )
    command = [sys.executable, "-m", "shoal", "serve", "--config", str(file)]
    fixture.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ready = fixture.process.stdout.readline().split()
    assert ready[:1] == ["ready"], "the broker did not start"
    fixture.port = int(ready[1].rsplit(":", 1)[1])
    fixture.child = _Service()
    fixture.running = True


def _stop(fixture: Any) -> None:
    if getattr(fixture, "process", None) is not None:
        fixture.process.terminate()
        fixture.process.wait(30)
        fixture.process.stdout.close()
        fixture.process = None
        fixture.directory.cleanup()
    fixture.running = False


def _topic_names(fixture: Any) -> list[str]:
    from kafka import KafkaAdminClient

    with KafkaAdminClient(**fixture._enrich_client_params({})) as admin:
        return list(admin.list_topics())


KafkaFixture.open = KafkaFixture.start = _open
KafkaFixture.stop = KafkaFixture.close = _stop
KafkaFixture.get_topic_names = _topic_names
