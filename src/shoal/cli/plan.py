"""``shoal plan``: what a change to a group would move and stop, for every assignor.

The group comes from a file, an example, or a live cluster; the change from the file or from flags.
What is decided is in ``shoal.assign.plan``; this module reads, asks and prints.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.assign.plan import (
    Change,
    Group,
    Join,
    Leave,
    Load,
    Member,
    Plan,
    Resize,
    Restart,
    Resubscribe,
    Switch,
    Topic,
    plan,
)
from shoal.assign.plan_document import EXAMPLES, DocumentError, read
from shoal.assign.plan_picture import LEGEND, as_json, columns, matrix_lines, picture
from shoal.cli.connecting import Target, for_cluster, utf8_text
from shoal.cli.output import print_json, print_table, printable
from shoal.errors import ConfigError
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.admin import Admin

app = typer.Typer(rich_markup_mode=None)

# A matrix of more rows scrolls away; the table above it says enough.
MATRIX_ROWS_MAX = 60
PLAIN_WIDTH = 100
_STDIN = Path("-")


@app.command(name="plan")
@for_cluster
def plan_command(
    target: Target,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A described group, YAML or JSON; - is standard input."
        ),
    ] = None,
    example: Annotated[str | None, typer.Option(help="A built-in group; see --examples.")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="List the examples.")] = False,
    group: Annotated[str | None, typer.Option(help="A group of the live cluster.")] = None,
    join: Annotated[list[str] | None, typer.Option(help="A member that joins.")] = None,
    leave: Annotated[list[str] | None, typer.Option(help="A member that leaves.")] = None,
    partitions: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC=N", help="A topic gets N partitions.")
    ] = None,
    subscribe: Annotated[
        list[str] | None,
        typer.Option(metavar="MEMBER=TOPIC,TOPIC", help="A member subscribes to something else."),
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="Change to this assignor, or any.")] = None,
    restart: Annotated[str | None, typer.Option(help="Rolling: static or dynamic.")] = None,
    assignor: Annotated[list[str] | None, typer.Option(help="Only these assignors.")] = None,
    watch: Annotated[
        float,
        typer.Option(
            min=0, max=86_400, help="Live: how many seconds to measure bytes/s; 0 leaves them out."
        ),
    ] = 0.0,
    matrix: Annotated[bool, typer.Option(help="Show members by partitions.")] = True,
    as_json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the matrix as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the matrix as PNG.")] = None,
) -> None:
    """What moves, and who waits, if a group changes: for every assignor, before it is done."""
    if examples:
        for name, document in EXAMPLES.items():
            typer.echo(f"{name:16}{document['about']}")
        return
    try:
        described, changes = _described(target, file, example, group, watch)
        changes += _from_flags(described, join, leave, partitions, subscribe, strategy, restart)
        planned = plan(described, changes, list(assignor) if assignor else None)
        drawn = picture(planned) if svg or png else None
    except DocumentError as error:
        where = "the flags"
        if file or example:
            where = _named(file) if file else f"example {example}"
        raise ConfigError(f"{where}: {error}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if drawn is not None and svg is not None:
        svg.write_text(drawn.to_svg(), encoding="utf-8")
    if drawn is not None and png is not None:
        png.write_bytes(drawn.to_png())
    if as_json_:
        print_json(as_json(planned))
    else:
        _print(planned, matrix=matrix)


def _described(
    target: Target, file: Path | None, example: str | None, group: str | None, watch: float
) -> tuple[Group, list[Change]]:
    given = [one for one in (file, example, group) if one is not None]
    if len(given) != 1:
        raise ConfigError("give one of: a file, --example NAME (see --examples), --group NAME")
    if file is not None:
        return read(_parsed(file))
    if example is not None:
        if example not in EXAMPLES:
            raise ConfigError(f"no example is called {example!r}; there are {', '.join(EXAMPLES)}")
        return read(EXAMPLES[example])
    assert group is not None
    with target.admin() as admin:
        return live_group(admin, group, watch), []


def _named(file: Path) -> str:
    return "standard input" if file == _STDIN else str(file)


def _parsed(file: Path) -> object:
    text = sys.stdin.read() if file == _STDIN else utf8_text(file)
    if file.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{_named(file)} is not JSON: {error}") from error
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{_named(file)} is not YAML: {' '.join(str(error).split())}") from error


def live_group(admin: Admin, group_id: str, watch_s: float = 0.0) -> Group:
    """A group as it is now: members, what they read, how far they are behind, and how fast what
    they read grows, measured for ``watch_s`` seconds."""
    found = admin.describe_group(group_id)
    if not found.members:
        raise ConfigError(f"group {group_id!r} has no members now; describe it in a file instead")
    names: dict[str, str] = {}
    for one in found.members:
        short = one.group_instance_id or one.client_id
        # Short names are for people, but they must tell members apart.
        names[one.member_id] = one.member_id if short in names.values() else short
    wanted = sorted({topic for one in found.members for topic in one.topics})
    lags = {tp: one.lag or 0 for tp, one in admin.group_lag(group_id).items()}
    speeds = _bytes_per_s(admin, wanted, watch_s) if watch_s > 0 else {}
    topics = {}
    for name, topic in admin.describe_topics(*wanted).items():
        partitions = [TopicPartition(name, number) for number in range(len(topic.partitions))]
        topics[name] = Topic(
            len(partitions),
            lag=[lags.get(tp, 0) for tp in partitions],
            bytes_per_s=[speeds.get(tp, 0.0) for tp in partitions] if speeds else (),
        )
    return Group(
        topics,
        {
            names[one.member_id]: Member(tuple(sorted(one.topics)), one.group_instance_id)
            for one in found.members
        },
        found.assignor or None,
        {names[one.member_id]: sorted(one.assignment) for one in found.members},
    )


def _bytes_per_s(admin: Admin, topics: list[str], seconds: float) -> dict[TopicPartition, float]:
    """How fast partitions grow on disk; one that retention made smaller counts as idle."""
    before, began = admin.partition_sizes(*topics), time.monotonic()
    time.sleep(seconds)
    after, taken = admin.partition_sizes(*topics), time.monotonic() - began
    return {tp: max(0, size - before.get(tp, 0)) / taken for tp, size in after.items()}


def _from_flags(
    group: Group,
    join: list[str] | None,
    leave: list[str] | None,
    partitions: list[str] | None,
    subscribe: list[str] | None,
    strategy: str | None,
    restart: str | None,
) -> list[Change]:
    changes: list[Change] = []
    if partitions:
        changes.append(Resize(dict(_size(one) for one in partitions)))
    if leave:
        changes.append(Leave(leave))
    if join:
        everything = tuple(group.topics)
        changes.append(Join({member_id: Member(everything) for member_id in join}))
    if subscribe:
        changes.append(Resubscribe(dict(_topics(one) for one in subscribe)))
    if strategy is not None:
        changes.append(Switch(None if strategy == "any" else strategy))
    if restart is not None:
        if restart not in ("static", "dynamic"):
            raise ConfigError(f"--restart must be static or dynamic, not {restart!r}")
        changes.append(Restart(static=restart == "static"))
    return changes


def _size(given: str) -> tuple[str, int]:
    topic, _, count = given.partition("=")
    if not topic or not count.isdecimal():
        raise ConfigError(f"--partitions takes TOPIC=N, not {given!r}")
    return topic, int(count)


def _topics(given: str) -> tuple[str, tuple[str, ...]]:
    member_id, separator, topics = given.rpartition("=")
    if not member_id or not separator:
        raise ConfigError(f"--subscribe takes MEMBER=TOPIC,TOPIC, not {given!r}")
    return member_id, tuple(topic for topic in topics.split(",") if topic)


def _print(planned: Plan, *, matrix: bool) -> None:
    group = planned.group
    count = sum(topic.partitions for topic in group.topics.values())
    typer.echo(
        f"{len(group.members)} members, {len(group.topics)} topics, {count:,} partitions; "
        f"{printable('; then '.join(map(str, planned.changes))) or 'no change'}"
    )
    print_table(
        ("assignor", "protocol", "rebalances", "moved", "stopped"),
        [
            (one.assignor, one.protocol.name.lower(), one.rebalances, one.moved, one.stopped)
            for one in planned.outcomes
        ],
    )
    for measure in planned.outcomes[0].loads_after:
        _print_loads(planned, measure)
    if matrix:
        _print_matrices(planned)


def _print_loads(planned: Plan, measure: str) -> None:
    def shown(load: Load) -> list[Any]:
        return [round(load.minimum), round(load.maximum), round(load.deviation, 2)]

    rows = []
    for outcome in planned.outcomes:
        row = [outcome.assignor, *shown(outcome.loads_before[measure])]
        if planned.changes:
            row += shown(outcome.loads_after[measure])
        rows.append(row)
    names = ["min", "max", "std dev"]
    head = ["assignor", *names]
    if planned.changes:
        head = ["assignor", *names, *(f"{name} after" for name in names)]
    print_table(head, rows, title=f"{measure.replace('_per_s', '/s')} per member")


def _print_matrices(planned: Plan) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH
    partitions = columns(planned)
    for outcome in planned.outcomes:
        lines = matrix_lines(outcome, partitions, width)
        typer.echo(f"\n{outcome.assignor}")
        for line in lines[:MATRIX_ROWS_MAX]:
            typer.echo(printable(line))
        if len(lines) > MATRIX_ROWS_MAX:
            typer.echo(f"… {len(lines) - 1} members in all")
    typer.echo(f"\n{LEGEND}")
