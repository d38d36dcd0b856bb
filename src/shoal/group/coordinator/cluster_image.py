"""What a coordinator is told of the cluster around it: topics, and settings of groups.

One image is shared by all coordinators of a broker. Its owner changes it between two calls of a
coordinator, never during one, and then tells every coordinator what changed
(``Coordinator.topics_changed``), so what a call decides depends on nothing but what it was told.

Rule: facts to look up. Nothing here knows a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

_COUNT: Final = Struct(">i")
_HASH: Final = Struct(">q")


class ImageTopic(NamedTuple):
    """A topic as a group sees it."""

    name: str
    topic_id: bytes
    partition_count: int


class GroupOverrides(NamedTuple):
    """Settings of one group; ``None`` where the broker's setting counts."""

    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    assignment_interval_ms: int | None = None
    assignor: str | None = None
    """Who assigns, whatever members vote for."""
    weights: tuple[tuple[str, float], ...] = ()
    """Of members, by instance id or client id, for assignors that look at them."""

    @property
    def for_targets(self) -> bytes:
        """What a target depends on; empty if that is nothing."""
        if self.assignor is None and not self.weights:
            return b""
        return repr((self.assignor, self.weights)).encode()

    def weight_of(self, *names: str | None) -> float:
        """Of a member with one of these names; the first that has one counts."""
        known = dict(self.weights)
        return next((known[name] for name in names if name in known), 1.0)


NO_OVERRIDES: Final = GroupOverrides()


class ClusterImage:
    """Topics by name and by id, with a version that grows with every change."""

    __slots__ = ("_by_id", "_by_name", "_hashes", "created_version", "overrides", "version")

    def __init__(self, topics: Iterable[ImageTopic] = (), *, version: int = 0) -> None:
        self._by_name: dict[str, ImageTopic] = {}
        self._by_id: dict[bytes, ImageTopic] = {}
        self._hashes: dict[str, bytes] = {}
        self.version = version
        self.created_version = version
        """The last one with a new topic: regular expressions resolved before must look again."""
        self.overrides: dict[str, GroupOverrides] = {}
        for topic in topics:
            self._store(topic)

    # --- Changing ------------------------------------------------------------------------------

    def put(self, topic: ImageTopic, *, version: int = 0) -> None:
        """A new topic, or a known one with more partitions. Versions only grow."""
        is_new = topic.name not in self._by_name
        self.version = max(self.version + 1, version)
        if is_new:
            self.created_version = self.version
        self._store(topic)

    def remove(self, name: str, *, version: int = 0) -> None:
        self.version = max(self.version + 1, version)
        topic = self._by_name.pop(name)
        del self._by_id[topic.topic_id]
        self._hashes.pop(name, None)

    def _store(self, topic: ImageTopic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._hashes.pop(topic.name, None)

    # --- Looking -------------------------------------------------------------------------------

    def topic(self, name: str) -> ImageTopic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> ImageTopic | None:
        return self._by_id.get(topic_id)

    def names(self) -> Iterator[str]:
        return iter(self._by_name)

    def overrides_of(self, group_id: str) -> GroupOverrides:
        return self.overrides.get(group_id, NO_OVERRIDES)

    def metadata_hash(self, names: Iterable[str], group_id: str) -> int:
        """Changes whenever one of these topics does, or a setting that the group's target depends
        on; 0 if none of them exists (KIP-1101).

        Not the number that Kafka computes: it is only ever compared with our own.
        """
        known = sorted({name for name in names if name in self._by_name})
        if not known:
            return 0
        whole = blake2b(self.overrides_of(group_id).for_targets, digest_size=8)
        for name in known:
            whole.update(self._hash_of(name))
        number: int = _HASH.unpack(whole.digest())[0]
        return number

    def _hash_of(self, name: str) -> bytes:
        found = self._hashes.get(name)
        if found is None:
            topic = self._by_name[name]
            parts = topic.topic_id + _COUNT.pack(topic.partition_count) + name.encode()
            found = self._hashes[name] = blake2b(parts, digest_size=8).digest()
        return found
