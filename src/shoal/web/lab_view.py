"""The lab's page: the five schemes on one scenario, what each cost, and every message.

Rule: scenarios are the built-in ones, by name. A run takes a second or two of a core; each is run
once, one at a time, and kept.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from shoal.errors import ConfigError
from shoal.lab import BUILT_IN, SCHEMES, Run, built_in, compare

MESSAGES_MAX: Final = 300
MEMBERS_MAX: Final = 20
"""A larger scenario is for the command line."""


def scenarios() -> dict[str, Any]:
    """What may be run."""
    return {
        "scenarios": [
            {"name": name, "description": one.description}
            for name, one in BUILT_IN.items()
            if one.members <= MEMBERS_MAX
        ],
        "schemes": [
            {"name": one.name, "title": one.title, "since": one.since} for one in SCHEMES.values()
        ],
    }


class LabRuns:
    """Runs that were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[str, dict[str, Any]] = {}

    def of(self, name: object) -> dict[str, Any]:
        """A scenario under every scheme.

        Raises:
            ConfigError: there is no such scenario, or it is too large.
        """
        if not isinstance(name, str) or name not in BUILT_IN:
            raise ConfigError("choose one of the scenarios")
        if BUILT_IN[name].members > MEMBERS_MAX:
            raise ConfigError(f"{name} is too large for a page: shoal lab compare {name}")
        with self._lock:
            if name not in self._done:
                runs = compare(built_in(name))
                self._done[name] = {
                    "scenario": name,
                    "description": runs[0].scenario.description,
                    "runs": [_shown(run) for run in runs],
                }
            return self._done[name]


def _shown(run: Run) -> dict[str, Any]:
    trace = run.trace
    begin_ms = trace.events[0][0] if trace.events else trace.begin_ms
    messages = [
        one
        for one in trace.messages
        if one.sent_ms >= begin_ms and not one.what.startswith(("Offset", "Ping", "Connect"))
    ]
    return {
        "scheme": run.scheme.name,
        "title": run.scheme.title,
        "since": run.scheme.since,
        "metrics": run.metrics.as_dict(),
        "authorities": list(trace.authorities),
        "members": trace.members,
        "begin_ms": max(0, trace.begin_ms),
        "end_ms": trace.end_ms,
        "partitions": [str(tp) for tp in trace.partitions],
        "events": [[at_ms, text] for at_ms, text in trace.events],
        "spans": [
            [str(one.tp), one.begin_ms, one.end_ms, one.member, one.holding.value]
            for one in trace.spans
            if one.end_ms > 0
        ],
        "messages": [
            [one.sent_ms, one.arrives_ms, one.sender, one.receiver, one.what, one.detail]
            for one in messages[:MESSAGES_MAX]
        ],
        "messages_left_out": max(0, len(messages) - MESSAGES_MAX),
    }
