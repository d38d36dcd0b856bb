"""``shoal telemetry``: which metrics clients push to their broker, by subscriptions (KIP-714)."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import print_json, print_table, say
from shoal.client.admin import Admin
from shoal.errors import ConfigError

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Which metrics clients push to the broker: list, set and remove subscriptions.",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the subscription.")]
_SETTINGS: Final = ("metrics", "interval.ms", "match")


@app.command("list")
@for_cluster
def list_subscriptions(target: ClusterTarget, as_json: AsJson = False) -> None:
    """The subscriptions of a cluster."""
    with target.admin() as admin:
        found = {name: _values(admin, name) for name in admin.list_client_metrics()}
    if as_json:
        print_json([{"name": name, **values} for name, values in found.items()])
        return
    rows = [(name, *(values[key] for key in _SETTINGS)) for name, values in found.items()]
    print_table(("name", *_SETTINGS), rows)


def _values(admin: Admin, name: str) -> dict[str, str]:
    entries = admin.describe_configs(client_metrics=name)
    return {key: (entries[key].value or "") if key in entries else "" for key in _SETTINGS}


@app.command("set")
@for_cluster
def set_subscription(
    target: ClusterTarget,
    name: Name,
    metrics: Annotated[
        str | None,
        typer.Option(help="Prefixes of names, with commas; * for all."),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="Seconds between pushes [300].")
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROPERTY=PATTERN",
            help="Which clients, e.g. client_id=billing-.*; all of them must match.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask clients for metrics, or change what is asked."""
    changes: dict[str, str | None] = {}
    if metrics is not None:
        changes["metrics"] = metrics
    if interval is not None:
        changes["interval.ms"] = str(round(interval * 1_000))
    if match:
        changes["match"] = ",".join(match)
    if not changes:
        raise ConfigError("nothing to set: give --metrics, --interval or --match")
    with target.admin() as admin:
        admin.alter_configs(changes, client_metrics=name)
    say(f"set {name}; clients learn of it at their next push", {"set": name}, as_json=as_json)


@app.command("remove")
@for_cluster
def remove_subscription(target: ClusterTarget, name: Name, as_json: AsJson = False) -> None:
    """Stop asking clients for these metrics."""
    with target.admin() as admin:
        if name not in admin.list_client_metrics():
            raise ConfigError(
                f"there is no subscription {name!r}; `shoal telemetry list` shows them"
            )
        admin.alter_configs(dict.fromkeys(_SETTINGS), client_metrics=name)
    say(f"removed {name}", {"removed": name}, as_json=as_json)
