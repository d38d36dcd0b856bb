"""``shoal group``: list, describe, lag, reset, delete and watch consumer groups."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shoal.cli import completion
from shoal.cli.connecting import ClusterTarget, for_cluster, utf8_text
from shoal.cli.offsets_story import in_ranges
from shoal.cli.output import confirm_or_stop, print_csv, print_json, print_table, say, tell, warn
from shoal.errors import ConfigError, counted
from shoal.fleet.member_names import MemberIdentity, member_names
from shoal.fleet.offset_reset import apply_reset, plan_offsets, plan_reset, plan_shift
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.group_admin import GroupDescription, MemberDescription
    from shoal.client.survey import SurveyedGroup

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List, describe, watch and reset consumer groups.",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
GroupId = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=completion.groups)
]
WHERE: Final = "Where to (one of these)"
STATES: Final = (
    *(state.value for state in GroupState),
    *("Assigning", "Reconciling"),  # of KIP-848 groups, on Apache Kafka
)
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


@app.command("list")
@for_cluster
def list_groups(
    target: ClusterTarget,
    state: Annotated[list[str] | None, typer.Option(help="Only groups in this state.")] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            help="Only groups that read this topic.",
            autocompletion=completion.topics,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the groups of a cluster with their members, topics and lag.

    Asks for all groups at once, in a few requests, however many there are.
    """
    wanted = [_state(one) for one in state or ()]
    with target.admin() as admin:
        seen = admin.survey()
    rows = [_listed_group(one, seen.ends) for one in seen.groups]
    rows = [
        row
        for row in rows
        if (not wanted or row["state"] in wanted)
        and (not topic or not set(topic).isdisjoint(row["topics"]))
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("group", "state", "type", "members", "lag", "topics")
    print_table(
        columns,
        [
            [" ".join(row[name]) if name == "topics" else row[name] for name in columns]
            for row in rows
        ],
    )
    for row in rows:
        if row["problem"]:
            warn(f"{row['group']}: members and lag are unknown ({row['problem']})")


def _listed_group(one: SurveyedGroup, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    members = one.description.members if one.description is not None else ()
    assigned = {tp for member in members for tp in member.assignment}
    subscribed = {topic for member in members for topic in member.topics}
    behind = [ends[tp] - offset for tp, offset in one.committed.items() if tp in ends]
    return {
        "group": one.group_id,
        "state": one.state,
        "type": one.protocol,
        "members": None if one.description is None else len(members),
        "lag": sum(max(0, records) for records in behind) if behind else None,
        "topics": sorted({tp.topic for tp in (*one.committed, *assigned)} | subscribed),
        "problem": one.problem,
    }


def _state(given: str) -> str:
    for one in STATES:
        if one.lower() == given.lower():
            return one
    raise ConfigError(f"--state {given!r} is not one of {', '.join(STATES)}")


@app.command("describe")
@for_cluster
def describe(target: ClusterTarget, group: GroupId, as_json: AsJson = False) -> None:
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
            **_new_member(one),
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
                "protocol": found.protocol,
                **({"epoch": found.group_epoch} if found.group_epoch is not None else {}),
                **({"assignor_fault": found.assignor_fault} if found.assignor_fault else {}),
                "members": members,
            }
        )
        return
    present = counted(len(members), "member")
    title = f"group {group}: {found.state}, {present}, {found.assignor or 'no'} assignor"
    title += f", {found.protocol} protocol"
    if found.group_epoch is not None:
        title += f", epoch {found.group_epoch}"
    title += f", coordinator: broker {found.coordinator_id}"
    facts = {
        "group": group,
        "state": found.state,
        "protocol": found.protocol,
        "assignor": found.assignor or None,
        "epoch": found.group_epoch,
        "coordinator": found.coordinator_id,
        "members": len(members),
    }
    names = _names(found)
    rows = [
        (
            names[one.member_id],
            one.group_instance_id,
            one.host,
            len(one.assignment),
            shown["lag"],
            in_ranges(one.assignment),
        )
        for one, shown in zip(found.members, members, strict=True)
    ]
    columns = ("member", "instance", "host", "count", "lag", "partitions")
    print_table(columns, rows, title=title, facts=facts)
    if found.assignor_fault is not None:
        tell(f"no new target: {found.assignor_fault}", meaning="problem")
    for one in found.members:
        has, wants = set(one.assignment), set(one.assignment if one.target is None else one.target)
        if has - wants:
            tell(f"{names[one.member_id]} has to give up {in_ranges(has - wants)}")
        if wants - has:
            tell(f"{names[one.member_id]} waits for {in_ranges(wants - has)}")


def _new_member(one: MemberDescription) -> dict[str, Any]:
    """What else is known of a member in a group of the new protocol (KIP-848)."""
    if one.target is None:
        return {}
    return {
        "protocol": one.protocol,
        "epoch": one.member_epoch,
        "pattern": one.pattern,
        "target": [str(tp) for tp in one.target],
    }


def _names(group: GroupDescription) -> dict[str, str]:
    return member_names(
        MemberIdentity(one.member_id, one.client_id, one.group_instance_id) for one in group.members
    )


@app.command("lag")
@for_cluster
def lag(target: ClusterTarget, group: GroupId, as_json: AsJson = False) -> None:
    """How far a group is behind, per partition."""
    with target.admin() as admin:
        lags = admin.group_lag(group)
        found = admin.describe_group(group)
    if not lags:
        raise ConfigError(f"group {group!r} has committed nothing; `shoal group list` shows groups")
    if as_json:
        clients = {one.member_id: one.client_id for one in found.members}
        print_json(
            [
                {
                    "partition": str(tp),
                    "committed": one.committed,
                    "end": one.end,
                    "lag": one.lag,
                    "member": one.member_id,
                    "client": clients.get(one.member_id or ""),
                }
                for tp, one in sorted(lags.items())
            ]
        )
        return
    names = _names(found)
    rows = [
        (str(tp), one.committed, one.end, one.lag, names.get(one.member_id or ""))
        for tp, one in sorted(lags.items())
    ]
    total = sum(one.lag or 0 for one in lags.values())
    columns = ("partition", "committed", "end", "lag", "member")
    print_table(columns, rows, title=f"group {group}: {counted(total, 'record')} behind")


@app.command("reset")
@for_cluster
def reset(
    target: ClusterTarget,
    group: GroupId,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, a time, or 15m (ago).",
            rich_help_panel=WHERE,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(
            "--shift",
            "--by",
            metavar="N",
            help="Forward by N records, or back if N is negative.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="To the offsets of a CSV file, as `shoal group export` and Kafka's "
            "kafka-consumer-groups write it; - is standard input.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            help="Only these; all committed if none.",
            autocompletion=completion.topics,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these partitions.")
    ] = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and change nothing.")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="The plan as CSV: topic,partition,offset.")
    ] = False,
) -> None:
    """Reset the committed offsets of an inactive group; prints the plan first.

    Offsets outside a log are moved to its nearest end.
    """
    if sum(one is not None for one in (to, shift, from_file)) != 1:
        raise ConfigError(
            f"say where to, in one way: shoal group reset {group} --to WHERE, --shift N "
            "or --from-file FILE"
        )
    wanted = None if from_file is None else saved_offsets(from_file, group)
    with target.admin() as admin:
        if wanted is not None:
            plan = plan_offsets(admin, group, wanted, topics=topic, partitions=partition)
        elif shift is not None:
            plan = plan_shift(admin, group, shift, topics=topic, partitions=partition)
        else:
            assert to is not None
            plan = plan_reset(admin, group, to, topics=topic, partitions=partition)
        rows = [(str(one.tp), one.before, one.after, one.moves_by) for one in plan]
        columns = ("partition", "from", "to", "moves by")
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        elif as_csv:
            print_csv((one.tp.topic, one.tp.partition, one.after) for one in plan)
        else:
            print_table(columns, rows, title=f"plan for group {group}")
        if dry_run:
            return
        moved = counted(len(rows), "partition")
        confirm_or_stop(f"This moves group {group} in {moved}.", yes=yes)
        apply_reset(admin, group, plan)
    if not as_json and not as_csv:
        tell(f"group {group} was reset")


def saved_offsets(path: str, group: str) -> dict[TopicPartition, int]:
    """The offsets of a group in a CSV file: topic,partition,offset with or without group first.

    Raises:
        ConfigError: a line is something else, or none is for the group.
    """
    text = sys.stdin.read() if path == "-" else utf8_text(path)
    found: dict[TopicPartition, int] = {}
    others: set[str] = set()
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row or [cell.strip().lower() for cell in row[-3:]] == [
            "topic",
            "partition",
            "offset",
        ]:
            continue  # a header, which people add
        if len(row) not in (3, 4) or not all(re.fullmatch(r"\s*\d{1,18}\s*", c) for c in row[-2:]):
            raise ConfigError(
                f"{path}, line {number}: {','.join(row)[:60]!r} is not topic,partition,offset "
                "(or group,topic,partition,offset)"
            )
        if len(row) == 4 and row[0] != group:
            others.add(row[0])
            continue
        found[TopicPartition(row[-3], int(row[-2]))] = int(row[-1])
    if not found:
        there = f"; it has {', '.join(sorted(others))}" if others else ""
        raise ConfigError(f"{path} has no offset for group {group!r}{there}")
    return found


@app.command("export")
@for_cluster
def export(
    target: ClusterTarget,
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP...", help="Groups.", autocompletion=completion.groups),
    ],
) -> None:
    """Print committed offsets as CSV, for `shoal group reset --from-file`.

    One group: topic,partition,offset. Several: group,topic,partition,offset. Kafka's
    kafka-consumer-groups reads and writes the same lines.
    """
    with target.admin() as admin:
        for group in groups:
            found = admin.group_offsets(group)
            offsets = [(tp, one) for tp, one in sorted(found.items()) if one is not None]
            if not offsets:
                raise ConfigError(
                    f"group {group!r} has committed nothing; `shoal group list` shows groups"
                )
            first = (group,) if len(groups) > 1 else ()
            print_csv((*first, tp.topic, tp.partition, one.offset) for tp, one in offsets)


@app.command("delete")
@for_cluster
def delete(
    target: ClusterTarget,
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP...",
            help="Groups without members.",
            autocompletion=completion.groups,
        ),
    ],
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
    target: ClusterTarget,
    group: GroupId,
    interval: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between looks.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many refreshes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a change.")] = False,
) -> None:
    """Watch a group live: who joined, who left, what moved, how long it took."""
    from shoal.cli.watching import watch_group

    with target.admin() as admin:
        watch_group(admin, group, interval_s=interval, looks=count, as_json=as_json)
