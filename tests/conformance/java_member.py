"""The Java client as a member of a group: Kafka's verifiable consumer in a process."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.conformance.client import Door
from tests.peers.kafka import tool_command

ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class VerifiableMember:
    """Kafka's verifiable consumer: a member that tells what it owns and reads, as JSON lines."""

    def __init__(self, door: Door, topic: str, group: str, *arguments: str) -> None:
        self.values: list[bytes] = []
        self._assignment: frozenset[int] = frozenset()
        self._process = subprocess.Popen(
            tool_command(
                "VerifiableConsumer",
                *("--bootstrap-server", door.servers, "--topic", topic, "--group-id", group),
                *("--reset-policy", "earliest", "--verbose"),
                *arguments,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def assignment(self) -> frozenset[int]:
        assert self._process.poll() is None, "the verifiable consumer ended"
        return self._assignment

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            match event.get("name"):
                case "partitions_assigned":
                    added = frozenset(tp["partition"] for tp in event["partitions"])
                    self._assignment = self._assignment | added
                case "partitions_revoked":
                    gone = frozenset(tp["partition"] for tp in event["partitions"])
                    self._assignment = self._assignment - gone
                case "record_data":
                    self.values.append(event["value"].encode())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._thread.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def java_member(
    door: Door, topic: str, group: str, *, strategy: str = "range", instance: str | None = None
) -> Iterator[VerifiableMember]:
    """A member for the length of a block. A static one does not leave when it is stopped."""
    assignor = f"org.apache.kafka.clients.consumer.{ASSIGNORS[strategy]}"
    # A new Java process may take seconds to join; a static member's place must still be there.
    session = ("--session-timeout", "6000" if instance is None else "30000")
    static = ("--group-instance-id", instance) if instance is not None else ()
    member = VerifiableMember(
        door, topic, group, "--assignment-strategy", assignor, *session, *static
    )
    try:
        yield member
    finally:
        member.stop()
