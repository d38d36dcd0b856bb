"""The JavaScript clients behind the interface of the Python ones: a Node process per call.

A script in ``scripts/`` knows the client and a handful of commands; it answers in JSON lines.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.conformance.client import Door, Member, Offsets, Partitions
from tests.peers import need
from tests.peers.clients import node_environment, npm_clients, run_node

SCRIPTS = Path(__file__).parent / "scripts"


class _NodeMember:
    """A consumer in a Node process, which tells what it owns and reads."""

    def __init__(self, command: list[str], *, leaves: bool) -> None:
        self.values: list[bytes] = []
        self._assignment: Partitions = frozenset()
        self._leaves = leaves
        self._process = subprocess.Popen(
            command, env=node_environment(), stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def assignment(self) -> Partitions:
        assert self._process.poll() is None, "the consumer ended"
        return self._assignment

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if "value" in event:
                self.values.append(event["value"].encode())
            else:
                self._assignment = frozenset(event["assignment"])

    def stop(self) -> None:
        """A static member is killed: these clients leave when they are closed."""
        if self._leaves:
            self._process.terminate()
        else:
            self._process.kill()
        self._process.wait(30)
        self._thread.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


class NodeClient:
    """One JavaScript client."""

    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    deletes_groups = True

    def __init__(self, name: str, script: str, strategies: Sequence[str], *, static: bool) -> None:
        self.name = name
        self.strategies = strategies
        self.static = static
        self._script = SCRIPTS / script

    def _arguments(self, door: Door, topic: str, group: str) -> str:
        need(npm_clients)
        return json.dumps(asdict(door) | {"topic": topic, "group": group})

    def _run(
        self, door: Door, topic: str, group: str, command: str, *more: object, stdin: str = ""
    ) -> dict[str, Any]:
        settings = self._arguments(door, topic, group)
        said = run_node(self._script, settings, command, *map(str, more), stdin=stdin)
        return json.loads(said) if said.strip() else {}

    def produce(
        self, door: Door, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
    ) -> int:
        text = "\n".join(value.decode() for value in values)
        flag = str(idempotent).lower()
        assert self._run(door, topic, "", "produce", codec, flag, stdin=text)["batches"] > 0
        return len(values)

    def member(
        self, door: Door, topic: str, group: str, *, strategy: str, instance: str | None
    ) -> Member:
        settings = self._arguments(door, topic, group)
        command = ["node", str(self._script), settings, "member", strategy, instance or ""]
        return _NodeMember(command, leaves=instance is None)

    def committed(self, door: Door, topic: str, group: str) -> Offsets:
        found = self._run(door, topic, group, "committed")
        return {int(p): offset for p, offset in found.items() if offset >= 0}

    def commit(self, door: Door, topic: str, group: str, offsets: Offsets) -> None:
        self._run(door, topic, group, "commit", json.dumps(offsets))

    def describe(self, door: Door, group: str) -> tuple[str, int]:
        found = self._run(door, "", group, "describe")
        return _camel(found["state"]), found["members"]

    def delete_group(self, door: Door, group: str) -> None:
        self._run(door, "", group, "delete")


def _camel(state: str) -> str:
    return "".join(word.title() for word in state.split("_")) if state.isupper() else state


KAFKAJS = NodeClient("kafkajs", "kafkajs.js", ("roundrobin",), static=False)
PLATFORMATIC = NodeClient(
    "@platformatic/kafka", "platformatic.js", ("roundrobin", "cooperative-sticky"), static=True
)
