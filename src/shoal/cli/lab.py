"""``shoal lab``: the schemes of Kafka's history on the same scenario, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.output import print_json, print_table
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.drawing import Canvas
    from shoal.lab import Run, Scenario

app = typer.Typer(
    rich_markup_mode=None,
    help="How groups were rebalanced, then and now, side by side, in virtual time.",
)

Name = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A name from --list, or a YAML file.")
]
Seed = Annotated[int | None, typer.Option(help="Another seed: other delays, other jitter.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Schemes = Annotated[
    list[str] | None, typer.Option("--scheme", "-s", help="Only this scheme; may be repeated.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Draw into this file: .svg or .png.")
]


@app.callback(invoke_without_command=True)
def lab(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--list", help="Scenarios and schemes.")] = False,
    as_json: AsJson = False,
) -> None:
    """How groups were rebalanced, then and now, side by side, in virtual time."""
    if show:
        _show_list(as_json=as_json)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def _show_list(*, as_json: bool) -> None:
    from shoal.lab import BUILT_IN, SCHEMES

    scenarios = [(name, one.description) for name, one in BUILT_IN.items()]
    schemes = [(one.name, one.since, one.title) for one in SCHEMES.values()]
    if as_json:
        print_json(
            {
                "scenarios": [{"name": n, "description": d} for n, d in scenarios],
                "schemes": [{"name": n, "since": s, "title": t} for n, s, t in schemes],
            }
        )
        return
    print_table(("scenario", "what happens"), scenarios)
    print_table(("scheme", "when", "what it is"), schemes)


def scenario_of(name: str) -> Scenario:
    """A built-in scenario, or one from a file."""
    from shoal.lab import built_in, load

    if name.endswith((".yaml", ".yml")) or "/" in name:
        return load(name)
    return built_in(name)


def _runs(name: str, schemes: list[str] | None, seed: int | None) -> list[Run]:
    from shoal.lab import SCHEMES, compare

    return compare(scenario_of(name), schemes or list(SCHEMES), seed=seed)


def _row(run: Run) -> tuple[object, ...]:
    metrics = run.metrics
    stable_ms = metrics.time_to_stable_ms
    return (
        run.scheme.name,
        "never" if stable_ms is None else f"{stable_ms / 1_000:.1f} s",
        round(metrics.stopped_partition_s, 1),
        metrics.stopped_partitions,
        metrics.moved_partitions,
        metrics.two_owners,
        metrics.records_twice,
        metrics.records_lost,
        metrics.requests,
        metrics.notifications,
        metrics.worst_window_messages,
        metrics.worst_second_requests,
    )


_COLUMNS = (
    "scheme",
    "stable after",
    "stopped (part.-s)",
    "partitions stopped",
    "moved",
    "two owners",
    "twice",
    "lost",
    "requests",
    "notifications",
    "worst 100 ms",
    "load (req/s)",
)


def _entry(run: Run) -> dict[str, object]:
    return {
        "scheme": run.scheme.name,
        "scenario": run.scenario.name,
        "seed": run.scenario.seed,
        "digest": f"{run.trace.digest():08x}",
        **run.metrics.as_dict(),
    }


@app.command("compare")
def compare_schemes(
    scenario: Name,
    schemes: Schemes = None,
    seed: Seed = None,
    picture: Annotated[bool, typer.Option(help="The timeline below the table.")] = True,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Every scheme on one scenario: what it cost, and who read what when."""
    runs = _runs(scenario, schemes, seed)
    if output is not None:
        _write(_timeline(runs), output)
    if as_json:
        print_json([_entry(run) for run in runs])
        return
    title = f"{runs[0].scenario.name}: {runs[0].scenario.description}".rstrip(": ")
    print_table(_COLUMNS, [_row(run) for run in runs], title=title)
    if picture:
        _print_picture(runs)


@app.command("run")
def run_one(
    scenario: Name,
    scheme: Annotated[str, typer.Option("--scheme", "-s", help="The scheme: name or number.")],
    seed: Seed = None,
    messages: Annotated[bool, typer.Option(help="Every message, not the timeline.")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """One scheme on one scenario, with everything that happened."""
    from shoal.lab import run_scenario

    run = run_scenario(scenario_of(scenario), scheme, seed=seed)
    if output is not None:
        _write(_timeline([run]), output)
    if as_json:
        _print_trace(run, messages=messages)
        return
    names = [field.replace("_", " ") for field in run.metrics.as_dict()]
    rows = list(zip(names, run.metrics.as_dict().values(), strict=True))
    print_table((run.scheme.name, run.scenario.name), rows)
    if messages:
        _print_messages(run)
    else:
        for mark in run.trace.marks:
            if mark.at_ms >= 0:
                typer.echo(f"{mark.at_ms / 1_000:9.3f} s  {mark.member or 'group':8} {mark.what}")
        _print_picture([run])


def _print_messages(run: Run) -> None:
    for one in run.trace.messages:
        if one.sent_ms >= 0:
            times = f" x{one.times}" if one.times > 1 else ""
            typer.echo(
                f"{one.sent_ms / 1_000:9.3f} s  {one.sender:>12} → {one.receiver:12}"
                f" {one.what}{times} {one.detail}".rstrip()
            )


def _print_trace(run: Run, *, messages: bool) -> None:
    trace = run.trace
    entry = _entry(run)
    entry["marks"] = [mark._asdict() for mark in trace.marks]
    entry["spans"] = [
        {**span._asdict(), "tp": str(span.tp), "holding": span.holding.value}
        for span in trace.spans
    ]
    if messages:
        entry["messages"] = [one._asdict() for one in trace.messages]
    print_json(entry)


@app.command("draw")
def draw(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="A name from --list, or a YAML file.")
    ] = None,
    kind: Annotated[str, typer.Option(help="timeline, messages or growth.")] = "timeline",
    schemes: Schemes = None,
    seed: Seed = None,
    output: Output = None,
    docs: Annotated[
        Path | None, typer.Option(help="Draw all pictures of the docs into this folder.")
    ] = None,
) -> None:
    """Draw a timeline, the messages of one rebalance, or how the herd grows."""
    if docs is not None:
        from shoal.lab.gallery import draw_all

        for path in draw_all(docs):
            typer.echo(str(path))
        return
    canvas = _picture(scenario, kind, schemes, seed)
    path = output or Path(f"lab-{Path(scenario or 'growth').stem}-{kind}.svg")
    _write(canvas, path)
    typer.echo(str(path))


def _picture(
    scenario: str | None, kind: str, schemes: list[str] | None, seed: int | None
) -> Canvas:
    from shoal.lab import SCHEMES, growth
    from shoal.lab.message_chart import draw_messages

    if kind == "growth":
        chosen = schemes or list(SCHEMES)
        return growth.draw_growth(growth.over_members(chosen), growth.over_partitions(chosen))
    if scenario is None:
        raise ConfigError("which scenario? `shoal lab --list` shows them")
    if kind == "messages":
        return draw_messages(_runs(scenario, schemes or ["eager"], seed)[0])
    if kind != "timeline":
        raise ConfigError(f"--kind is timeline, messages or growth, not {kind!r}")
    return _timeline(_runs(scenario, schemes, seed))


def _timeline(runs: list[Run]) -> Canvas:
    from shoal.lab.timeline import draw_timeline

    return draw_timeline(runs)


def _print_picture(runs: list[Run]) -> None:
    import shutil

    from shoal.lab.terminal import draw_text

    typer.echo(draw_text(runs, width=min(shutil.get_terminal_size((100, 24)).columns, 160)))


def _write(canvas: Canvas, path: Path) -> None:
    if path.suffix == ".png":
        path.write_bytes(canvas.to_png())
    elif path.suffix == ".svg":
        path.write_text(canvas.to_svg(), encoding="utf-8")
    else:
        raise ConfigError(f"{path}: pictures are .svg or .png files")
