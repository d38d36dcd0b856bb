"""``shoal demo``: the main job, everything embedded.

A broker in this process; a stream of orders; a consumer group of three processes in which one
joins and one is killed; and a Spark pipeline that turns the orders into revenue per shop and
window, to a topic and to Parquet, with its progress in a consumer group. Nothing is left running.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from shoal.broker.config import BrokerConfig
from shoal.cli.demo_group import DemoMember, DemoStage, OwnershipChange
from shoal.cli.demo_orders import START_MS, closing_order, orders
from shoal.cli.interrupts import interrupts_held
from shoal.cli.output import print_json, print_table, tell, tell_link, warn
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
EVENT_SPAN_MS: Final = 40 * 60_000
PATIENCE_S: Final = 20.0
PIPELINE_S: Final = 180.0
"""Given up after this; on a quiet machine it takes seconds."""


@dataclass(frozen=True)
class Pace:
    """How long the acts of the story are."""

    orders: int
    stream_s: float
    session_ms: int
    pause_s: float


CALM: Final = Pace(ORDERS, stream_s=14.0, session_ms=6_000, pause_s=1.5)
"""With the shortest session timeout that brokers allow by default."""
FAST: Final = Pace(12_000, stream_s=3.0, session_ms=2_000, pause_s=0.5)


@app.command()
def demo(
    output: Path = typer.Option(
        Path("demo-output"), "--output", "-o", help="Where the picture and the Parquet files go."
    ),
    spark: bool | None = typer.Option(
        None,
        "--spark/--no-spark",
        help="Run the Spark pipeline too (needs Java); by default if it can be.",
        show_default=False,
    ),
    fast: bool = typer.Option(
        False, "--fast", help="The group only, in about ten seconds: shorter waits, no Spark."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object at the end."),
) -> None:
    """Run the end-to-end demo: an embedded broker, a group that rebalances, a Spark pipeline."""
    if fast and spark:
        raise ConfigError("--fast leaves Spark out; give --fast or --spark")
    story = Story(is_told=not as_json)
    has_spark = not fast and _can_run_spark(wanted=spark)
    output.mkdir(parents=True, exist_ok=True)
    try:
        summary = _play(story, output, FAST if fast else CALM, has_spark=has_spark)
    except KeyboardInterrupt:
        warn("shoal: interrupted; nothing is left running")
        raise
    if as_json:
        print_json(summary)


@dataclass(frozen=True)
class Story:
    """What is told while it happens, or kept silent for those who want JSON."""

    is_told: bool

    def tell(self, text: str) -> None:
        if self.is_told:
            tell(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if self.is_told:
            if not sys.stdout.isatty():
                tell(title)  # part of the story, which a pipe gets whole
            print_table(columns, rows, title=title)


def _play(story: Story, output: Path, pace: Pace, *, has_spark: bool) -> dict[str, object]:
    started = time.monotonic()
    summary: dict[str, object] = {}
    with ExitStack() as stack:
        config = BrokerConfig()
        groups = config.groups._replace(min_session_timeout_ms=pace.session_ms)
        broker = stack.enter_context(
            Broker(topics={TOPIC: PARTITIONS, RESULTS: 2}, config=config._replace(groups=groups))
        )
        story.tell(f"A broker is ready on {broker.bootstrap_servers}; any Kafka client can use it.")
        story.tell(
            f"A producer writes {pace.orders:,} orders to topic {TOPIC!r}, which has "
            f"{PARTITIONS} partitions."
        )
        pipeline = None
        if has_spark:
            story.tell("Spark is starting beside it.")
            with interrupts_held():
                pipeline = stack.enter_context(_pipeline(broker.bootstrap_servers))
        feed = stack.enter_context(_feeding(broker.bootstrap_servers, pace))
        stage = _group_act(story, broker.bootstrap_servers, pace)
        feed.join()
        summary["group"] = _report_group(story, broker.bootstrap_servers, stage, output)
        if pipeline is not None:
            summary["pipeline"] = _report_pipeline(story, broker.bootstrap_servers, pipeline)
            pipeline.keep(output / "revenue.parquet")
    seconds = summary["seconds"] = round(time.monotonic() - started, 1)
    story.tell(f"Done in {seconds} s; nothing is left running.")
    story.tell(
        "Next, such a crash under every scheme Kafka has had: shoal lab compare member-crashes"
    )
    return summary


@contextmanager
def _feeding(bootstrap_servers: str, pace: Pace) -> Iterator[threading.Thread]:
    """A thread that produces the orders over ``pace.stream_s`` seconds, in real time."""
    stop = threading.Event()

    def run() -> None:
        began = time.monotonic()
        with Producer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
            for number, order in enumerate(orders(pace.orders, span_ms=EVENT_SPAN_MS)):
                producer.send(TOPIC, order.value, order.key)
                due = pace.stream_s * number / pace.orders
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


def _group_act(story: Story, bootstrap_servers: str, pace: Pace) -> DemoStage:
    """Three members; a fourth joins; one is killed; the rest takes over."""

    def show(change: OwnershipChange) -> None:
        text = " ".join(f"{TOPIC}-{number}" for number in change.partitions)
        story.tell(f"  {change.at_s:5.1f} s  {change.member:6} {change.kind:8} {text}")

    def wait_for(what: str, condition: Callable[[], bool]) -> None:
        if not _wait(condition, PATIENCE_S):
            story.tell(f"  {what}: not after {PATIENCE_S:g} s, going on; is the machine busy?")

    session_s = pace.session_ms / 1000
    story.tell("")
    story.tell(f"1. Three members join group {GROUP!r} (assignor: cooperative-sticky).")
    story.tell("   Look at: every partition gets exactly one owner.")
    stage = DemoStage(bootstrap_servers, TOPIC, GROUP, show, pace.session_ms)
    members: dict[str, DemoMember] = {}

    def join(name: str) -> None:
        with interrupts_held():
            members[name] = DemoMember(name, stage)

    try:
        for name in ("ann", "ben", "cleo"):
            join(name)
        wait_for(
            "every member has a share and every partition an owner",
            lambda: all(stage.owned(name) for name in members) and _owned(stage) == PARTITIONS,
        )
        time.sleep(pace.pause_s)
        story.tell("2. A fourth member, dora, joins.")
        story.tell("   Look at: only what she gets moves; all other partitions are read on.")
        join("dora")
        wait_for(
            "dora has her share",
            lambda: bool(stage.owned("dora")) and _owned(stage) == PARTITIONS,
        )
        time.sleep(pace.pause_s)
        story.tell("3. ben is killed (SIGKILL), so he cannot say good-bye.")
        story.tell(
            "   Look at: what he had waits. A broker cannot tell a dead member from a slow one,"
        )
        story.tell(f"   so it waits for his session timeout ({session_s:g} s without a heartbeat).")
        members["ben"].kill()
        wait_for("ben is replaced", lambda: _owned(stage, without="ben") == PARTITIONS)
        _tell_wait(story, stage)
        wait_for("all orders are read", lambda: sum(stage.seen.values()) >= pace.orders)
        time.sleep(pace.pause_s)
        stage.end()
        for member in members.values():
            member.leave()
    except BaseException:
        with interrupts_held():
            for member in members.values():
                member.abandon()
        raise
    return stage


def _tell_wait(story: Story, stage: DemoStage) -> None:
    """How long the partitions of the dead member had nobody, measured."""
    from shoal.cli.demo_picture import taken_over_s

    for death in [change for change in stage.changes if change.kind == "dies"]:
        waits = [at_s - death.at_s for at_s in taken_over_s(stage.changes, death).values()]
        if waits:
            what = " ".join(f"{TOPIC}-{number}" for number in death.partitions)
            story.tell(f"   Nobody read {what} for {max(waits):.1f} s; no order is lost.")


def _owned(stage: DemoStage, *, without: str = "") -> int:
    names = {change.member for change in stage.changes} - {without}
    return len({number for name in names for number in stage.owned(name)})


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return met


def _report_group(
    story: Story, bootstrap_servers: str, stage: DemoStage, output: Path
) -> dict[str, object]:
    from shoal.cli.demo_picture import ownership_picture

    story.tell("")
    rows = [*sorted(stage.seen.items()), ("left to read", _lag(bootstrap_servers, GROUP))]
    story.table(f"group {GROUP!r}", ("member", "records read"), rows)
    drawn = ownership_picture(
        stage.changes, PARTITIONS, end_s=stage.ended_s, session_s=stage.session_ms / 1000
    )
    picture = output / "group.svg"
    picture.write_text(drawn, encoding="utf-8")
    if story.is_told:
        tell_link("The picture of it: ", picture)
    return {"read": stage.seen, "changes": len(stage.changes)}


def _lag(bootstrap_servers: str, group_id: str) -> int:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        return sum(one.lag or 0 for one in admin.group_lag(group_id).values())


def _can_run_spark(*, wanted: bool | None) -> bool:
    """Whether the pipeline will run.

    Raises:
        ConfigError: it was asked for and Spark or Java is missing.
    """
    if wanted is False:
        return False
    from shoal.spark.local import check_prerequisites

    try:
        check_prerequisites()
    except ConfigError as error:
        if wanted:
            raise
        warn(f"shoal: no Spark pipeline: {error}")
        return False
    return True


def _pipeline(bootstrap_servers: str) -> Pipeline:
    from shoal.cli.demo_pipeline import Pipeline

    return Pipeline(
        bootstrap_servers,
        topic=TOPIC,
        results=RESULTS,
        group_id=SPARK_GROUP,
        closed_ms=START_MS + EVENT_SPAN_MS,
    )


def _report_pipeline(story: Story, bootstrap_servers: str, pipeline: Pipeline) -> dict[str, object]:
    story.tell("")
    story.tell(f"Spark: {TOPIC} → revenue per shop and 5-minute window → topic and Parquet")
    done = pipeline.finish(PIPELINE_S)
    totals = _revenue(bootstrap_servers)
    rows = [
        (shop, count, cents / 100)
        for shop, (count, cents) in sorted(totals.items(), key=lambda item: -item[1][1])
    ]
    story.table("revenue by shop, read back from the topic", ("shop", "orders", "revenue"), rows)
    _wait(lambda: pipeline.lag() == 0, 10)
    lag = pipeline.lag()
    counted = sum(count for count, _ in totals.values())
    # Spark's own count of dropped rows is of rows aggregated before: this one is of orders. The
    # order that closes the windows stands in one that stays open.
    late = done["rows"][0] - 1 - counted
    story.tell(
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
