"""The keyword arguments of the clients' constructors, for type checkers and editors.

Rule: the same names and types as the fields of ``config.py``, where each has its default and its
meaning; a test compares the two. Nothing here runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from shoal.client.config import Deserializer, Serializer, TokenProvider

if TYPE_CHECKING:
    import ssl

    from shoal.assign.loading import AssignorLike
    from shoal.client.partitioner import Partitioner


class ConnectionSettings(TypedDict, total=False):
    """Of every client, and all of ``Admin``'s: the fields of ``ConnectionConfig``."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    security_protocol: str
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_key_password: str | None
    ssl_check_hostname: bool
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str
    sasl_username: str | None
    sasl_password: str | None
    sasl_plain_without_tls: bool
    sasl_oauthbearer_token: TokenProvider | None
    sasl_oauthbearer_token_file: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_cafile: str | None
    sasl_oauthbearer_extensions: str | None
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    receive_message_max_bytes: int


class ConsumerSettings(ConnectionSettings, total=False):
    """Of ``Consumer`` and ``AsyncConsumer``: the fields of ``ConsumerConfig``."""

    group_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    group_instance_id: str | None
    client_rack: str | None
    assignors: Sequence[AssignorLike]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    max_poll_arrow_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    check_crcs: bool
    isolation_level: str
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    interceptors: Sequence[Any]


class ProducerSettings(ConnectionSettings, total=False):
    """Of ``Producer``: the fields of ``ProducerConfig``."""

    acks: int | str
    enable_idempotence: bool | None
    compression_type: str
    compression_level: int | None
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    retries: int
    transactional_id: str | None
    transaction_timeout_ms: int
    partitioner: str | Partitioner
    key_serializer: Serializer | None
    value_serializer: Serializer | None
