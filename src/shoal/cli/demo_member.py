"""One member of the demo's group, as a process of its own: ``python -m shoal.cli.demo_member``.

Says on standard output what it gets and gives up, one JSON object a line. SIGTERM makes it leave
the group; SIGKILL makes it the dead member of the story.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Iterable
from types import FrameType
from typing import Final

from shoal.client.consumer import Consumer
from shoal.types import TopicPartition

POLL_S: Final = 0.2


def say(kind: str, partitions: Iterable[int] = (), records: int = 0) -> None:
    """One line for the demo."""
    line = {"at": time.time(), "kind": kind, "partitions": list(partitions), "records": records}
    print(json.dumps(line), flush=True)


class Notes:
    """A rebalance listener that tells the demo."""

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        say("gets", [tp.partition for tp in partitions])

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        say("gives up", [tp.partition for tp in partitions])


def main() -> None:
    """Consume until told to leave."""
    bootstrap_servers, topic, group_id, name, session_ms = sys.argv[1:]
    leaving = False

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
        nonlocal leaving
        leaving = True

    # A commit that a rebalance overtook is part of the story, and told by the lines above.
    logging.basicConfig(level=logging.ERROR)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        client_id=name,
        assignors=["cooperative-sticky"],
        auto_offset_reset="earliest",
        session_timeout_ms=int(session_ms),
        heartbeat_interval_ms=300,
        auto_commit_interval_ms=500,
    ) as consumer:
        consumer.subscribe([topic], listener=Notes())
        while not leaving:
            if records := len(consumer.poll(POLL_S)):
                say("reads", records=records)


if __name__ == "__main__":
    main()
