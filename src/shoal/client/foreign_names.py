"""What other Kafka clients call things, so that whoever comes from them is told our name at once.

Rule: a name stands here because Java's client, kafka-python, aiokafka, confluent-kafka or a
properties file uses it. Nothing is an alias: the answer is an error with the right name in it, and
names nobody uses fail as they always do.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)

# Kafka's name on the left where it is not our field with dots for underscores.
PROPERTIES: Final = {
    "partition.assignment.strategy": "assignors",
    "interceptor.classes": "interceptors",
    "partitioner.class": "partitioner",
    "ssl.ca.location": "ssl_cafile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "sasl.mechanisms": "sasl_mechanism",
    "metadata.broker.list": "bootstrap_servers",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauthbearer_client_secret",
    "https.ca.location": "sasl_oauthbearer_cafile",
}


_SETTINGS: Final = {
    **{name.replace(".", "_"): ours for name, ours in PROPERTIES.items()},
    "sasl_oauth_token_provider": "sasl_oauthbearer_token",
    "oauth_cb": "sasl_oauthbearer_token",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "ssl_password": "ssl_key_password",
    "consumer_timeout_ms": "the timeout of poll()",
    "max_batch_size": "batch_size",
}

# What Java programs write into their files.
_JAVA: Final = "org.apache.kafka.common.serialization."
_JAVA_TYPES: Final = {
    "ByteArray": "bytes",
    "Bytes": "bytes",
    "ByteBuffer": "bytes",
    "String": "str",
    "Short": "short",
    "Integer": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "UUID": "uuid",
}
JAVA_CLASSES: Final = {
    **{f"{_JAVA}{kind}Serializer": f"serialize_{ours}" for kind, ours in _JAVA_TYPES.items()},
    **{f"{_JAVA}{kind}Deserializer": f"deserialize_{ours}" for kind, ours in _JAVA_TYPES.items()},
}
JAVA_PARTITIONERS: Final = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round-robin",
}

_ARGUMENTS: Final = {
    "timeout_ms": "timeout, in seconds",
    "timeoutMs": "timeout, in seconds",
    "num_messages": "max_records",
    "on_assign": "listener",
    "on_revoke": "listener",
    "on_lost": "listener",
}

# A class has what its own list says, and what is Java's name of one of its methods.
_METHODS: Final[dict[str, dict[str, str]]] = {
    "Consumer": {
        "commit": "commit_sync() or commit_async()",
        "consume": "poll(timeout, max_records=...)",
        "partitions_for_topic": "partitions_for(topic)",
        "topics": "list_topics()",
        "get_watermark_offsets": "beginning_offsets() and end_offsets()",
        "highwater": "end_offsets() or lag()",
        "current_lag": "lag()",
        "currentLag": "lag()",
        "unassign": "unsubscribe()",
        "memberid": "group_metadata().member_id",
    },
    "AsyncConsumer": {
        "commit_sync": "commit()",
        "commitSync": "commit()",
        "getone": "poll(timeout, max_records=1), or async for",
        "getmany": "poll(timeout, max_records=...)",
        "start": "nothing: it is ready when it is made",
        "stop": "close()",
        "topics": "list_topics()",
        "partitions_for_topic": "partitions_for(topic)",
        "highwater": "end_offsets() or lag()",
    },
    "Producer": {
        "produce": "send()",
        "send_and_wait": "send(...).result(timeout)",
        "poll": "nothing: on_delivery is called by itself",
        "bootstrap_connected": "partitions_for(topic)",
    },
    "AsyncProducer": {
        "produce": "send(), or enqueue() not to wait until it is stored",
        "send_and_wait": "send()",
        "start": "nothing: it is ready when it is made",
        "stop": "close()",
        "poll": "nothing: send() returns when the record is stored",
    },
    "Admin": {
        "list_consumer_groups": "list_groups()",
        "listConsumerGroups": "list_groups()",
        "describe_consumer_groups": "describe_group()",
        "describeConsumerGroups": "describe_group()",
        "list_consumer_group_offsets": "group_offsets()",
        "listConsumerGroupOffsets": "group_offsets()",
        "alter_consumer_group_offsets": "alter_group_offsets()",
        "alterConsumerGroupOffsets": "alter_group_offsets()",
        "create_topics": "create_topic()",
        "createTopics": "create_topic()",
    },
}
_METHODS["AsyncAdmin"] = {
    **_METHODS["Admin"],
    "start": "nothing: it is ready when it is made",
}


def our_setting(name: str, known: Collection[str]) -> str | None:
    """What ``known`` has for a setting other clients call ``name``."""
    ours = _SETTINGS.get(name.replace(".", "_"))
    return ours if ours is None or ours in known or not ours.isidentifier() else None


def our_argument(name: str, known: Collection[str]) -> str | None:
    """What a method with the parameters ``known`` calls the argument ``name``."""
    ours = _ARGUMENTS.get(name)
    return None if ours is None or re.split(r"\W", ours)[0] not in known else ours


def answers_foreign_names(owner: C) -> C:
    """A class decorator: asked for a method by another client's name, say ours."""
    known = {**_javas_names(owner), **_METHODS.get(owner.__name__, {})}

    def look_up(self: Any, name: str) -> Any:
        if name in known:
            raise AttributeError(
                f"{type(self).__name__} has no {name}; here it is {known[name]}", name=name
            )
        # Once more, so that what was raised on the way is raised again.
        return object.__getattribute__(self, name)

    owner.__getattr__ = look_up  # type: ignore[attr-defined]  # unseen by type checkers: to them every name would exist
    return owner


def _javas_names(owner: type) -> dict[str, str]:
    """``commitSync`` for ``commit_sync``, of every public method of two words or more."""
    ours = [name for name in vars(owner) if not name.startswith("_") and "_" in name]
    return {re.sub(r"_(.)", lambda found: found[1].upper(), name): f"{name}()" for name in ours}
