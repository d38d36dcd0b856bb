"""``shoal transaction``: list, describe and abort transactions, and find those that hang."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.offsets_story import in_ranges
from shoal.cli.output import confirm_or_stop, print_json, print_table, say
from shoal.errors import ConfigError
from shoal.types import TopicPartition

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List, describe and abort transactions, and find those that hang.",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
EXIT_HANGING = 3


@app.command("list")
@for_cluster
def list_transactions(
    target: ClusterTarget,
    state: Annotated[
        list[str] | None, typer.Option(help="Only in this state, such as Ongoing.")
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Only those open for at least this long."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(help="Only ids that match this regular expression.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The transactional ids of a cluster, and the states of their transactions."""
    with target.admin() as admin:
        found = admin.list_transactions(
            states=state or (),
            longer_than_ms=None if longer_than is None else int(longer_than * 1000),
            pattern=pattern,
        )
    columns = ("transactional id", "state", "producer", "coordinator")
    rows = [(t.transactional_id, t.state, t.producer_id, t.coordinator_id) for t in found]
    if as_json:
        names = ("transactional_id", "state", "producer_id", "coordinator")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@app.command("describe")
@for_cluster
def describe(
    target: ClusterTarget,
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    as_json: AsJson = False,
) -> None:
    """State, producer and partitions of a transactional id, and since when it is open."""
    with target.admin() as admin:
        one = admin.describe_transactions(transactional_id)[transactional_id]
    open_s = None if one.start_ms is None else max(0.0, time.time() - one.start_ms / 1000)
    if as_json:
        print_json(
            {
                "transactional_id": one.transactional_id,
                "state": one.state,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "timeout_ms": one.timeout_ms,
                "open_s": open_s,
                "partitions": [str(tp) for tp in one.partitions],
                "coordinator": one.coordinator_id,
            }
        )
        return
    rows = [
        ("state", one.state),
        ("open for", "no transaction" if open_s is None else f"{open_s:.1f} s"),
        ("timeout", f"{one.timeout_ms / 1000:g} s"),
        ("producer", f"{one.producer_id}, epoch {one.producer_epoch}"),
        ("coordinator", one.coordinator_id),
        ("partitions", in_ranges(one.partitions)),
    ]
    print_table(("what", "value"), rows, title=f"transactional id {transactional_id}")


@app.command("abort")
@for_cluster
def abort(
    target: ClusterTarget,
    transactional_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Transactional ids.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(metavar="TOPIC-N", help="Instead: of a hanging one, where it is open."),
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="And the offset at which it begins there.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Abort transactions and shut their producers out; or one that hangs in a partition."""
    if bool(transactional_ids) == (partition is not None):
        raise ConfigError("give transactional ids, or --partition and --start-offset")
    if partition is None:
        ids = transactional_ids or []
        with target.admin() as admin:
            found = admin.describe_transactions(*ids)  # an id of a typing error is not made new
            states = ", ".join(f"{one.transactional_id} ({one.state})" for one in found.values())
            confirm_or_stop(f"This aborts transactions and fences producers of: {states}", yes=yes)
            admin.fence_producers(*ids)
        say(f"aborted {', '.join(ids)}", {"aborted": ids}, as_json=as_json)
        return
    if start_offset is None:
        raise ConfigError(
            "--partition needs --start-offset; `shoal transaction find-hanging` names it"
        )
    tp = _partition(partition)
    with target.admin() as admin:
        confirm_or_stop(
            f"This aborts what is open in {tp} from offset {start_offset} on, only there.",
            yes=yes,
        )
        admin.abort_transaction(tp, start_offset)
    done = {"partition": str(tp), "start_offset": start_offset}
    say(f"aborted the transaction at offset {start_offset} of {tp}", done, as_json=as_json)


def _partition(text: str) -> TopicPartition:
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not number.isdecimal():
        raise ConfigError(f"--partition {text!r} is not TOPIC-N, such as orders-0")
    return TopicPartition(topic, int(number))


@app.command("find-hanging")
@for_cluster
def find_hanging(
    target: ClusterTarget,
    topics: Annotated[list[str] | None, typer.Argument(help="Only in these topics.")] = None,
    idle: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Nothing was written for this long.")
    ] = 900.0,
    as_json: AsJson = False,
) -> None:
    """Transactions that hold readers back and that no coordinator will end.

    Exit code 3 if there is one.
    """
    with target.admin() as admin:
        found = admin.find_hanging_transactions(*(topics or ()), idle_ms=int(idle * 1000))
    names = ("partition", "start_offset", "producer_id", "producer_epoch", "idle_s")
    now = time.time()
    rows = [
        (
            str(one.topic_partition),
            one.producer.start_offset,
            one.producer.producer_id,
            one.producer.producer_epoch,
            round(now - one.producer.last_timestamp_ms / 1000),
        )
        for one in found
    ]
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        columns = ("partition", "start offset", "producer", "epoch", "idle s")
        print_table(columns, rows, title=None if rows else "no transaction hangs")
    if rows:
        raise typer.Exit(EXIT_HANGING)
