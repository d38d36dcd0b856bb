"""``shoal group``: list, describe, lag, reset, delete and watch consumer groups."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shoal.cli.connecting import Target, for_cluster
from shoal.cli.consume import time_ms
from shoal.cli.output import confirm_or_stop, print_json, print_table, say
from shoal.errors import ConfigError
from shoal.group.states import GroupState
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.admin import Admin

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List, describe, watch and reset consumer groups.",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
STATES: Final = (
    *(state.value for state in GroupState),
    *("Assigning", "Reconciling"),  # of KIP-848 groups, on Apache Kafka
)
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


@app.command("list")
@for_cluster
def list_groups(
    target: Target,
    state: Annotated[list[str] | None, typer.Option(help="Only groups in this state.")] = None,
    as_json: AsJson = False,
) -> None:
    """The groups of a cluster."""
    wanted = [_state(one) for one in state or ()]
    with target.admin() as admin:
        found = sorted(admin.list_groups(states=wanted), key=lambda one: one.group_id)
    if as_json:
        print_json([{"group": g.group_id, "state": g.state, "type": g.kind} for g in found])
    else:
        print_table(("group", "state", "type"), [(g.group_id, g.state, g.kind) for g in found])


def _state(given: str) -> str:
    for one in STATES:
        if one.lower() == given.lower():
            return one
    raise ConfigError(f"--state {given!r} is not one of {', '.join(STATES)}")


@app.command("describe")
@for_cluster
def describe(target: Target, group: GroupId, as_json: AsJson = False) -> None:
    """State and members of a group, and what each of them reads."""
    with target.admin() as admin:
        found = admin.describe_group(group)
        if found.state == "Dead":
            raise ConfigError(f"there is no group {group!r}; `shoal group list` shows them")
        lags = admin.group_lag(group)
    members = [
        {
            "member": one.member_id,
            "instance": one.group_instance_id,
            "client": one.client_id,
            "host": one.host,
            "partitions": [str(tp) for tp in sorted(one.assignment)],
            "lag": sum(lags[tp].lag or 0 for tp in one.assignment if tp in lags),
        }
        for one in found.members
    ]
    if as_json:
        print_json(
            {
                "group": group,
                "state": found.state,
                "assignor": found.assignor,
                "coordinator": found.coordinator_id,
                "members": members,
            }
        )
        return
    title = (
        f"group {group}: {found.state}, {len(members)} members, {found.assignor or 'no'} assignor"
    )
    rows = [
        (
            one.client_id,
            one.group_instance_id,
            one.host.lstrip("/"),
            len(one.assignment),
            shown["lag"],
            in_ranges(one.assignment),
        )
        for one, shown in zip(found.members, members, strict=True)
    ]
    print_table(("client", "instance", "host", "count", "lag", "partitions"), rows, title=title)


def in_ranges(tps: Iterable[TopicPartition]) -> str:
    """Partitions as people write them: ``orders 0-3,7  payments 1``."""
    parts = []
    for topic, group in groupby(sorted(tps), key=lambda tp: tp.topic):
        numbers = {tp.partition: None for tp in group}  # a set that keeps its order
        starts = [n for n in numbers if n - 1 not in numbers]
        ends = [n for n in numbers if n + 1 not in numbers]
        runs = (f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
        parts.append(f"{topic} {','.join(runs)}")
    return "  ".join(parts)


@app.command("lag")
@for_cluster
def lag(target: Target, group: GroupId, as_json: AsJson = False) -> None:
    """How far a group is behind, per partition."""
    with target.admin() as admin:
        lags = admin.group_lag(group)
        clients = {one.member_id: one.client_id for one in admin.describe_group(group).members}
    if not lags:
        raise ConfigError(f"group {group!r} has committed nothing; `shoal group list` shows groups")
    rows = [
        (str(tp), one.committed, one.end, one.lag, clients.get(one.member_id or ""))
        for tp, one in sorted(lags.items())
    ]
    columns = ("partition", "committed", "end", "lag", "client")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    total = sum(one.lag or 0 for one in lags.values())
    print_table(columns, rows, title=f"group {group}: {total:,} records behind")


@app.command("reset")
@for_cluster
def reset(
    target: Target,
    group: GroupId,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, a time, or 15m (ago).")
    ],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only these; all committed if none.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these partitions.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a group without members to another place; prints the plan first."""
    with target.admin() as admin:
        before = {tp: one.committed for tp, one in admin.group_lag(group).items()}
        tps = _partitions(admin, group, list(before), topic, partition)
        after = _offsets(admin, tps, to)
        rows = [
            (str(tp), before.get(tp), after[tp], after[tp] - (before.get(tp) or 0)) for tp in tps
        ]
        columns = ("partition", "from", "to", "moves by")
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows, title=f"plan for group {group}")
        confirm_or_stop(f"This moves group {group} in {len(rows)} partitions.", yes=yes)
        admin.alter_group_offsets(group, dict(after))
    if not as_json:
        typer.echo(f"group {group} was reset")


def _partitions(
    admin: Admin,
    group: str,
    committed: list[TopicPartition],
    topics: list[str] | None,
    partitions: list[int] | None,
) -> list[TopicPartition]:
    if topics is None:
        if not committed:
            raise ConfigError(
                f"group {group!r} has committed nothing; name its topics with --topic"
            )
        tps = sorted(committed)
    else:
        found = admin.describe_topics(*topics)
        tps = sorted(
            TopicPartition(topic.name, one.partition)
            for topic in found.values()
            for one in topic.partitions
        )
    chosen = [tp for tp in tps if partitions is None or tp.partition in partitions]
    if not chosen:
        raise ConfigError("no partition is left to reset; look at --topic and --partition")
    return chosen


def _offsets(admin: Admin, tps: list[TopicPartition], to: str) -> dict[TopicPartition, int]:
    ends = {tp: _at(one) for tp, one in _listed(admin, tps, "latest").items()}
    if to.isascii() and to.isdigit():
        first = _listed(admin, tps, "earliest")
        return {tp: min(max(int(to), _at(first[tp])), ends[tp]) for tp in tps}
    wanted: int | str = (
        to if to in ("earliest", "latest") else time_ms(to, "earliest, latest, an offset, ")
    )
    found = _listed(admin, tps, wanted)
    return {tp: ends[tp] if found[tp] is None else _at(found[tp]) for tp in tps}


def _listed(admin: Admin, tps: list[TopicPartition], at: int | str) -> dict[TopicPartition, object]:
    return dict(admin.list_offsets(dict.fromkeys(tps, at)))


def _at(found: object) -> int:
    offset = getattr(found, "offset", 0)
    assert isinstance(offset, int)
    return offset


@app.command("delete")
@for_cluster
def delete(
    target: Target,
    groups: Annotated[list[str], typer.Argument(help="Groups without members.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete groups and everything they have committed."""
    confirm_or_stop(f"This deletes the offsets of: {', '.join(groups)}", yes=yes)
    with target.admin() as admin:
        admin.delete_groups(*groups)
    say(f"deleted {', '.join(groups)}", {"deleted": groups}, as_json=as_json)


@app.command("watch")
@for_cluster
def watch(
    target: Target,
    group: GroupId,
    interval: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between looks.")
    ] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many looks.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a change.")] = False,
) -> None:
    """Watch a group live: who joined, who left, what moved, how long it took."""
    from shoal.cli.watching import watch_group

    with target.admin() as admin:
        watch_group(admin, group, interval_s=interval, looks=count, as_json=as_json)
