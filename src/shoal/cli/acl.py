"""``shoal acl``: who may do what on a cluster, by access rules.

Rule: a rule is said the same way everywhere: who, operation, resource. What would be removed is
shown before it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shoal.access.resources import CLUSTER_NAME, Operation, ResourceType
from shoal.access.rules import (
    ANY,
    EVERYBODY,
    OPERATION_NAMES,
    RESOURCE_NAMES,
    WILDCARD,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    acl_problem,
)
from shoal.cli.connecting import ClusterTarget, for_cluster, utf8_text
from shoal.cli.output import confirm_or_stop, print_json, print_table, say, tell
from shoal.errors import ConfigError, counted, did_you_mean

if TYPE_CHECKING:
    from shoal.client.admin import Admin

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Who may do what: add, list, remove and test access rules.",
)

EXIT_DENIED: Final = 3


def _by_flag(names: dict[int, str]) -> dict[str, int]:
    """``TRANSACTIONAL_ID`` is written ``transactional-id``."""
    return {name.lower().replace("_", "-"): code for code, name in names.items()}


_OPERATIONS: Final = _by_flag(OPERATION_NAMES)
_RESOURCES: Final = _by_flag(RESOURCE_NAMES)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="* for all.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="* for all.")]
Transactions = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="* for all.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="Names are beginnings of names.")]


@dataclass(frozen=True)
class _Named:
    """The resources that the flags of a command name."""

    resource: ResourceType
    name: str


def _named(
    topic: list[str] | None,
    group: list[str] | None,
    transactional_id: list[str] | None,
    *,
    cluster: bool,
) -> list[_Named]:
    return [
        *(_Named(ResourceType.TOPIC, name) for name in topic or ()),
        *(_Named(ResourceType.GROUP, name) for name in group or ()),
        *(_Named(ResourceType.TRANSACTIONAL_ID, name) for name in transactional_id or ()),
        *([_Named(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else ()),
    ]


@app.command("add")
@for_cluster
def add(
    target: ClusterTarget,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="User:NAME", help="Who may; User:* is everybody.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="User:NAME", help="Who may not, whatever allows it.")
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", "-o", help="read, write, create, delete, alter, describe, …"),
    ] = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Transactions = None,
    cluster: OfCluster = False,
    prefix: Prefix = False,
    host: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="From there only [*].")
    ] = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer needs on topics and ids.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs on topics and groups.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add access rules. They are in force for the next request.

    shoal acl add --allow User:billing -o read --topic orders
    """
    who = [
        *((one, Permission.ALLOW) for one in allow or ()),
        *((one, Permission.DENY) for one in deny or ()),
    ]
    if not who:
        raise ConfigError("nobody is named: give --allow User:NAME or --deny User:NAME")
    resources = _named(topic, group, transactional_id, cluster=cluster)
    wanted = [
        (one, code)
        for one in resources
        for code in _wanted(one.resource, operation or (), producer=producer, consumer=consumer)
    ]
    if not resources or not wanted:
        raise ConfigError(
            "nothing to add: name a resource (--topic, --group, --transactional-id, --cluster) "
            "and what may be done with it (--operation, --producer, --consumer)"
        )
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    acls = [
        Acl(
            one.resource,
            one.name,
            principal,
            code,
            permission,
            PatternType.LITERAL if one.resource is ResourceType.CLUSTER else pattern,
            where,
        )
        for one, code in wanted
        for principal, permission in who
        for where in host or [WILDCARD]
    ]
    for acl in acls:
        if problem := acl_problem(acl):
            raise ConfigError(problem)
    with target.admin() as admin:
        admin.create_acls(*acls)
    said = "\n".join(acl.text for acl in acls)
    say(said, [_as_dict(acl) for acl in acls], as_json=as_json)


def _wanted(
    resource: ResourceType, operations: Iterable[str], *, producer: bool, consumer: bool
) -> list[int]:
    """The operations for a resource of this type, in the order they were asked for."""
    wanted = [_operation(one) for one in operations]
    if producer and resource is ResourceType.TOPIC:
        wanted += [Operation.WRITE, Operation.DESCRIBE, Operation.CREATE]
    if producer and resource is ResourceType.TRANSACTIONAL_ID:
        wanted += [Operation.WRITE, Operation.DESCRIBE]
    if consumer and resource is ResourceType.TOPIC:
        wanted += [Operation.READ, Operation.DESCRIBE]
    if consumer and resource is ResourceType.GROUP:
        wanted += [Operation.READ]
    return list(dict.fromkeys(wanted))


def _operation(text: str) -> int:
    name = text.lower().replace("_", "-")
    if name not in _OPERATIONS:
        raise ConfigError(
            f"operation {text!r} is not one of {', '.join(_OPERATIONS)}"
            + did_you_mean(name, _OPERATIONS)
        )
    return _OPERATIONS[name]


@app.command("list")
@for_cluster
def list_acls(
    target: ClusterTarget,
    who: Annotated[
        str | None,
        typer.Option("--of", metavar="User:NAME", help="Only the rules of this user."),
    ] = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Transactions = None,
    cluster: OfCluster = False,
    as_json: AsJson = False,
) -> None:
    """The access rules of a cluster, or those that would be asked about a resource."""
    resources = _named(topic, group, transactional_id, cluster=cluster)
    with target.admin() as admin:
        found = {
            acl
            for asked in _filters(resources, who, PatternType.MATCH)
            for acl in admin.describe_acls(asked)
        }
    if as_json:
        print_json([_as_dict(acl) for acl in sorted(found)])
    else:
        _print(found)


def _filters(resources: list[_Named], who: str | None, pattern: PatternType) -> list[AclFilter]:
    if not resources:
        return [AclFilter(principal=who)]
    return [AclFilter(one.resource, one.name, who, pattern=pattern) for one in resources]


@app.command("remove")
@for_cluster
def remove(
    target: ClusterTarget,
    who: Annotated[
        str | None,
        typer.Option("--of", metavar="User:NAME", help="Only the rules of this user."),
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option("--operation", "-o", help="Only the rules for this operation."),
    ] = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Transactions = None,
    cluster: OfCluster = False,
    prefix: Prefix = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove access rules; which ones is shown first. Only rules of exactly these names go."""
    resources = _named(topic, group, transactional_id, cluster=cluster)
    if not resources and who is None and operation is None:
        raise ConfigError("name the rules to remove: --of User:NAME, --topic, --group, …")
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    code = ANY if operation is None else _operation(operation)
    filters = [one._replace(operation=code) for one in _filters(resources, who, pattern)]
    with target.admin() as admin:
        found = sorted({acl for asked in filters for acl in admin.describe_acls(asked)})
        if not found:
            raise ConfigError("there is no such rule; `shoal acl list` shows them")
        confirm_or_stop("This removes:", *(acl.text for acl in found), yes=yes)
        gone = admin.delete_acls(*found)
    say(f"removed {counted(len(gone), 'rule')}", [_as_dict(acl) for acl in gone], as_json=as_json)


@app.command("test")
@for_cluster
def try_out(
    target: ClusterTarget,
    who: Annotated[str, typer.Argument(metavar="User:NAME", help="Who asks.")],
    operation: Annotated[str, typer.Argument(help="read, write, …")],
    resource: Annotated[str, typer.Argument(help="topic, group, cluster, transactional-id")],
    name: Annotated[str, typer.Argument(help="Its name.")] = "",
    host: Annotated[
        str,
        typer.Option("--from", metavar="ADDRESS", help="Where they ask from."),
    ] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Whether somebody may do something, and by which rule. Exit code 3: they may not."""
    from shoal.access.acl_authorizer import AclAuthorizer

    kind = resource.lower().replace("_", "-")
    if kind not in ("topic", "group", "cluster", "transactional-id"):
        raise ConfigError(
            f"resource {resource!r} is not one of topic, group, cluster, transactional-id"
        )
    asked = ResourceType(_RESOURCES[kind])
    if asked is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    elif not name:
        raise ConfigError(f"which {kind}? Add its name")
    code = _operation(operation)
    if code not in set(Operation):
        raise ConfigError(f"{operation} is for rules; test one operation, such as read")
    with target.admin() as admin:
        super_users, allow_everyone = _settings(admin)
        authorizer = AclAuthorizer(super_users, allow_everyone=allow_everyone)
        authorizer.replace(admin.describe_acls())
    verdict = authorizer.verdict(who, host, Operation(code), asked, name)
    rule = verdict.rule.text if verdict.rule is not None else None
    answer = "yes" if verdict.is_allowed else "no"
    say(
        f"{answer}: {verdict.reason}" + (f": {rule}" if rule else ""),
        {"allowed": verdict.is_allowed, "reason": verdict.reason, "rule": rule},
        as_json=as_json,
    )
    if not verdict.is_allowed:
        raise typer.Exit(EXIT_DENIED)


def _settings(admin: Admin) -> tuple[list[str], bool]:
    """What of a broker's settings decides beside the rules."""
    controller = admin.describe_cluster().controller
    assert controller is not None
    settings = admin.describe_configs(broker=controller.id)

    def value(key: str) -> str:
        return (settings[key].value if key in settings else "") or ""

    super_users = [one for one in value("super.users").split(";") if one]
    return super_users, value("allow.everyone.if.no.acl.found").lower() == "true"


@app.command("export")
@for_cluster
def export(target: ClusterTarget) -> None:
    """Print every access rule as a line of JSON, for `shoal acl import`."""
    with target.admin() as admin:
        for acl in admin.describe_acls():
            tell(json.dumps(_as_dict(acl)))


@app.command("import")
@for_cluster
def import_acls(
    target: ClusterTarget,
    file: Annotated[str, typer.Argument(help="Lines of JSON, as `shoal acl export` prints them.")],
    replace: Annotated[bool, typer.Option("--replace", help="Remove every other rule.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Add the access rules of a file; those that are there already stay as they are."""
    wanted = [
        _parsed(line, f"{file}, line {number}")
        for number, line in enumerate(utf8_text(file).splitlines(), 1)
        if line.strip()
    ]
    with target.admin() as admin:
        there = set(admin.describe_acls())
        surplus = sorted(there - set(wanted)) if replace else []
        if surplus:
            confirm_or_stop("This removes:", *(acl.text for acl in surplus), yes=yes)
        new = [acl for acl in dict.fromkeys(wanted) if acl not in there]
        # First what is new: nobody is locked out in between who may come in afterwards.
        if new:
            admin.create_acls(*new)
        if surplus:
            admin.delete_acls(*surplus)
    tell(f"added {counted(len(new), 'rule')}, removed {len(surplus)}")


def _as_dict(acl: Acl) -> dict[str, str]:
    return {
        "permission": Permission(acl.permission).name.lower(),
        "principal": acl.principal,
        "operation": OPERATION_NAMES[acl.operation].lower(),
        "resource": RESOURCE_NAMES[acl.resource].lower(),
        "name": acl.name,
        "pattern": PatternType(acl.pattern).name.lower(),
        "host": acl.host,
    }


def _parsed(line: str, where: str) -> Acl:
    try:
        fields = json.loads(line)
        acl = Acl(
            _RESOURCES[fields["resource"].replace("_", "-")],
            fields["name"],
            fields["principal"],
            _OPERATIONS[fields["operation"].replace("_", "-")],
            Permission[fields["permission"].upper()],
            PatternType[fields.get("pattern", "literal").upper()],
            fields.get("host", WILDCARD),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where} is not an access rule: {error}") from None
    if problem := acl_problem(acl):
        raise ConfigError(f"{where}: {problem}")
    return acl


def _print(acls: Iterable[Acl]) -> None:
    columns = ("who", "permission", "operation", "resource", "name", "pattern", "host")
    rows = [
        (
            "everybody" if acl.principal == EVERYBODY else acl.principal,
            Permission(acl.permission).name.lower(),
            OPERATION_NAMES[acl.operation].lower(),
            RESOURCE_NAMES[acl.resource].lower(),
            acl.name,
            PatternType(acl.pattern).name.lower(),
            acl.host,
        )
        for acl in sorted(acls, key=lambda acl: (acl.principal, acl))
    ]
    print_table(columns, rows)
