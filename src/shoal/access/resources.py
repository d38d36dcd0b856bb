"""What can be kept from somebody, and what can be done with it. The numbers are Kafka's."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """What can be named in a request and kept from somebody."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """What can be done with a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15
