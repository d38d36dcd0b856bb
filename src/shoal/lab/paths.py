"""Where the first two schemes keep what in the registry. The names are Kafka's.

    /brokers/ids/<broker>                            ephemeral
    /brokers/topics/<topic>                          how many partitions there are
    /consumers/<group>/ids/<member>                  what a member wants; ephemeral
    /consumers/<group>/owners/<topic>/<partition>    scheme 1: who reads it; ephemeral
    /consumers/<group>/offsets/<topic>/<partition>   how far it was read
    /consumers/<group>/generation                    scheme 2: the last one that was assigned
    /consumers/coordinator                           scheme 2: the broker that leads; ephemeral

Rule: a path is written in this file alone.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from shoal.types import TopicPartition

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
IDS: Final = "/consumers/lab/ids"
OWNERS: Final = "/consumers/lab/owners"
OFFSETS: Final = "/consumers/lab/offsets"
GENERATION: Final = "/consumers/lab/generation"
COORDINATOR_NODE: Final = "/consumers/coordinator"


def broker_path(name: str) -> str:
    return f"{BROKER_IDS}/{name}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


@cache
def member_path(name: str) -> str:
    return f"{IDS}/{name}"


def owner_path(tp: TopicPartition) -> str:
    return f"{OWNERS}/{tp.topic}/{tp.partition}"


@cache
def offset_path(tp: TopicPartition) -> str:
    return f"{OFFSETS}/{tp.topic}/{tp.partition}"


@cache
def partition_of(path: str) -> TopicPartition:
    """The partition of an owner or offset node."""
    _, topic, number = path.rsplit("/", 2)
    return TopicPartition(topic, int(number))
