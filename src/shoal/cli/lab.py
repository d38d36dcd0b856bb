"""``shoal lab``: the schemes of Kafka's history on the same scenario, side by side."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli import completion
from shoal.cli.output import print_json, print_table, tell
from shoal.errors import ConfigError
from shoal.lab import (
    BUILT_IN,
    SCHEMES,
    Run,
    Scenario,
    built_in,
    compare,
    growth,
    load,
    run_scenario,
)
from shoal.lab.explanation import explain
from shoal.lab.gallery import draw_all
from shoal.lab.message_chart import draw_messages
from shoal.lab.terminal import draw_text
from shoal.lab.timeline import draw_timeline

if TYPE_CHECKING:
    from shoal.drawing import Canvas

app = typer.Typer(
    rich_markup_mode=None,
    help="How groups were rebalanced, then and now, side by side, in virtual time.",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="A name from `shoal lab --list`, or a YAML file.",
        autocompletion=completion.scenarios,
    ),
]
Seed = Annotated[int | None, typer.Option(help="Random seed for delays and jitter.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Schemes = Annotated[
    list[str] | None,
    typer.Option("--scheme", "-s", help="Only this scheme.", autocompletion=completion.schemes),
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
        for line in context.get_help().splitlines():
            tell(line)
        raise typer.Exit(2)


def _show_list(*, as_json: bool) -> None:
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
    print_table(("scheme", "when", "what it is"), schemes, is_first=False)


def scenario_of(name: str) -> Scenario:
    """A built-in scenario, or one from a file."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return load(name)
    return built_in(name)


def _runs(name: str, schemes: list[str] | None, seed: int | None) -> list[Run]:
    return compare(scenario_of(name), schemes or list(SCHEMES), seed=seed)


def _shown(value: float | None) -> str:
    """A number of a comparison: the same digits that `lab run` shows."""
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _comparison(runs: list[Run]) -> list[list[str]]:
    """What is counted from top to bottom, the schemes side by side: so it fits 80 columns."""
    rows = []
    for words, field in _ROWS:
        values = [getattr(run.metrics, field) for run in runs]
        if field.endswith("_ms"):
            values = [None if value is None else value / 1_000 for value in values]
        shown = [
            "never" if field == "time_to_stable_ms" and v is None else _shown(v) for v in values
        ]
        rows.append([words, *shown])
    return rows


def _print_comparison(runs: list[Run], title: str) -> None:
    columns = ["measured", *(run.scheme.name for run in runs)]
    rows = _comparison(runs)
    for index in range(1, len(columns)):
        width = max(len(line[index]) for line in (columns, *rows))
        for line in (columns, *rows):
            line[index] = f"{line[index]:>{width}}"
    print_table(columns, rows, title=title)


_ROWS = (
    ("stable after (s)", "time_to_stable_ms"),
    ("stopped (partition-s)", "stopped_partition_s"),
    ("partitions stopped", "stopped_partitions"),
    ("partitions moved", "moved_partitions"),
    ("two owners", "two_owners"),
    ("records twice", "records_twice"),
    ("records lost", "records_lost"),
    ("commits lost", "commits_lost"),
    ("commits repeated", "commits_repeated"),
    ("commits that moved back", "commits_backwards"),
    ("taken over after (s)", "takeover_ms"),
    ("requests", "requests"),
    ("notifications", "notifications"),
    ("messages, worst 100 ms", "worst_window_messages"),
    ("requests, worst second", "worst_second_requests"),
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
    _print_comparison(runs, title)
    if picture:
        _print_picture(runs)


@app.command("run")
def run_one(
    scenario: Name,
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            "-s",
            help="The scheme: name or number.",
            autocompletion=completion.schemes,
        ),
    ],
    seed: Seed = None,
    messages: Annotated[bool, typer.Option(help="Every message, not the timeline.")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """One scheme on one scenario, with everything that happened."""
    run = run_scenario(scenario_of(scenario), scheme, seed=seed)
    if output is not None:
        _write(_timeline([run]), output)
    if as_json:
        _print_trace(run, messages=messages)
        return
    names = [field.replace("_", " ") for field in run.metrics.as_dict()]
    rows = [
        (name, value) for name, value in zip(names, run.metrics.as_dict().values(), strict=True)
    ]
    print_table((run.scheme.name, run.scenario.name), rows)
    if messages:
        _print_messages(run)
    else:
        for mark in run.trace.marks:
            if mark.at_ms >= 0:
                tell(f"{mark.at_ms / 1_000:9.3f} s  {mark.member or 'group':8} {mark.what}")
        _print_picture([run])


@app.command("explain")
def explain_scenario(
    scenario: Name,
    schemes: Schemes = None,
    seed: Seed = None,
) -> None:
    """What happened under each scheme, when, and why, as text."""
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    runs = _runs(scenario, schemes, seed)
    told = runs[0].scenario
    for line in wrap(f"{told.name}: {told.description}".rstrip(": "), width):
        tell(line)
    for run in runs:
        for line in ("", *explain(run, width=width).splitlines()):
            tell(line)


def _print_messages(run: Run) -> None:
    for one in run.trace.messages:
        if one.sent_ms >= 0:
            times = f" x{one.times}" if one.times > 1 else ""
            tell(
                f"{one.sent_ms / 1_000:9.3f} s  {one.sender:>12} → {one.receiver:12}"
                f" {one.what}{times} {one.detail} {one.place}".rstrip()
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
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            help="A name from `shoal lab --list`, or a YAML file.",
            autocompletion=completion.scenarios,
        ),
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
        for path in draw_all(docs):
            tell(str(path))
        return
    canvas = _picture(scenario, kind, schemes, seed)
    path = output or Path(f"lab-{Path(scenario or 'growth').stem}-{kind}.svg")
    _write(canvas, path)
    tell(str(path))


def _picture(
    scenario: str | None, kind: str, schemes: list[str] | None, seed: int | None
) -> Canvas:
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
    return draw_timeline(runs)


def _print_picture(runs: list[Run]) -> None:
    width = min(shutil.get_terminal_size((100, 24)).columns, 160)
    for line in draw_text(runs, width=width).splitlines():
        tell(line)


def _write(canvas: Canvas, path: Path) -> None:
    if path.suffix == ".png":
        path.write_bytes(canvas.to_png())
    elif path.suffix == ".svg":
        path.write_text(canvas.to_svg(), encoding="utf-8")
    else:
        raise ConfigError(f"{path}: pictures are .svg or .png files")
