"""The states of a member of the new protocol (KIP-848) and every move between them.

Rule: whether a member *may* change its state is decided in this file and nowhere else;
``consumer_heartbeat.py`` and ``consumer_member.py`` decide *when*. The words are those of Kafka's
client.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ConsumerMemberState(Enum):
    """Where a member stands between its coordinator and its user."""

    UNSUBSCRIBED = "unsubscribed"
    """Not in the group and not on the way: nothing is sent."""
    JOINING = "joining"
    """Heartbeats with epoch 0, until one is answered with the epoch to go on with."""
    RECONCILING = "reconciling"
    """The coordinator wants other partitions to be ours; the user's next polls see to it."""
    ACKNOWLEDGING = "acknowledging"
    """That is done, and the next heartbeat, sent at once, tells what is owned now."""
    STABLE = "stable"
    """What is owned is what was assigned, and the coordinator knows it."""
    PREPARE_LEAVING = "prepare leaving"
    """The user's callback runs before the member leaves; heartbeats go on."""
    LEAVING = "leaving"
    """The last heartbeat is on its way out: epoch -1, or -2 of a static member."""
    FENCED = "fenced"
    """Thrown out: what was owned is lost, and then the member joins again."""
    STALE = "stale"
    """Left, because the user did not poll: the next poll loses everything and joins again."""
    FATAL = "fatal"
    """Refused for good: every poll says why, until the user subscribes again."""

    # Asked for many times in every heartbeat, and a state is itself and nothing else.
    __hash__ = object.__hash__


_S = ConsumerMemberState

MOVES: Final[dict[ConsumerMemberState, frozenset[ConsumerMemberState]]] = {
    # FATAL: no coordinator can be asked, say, because it does not speak the protocol.
    _S.UNSUBSCRIBED: frozenset({_S.JOINING, _S.FATAL}),
    _S.JOINING: frozenset(
        {_S.RECONCILING, _S.PREPARE_LEAVING, _S.LEAVING, _S.FENCED, _S.STALE, _S.FATAL}
    ),
    _S.RECONCILING: frozenset(
        {
            _S.ACKNOWLEDGING,
            # The coordinator took it back before anything was done about it.
            _S.STABLE,
            _S.PREPARE_LEAVING,
            _S.LEAVING,
            _S.FENCED,
            _S.STALE,
            _S.FATAL,
        }
    ),
    _S.ACKNOWLEDGING: frozenset(
        {
            _S.STABLE,
            _S.RECONCILING,
            _S.PREPARE_LEAVING,
            _S.LEAVING,
            _S.FENCED,
            _S.STALE,
            _S.FATAL,
        }
    ),
    _S.STABLE: frozenset(
        {_S.RECONCILING, _S.PREPARE_LEAVING, _S.LEAVING, _S.FENCED, _S.STALE, _S.FATAL}
    ),
    # Thrown out while leaving: there is nothing left to leave.
    _S.PREPARE_LEAVING: frozenset({_S.LEAVING, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED, _S.STALE}),
    _S.FENCED: frozenset({_S.JOINING, _S.UNSUBSCRIBED, _S.FATAL}),
    _S.STALE: frozenset({_S.JOINING, _S.UNSUBSCRIBED, _S.FATAL}),
    _S.FATAL: frozenset({_S.UNSUBSCRIBED}),
}
assert MOVES.keys() == set(ConsumerMemberState), "every state has a row"

HEARTBEATING: Final = frozenset(
    {_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING}
)
"""Heartbeats are sent, and their answers count."""

OUT: Final = frozenset({_S.UNSUBSCRIBED, _S.FENCED, _S.STALE, _S.FATAL})
"""Not in the group: what is still owned is lost."""
