"""``shoal plan``: what a change to a group would move and stop, for every assignor.

The group comes from a file, an example, or a live cluster; the change from the file or from flags.
What is decided is in ``shoal.assign.plan``; this module reads, asks and prints.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.assign.loading import BUILT_IN
from shoal.assign.plan import (
    Change,
    Join,
    Leave,
    Load,
    Outcome,
    Plan,
    PlannedGroup,
    PlannedMember,
    Resize,
    Restart,
    Resubscribe,
    Switch,
    plan,
)
from shoal.assign.plan_document import EXAMPLES, DocumentError, read
from shoal.assign.plan_picture import LEGEND, as_json, columns, matrix_lines, picture
from shoal.cli import completion
from shoal.cli.connecting import ClusterTarget, for_cluster, utf8_text, yaml_document
from shoal.cli.output import print_json, print_table, tell
from shoal.cli.why import EXIT_PROBLEM, show_findings
from shoal.errors import ConfigError, counted
from shoal.fleet.live_group import live_group
from shoal.fleet.migration_rehearsal import rehearse_migration as rehearsed

app = typer.Typer(rich_markup_mode=None)

# A matrix of more rows scrolls away; the table above it says enough.
MATRIX_ROWS_MAX = 60
PLAIN_WIDTH = 100
_STDIN = Path("-")


@app.command(name="plan")
@for_cluster
def plan_command(
    target: ClusterTarget,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A described group, YAML or JSON; - is standard input."
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A built-in group; see --examples.",
            autocompletion=completion.plan_examples,
        ),
    ] = None,
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
    protocol: Annotated[
        str | None,
        typer.Option(help="Who assigns: classic (a member), consumer (the broker, KIP-848)."),
    ] = None,
    rehearse_migration: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP", help="Would a live group move to the consumer protocol? What stops."
        ),
    ] = None,
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
            tell(f"{name:16}{document['about']}")
        return
    if rehearse_migration is not None:
        if file or example or group or protocol:
            raise ConfigError("--rehearse-migration names the group: give no other one")
        _rehearse(target, rehearse_migration, as_json_=as_json_)
        return
    try:
        described, changes = _described(target, file, example, group, watch)
        described = _by(protocol, described)
        if group is not None:
            leave = [_member_called(described, one) for one in leave or ()]
            subscribe = [_subscription_of(described, one) for one in subscribe or ()]
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


def _rehearse(target: ClusterTarget, group_id: str, *, as_json_: bool) -> None:
    """What blocks the move, what it moves and stops, and what to know before."""
    with target.admin() as admin:
        found = admin.describe_group(group_id)
        if found.state == "Dead":
            raise ConfigError(f"there is no group {group_id!r}; `shoal group list` shows them")
        configs = admin.describe_configs(broker=found.coordinator_id)
        settings = {name: one.value for name, one in configs.items() if one.value is not None}
        is_offered = admin.offers_new_protocol(group_id)
        described = live_group(admin, group_id) if found.members else None
    findings = rehearsed(found, settings, is_offered=is_offered)
    outcomes = [] if described is None or found.protocol == "consumer" else _moves(described)
    is_blocked = any(one.level == "problem" for one in findings)
    if as_json_:
        print_json(
            {
                "group": group_id,
                "protocol": found.protocol,
                "blocked": is_blocked,
                "findings": [asdict(one) for one in findings],
                "steps": [
                    {"step": what, "moved": one.moved, "stopped": one.stopped}
                    for what, one in outcomes
                ],
            }
        )
    else:
        verdict = "it would be refused" if is_blocked else "it would be converted"
        if found.protocol == "classic":
            present = counted(len(found.members), "member")
            tell(f"group {group_id}: {found.state}, {present}; {verdict}")
        show_findings(findings)
        rows = [(what, one.moved, one.stopped) for what, one in outcomes]
        if rows:
            print_table(("what is done", "moved", "stopped"), rows)
    if is_blocked:
        raise typer.Exit(EXIT_PROBLEM)


def _moves(group: PlannedGroup) -> list[tuple[str, Outcome]]:
    """All members are restarted one by one: as the group is, and with the broker's assignors."""
    rolling = [Restart(static=all(one.instance_id for one in group.members.values()))]
    as_it_is = plan(group, rolling, [group.assignor]).outcomes if group.assignor in BUILT_IN else ()
    moved = plan(replace(group, protocol="consumer"), rolling).outcomes
    return [(f"restart all one by one, {one.assignor}", one) for one in (*as_it_is, *moved)]


def _by(protocol: str | None, group: PlannedGroup) -> PlannedGroup:
    """The same group, if its members spoke another protocol."""
    if protocol is None:
        return group
    if protocol not in ("classic", "consumer"):
        raise ConfigError(f"--protocol must be classic or consumer, not {protocol!r}")
    return replace(group, protocol=protocol)


def _described(
    target: ClusterTarget, file: Path | None, example: str | None, group: str | None, watch: float
) -> tuple[PlannedGroup, list[Change]]:
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
    document: object = yaml_document(text, _named(file))
    return document


def _member_called(group: PlannedGroup, given: str) -> str:
    """The member of a live group with this id, or whose name begins so, if there is one such."""
    if given in group.members:
        return given
    found = [name for name in group.members if name.startswith(given) or given.startswith(name)]
    return found[0] if len(found) == 1 else given


def _subscription_of(group: PlannedGroup, given: str) -> str:
    member, separator, topics = given.rpartition("=")
    return f"{_member_called(group, member)}{separator}{topics}" if member else given


def _from_flags(
    group: PlannedGroup,
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
        changes.append(Join({member_id: PlannedMember(everything) for member_id in join}))
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
    changes = "; then ".join(map(str, planned.changes)) or "no change"
    title = (
        f"{counted(len(group.members), 'member')}, {counted(len(group.topics), 'topic')}, "
        f"{counted(count, 'partition')}; {changes}"
    )
    print_table(
        ("assignor", "protocol", "rebalances", "moved", "stopped"),
        [
            (one.assignor, one.protocol.name.lower(), one.rebalances, one.moved, one.stopped)
            for one in planned.outcomes
        ],
        title=title,
        facts={
            "members": len(group.members),
            "topics": len(group.topics),
            "partitions": count,
            "change": changes,
        },
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
    # Named in the head and not in a title: a pipe gets it too.
    head = [f"{measure.replace('_per_s', '/s')} per member", *names]
    if planned.changes:
        head += [f"{name} after" for name in names]
    print_table(head, rows, is_first=False)


def _print_matrices(planned: Plan) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH
    partitions = columns(planned)
    for outcome in planned.outcomes:
        lines = matrix_lines(outcome, partitions, width)
        tell("")
        tell(outcome.assignor)
        for line in lines[:MATRIX_ROWS_MAX]:
            tell(line)
        if len(lines) > MATRIX_ROWS_MAX:
            tell(f"… {len(lines) - 1} members in all")
    tell("")
    tell(LEGEND)
