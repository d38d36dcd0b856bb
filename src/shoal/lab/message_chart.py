"""The messages of one rebalance, drawn from the trace: who said what to whom, from top to bottom.

The four phases have a colour each: find the coordinator, join, sync, heartbeat. Time runs down;
long waits are shortened, and the left margin tells the true times.

Rule: every arrow is a message of the trace, with its own times. Nothing is drawn that was not sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from shoal.drawing import FAINT, PAPER, Canvas, color_of
from shoal.errors import ConfigError
from shoal.lab.running import Run
from shoal.lab.trace import SentMessage

PHASES: Final = {
    "FindCoordinator": ("1 find coordinator", color_of(3)),
    "JoinGroup": ("2 join group", color_of(0)),
    "SyncGroup": ("3 sync group", color_of(2)),
    "Heartbeat": ("4 heartbeat", color_of(5)),
    # Scheme 2 has other ones.
    "Create": ("1 register", color_of(3)),
    "Changed": ("2 the watch fires", color_of(0)),
    "Stop": ("3 stop", color_of(5)),
    "Stopped": ("3 stop", color_of(5)),
    "Start": ("4 start", color_of(2)),
}
_OTHER: Final = "#999999"
_MESSAGES_MAX: Final = 120
_LANE: Final = 190
_TOP: Final = 76


def draw_messages(run: Run, members: Sequence[str] = (), *, length_ms: int = 0) -> Canvas:
    """The rebalance after the first event.

    Raises:
        ConfigError: nobody said anything.
    """
    trace = run.trace
    begin_ms = trace.events[0][0] if trace.events else trace.begin_ms
    shown = [m for m in trace.messages if m.sent_ms >= begin_ms and _is_group(m)]
    names = list(members) or _speakers(shown, trace.authorities)
    lanes = {*names, *trace.authorities}
    shown = [m for m in shown if {m.sender, m.receiver} <= lanes]
    end_ms = begin_ms + length_ms if length_ms else _end_of_rebalance(shown)
    shown = [m for m in shown if m.sent_ms <= end_ms][:_MESSAGES_MAX]
    if not shown:
        raise ConfigError("there are no messages to draw after the first event")
    return _draw(run, names, sorted(shown, key=lambda m: (m.sent_ms, m.arrives_ms)))


def _is_group(message: SentMessage) -> bool:
    return not message.what.startswith(("Offset", "Ping", "Connect"))


def _speakers(messages: Sequence[SentMessage], authorities: Sequence[str]) -> list[str]:
    """The first few who say something else than that they are there."""
    found: dict[str, None] = {}
    for message in messages:
        if message.sender not in authorities and not message.what.startswith("Heartbeat"):
            found.setdefault(message.sender)
    return sorted(found, key=lambda name: (len(name), name))[:4]


def _end_of_rebalance(messages: Sequence[SentMessage]) -> int:
    """Until everybody has had a heartbeat after the last join or sync, or was told to start."""
    busy = [
        m.arrives_ms for m in messages if m.what.startswith(("JoinGroup", "SyncGroup", "Start"))
    ]
    if not busy:
        return messages[min(len(messages), 40) - 1].sent_ms if messages else 0
    # A second rebalance much later is another story.
    last_ms = busy[0]
    for at_ms in sorted(busy):
        if at_ms - last_ms > 8_000:
            break
        last_ms = at_ms
    beats = [m.arrives_ms for m in messages if m.what == "Heartbeat reply" and m.sent_ms > last_ms]
    return beats[min(len(beats), 4) - 1] if beats else last_ms


def _draw(run: Run, names: Sequence[str], messages: Sequence[SentMessage]) -> Canvas:
    half = len(names) // 2
    columns = [*names[:half], *run.trace.authorities, *names[half:]]
    xs = {name: 150 + index * _LANE for index, name in enumerate(columns)}
    ys = _rows(messages)
    bottom = max(ys.values()) + 24
    canvas = Canvas(max(xs.values()) + 120, bottom + 34)
    title = f"one rebalance, message by message: {run.scenario.name}, {run.scheme.name}"
    canvas.text(24, 26, title, size=16)
    for name, lane_x in xs.items():
        canvas.text(lane_x, _TOP - 14, name, size=13, anchor="middle")
        canvas.line([(lane_x, _TOP - 6), (lane_x, bottom)], FAINT, width=2)
    last_y = -100.0
    for at_ms in sorted(ys):
        if ys[at_ms] - last_y >= 13:
            canvas.text(70, ys[at_ms] + 4, f"{at_ms / 1_000:.3f} s", size=10, anchor="end")
            last_y = ys[at_ms]
    known = [m for m in messages if m.sender in xs and m.receiver in xs]
    for message in known:
        _arrow(canvas, message, xs, ys)
    for message in known:
        _words(canvas, message, xs, ys)
    x = 24.0
    used = {PHASES[kind]: None for kind in PHASES if any(_kind(m) == kind for m in messages)}
    for words, color in sorted(used):
        canvas.rectangle(x, bottom + 10, 14, 10, color)
        canvas.text(x + 19, bottom + 19, words, size=11)
        x += 40 + 7 * len(words)
    return canvas


def _rows(messages: Sequence[SentMessage]) -> dict[int, float]:
    """A height for every moment; the logarithm of a wait is what it is worth."""
    moments = sorted({m.sent_ms for m in messages} | {m.arrives_ms for m in messages})
    ys: dict[int, float] = {}
    y, before = float(_TOP + 10), moments[0]
    for at_ms in moments:
        y += min(9 * math.log2(1 + at_ms - before), 60) + (3 if at_ms > before else 0)
        ys[at_ms] = y
        before = at_ms
    return ys


def _arrow(canvas: Canvas, message: SentMessage, xs: dict[str, int], ys: dict[int, float]) -> None:
    color = _color(message)
    start = (float(xs[message.sender]), ys[message.sent_ms])
    end = (float(xs[message.receiver]), ys[message.arrives_ms])
    is_reply = message.what.endswith("reply")
    canvas.line([start, end], color, width=1.6, dashed=is_reply)
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    for turn in (2.8, -2.8):
        tip = (end[0] + 8 * math.cos(angle + turn), end[1] + 8 * math.sin(angle + turn))
        canvas.line([end, tip], color, width=1.6)


def _kind(message: SentMessage) -> str:
    return message.what.removesuffix(" reply")


def _color(message: SentMessage) -> str:
    kind = _kind(message)
    return PHASES[kind][1] if kind in PHASES else _OTHER


def _words(canvas: Canvas, message: SentMessage, xs: dict[str, int], ys: dict[int, float]) -> None:
    is_reply = message.what.endswith("reply")
    words = message.detail.replace("_", " ").lower() if is_reply else message.what
    if not words:
        return
    start = (xs[message.sender], ys[message.sent_ms])
    end = (xs[message.receiver], ys[message.arrives_ms])
    # Near the member's end: at the coordinator all arrows come together.
    share = 0.45 if is_reply else 0.3
    lanes = max(abs(end[0] - start[0]) // _LANE, 1)
    share = 1 - (1 - share) / lanes if is_reply else share / lanes
    x = start[0] + (end[0] - start[0]) * share
    y = start[1] + (end[1] - start[1]) * share
    canvas.rectangle(x - 2.6 * len(words), y - 5, 5.2 * len(words), 10, PAPER)
    canvas.text(x, y + 3, words, size=9, color=_color(message), anchor="middle")
