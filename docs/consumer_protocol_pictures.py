"""Pictures of the consumer protocol (KIP-848), drawn from the code that speaks it.

The states of a member come from the table that decides its moves; the hand-over is played by the
broker's own coordinator, heartbeat by heartbeat, and what stands in the picture is what it held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tests.group.consumer_shell import Client, ConsumerShell

from shoal.drawing import FAINT, INK, Canvas, color_of, ink_on
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.member.consumer_states import HEARTBEATING, MOVES, ConsumerMemberState

_S = ConsumerMemberState
Point = tuple[float, float]
Between = Callable[[Canvas, Point, Point], None]
"""Draws an arrow from the one box to the other."""


class Along(Protocol):
    """Draws an arrow along these points."""

    def __call__(self, canvas: Canvas, points: list[Point], *, faint: bool) -> None: ...


BOX: Point = (140, 42)

STATE_PLACES: dict[ConsumerMemberState, Point] = {
    _S.JOINING: (200, 80),
    _S.RECONCILING: (440, 80),
    _S.ACKNOWLEDGING: (700, 80),
    _S.STABLE: (570, 170),
    _S.FENCED: (115, 310),
    _S.STALE: (305, 310),
    _S.LEAVING: (495, 310),
    _S.PREPARE_LEAVING: (685, 310),
    _S.FATAL: (875, 310),
    _S.UNSUBSCRIBED: (495, 440),
}
IN_THE_GROUP = (_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE)
AT_ANY_TIME = (_S.FENCED, _S.STALE, _S.LEAVING, _S.PREPARE_LEAVING, _S.FATAL)
_FRAME = (70, 30, 830, 180)
TOPIC = "t"
PARTITIONS = 4


def member_states_picture(between: Between, along: Along) -> str:
    """Every legal move. What may happen to every member of a group leads out of their frame."""
    assert all(set(AT_ANY_TIME) <= MOVES[state] for state in IN_THE_GROUP)
    canvas = Canvas(980, 480)
    x, y, frame_width, frame_height = _FRAME
    corners = [(x, y), (x + frame_width, y), (x + frame_width, y + frame_height)]
    canvas.line([*corners, (x, y + frame_height), (x, y)], FAINT, width=2)
    canvas.text(x + 12, y + frame_height - 12, "in the group", size=12, color="#666666")
    for state in AT_ANY_TIME:
        to_x, to_y = STATE_PLACES[state]
        meets = to_y - BOX[1] / 2 - 2
        along(canvas, [(to_x - 8, y + frame_height), (to_x - 8, meets)], faint=True)
    for start, ends in MOVES.items():
        for end in sorted(ends, key=lambda state: state.value):
            if start in IN_THE_GROUP and end in AT_ANY_TIME:
                continue
            if (start, end) == (_S.UNSUBSCRIBED, _S.JOINING):
                _around(canvas, along)
            elif end is _S.FATAL and start is not _S.UNSUBSCRIBED:
                _below(canvas, along, STATE_PLACES[start])
            else:
                between(canvas, STATE_PLACES[start], STATE_PLACES[end])
    width, height = BOX
    for state, (at_x, at_y) in STATE_PLACES.items():
        color = color_of(0 if state in HEARTBEATING else 3)
        canvas.rectangle(at_x - width / 2, at_y - height / 2, width, height, color)
        canvas.text(at_x, at_y + 5, state.value, size=14, color="#ffffff", anchor="middle")
    canvas.text(700, 450, "blue: heartbeats are sent", size=12)
    return canvas.to_svg()


def _around(canvas: Canvas, along: Along) -> None:
    """From unsubscribed along the margin to joining."""
    start, end = STATE_PLACES[_S.UNSUBSCRIBED], STATE_PLACES[_S.JOINING]
    meets = end[0] - BOX[0] / 2 - 2
    along(canvas, [start, (14, start[1]), (14, end[1]), (meets, end[1])], faint=False)


def _below(canvas: Canvas, along: Along, start: Point) -> None:
    """To fatal below the boxes between."""
    end = STATE_PLACES[_S.FATAL]
    x, y, to_x = start[0] + 30, start[1] + 52, end[0] + 50
    meets = end[1] + BOX[1] / 2 + 2
    along(canvas, [(x, start[1]), (x, y), (to_x, y), (to_x, meets)], faint=True)


class Moment(NamedTuple):
    """What the coordinator held after one heartbeat."""

    what: str
    group_epoch: int
    target_epoch: int
    group_state: str
    members: dict[str, tuple[int, str]]
    holders: list[str | None]
    target: list[str | None]


def hand_over() -> list[Moment]:
    """A member joins another one: the real coordinator, and what it held after each heartbeat."""
    shell = ConsumerShell()
    shell.topic(TOPIC, PARTITIONS)
    a, b = Client(shell, "a"), Client(shell, "b")
    moments = []

    def note(what: str) -> None:
        moments.append(_moment(shell.consumer_group(), what))

    a.join(TOPIC)
    a.beat()
    note("a is alone")
    b.join(TOPIC)
    note("b joins: a new target")
    a.beat()
    note("a is told to have less")
    a.beat()
    note("a has given it up, and says so")
    b.beat()
    note("b gets it with its next heartbeat")
    return moments


def _moment(group: ConsumerGroup, what: str) -> Moment:
    holders: list[str | None] = [None] * PARTITIONS
    target: list[str | None] = [None] * PARTITIONS
    members = {}
    for name, member in sorted(group.members.items()):
        members[name] = (member.current.member_epoch, member.current.state.name.lower())
        for numbers in (member.current.assigned, member.current.pending_revocation):
            for partitions in numbers.values():
                for number in partitions:
                    holders[number] = name
        for wanted in group.target_of(name).values():
            for number in wanted:
                target[number] = name
    return Moment(
        what, group.epoch, group.target_epoch, group.state.value, members, holders, target
    )


def epoch_picture() -> str:
    """One line per heartbeat: epochs, members, who holds what and who is to."""
    moments = hand_over()
    row, top, side = 62, 64, 26
    canvas = Canvas(930, top + row * len(moments) + 10)
    columns = {"group": 330, "target": 405, "a": 490, "b": 590, "holds": 700, "is to hold": 820}
    for title, x in columns.items():
        canvas.text(x, 28, title, size=14, anchor="middle")
    for x in (330, 405, 490, 590):
        canvas.text(x, 46, "epoch", size=11, color="#666666", anchor="middle")
    before: Moment | None = None
    for index, moment in enumerate(moments):
        y = top + row * index
        canvas.line([(16, y - 6), (914, y - 6)], FAINT)
        canvas.text(20, y + 22, f"{index + 1}  {moment.what}", size=14)
        canvas.text(36, y + 40, f"the group is {moment.group_state}", size=11, color="#666666")
        _epoch(canvas, 330, y, moment.group_epoch, before and before.group_epoch)
        _epoch(canvas, 405, y, moment.target_epoch, before and before.target_epoch)
        for place, name in enumerate("ab"):
            if name in moment.members:
                epoch, state = moment.members[name]
                known = before.members.get(name) if before else None
                x = columns[name]
                canvas.rectangle(x - 34, y + 6, 8, 18, color_of(place))
                _epoch(canvas, x, y, epoch, known[0] if known else None)
                said = state.partition("_")[0]
                canvas.text(x, y + 42, said, size=11, color="#666666", anchor="middle")
        shown = {"holds": moment.holders, "is to hold": moment.target}
        for title, owners in shown.items():
            x = columns[title]
            for number, owner in enumerate(owners):
                left = x - PARTITIONS * side / 2 + number * side
                color = FAINT if owner is None else color_of("ab".index(owner))
                who = f"partition {number}: {owner or 'nobody'}"
                canvas.rectangle(left, y + 8, side - 4, side - 4, color, title=who)
                said = owner or ""
                canvas.text(left + 11, y + 24, said, size=12, color=ink_on(color), anchor="middle")
        before = moment
    return canvas.to_svg()


def _epoch(canvas: Canvas, x: float, y: float, epoch: int, before: int | None) -> None:
    """A number, underlined where it has just grown."""
    canvas.text(x, y + 22, str(epoch), size=16, anchor="middle")
    if before is not None and epoch != before:
        canvas.line([(x - 9, y + 27), (x + 9, y + 27)], INK, width=2)
