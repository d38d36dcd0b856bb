"""The nodes of the registry, as one server has them.

Rule: a tree changes by ``apply`` alone, with changes the leader has numbered. Servers that have
applied the same number of changes have the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from shoal.lab.registry.messages import Watch


class TreeNode(NamedTuple):
    data: Any
    session_id: int | None
    """Whose session it lives by; None: it stays."""


Effect: TypeAlias = tuple[str, TreeNode | None]
"""A path and what is there from now on."""


class Change(NamedTuple):
    """One entry of the log: what is where from now on, and who is to be told."""

    effects: tuple[Effect, ...]
    watches: tuple[Watch, ...]


class Tree:
    """Paths, their data, and when they changed."""

    def __init__(self) -> None:
        self.applied = 0
        """The number of the last change."""
        self.nodes: dict[str, TreeNode] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._changed: dict[Watch, int] = {}

    def data(self, path: str) -> Any:
        node = self.nodes.get(path)
        return None if node is None else node.data

    def data_of(self, paths: tuple[str, ...]) -> tuple[Any, ...]:
        """Of each path its data: a herd of members asks for all of them."""
        nodes = map(self.nodes.get, paths)
        return tuple([None if node is None else node.data for node in nodes])

    def children(self, path: str) -> tuple[str, ...]:
        return tuple(self._children.get(path, ()))

    def has_changed(self, watch: Watch, since: int) -> bool:
        return self._changed.get(watch, 0) > since

    def changes(self, effects: Iterable[Effect]) -> tuple[Watch, ...]:
        """What these effects would change, each once."""
        changed: dict[Watch, None] = {}
        for path, node in effects:
            was_there = path in self.nodes
            if node is not None or was_there:
                changed[Watch(path, of_children=False)] = None
            if (node is not None) != was_there:
                changed[Watch(path.rsplit("/", 1)[0], of_children=True)] = None
        return tuple(changed)

    def apply(self, change: Change) -> None:
        """Make the next change."""
        self.applied += 1
        nodes = self.nodes
        for path, node in change.effects:
            if node is not None:
                if path not in nodes:
                    parent, name = path.rsplit("/", 1)
                    self._children.setdefault(parent, {})[name] = None
                nodes[path] = node
            elif nodes.pop(path, None) is not None:
                parent, name = path.rsplit("/", 1)
                del self._children[parent][name]
        for watch in change.watches:
            self._changed[watch] = self.applied
