"""Writes docs/benchmarks.md from the kept results: ``python -m docs.generate_benchmarks``.

``python -m benchmarks --json benchmarks/results.jsonl`` keeps a line per benchmark. Nothing on the
page is typed by hand but the words around it.
"""

from __future__ import annotations

import json
from math import log10
from pathlib import Path
from typing import Any

from shoal.drawing import FAINT, INK, PAPER, Canvas, color_of

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.jsonl"
TARGET = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "pictures"
AREAS = {
    "assign": (
        "Assignors",
        "Apache Kafka's own classes run in a warm JVM beside ours. From ten to a million: "
        "[How assignment grows](concepts/assignors-growth.md).",
    ),
    "group": (
        "Groups",
        "`group_convergence` is ten processes of confluent-kafka with default settings on 900 "
        "partitions; ours takes a member whose connection broke for dead after two seconds "
        "(`dead_connection_grace_ms`, off by default). It ran beside other work (a load of 20 "
        "to 30 on two cores); nearly all of it is waiting. "
        "The coordinator and the simulator are pure: seconds are of CPU.",
    ),
    "simulator": ("Groups", ""),
    "broker": (
        "Broker",
        "Apache Kafka 4.3 (KRaft, one node) on the same machine, in turns. Earlier runs of "
        "`broker_access` gave, with 1,000 rules, 0.96x and 0.99x for produce and 0.92x for fetch, "
        "and of `broker_metrics` 1.07x and 0.95x with metrics: on these machines that cannot be "
        "told from the goals.",
    ),
    "client": (
        "Client",
        "Every client reads and writes the same topic of the same broker. Numbers per second of "
        "CPU follow the machine, whose speed swings by a third: five runs of `client_consume` in "
        "one night gave 9.3, 11.1, 11.6, 11.7 and 13.3 million records for `poll_arrow` from "
        "Shoal, and 9.7, 9.8, 11.7, 11.8 and 14.7 million from Apache Kafka. Their medians reach "
        "the goal of 10 million; single runs do not while the machine is slow, when the others' "
        "numbers are as much lower (confluent-kafka 0.75 to 1.14 million, always 10 to 14 times "
        "less). The last of the five is below.",
    ),
    "spark": (
        "Spark",
        "Spark's own Kafka connector in the same Spark on the same broker. Goals for 12 and 200 "
        "partitions are set with Apache Kafka, where each task of the connector waits half a "
        "second; with Shoal's broker it does not, and the same rows have no goal. "
        "In `spark_sink` three times the connector is more than a Python sink can do for long: "
        "one that drops every row takes 1.6 to 2.2 s of CPU for the four million, which is what "
        "Spark needs to make them and to hand them over; to send their 470 MB over a socket and to "
        "write them to memory takes 0.4 s with no Kafka in it at all. The connector takes 7 to 9 s "
        "with 2 partitions but 5.5 to 7 s with 12, less the longer its JVM has run, so that the "
        "two together are 3 to 3.5 times as fast as it with 2 partitions and 2.3 to 2.8 times with "
        "12. Ours takes 2.9 to 3.7 s with either. Six runs gave 2.4x to 3.6x by the clock with 2 "
        "partitions and 1.7x to 2.3x with 12; the last is below. On Apache Kafka it is about twice "
        "the connector with either. A small micro-batch of `spark_exactly_once` is mostly Spark's "
        "own; the sink adds a dozen requests to it, one behind the other, 80 to 160 ms beside two "
        "JVMs on two cores. Six runs gave 0.9 to 1.7 times the connector's time, where 1.5 is the "
        "goal: the last, below, ran beside other work.",
    ),
    "history": ("Spark", ""),
    "fleet": ("Spark", ""),
    "log": ("Log", "Per second of CPU, and durable acknowledgements by the clock."),
    "records": ("Records", "Batches of Kafka's format to Arrow and back, CRC checked."),
    "wire": ("Wire", "Messages to bytes and back."),
    "dashboard": (
        "Dashboard",
        "A real Chromium without a window, and `shoal ui` as a process of its own, installed "
        "without pandas.",
    ),
    "exporter": (
        "Exporter",
        "`shoal exporter` at its default granularity, of both brokers, and beside kafka_exporter "
        "with every series that one has.",
    ),
    "lab": (
        "Lab",
        "Seconds are of CPU, on a machine with nothing else to do; beside other work (a load of 15 "
        "on two cores) they were 62.",
    ),
}
"""Where a benchmark stands on the page, by the first word of its name."""

_OF_SPARK = (
    "Spark's JVM turns the columns of a Python source into rows of its own, at about 0.3 µs of CPU "
    "a row. That is most of the time, and nothing in a source changes it."
)
REASONS = {
    "broker_access": "The intervals contain the goal, so here it cannot be told from them.",
    "broker_transactions": (
        "The producers are threads of one process beside the broker on two cores. With 50 of them "
        "even librdkafka's mock, a broker in C that stores nothing, reaches 1.7 times the commits "
        "of Apache Kafka. With ten partitions our broker, which is one thread of Python, uses "
        "most of one core; Apache Kafka has threads for both, and the mock reaches 2.3 times."
    ),
    "broker_metrics": "The interval contains the goal, so here it cannot be told from it.",
    "log": (
        "Each producer has a partition of its own, so a round of syncs is a hundred files, one "
        "after the other, where one partition is one file."
    ),
    "spark_sink": (
        "A Python sink that drops every row, and a socket without Kafka behind it, together take "
        "the CPU of 2.3 to 3.5 times the connector's rows; see below."
    ),
    "spark_files": f"{_OF_SPARK} Through the broker or from its files, it is the same work.",
    "spark_read": _OF_SPARK,
    "spark_stream": _OF_SPARK,
    "spark_stream_kafka": _OF_SPARK,
}
"""Why a benchmark misses a goal; of every one that does."""

INTRODUCTION = """# Benchmarks

Every number comes from a program in `benchmarks/` that runs the peer on the same machine, in turns,
and prints medians. The machines have two shared cores: trust ratios, not absolute times.
To reproduce:

<!-- not run: takes minutes and measures the machine -->
```sh
python -m benchmarks records_decode
make bench
```

A ratio above 1 means better than the peer, whichever direction is better. A goal is a ratio
(`>= 3x`) or a bound on our own number in the unit of its row (`<= 150`).
"""


def results() -> dict[str, dict[str, Any]]:
    """The last result of every benchmark, by name."""
    found: dict[str, dict[str, Any]] = {}
    for line in RESULTS.read_text().splitlines():
        entry = json.loads(line)
        found[entry["name"]] = entry
    return dict(sorted(found.items()))


def by_area() -> dict[str, dict[str, dict[str, Any]]]:
    """The results by title of their area, in the order of the page."""
    found: dict[str, dict[str, dict[str, Any]]] = {title: {} for title, _ in AREAS.values()}
    for name, entry in results().items():
        if name == "assign_growth":
            continue  # has a page of its own
        found[AREAS[name.partition("_")[0]][0]][name] = entry
    return {title: entries for title, entries in found.items() if entries}


def page() -> str:
    """The page as text."""
    parts = [INTRODUCTION, *_summary()]
    for title, entries in by_area().items():
        parts += [f"## {title}", ""]
        parts += [f"{text}\n" for one, text in AREAS.values() if one == title and text]
        if _ratios(entries):
            parts += [f"![{title}: ratios to the peer](pictures/{_file(title)})", ""]
        parts += _tables(entries)
    return "\n".join(parts)


def _summary() -> list[str]:
    """How many goals were met, and the others by name."""
    goals = [
        (name, row) for name, entry in results().items() for row in entry["rows"] if row["goal"]
    ]
    missed = [(name, row) for name, row in goals if not row["is_met"]]
    text = f"{len(goals) - len(missed)} of {len(goals)} goals are met."
    if not missed:
        return [text, ""]
    return [
        f"{text} Not met:",
        "",
        "| benchmark | what | measured | goal |",
        "|---|---|---|---|",
        *(
            f"| {name} | {row['what'].strip()} | {_reached(row)} | {row['goal']} |"
            for name, row in missed
        ),
        "",
        "Why:",
        "",
        *(f"- {name}: {REASONS[name]}" for name in dict.fromkeys(name for name, _ in missed)),
        "",
    ]


def _reached(row: dict[str, Any]) -> str:
    return _ours(row) if row["ratio"] is None else f"{_ours(row)}, {_times(row['ratio'])}"


def _ours(row: dict[str, Any]) -> str:
    return f"{_number(row['ours'])} {_unit(row)}"


def _unit(row: dict[str, Any]) -> str:
    """As it was kept, but for the letter that keyboards lack."""
    unit: str = row["unit"]
    return f"µ{unit[1:]}" if unit.split()[0] == "us" else unit


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x"


def _gave_up(row: dict[str, Any]) -> bool:
    """Whether the peer had no result, and its number is the time it was given."""
    name: str = row["peer_name"]
    return name.endswith(" after")


def _tables(entries: dict[str, dict[str, Any]]) -> list[str]:
    parts = []
    for name, entry in entries.items():
        parts += [f"### {name}", "", f"`python -m benchmarks {name}` on {entry['machine']};"]
        parts += [f"{', '.join(entry['versions'])}.", ""]
        parts += ["| what | Shoal | peer | ratio | goal |", "|---|---|---|---|---|"]
        parts += [_row(row) for row in entry["rows"]]
        parts.append("")
    return parts


def _file(title: str) -> str:
    return f"benchmarks-{title.lower()}.svg"


def _ratios(entries: dict[str, dict[str, Any]]) -> list[tuple[int, str, str, float]]:
    return [
        (index, row["what"], _peer(row) if _gave_up(row) else row["peer_name"], row["ratio"])
        for index, entry in enumerate(entries.values())
        for row in entry["rows"]
        if row["ratio"]
    ]


def _row(row: dict[str, Any]) -> str:
    peer = "" if row["peer"] is None else _peer(row)
    ratio = "" if row["ratio"] is None else _times(row["ratio"])
    goal = row["goal"] if row["is_met"] else f"{row['goal']}, **not met**"
    return f"| {row['what']} | {_ours(row)} | {peer} | {ratio} | {goal} |"


def _peer(row: dict[str, Any]) -> str:
    name, number = row["peer_name"], _number(row["peer"])
    return f"{name} {number} {_unit(row)}" if _gave_up(row) else f"{name}: {number}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def picture(title: str, entries: dict[str, dict[str, Any]]) -> str:
    """Every ratio as a bar on a logarithmic scale that ends near the largest.

    What is measured, and who the peer is, stands above each bar in full. Where the peer is better
    the bar goes to the left and has another colour.
    """
    rows = _ratios(entries)
    left, width, step = 30, 760, 34
    low = min(-0.15, *(log10(ratio) for _, _, _, ratio in rows)) - 0.08
    high = max(0.3, *(log10(ratio) for _, _, _, ratio in rows)) + 0.08
    top, bottom = 76, 84 + step * len(rows)

    def x_of(ratio: float) -> float:
        return left + width * (log10(ratio) - low) / (high - low)

    canvas = Canvas(left + width + 70, bottom + 12)
    canvas.text(left, 26, f"{title}: how many times better than the peer", size=16)
    canvas.text(left, 46, "logarithmic; left of 1x the peer is better", size=12, color="#555555")
    for tick in _ticks(low, high):
        canvas.line([(x_of(tick), top - 8), (x_of(tick), bottom)], INK if tick == 1 else FAINT)
        canvas.text(x_of(tick), top - 12, f"{tick:g}x", size=11, anchor="middle")
    for position, (_, text, peer, ratio) in enumerate(rows):
        y = top + position * step
        x = x_of(ratio)
        canvas.rectangle(
            min(x_of(1), x), y + 16, abs(x - x_of(1)), 11, color_of(0 if ratio >= 1 else 5)
        )
        shown = f"{ratio:.2f}x" if ratio < 1 else _times(ratio)
        canvas.text(max(x, x_of(1)) + 5, y + 26, shown, size=12)
        _label(canvas, left, y + 11, f"{text.strip()} (peer: {peer})", len(f"{text}{peer}"))
    return canvas.to_svg()


def _label(canvas: Canvas, x: float, y: float, text: str, length: int) -> None:
    """On paper of its own, so that the lines of the scale do not go through the letters."""
    size = 12 if length < 105 else 10
    canvas.rectangle(x - 2, y - size, 0.54 * size * len(text) + 4, size + 4, PAPER)
    canvas.text(x, y, text, size=size)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers on the scale, few enough to be read."""
    steps = (1, 2, 5) if high - low < 2 else (1,)
    found = [
        base * 10.0**power
        for power in range(-4, 7)
        for base in steps
        if low <= log10(base * 10.0**power) <= high
    ]
    return [float(f"{tick:g}") for tick in found]


def main() -> None:
    """Write page and pictures."""
    TARGET.write_text(page())
    for title, entries in by_area().items():
        if _ratios(entries):
            (PICTURES / _file(title)).write_text(picture(title, entries))


if __name__ == "__main__":
    main()
