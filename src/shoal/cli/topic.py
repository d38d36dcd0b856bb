"""``shoal topic``: list, create, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from shoal.cli import completion
from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import confirm_or_stop, print_json, print_table, say
from shoal.errors import BrokerError, ConfigError, ErrorCode, counted
from shoal.types import TopicPartition

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List, create, describe, alter and delete topics.",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Settings = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting.")
]


@app.command("list")
@for_cluster
def list_topics(
    target: ClusterTarget,
    internal: Annotated[bool, typer.Option(help="Internal topics too.")] = False,
    as_json: AsJson = False,
) -> None:
    """The topics of a cluster."""
    with target.admin() as admin:
        found = admin.describe_topics(*admin.list_topics())
    rows = [
        {"topic": one.name, "partitions": len(one.partitions), "internal": one.is_internal}
        for one in sorted(found.values(), key=lambda one: one.name)
        if internal or not one.is_internal
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(("topic", "partitions"), [(r["topic"], r["partitions"]) for r in rows])


@app.command("create")
@for_cluster
def create(
    target: ClusterTarget,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The new topic.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            help="In how many parts the topic is kept: at most this many members of a group read "
            "it at the same time. Can grow later, never shrink. The broker's default if not given.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="On how many brokers each partition is kept. The broker's default if not given.",
        ),
    ] = None,
    config: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    with target.admin() as admin:
        try:
            admin.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=_pairs(config),
            )
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            raise ConfigError(
                f"topic {name!r} exists already; `shoal topic describe {name}` shows it"
            ) from None
        count = len(admin.describe_topics(name)[name].partitions)
    text = f"created {name} with {counted(count, 'partition')}"
    say(text, {"topic": name, "partitions": count}, as_json=as_json)


@app.command("describe")
@for_cluster
def describe(
    target: ClusterTarget,
    name: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=completion.topics),
    ],
    all_settings: Annotated[bool, typer.Option("--all", help="Default settings too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Partitions, their leaders and offsets, and the settings of a topic."""
    with target.admin() as admin:
        topic = admin.describe_topics(name)[name]
        tps = [TopicPartition(name, one.partition) for one in topic.partitions]
        first = admin.list_offsets(dict.fromkeys(tps, "earliest"))
        end = admin.list_offsets(dict.fromkeys(tps, "latest"))
        settings = admin.describe_configs(topic=name)
    rows = [
        {
            "partition": one.partition,
            "leader": one.leader.id if one.leader else None,
            "replicas": [node.id for node in one.replicas],
            "in_sync": [node.id for node in one.in_sync_replicas],
            "first_offset": _offset(first[tp]),
            "end_offset": _offset(end[tp]),
        }
        for one, tp in zip(topic.partitions, tps, strict=True)
    ]
    shown = {
        entry.name: entry.value
        for entry in sorted(settings.values(), key=lambda entry: entry.name)
        if all_settings or not entry.is_default
    }
    if as_json:
        print_json({"topic": name, "partitions": rows, "settings": shown})
        return
    columns = ("partition", "leader", "replicas", "in sync", "first offset", "end offset")
    print_table(columns, [_row(row) for row in rows], title=f"topic {name}")
    if shown:
        print_table(("setting", "value"), list(shown.items()), is_first=False)


def _offset(found: object) -> int | None:
    return getattr(found, "offset", None)


def _row(row: Mapping[str, object]) -> list[object]:
    return [
        " ".join(map(str, value)) if isinstance(value, list) else value for value in row.values()
    ]


@app.command("alter")
@for_cluster
def alter(
    target: ClusterTarget,
    name: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=completion.topics),
    ],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="Grow to this many.", min=1)
    ] = None,
    config: Settings = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Back to the default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions, or other settings."""
    changes: dict[str, str | None] = {**_pairs(config), **dict.fromkeys(unset or ())}
    if partitions is None and not changes:
        raise ConfigError("nothing to change: give --partitions, --config or --unset")
    with target.admin() as admin:
        if partitions is not None:
            admin.create_partitions({name: partitions})
        if changes:
            admin.alter_configs(changes, topic=name)
    done = {"topic": name, "partitions": partitions, "settings": changes}
    told = [] if partitions is None else [counted(partitions, "partition")]
    told += [f"{key} {'unset' if value is None else value}" for key, value in changes.items()]
    say(f"changed {name}: {', '.join(told)}", done, as_json=as_json)


@app.command("delete")
@for_cluster
def delete(
    target: ClusterTarget,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...",
            help="Topics to delete, with all records.",
            autocompletion=completion.topics,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics and everything in them."""
    with target.admin() as admin:
        found = admin.describe_topics(*names)
        counts = ", ".join(
            f"{one.name} ({counted(len(one.partitions), 'partition')})" for one in found.values()
        )
        confirm_or_stop(f"This permanently deletes: {counts}", yes=yes)
        admin.delete_topics(*names)
    say(f"deleted {', '.join(names)}", {"deleted": names}, as_json=as_json)


def _pairs(given: list[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for entry in given or ():
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ConfigError(f"{entry!r} is not KEY=VALUE, such as retention.ms=3600000")
        pairs[name] = value
    return pairs
