"""Bugs planted in the sink that writes exactly once; a simulation of sinks must notice them."""

from __future__ import annotations

from tests.simulation.bug import Bug

DECISIONS = "spark/sink_decisions.py"
DRIVER = "spark/exactly_once.py"

SINK_BUGS = (
    Bug(
        "a sink's transactions are committed, and nobody has decided it",
        DRIVER,
        "        if verdict.is_new:\n",
        "        if verdict.is_new and verdict.decision.revision:\n",
    ),
    Bug(
        "a sink's driver decides without having claimed its query",
        DRIVER,
        '        self.claimed_at = self._append("claim", encode_claim(self._token))\n',
        "        self.claimed_at = None\n",
    ),
    Bug(
        "a micro-batch of a sink is decided each time it is repeated",
        DECISIONS,
        "    if before is None or before.batch_id < batch_id:\n        return BatchVerdict(",
        "    if before is None or before.batch_id <= batch_id:\n        return BatchVerdict(",
    ),
    Bug(
        "what a sink has lost counts as committed",
        DRIVER,
        "            lost.append(one)\n",
        "            continue\n",
    ),
    Bug(
        "a task of a sink writes again what may be committed",
        DECISIONS,
        "    if before.is_done or not new or not are_replacements:\n",
        "    if before.is_done or not new:\n",
    ),
)
