"""``shoal demo``: the main job, everything embedded.

A broker in this process; a stream of orders; a consumer group of three processes in which one
joins and one is killed; and a Spark pipeline that turns the orders into revenue per shop and
window, to a topic and to Parquet, with its progress in a consumer group. Nothing is left running.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.table import Table

from shoal.cli.demo_group import Change, Member, Stage
from shoal.cli.demo_orders import START_MS, closing_order, orders
from shoal.client.admin import Admin
from shoal.client.consumer import Consumer
from shoal.client.producer import Producer
from shoal.errors import ConfigError
from shoal.testing.broker import Broker
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.cli.demo_pipeline import Pipeline

app = typer.Typer(rich_markup_mode=None)

TOPIC: Final = "orders"
RESULTS: Final = "revenue"
GROUP: Final = "billing"
SPARK_GROUP: Final = "revenue-etl"
PARTITIONS: Final = 6
ORDERS: Final = 60_000
STREAM_S: Final = 14.0
EVENT_SPAN_MS: Final = 40 * 60_000
PATIENCE_S: Final = 20.0
PIPELINE_S: Final = 180.0
"""Given up after this; on a quiet machine it takes seconds."""


@app.command()
def demo(
    output: Path = typer.Option(
        Path("demo-output"), "--output", "-o", help="Where the picture and the Parquet files go."
    ),
    spark: bool = typer.Option(True, help="Run the Spark pipeline too (needs Java)."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object at the end."),
) -> None:
    """The main job: an embedded broker, a consumer group that rebalances, the Spark pipeline."""
    console = Console(quiet=as_json, highlight=False)
    output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    summary: dict[str, object] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(topics={TOPIC: PARTITIONS, RESULTS: 2}))
        console.print(f"broker ready on {broker.bootstrap_servers}, a real Kafka to any client")
        pipeline = _start_pipeline(console, broker.bootstrap_servers, wanted=spark)
        if pipeline is not None:
            stack.callback(pipeline.close, output / "revenue.parquet")
        feed = stack.enter_context(_feeding(broker.bootstrap_servers))
        stage = _group_act(console, broker.bootstrap_servers)
        feed.join()
        summary["group"] = _report_group(console, broker.bootstrap_servers, stage, output)
        if pipeline is not None:
            summary["pipeline"] = _report_pipeline(console, broker.bootstrap_servers, pipeline)
    seconds = summary["seconds"] = round(time.monotonic() - started, 1)
    console.print(f"done in {seconds} s; nothing is left running. See {output}/")
    if as_json:
        typer.echo(json.dumps(summary))


@contextmanager
def _feeding(bootstrap_servers: str) -> Iterator[threading.Thread]:
    """A thread that produces the orders over ``STREAM_S`` seconds, in real time."""
    stop = threading.Event()

    def run() -> None:
        began = time.monotonic()
        with Producer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
            for number, order in enumerate(orders(ORDERS, span_ms=EVENT_SPAN_MS)):
                producer.send(TOPIC, order.value, order.key)
                due = STREAM_S * number / ORDERS
                if number % 500 == 0 and stop.wait(max(0.0, due - (time.monotonic() - began))):
                    return
            producer.flush()
            closing = closing_order(EVENT_SPAN_MS)
            producer.send(TOPIC, closing.value, closing.key)

    thread = threading.Thread(target=run, name="demo-orders", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


def _group_act(console: Console, bootstrap_servers: str) -> Stage:
    """Three members; a fourth joins; one is killed; the rest takes over."""

    def show(change: Change) -> None:
        text = " ".join(f"{TOPIC}-{number}" for number in change.partitions)
        console.print(f"  {change.at_s:5.1f} s  {change.member:6} {change.kind:6} {text}")

    def wait_for(what: str, condition: Callable[[], bool]) -> None:
        if not _wait(condition, PATIENCE_S):
            console.print(f"  {what}: not after {PATIENCE_S:g} s, going on; is the machine busy?")

    console.print(f"\nconsumer group {GROUP!r} (cooperative-sticky): ann, ben and cleo join")
    stage = Stage(bootstrap_servers, TOPIC, GROUP, show)
    members = {name: Member(name, stage) for name in ("ann", "ben", "cleo")}
    try:
        wait_for("every partition has an owner", lambda: _owned(stage) == PARTITIONS)
        time.sleep(1.5)
        console.print("dora joins: only what she needs moves, the rest never stops")
        members["dora"] = Member("dora", stage)
        wait_for(
            "dora has her share",
            lambda: bool(stage.owned("dora")) and _owned(stage) == PARTITIONS,
        )
        time.sleep(1.0)
        console.print("ben is killed (SIGKILL): after the session timeout the others take over")
        members.pop("ben").kill()
        wait_for("ben is replaced", lambda: _owned(stage, without="ben") == PARTITIONS)
        wait_for("all orders are read", lambda: sum(stage.seen.values()) >= ORDERS)
    finally:
        for member in members.values():
            member.leave()
    return stage


def _owned(stage: Stage, *, without: str = "") -> int:
    names = {change.member for change in stage.changes} - {without}
    return len({number for name in names for number in stage.owned(name)})


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return met


def _report_group(
    console: Console, bootstrap_servers: str, stage: Stage, output: Path
) -> dict[str, object]:
    from shoal.cli.demo_picture import ownership_picture

    table = Table(title=f"group {GROUP!r}")
    for column in ("member", "records read"):
        table.add_column(column, justify="right" if column != "member" else "left")
    for name, count in sorted(stage.seen.items()):
        table.add_row(name, f"{count:,}")
    table.add_row("lag left", f"{_lag(bootstrap_servers, GROUP):,}")
    console.print(table)
    picture = output / "group.svg"
    picture.write_text(ownership_picture(stage.changes, PARTITIONS), encoding="utf-8")
    console.print(f"who owned what, and when: {picture}")
    return {"read": stage.seen, "changes": len(stage.changes)}


def _lag(bootstrap_servers: str, group_id: str) -> int:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        return sum(one.lag or 0 for one in admin.group_lag(group_id).values())


def _start_pipeline(console: Console, bootstrap_servers: str, *, wanted: bool) -> Pipeline | None:
    if not wanted:
        return None
    from shoal.cli.demo_pipeline import Pipeline
    from shoal.spark.local import check_prerequisites

    try:
        check_prerequisites()
    except ConfigError as error:
        console.print(f"no Spark pipeline: {error}")
        return None
    console.print("Spark is starting beside it")
    return Pipeline(bootstrap_servers, topic=TOPIC, results=RESULTS, group_id=SPARK_GROUP)


def _report_pipeline(
    console: Console, bootstrap_servers: str, pipeline: Pipeline
) -> dict[str, object]:
    console.print(f"\nSpark: {TOPIC} → revenue per shop and 5-minute window → topic and Parquet")
    done = pipeline.finish(closed_ms=START_MS + EVENT_SPAN_MS, timeout_s=PIPELINE_S)
    totals = _revenue(bootstrap_servers)
    table = Table(title="revenue by shop, read back from the topic")
    table.add_column("shop")
    table.add_column("orders", justify="right")
    table.add_column("revenue", justify="right")
    for shop, (count, cents) in sorted(totals.items(), key=lambda item: -item[1][1]):
        table.add_row(shop, f"{count:,}", f"{cents / 100:,.2f}")
    console.print(table)
    _wait(lambda: pipeline.lag() == 0, 10)
    lag = pipeline.lag()
    counted = sum(count for count, _ in totals.values())
    # Spark's own count of dropped rows is of rows aggregated before: this one is of orders. The
    # order that closes the windows stands in one that stays open.
    late = done["rows"][0] - 1 - counted
    console.print(
        f"{done['rows'][0]:,} orders in {done['batches'][0]} micro-batches, "
        f"{late:,} came too late for their window; "
        f"{done['windows_in_parquet']} closed windows in Parquet; "
        f"lag of group {SPARK_GROUP!r}: {lag}"
    )
    return {**done, "lag": lag, "orders": counted, "late_orders": late}


def _revenue(bootstrap_servers: str) -> dict[str, tuple[int, int]]:
    """The last word of the results topic on every window, added up by shop."""
    last: dict[tuple[str, str], tuple[int, int]] = {}
    tps = [TopicPartition(RESULTS, number) for number in range(2)]
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for record in consumer.poll(1.0):
                row = json.loads(record.value)
                last[row["shop"], row["start"]] = (row["orders"], row["revenue_cents"])
    totals: dict[str, tuple[int, int]] = {}
    for (shop, _), (count, cents) in last.items():
        before = totals.get(shop, (0, 0))
        totals[shop] = (before[0] + count, before[1] + cents)
    return totals
