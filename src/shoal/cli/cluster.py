"""``shoal cluster``: the brokers of a cluster, what they support and which of it is in force."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import print_json, print_table
from shoal.wire.apis.registry import ApiKey

app = typer.Typer(rich_markup_mode=None)


@app.command()
@for_cluster
def cluster(
    target: ClusterTarget,
    apis: Annotated[bool, typer.Option("--apis", help="Every API with its versions too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Show the brokers of a cluster, its controller, its features and their levels.

    The level of metadata.version says which release of Kafka the cluster is set to. A feature
    without a level in force is switched off.
    """
    with target.admin() as admin:
        found = admin.describe_cluster()
        features = admin.describe_features()
    controller = found.controller.id if found.controller else None
    brokers = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
        }
        for node in found.nodes
    ]
    levels = [
        {
            "feature": one.name,
            "level": one.level,
            "supported": None if one.supported is None else list(one.supported),
        }
        for one in features.features
    ]
    versions = [
        {"api": _api_name(key), "key": key, "versions": list(versions)}
        for key, versions in sorted(features.apis.items())
    ]
    if as_json:
        more = {"apis": versions} if apis else {}
        print_json({"cluster": found.cluster_id, "brokers": brokers, "features": levels, **more})
        return
    rows = [
        (one["broker"], f"{one['host']}:{one['port']}", one["rack"], one["controller"])
        for one in brokers
    ]
    title = f"cluster {found.cluster_id or '(without an id)'}"
    facts = {"cluster": found.cluster_id, "controller": controller, "brokers": len(brokers)}
    print_table(("broker", "address", "rack", "controller"), rows, title=title, facts=facts)
    print_table(
        ("feature", "level in force", "levels supported"),
        [(one.name, one.level, _range(one.supported)) for one in features.features],
        is_first=False,
    )
    if apis:
        print_table(
            ("API", "key", "versions"),
            [(_api_name(key), key, _range(span)) for key, span in sorted(features.apis.items())],
            is_first=False,
        )


def _range(span: tuple[int, int] | None) -> str | None:
    if span is None:
        return None
    return str(span[0]) if span[0] == span[1] else f"{span[0]} to {span[1]}"


def _api_name(key: int) -> str:
    try:
        return "".join(word.title() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return f"unknown to Shoal ({key})"
