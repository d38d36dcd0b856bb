"""Which features and APIs a cluster has, by what its brokers say when a client introduces itself.

Rule: a client can use what every broker has, so ranges are cut down to what all have in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from shoal._version import __version__
from shoal.client.cluster import Cluster
from shoal.client.deadlines import Deadline
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """A feature of the cluster (KIP-584): the level in force, and the levels all brokers support.

    ``level`` is ``None`` for a feature that is switched off.
    """

    name: str
    level: int | None
    supported: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ClusterFeatures:
    """What every broker of a cluster supports: features with levels, APIs with versions."""

    features: tuple[FeatureLevel, ...]
    apis: Mapping[int, tuple[int, int]]


async def describe_features(cluster: Cluster, deadline: Deadline) -> ClusterFeatures:
    """Ask every broker; what they have in common counts, as it does for a client."""

    async def of(node_id: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name="shoal", client_software_version=__version__
        )
        answer = await cluster.ask(request, node_id=node_id, deadline=deadline)
        cluster.check("Admin", answer.error_code)
        return answer

    async def attempt() -> list[ApiVersionsResponse]:
        metadata = await cluster.refresh((), deadline)
        return list(await asyncio.gather(*map(of, metadata.nodes)))

    answers = await cluster.retrying(attempt, deadline)
    newest = max(answers, key=lambda one: one.finalized_features_epoch)
    levels = {one.name: one.max_version_level for one in newest.finalized_features}
    supported = in_common(
        {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        for answer in answers
    )
    names = sorted({*levels, *supported})
    return ClusterFeatures(
        tuple(FeatureLevel(name, levels.get(name), supported.get(name)) for name in names),
        in_common(
            {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
            for answer in answers
        ),
    )


def in_common(ranges: Iterable[dict[K, tuple[int, int]]]) -> dict[K, tuple[int, int]]:
    """The part of each range that all have; what one of them lacks is left out."""
    first, *others = ranges
    for other in others:
        first = {
            name: (max(low, other[name][0]), min(high, other[name][1]))
            for name, (low, high) in first.items()
            if name in other
        }
    return {name: (low, high) for name, (low, high) in first.items() if low <= high}
