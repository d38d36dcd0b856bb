"""What users of other clients may notice: the differences between calls that stay."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.differential.compare import Difference


class AcceptedCall(NamedTuple):
    """One outcome that differs; ``client`` and ``where`` are patterns."""

    client: str
    where: str
    kafka: str
    shoal: str


CALLS: tuple[AcceptedCall, ...] = (
    AcceptedCall(
        "Java tools",
        r"features\.lines\[.*\]",
        "`kafka-features describe` lists levels of newer groups and the quorum",
        "lists `metadata.version` and `transaction.version`",
    ),
    AcceptedCall(
        "Java tools",
        r"a feature that does not exist\.lines\[.*\]",
        "`kafka-features upgrade` fails and blames the controller",
        "fails and says that the feature is not supported",
    ),
    AcceptedCall(
        "Java tools",
        r"versions\.lines\[.*\]",
        "`kafka-broker-api-versions` lists more APIs",
        "lists those that it serves",
    ),
    AcceptedCall(
        "Java tools",
        r"quorum\.lines\[(CurrentVoters|HighWatermark): .*\]",
        "`kafka-metadata-quorum` shows the controller's listener and the metadata log",
        "shows the broker's listener and the journal of topics",
    ),
    AcceptedCall(
        "aiokafka",
        r"describe_topics\[unknown\].*",
        "a topic that is created by being asked for is unknown at first",
        "is there in the answer",
    ),
    AcceptedCall(
        "kafkajs",
        r"fetchTopicOffsets(ByTimestamp)?\(order\)",
        "partitions in any order",
        "partitions in their order",
    ),
)


def accepted(client: str, difference: Difference) -> AcceptedCall | None:
    return next(
        (
            row
            for row in CALLS
            if re.fullmatch(row.client, client) and re.fullmatch(row.where, difference.path)
        ),
        None,
    )
