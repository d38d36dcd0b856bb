"""Names of topic ids: the new protocol assigns partitions by id, everything else here names topics.

Rule: an id that metadata has not told yet is asked for (``ResolveTopics``), again and again after a
wait, for as long as the coordinator assigns it; what is known already does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from shoal.group.member.member_interface import ClusterTopics, MemberConfig, Output, ResolveTopics
from shoal.group.member.pacing import Backoff


class TopicIds:
    """Which id is which topic, as far as metadata said, and what is still to be asked."""

    def __init__(self, config: MemberConfig, chance: Callable[[], float]) -> None:
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}
        self._unknown: frozenset[bytes] = frozenset()
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._ask_at_ms = 0

    def name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def update(self, answer: ClusterTopics) -> None:
        for name, topic_id in answer.ids.items():
            old = self._ids.get(name)
            if old is not None and old != topic_id:
                # Deleted and made anew: the old one is nobody's name any more.
                del self._names[old]
            self._ids[name] = topic_id
            self._names[topic_id] = name

    def need(self, ids: Collection[bytes], now_ms: int, out: list[Output]) -> None:
        """These are assigned to us: ask about those that have no name."""
        unknown = [topic_id for topic_id in ids if topic_id not in self._names]
        if not unknown and not self._unknown:
            return
        if self._unknown.symmetric_difference(unknown):
            self._unknown = frozenset(unknown)
            self._backoff.reset()
            self._ask_at_ms = now_ms
        self.tick(now_ms, out)

    def next_deadline(self) -> int | None:
        return self._ask_at_ms if self._unknown else None

    def tick(self, now_ms: int, out: list[Output]) -> None:
        if self._unknown and now_ms >= self._ask_at_ms:
            self._ask_at_ms = now_ms + self._backoff.next_ms()
            out.append(ResolveTopics(self._unknown))
