"""The words of OpenTelemetry's conventions for messaging, of one version.

All of them are still called "development" there, and have changed before.

Rule: they stand here and nowhere else. To follow a newer version, change this file.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.44.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"

# Attributes.
SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
BODY_SIZE: Final = "messaging.message.body.size"
OFFSET: Final = "messaging.kafka.offset"
TOMBSTONE: Final = "messaging.kafka.message.tombstone"
ERROR_TYPE: Final = "error.type"
# Theirs have no word for it.
TRANSACTIONAL_ID: Final = "shoal.transactional_id"

KAFKA: Final = "kafka"
TYPE_SEND: Final = "send"
TYPE_RECEIVE: Final = "receive"
TYPE_PROCESS: Final = "process"
TYPE_SETTLE: Final = "settle"

# Instruments.
OPERATION_DURATION: Final = "messaging.client.operation.duration"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
DURATION_BUCKETS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)
