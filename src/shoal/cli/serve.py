"""``shoal serve``: a broker on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None)


@app.command()
def serve(
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Address to serve; port 0 picks a free one."),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the log lives [shoal-data].")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="A TOML file.")] = None,
    durability: Annotated[
        str | None, typer.Option(metavar="group|each|interval|os", help="When a record is stored.")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="What clients are told to use.")
    ] = None,
    sasl: Annotated[
        list[str] | None,
        typer.Option(metavar="MECHANISM", help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."),
    ] = None,
    certificate: Annotated[str | None, typer.Option(metavar="FILE", help="TLS: PEM.")] = None,
    key: Annotated[str | None, typer.Option(metavar="FILE", help="TLS: its key.")] = None,
    client_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="TLS: clients must show a certificate.")
    ] = None,
    insecure_public: Annotated[
        bool, typer.Option(help="Serve other machines without asking who they are.")
    ] = False,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Partitions of topics created on first use.")
    ] = None,
    auto_create: Annotated[bool, typer.Option(help="Create topics on first use.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Ready line as one JSON object.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "warning",
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Run a broker: one process, one node, no replication.

    Prints ``ready HOST:PORT`` when clients can connect. SIGTERM and Ctrl-C stop it cleanly,
    SIGHUP reads certificates again, SIGUSR1 prints its counters.
    """
    from shoal.broker.options import build_config
    from shoal.broker.serving import run, set_up_logging

    set_up_logging(log_level, log_format)
    checked = build_config(
        config_file=config,
        listen=listen or (),
        advertise=advertise,
        data_dir=data_dir,
        durability=durability,
        sasl=sasl or (),
        certificate_file=certificate,
        key_file=key,
        client_ca_file=client_ca,
        insecure_public=insecure_public,
        partitions=partitions,
        no_auto_create=not auto_create,
    )
    run(checked, json_output=json)
