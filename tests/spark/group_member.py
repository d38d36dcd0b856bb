"""A member of a group, as a program: prints what it owns, ends cleanly when its input ends.

python -m tests.spark.group_member BOOTSTRAP GROUP NAME ASSIGNOR TOPIC...
"""

from __future__ import annotations

import sys
import threading

from shoal import Consumer


def main() -> None:
    servers, group, name, assignor, *topics = sys.argv[1:]
    ending = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=name,
        assignors=[assignor],
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=1_000,
    )
    consumer.subscribe(topics)
    shown = None
    while not ending.is_set():
        consumer.poll(0.1)
        owned = len(consumer.assignment())
        if owned != shown:
            print(f"{name} {owned}", flush=True)
            shown = owned
    consumer.close()
    print(f"{name} closed", flush=True)


if __name__ == "__main__":
    main()
