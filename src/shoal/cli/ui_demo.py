"""``shoal ui --demo``: a broker in this process, and groups that give the dashboard something to
show.

    billing          three processes; one joins and one is killed, again and again
    fraud-check      two members of the new protocol (KIP-848)
    reports          too slow: its lag grows
    ledger           reads committed records, and waits for a transaction that nobody ends
    nightly-export   has committed and has no members
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from shoal.cli.demo_group import DemoMember, DemoStage
from shoal.cli.demo_orders import orders
from shoal.client.admin import Admin
from shoal.client.consumer import Consumer
from shoal.client.producer import Producer
from shoal.errors import ShoalError
from shoal.testing.broker import Broker
from shoal.types import TopicPartition

TOPICS: Final = {"orders": 6, "payments": 4, "clicks": 3}
PAYMENTS_EVERY: Final = 10
ACT_S: Final = 14.0
SESSION_MS: Final = 6_000
ORDERS_A_SECOND: Final = 60
SPAN_MS: Final = 10**10
OPEN_FOR_MS: Final = 900_000
"""The longest a broker allows by default."""


@contextmanager
def demo_cluster() -> Iterator[dict[str, Any]]:
    """A broker with life in it; yields the settings of clients. Nothing is left running."""
    stop = threading.Event()
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(topics=TOPICS, dead_connection_grace=2))
        servers = broker.bootstrap_servers
        _commit_from_outside(servers)
        for run in (_feed, _fraud_check, _fraud_check, _reports, _ledger):
            stack.enter_context(_going_on(run, servers, stop))
        stage = DemoStage(servers, "orders", "billing", lambda _: None, SESSION_MS)
        stack.enter_context(_going_on(lambda _, ended: _billing(stage, ended), servers, stop))
        stack.callback(stop.set)
        yield {"bootstrap_servers": servers}


@contextmanager
def _going_on(
    run: Callable[[str, threading.Event], None], servers: str, stop: threading.Event
) -> Iterator[None]:
    thread = threading.Thread(target=run, args=(servers, stop), name="demo", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def _commit_from_outside(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.alter_group_offsets(
            "nightly-export", {TopicPartition("clicks", number): 0 for number in range(3)}
        )


def _feed(servers: str, stop: threading.Event) -> None:
    """Orders without end, and a payment for some of them."""
    with Producer(bootstrap_servers=servers, linger_ms=20) as producer:
        for number, order in enumerate(orders(10**9, span_ms=SPAN_MS)):
            headers = [("source", b"shop"), ("trace", f"{number:08x}".encode())]
            producer.send("orders", order.value, order.key, headers=headers)
            if number % PAYMENTS_EVERY == 0:
                paid = {"order_id": f"{number:06d}", "method": "card", "cents": 100 + number % 977}
                producer.send("payments", json.dumps(paid).encode(), order.key)
                producer.send("clicks", json.dumps({"page": f"/p/{number % 17}"}).encode())
            if number % 6 == 0 and stop.wait(6 / ORDERS_A_SECOND):
                return


def _fraud_check(servers: str, stop: threading.Event) -> None:
    with Consumer(
        bootstrap_servers=servers,
        group_id="fraud-check",
        group_protocol="consumer",
        client_id="fraud",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1000,
    ) as consumer:
        consumer.subscribe(["payments", "clicks"])
        while not stop.is_set():
            consumer.poll(0.3)


def _reports(servers: str, stop: threading.Event) -> None:
    """A member that cannot keep up."""
    with Consumer(
        bootstrap_servers=servers,
        group_id="reports",
        client_id="reports",
        auto_offset_reset="earliest",
        max_poll_records=10,
        auto_commit_interval_ms=1000,
    ) as consumer:
        consumer.subscribe(["orders"])
        while not stop.wait(0.5):
            consumer.poll(0.1)


def _ledger(servers: str, stop: threading.Event) -> None:
    """Reads payments; a transaction that is never ended holds it up."""
    with ExitStack() as stack:
        open_one = stack.enter_context(
            Producer(
                bootstrap_servers=servers,
                transactional_id="settlement-7",
                transaction_timeout_ms=OPEN_FOR_MS,
            )
        )
        consumer = stack.enter_context(
            Consumer(
                bootstrap_servers=servers,
                group_id="ledger",
                client_id="ledger",
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                auto_commit_interval_ms=1000,
            )
        )
        consumer.subscribe(["payments"])
        is_open = False
        for number in itertools.count():
            if stop.is_set():
                break
            consumer.poll(0.3)
            if number == 20:
                open_one.init_transactions()
                open_one.begin_transaction()
                open_one.send("payments", b'{"order_id": "hangs"}', partition=1)
                open_one.flush()
                is_open = True
        if is_open:
            open_one.abort_transaction()


def _billing(stage: DemoStage, stop: threading.Event) -> None:
    """Three members; again and again one joins, one is killed, one comes back."""
    members: dict[str, DemoMember] = {}

    def join(name: str) -> None:
        members[name] = DemoMember(name, stage)

    try:
        for name in ("ann", "ben", "cleo"):
            join(name)
        acts: tuple[Callable[[], None], ...] = (
            lambda: join("dora"),
            lambda: members.pop("ben").kill(),
            lambda: members.pop("dora").leave(),
            lambda: join("ben"),
        )
        for act in itertools.cycle(acts):
            if stop.wait(ACT_S):
                return
            act()
    except ShoalError:
        if not stop.is_set():
            raise
    finally:
        for member in members.values():
            member.abandon()
