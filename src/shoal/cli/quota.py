"""``shoal quota``: how much users and clients may do per second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from shoal.access.quotas import QuotaEntity, QuotaKey
from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import print_json, print_table, say
from shoal.errors import ConfigError

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="How much users and clients may do per second: list, set and remove quotas.",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="One user.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="One client id.")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="Users without their own.")]
DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="Client ids without their own.")
]


Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="One address.")]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="Addresses without their own.")]


@app.command("list")
@for_cluster
def list_quotas(target: ClusterTarget, as_json: AsJson = False) -> None:
    """The quotas of a cluster."""
    with target.admin() as admin:
        found = admin.describe_quotas()
    if as_json:
        print_json([{**dict(entity), "quotas": values} for entity, values in found.items()])
        return
    keys = [key.value for key in QuotaKey]
    rows = [
        (_named(entity), *(values.get(key, "") for key in keys))
        for entity, values in sorted(found.items(), key=lambda item: _named(item[0]))
    ]
    print_table(("for", *keys), rows)


def _named(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)


@app.command("set")
@for_cluster
def set_quotas(
    target: ClusterTarget,
    user: User = None,
    client_id: ClientId = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    produce: Annotated[
        float | None, typer.Option("--produce-bytes", help="Bytes per second written.")
    ] = None,
    fetch: Annotated[
        float | None, typer.Option("--fetch-bytes", help="Bytes per second read.")
    ] = None,
    request: Annotated[
        float | None, typer.Option("--request-percent", help="Of the broker's time; 100 is all.")
    ] = None,
    mutation: Annotated[
        float | None,
        typer.Option("--topic-changes", help="Partitions made or removed per second."),
    ] = None,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    connections: Annotated[
        float | None,
        typer.Option("--new-connections", help="Per second, from an address; with --ip."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Limit somebody. In force for the next request.

    shoal quota set --user ann --produce-bytes 1000000
    """
    given = {
        QuotaKey.PRODUCE.value: produce,
        QuotaKey.FETCH.value: fetch,
        QuotaKey.REQUEST.value: request,
        QuotaKey.MUTATION.value: mutation,
        QuotaKey.CONNECTION.value: connections,
    }
    values: dict[str, float | None] = {
        key: value for key, value in given.items() if value is not None
    }
    whom = _whom(
        user,
        client_id,
        ip,
        default_user=default_user,
        default_client_id=default_client_id,
        default_ip=default_ip,
    )
    if not values:
        raise ConfigError(
            "nothing to set: give --produce-bytes, --fetch-bytes, --request-percent, "
            "--topic-changes or --new-connections"
        )
    with target.admin() as admin:
        try:
            admin.alter_quotas(values, **whom)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    told = ", ".join(f"{key} {value:,.10g}" for key, value in given.items() if value is not None)
    say(f"quota of {_words(whom)}: {told}", {"for": whom, "quotas": values}, as_json=as_json)


@app.command("remove")
@for_cluster
def remove(
    target: ClusterTarget,
    user: User = None,
    client_id: ClientId = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    as_json: AsJson = False,
) -> None:
    """Let somebody do as much as they like; defaults may still limit them."""
    whom = _whom(
        user,
        client_id,
        ip,
        default_user=default_user,
        default_client_id=default_client_id,
        default_ip=default_ip,
    )
    with target.admin() as admin:
        try:
            of_ip = ip is not None or default_ip
            keys = [key.value for key in QuotaKey if of_ip == (key is QuotaKey.CONNECTION)]
            admin.alter_quotas(dict.fromkeys(keys), **whom)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    say(f"removed the quotas of {_words(whom)}", {"for": whom}, as_json=as_json)


def _words(whom: Mapping[str, Any]) -> str:
    """Who it was, for people: ``user ann, client id etl``, ``default user``."""
    return ", ".join(
        name.replace("_", " ") if given is True else f"{name.replace('_', ' ')} {given}"
        for name, given in whom.items()
    )


def _whom(
    user: str | None, client_id: str | None, ip: str | None, **defaults: bool
) -> dict[str, Any]:
    """The arguments that were given, for ``Admin.alter_quotas``."""
    named: dict[str, Any] = {name: True for name, given in defaults.items() if given}
    if user is not None:
        named["user"] = user
    if client_id is not None:
        named["client_id"] = client_id
    if ip is not None:
        named["ip"] = ip
    return named
