"""Who leads: whoever makes the node first, for as long as its session lives.

    <path>         the name of the leader; ephemeral
    <path>_epoch   how many leaders there have been

The others watch the node and try again when it goes. A leader may be cut off, or stand still, and
not know that it is no longer one; so each has an epoch, and what it writes is guarded with it.

Rule: an epoch has one leader. It leads from when it has raised the epoch, not from when it has
made the node.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.lab.registry.client import RegistryClient
from shoal.lab.registry.messages import Create, Delete, Get, Put


def epoch_path(path: str) -> str:
    return f"{path}_epoch"


class Candidate:
    """One process that would lead."""

    def __init__(
        self, client: RegistryClient, path: str, *, on_elected: Callable[[int], None]
    ) -> None:
        self._client = client
        self._path = path
        self._on_elected = on_elected
        self._round = 0

    def run(self) -> None:
        """Try to lead, now and whenever the leader goes. Call it again in a new session."""
        self._round += 1
        number = self._round

        def made(is_mine: list[bool]) -> None:
            if number != self._round:
                return
            if is_mine[0]:
                self._client.ask(Get((epoch_path(self._path),)), lambda v: self._raise(number, v))
            else:
                self._client.ask(Get((self._path,), watch=True), lambda v: self._look(number, v))

        self._client.ask(Create((self._path,), self._client.name), made)

    def changed(self) -> None:
        """The node has changed: it is gone, or somebody else's."""
        self.run()

    def _look(self, number: int, leader: tuple[str | None, ...]) -> None:
        if number == self._round and leader[0] is None:
            self.run()

    def _raise(self, number: int, known: tuple[int | None, ...]) -> None:
        before = known[0]
        epoch = (before or 0) + 1
        path = epoch_path(self._path)

        def raised(is_done: bool) -> None:
            if number != self._round:
                return
            if is_done:
                self._on_elected(epoch)
            else:
                self.run()

        self._client.ask(Put(((path, epoch),), guard=(path, before)), raised)

    def resign(self) -> None:
        """Step down in order."""
        self._round += 1
        self._client.ask(Delete((self._path,)))
