"""Kafka's own verifiable producer and consumers as a load: what they print is the history."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.peers.kafka import tool_command
from tests.soak.final_state import final_state, judged
from tests.soak.history import History

Event = dict[str, Any]

# Kafka's tool does not retry by itself; here it must, and must not write anything twice.
_PRODUCER = """enable.idempotence=true
retries=2147483647
delivery.timeout.ms=120000
request.timeout.ms=10000
reconnect.backoff.ms=20
reconnect.backoff.max.ms=200
"""
_CONSUMER = """heartbeat.interval.ms=500
reconnect.backoff.ms=20
reconnect.backoff.max.ms=200
"""


def value_of(text: str) -> bytes:
    """The tool's ``7.12`` (prefix, number) in the form that the history reads: ``7-12``."""
    return text.replace(".", "-").encode()


class _Tool:
    """A tool of Kafka's in the background, its JSON lines handed over as they come."""

    def __init__(self, hear: Callable[[Event], None], name: str, *arguments: str) -> None:
        self._hear = hear
        self._process = subprocess.Popen(
            tool_command(name, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._hear(json.loads(line))

    def stop(self) -> None:
        """Let it deliver or commit what it has, and end."""
        assert self._process.poll() is None, f"{self._thread.name} ended by itself"
        self._process.terminate()
        self._process.wait(150)
        self._thread.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class VerifiableLoad:
    """Two idempotent producers and a group of two consumers that commit after every poll."""

    def __init__(self, servers: str, topic: str, group: str, directory: Path) -> None:
        self.history = History()
        self.topic, self.group = topic, group
        self._runs: dict[str, int] = {}
        (directory / "producer.properties").write_text(_PRODUCER)
        (directory / "consumer.properties").write_text(_CONSUMER)
        common = ("--bootstrap-server", servers, "--topic", topic)
        self._producers = [
            _Tool(
                self._produced,
                "VerifiableProducer",
                *(*common, "--acks", "-1", "--throughput", "300", "--value-prefix", str(number)),
                *("--producer.config", str(directory / "producer.properties")),
            )
            for number in range(2)
        ]
        self._consumers = [
            _Tool(
                self._listener(f"java{number}"),
                "VerifiableConsumer",
                *(*common, "--group-id", group, "--session-timeout", "6000", "--verbose"),
                *("--consumer.config", str(directory / "consumer.properties")),
            )
            for number in range(2)
        ]

    def _produced(self, event: Event) -> None:
        if event["name"] == "producer_send_success":
            place = (event["partition"], event["offset"])
            self.history.acknowledged.append((place, value_of(event["value"])))

    def _listener(self, name: str) -> Callable[[Event], None]:
        def hear(event: Event) -> None:
            match event["name"]:
                case "partitions_assigned" | "partitions_revoked":
                    self._runs[name] = self._runs.get(name, 0) + 1
                case "record_data":
                    place = (event["partition"], event["offset"])
                    seen = self.history.read[name, self._runs.get(name, 0)]
                    seen.append((place, value_of(event["value"])))
                case "offsets_committed" if event["success"]:
                    self.history.committed += [
                        (each["partition"], each["offset"]) for each in event["offsets"]
                    ]

        return hear

    def finish(self) -> None:
        for tool in self._producers:
            tool.stop()
        wanted = {place for place, _ in self.history.acknowledged}
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            # A copy: the readers' threads go on adding.
            read = {place for seen in list(self.history.read.values()) for place, _ in list(seen)}
            if wanted <= read:
                break
            time.sleep(0.1)
        for tool in self._consumers:
            tool.stop()

    def kill(self) -> None:
        for tool in (*self._producers, *self._consumers):
            tool.kill()

    def judge(self, servers: str) -> tuple[list[str], dict[str, int]]:
        return judged(self.history, *final_state(servers, self.topic, self.group))
