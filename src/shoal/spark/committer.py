"""For people who stay with Spark's own Kafka connector: its offsets, committed to a group.

    from shoal.spark import GroupCommitter
    spark.streams.addListener(GroupCommitter("h:9092", "billing-etl"))

Spark's connector never commits, so lag tools see nothing of it. This listener commits the end
offset of every finished micro-batch of every Kafka source in the session as a simple commit:
nobody joins the group, nothing rebalances.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from shoal.errors import ShoalError
from shoal.spark.ranges import from_json

if TYPE_CHECKING:
    from shoal.spark.record_store import GroupOffsets

logger = logging.getLogger(__name__)

_KAFKA_SOURCES = ("KafkaV2[", "KafkaSource[")


class GroupCommitter(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not typed for us
    """Commits the progress of Spark's own Kafka sources to a consumer group.

    Args:
        bootstrap_servers: The cluster, ``host:port`` with commas between.
        group_id: The group that shows the progress. It should have no live members.
        query_name: Only the query of this name; every query by default.
        properties: Further client settings by their dotted names (TLS, SASL).
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        *,
        query_name: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._properties = {**(properties or {}), "bootstrap.servers": bootstrap_servers}
        self._group_id = group_id
        self._query_name = query_name
        self._group: GroupOffsets | None = None

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        if self._query_name is not None and progress.name != self._query_name:
            return
        for source in progress.sources:
            if source.description.startswith(_KAFKA_SOURCES) and source.endOffset:
                self._commit(json.loads(source.endOffset))

    def _commit(self, stream_offset: Mapping[str, Mapping[str, int]]) -> None:
        if self._group is None:
            from shoal.spark import process_cache
            from shoal.spark.cluster import ClusterGroup

            self._group = ClusterGroup(process_cache.connection(self._properties), self._group_id)
        try:
            self._group.commit(from_json(stream_offset))
        except ShoalError:
            # The query must not suffer from its bookkeeping; the next batch commits anew.
            logger.warning("group %s: the commit failed", self._group_id, exc_info=True)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark names it
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark names it
        """Nothing to do: the last batch's progress was committed when it ended."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark names it
        """Nothing to do."""
