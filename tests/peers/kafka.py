"""A real Apache Kafka (KRaft) and its command-line tools, from the published jars."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.cache import PeerMissingError
from tests.peers.jars import java, kafka_jars

START_TIMEOUT_S = 60
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

_PROPERTIES = """process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}
offsets.topic.replication.factor={factor}
transaction.state.log.replication.factor={factor}
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor={factor}
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
# A second listener of a single node, for clients that say who they are.
_GUARDED = """listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\\
SASL://127.0.0.1:{guarded_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{guarded_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN
listener.name.sasl.plain.sasl.jaas.config=\\
org.apache.kafka.common.security.plain.PlainLoginModule required {plain};
listener.name.sasl.scram-sha-256.sasl.jaas.config=\\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=\\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


# Or one for clients that bring tokens.
_TOKENS = """listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\\
SASL://127.0.0.1:{guarded_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{guarded_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=OAUTHBEARER
listener.name.sasl.oauthbearer.sasl.jaas.config=\\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl.oauthbearer.sasl.server.callback.handler.class=\\
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.jwks.endpoint.url={jwks}
sasl.oauthbearer.expected.issuer={issuer}
sasl.oauthbearer.expected.audience={audience}
"""


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def tool(
    name: str, *arguments: str, stdin: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's tools by class name (``TopicCommand``, ``DumpLogSegments`` …)."""
    return subprocess.run(
        tool_command(name, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def tool_command(name: str, *arguments: str) -> list[str]:
    """The command line of a tool, for a caller who runs it in the background."""
    full = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
    return [java(), "-Xmx256m", "-cp", f"{kafka_jars()}/*", full, *arguments]


class ApacheKafka:
    """A cluster of ``nodes`` broker processes on loopback, gone when the block ends.

    ``settings`` are further lines of ``server.properties``. With ``users`` (names and passwords) a
    single node has a second listener, which asks for them by SCRAM or PLAIN; with ``tokens``
    (``jwks``, ``issuer``, ``audience``) it asks for tokens signed by that issuer.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        heap: str = "1g",
        settings: dict[str, str] | None = None,
        users: dict[str, str] | None = None,
        tokens: dict[str, str] | None = None,
    ):
        assert users is None or nodes == 1, "the guarded listener is one of a single node"
        self._users = users or {}
        self._tokens = tokens
        self._nodes = nodes
        self._options: list[str] = []
        self._heap = heap
        self._settings = settings or {}
        self._root = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        *self._ports, self.guarded_port = free_ports(2 * nodes + 1)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports[: self._nodes])

    @property
    def port(self) -> int:
        """The port of the first node."""
        return self._ports[0]

    def data_directory(self, node: int = 1) -> Path:
        """The log directory of a node."""
        return self._root / f"data-{node}"

    def pid(self, node: int = 1) -> int:
        return self._processes[node].pid

    def __enter__(self) -> Self:
        try:
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            for node in range(1, self._nodes + 1):
                self._format(node, cluster_id)
            for node in range(1, self._nodes + 1):
                self.start(node)
            for node in range(1, self._nodes + 1):
                self._await_port(node)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self, node: int) -> None:
        """Start (again) one node; returns before its port is open."""
        log = (self._root / f"node-{node}.out").open("ab")
        self._processes[node] = subprocess.Popen(
            [
                java(),
                f"-Xmx{self._heap}",
                *self._options,
                "-cp",
                f"{kafka_jars()}/*",
                "kafka.Kafka",
                self._file(node),
            ],
            stdout=log,
            stderr=log,
            cwd=self._root,
        )
        log.close()

    def kill(self, node: int) -> None:
        """Kill one node at once (SIGKILL)."""
        self._processes[node].send_signal(signal.SIGKILL)
        self._processes[node].wait()

    def stop(self, node: int) -> None:
        """Let one node close its logs and end (SIGTERM)."""
        self._processes[node].send_signal(signal.SIGTERM)
        self._processes[node].wait(60)

    def _file(self, node: int) -> str:
        return str(self._root / f"server-{node}.properties")

    def _format(self, node: int, cluster_id: str) -> None:
        voters = ",".join(
            f"{number}@127.0.0.1:{self._ports[self._nodes + number - 1]}"
            for number in range(1, self._nodes + 1)
        )
        text = _PROPERTIES.format(
            node=node,
            voters=voters,
            port=self._ports[node - 1],
            controller_port=self._ports[self._nodes + node - 1],
            directory=self.data_directory(node),
            factor=min(3, self._nodes),
        )
        if self._users:
            text += _GUARDED.format(
                port=self._ports[0],
                controller_port=self._ports[1],
                guarded_port=self.guarded_port,
                plain=" ".join(f'user_{name}="{word}"' for name, word in self._users.items()),
            )
        if self._tokens is not None:
            text += _TOKENS.format(
                port=self._ports[0],
                controller_port=self._ports[1],
                guarded_port=self.guarded_port,
                **self._tokens,
            )
            # Kafka fetches keys from nowhere unless it is told that it may.
            self._options = [f"-D{ALLOWED_URLS}={self._tokens['jwks']}"]
        text += "".join(f"{name}={value}\n" for name, value in self._settings.items())
        Path(self._file(node)).write_text(text)
        # In one word: an id may begin with a dash, which would look like an option.
        named = f"--cluster-id={cluster_id}"
        scram = [
            f"--add-scram={mechanism}=[name={name},iterations=8192,password={word}]"
            for name, word in self._users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        shown = tool("kafka.tools.StorageTool", "format", named, "-c", self._file(node), *scram)
        if shown.returncode:
            raise PeerMissingError(
                f"Apache Kafka cannot format its directory: {shown.stderr[-200:]}"
            )

    def _await_port(self, node: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._processes[node].poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._ports[node - 1])) == 0:
                    return
            time.sleep(0.05)
        tail = (self._root / f"node-{node}.out").read_text(errors="replace")[-500:]
        raise PeerMissingError(f"Apache Kafka did not start within {START_TIMEOUT_S} s: {tail}")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
