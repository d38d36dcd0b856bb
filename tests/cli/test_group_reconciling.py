"""A group of the new protocol (KIP-848) on its way, seen by ``group describe`` and ``why``."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from typer.testing import CliRunner

from shoal import Consumer
from shoal.cli.commands import app
from shoal.testing.broker import Broker


class Slow:
    """A listener that gives nothing up before it may."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()

    def on_partitions_revoked(self, _: Any) -> None:
        self.may_go_on.wait(20)


def polling(servers: str, stop: threading.Event, listener: Slow | None = None) -> threading.Thread:
    def run() -> None:
        settings: Any = {"bootstrap_servers": servers, "group_id": "g", "client_id": "worker"}
        with Consumer(group_protocol="consumer", **settings) as consumer:
            consumer.subscribe(["orders"], listener)
            while not stop.is_set():
                consumer.poll(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_who_has_to_give_up_what_and_who_waits_for_it_is_shown_while_a_group_reconciles() -> None:
    listener, stop = Slow(), threading.Event()
    threads = []
    with Broker(topics={"orders": 4}) as broker:
        try:

            def described() -> Any:
                shown = CliRunner().invoke(
                    app, ["group", "describe", "g", "--json", "-b", broker.bootstrap_servers]
                )
                return json.loads(shown.stdout) if shown.exit_code == 0 else {}

            def until(done: Any) -> Any:
                ends = time.monotonic() + 20
                while not done(found := described()):
                    assert time.monotonic() < ends, found
                return found

            threads.append(polling(broker.bootstrap_servers, stop, listener))
            until(lambda found: found.get("state") == "Stable")
            threads.append(polling(broker.bootstrap_servers, stop))
            found = until(
                lambda found: (
                    found["state"] == "Reconciling"
                    and {len(one["target"]) for one in found["members"]} == {2}
                )
            )
            assert found["protocol"] == "consumer"
            assert sorted(len(one["partitions"]) for one in found["members"]) == [0, 4]
            where = ["-b", broker.bootstrap_servers]
            text = CliRunner().invoke(app, ["group", "describe", "g", *where])
            assert "has to give up orders " in text.stdout
            assert "waits for orders " in text.stdout
            shown = CliRunner().invoke(app, ["why", "g", "--seconds", "1", *where])
            assert "has not given up orders-" in shown.stdout
            listener.may_go_on.set()
            found = until(lambda found: found["state"] == "Stable")
            assert all(one["target"] == one["partitions"] for one in found["members"])
        finally:
            listener.may_go_on.set()
            stop.set()
            for thread in threads:
                thread.join(20)
