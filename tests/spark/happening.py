"""A real group to which known things happen, for checking what its records tell afterwards."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.client.admin import Admin
from shoal.client.producer import Producer

ROOT = Path(__file__).parents[2]


class Member:
    """One member, in a process of its own."""

    def __init__(self, servers: str, group: str, name: str, assignor: str, topics: tuple[str, ...]):
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.group_member",
                servers,
                group,
                name,
                assignor,
                *topics,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.name = name

    def owns(self, count: int) -> None:
        """Wait until it owns so many partitions."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == f"{self.name} {count}":
                return
        raise AssertionError(f"{self.name} ended before it owned {count} partitions")

    def leave(self) -> None:
        self._process.communicate(timeout=30)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Happening:
    """The members of one group; whoever is left at the end is killed."""

    def __init__(self, servers: str, group: str, assignor: str = "range") -> None:
        self.servers, self.group, self._assignor = servers, group, assignor
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.admin = self._stack.enter_context(Admin(bootstrap_servers=self.servers))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def join(self, name: str, *topics: str) -> Member:
        member = Member(self.servers, self.group, name, self._assignor, topics)
        self._stack.callback(member.kill)
        return member

    def produce(self, topic: str, count: int) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for number in range(count):
                producer.send(topic, str(number), str(number))


def five_things_happen(servers: str, group: str, topic: str) -> None:
    """It starts, two join, one is killed, one leaves, the topic grows; then 10 records wait."""
    with Happening(servers, group) as now:
        now.admin.create_topic(topic, partitions=6)
        now.produce(topic, 60)
        ann = now.join("ann", topic)
        ann.owns(6)
        ben = now.join("ben", topic)
        ben.owns(3)
        ann.owns(3)
        cleo = now.join("cleo", topic)
        cleo.owns(2)
        ben.owns(2)
        ann.owns(2)
        cleo.kill()
        ben.owns(3)
        ann.owns(3)
        ben.leave()
        ann.owns(6)
        now.admin.create_partitions({topic: 8})
        ann.owns(8)
        ann.leave()
        now.produce(topic, 10)
