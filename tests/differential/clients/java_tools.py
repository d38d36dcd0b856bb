"""The command-line tools of Apache Kafka, each with the options a user starts with.

Rule: every tool in the jar that asks a broker something is here, or among ``NOT_RUN`` with the
reason.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.differential.clients.outcomes import Outcomes, without_made_up
from tests.peers.kafka import tool

TOPIC, GROUP = "java-tools", "java-tools-group"
_GROUPS = "consumer.group.ConsumerGroupCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_REASSIGN = "reassign.ReassignPartitionsCommand"

NOT_RUN = {
    "needs what brokers do not have: Connect, Java, a test's setup": (
        *("ConnectPluginPath", "DumpLogSegments", "JmxTool", "LogCompactionTester"),
        *("ClientCompatibilityTest", "OAuthCompatibilityTool", "ReplicaVerificationTool"),
    ),
    "measures or goes on for ever; tests/conformance runs them": (
        *("ConsumerPerformance", "EndToEndLatency", "ProducerPerformance"),
        *("TransactionalMessageCopier", "VerifiableConsumer", "VerifiableProducer"),
    ),
    "of what is not supported: share groups, streams groups, tokens, telemetry": (
        *("ClientMetricsCommand", "DelegationTokenCommand", "ShareConsumerPerformance"),
        *("StreamsResetter", "VerifiableShareConsumer"),
        *("consumer.ConsoleShareConsumer", "consumer.group.ShareGroupCommand"),
        "streams.StreamsGroupCommand",
    ),
}

# In order: name, class, arguments, standard input.
COMMANDS: tuple[tuple[str, str, tuple[str, ...], str | None], ...] = (
    ("create a topic", "TopicCommand", ("--create", "--topic", TOPIC, "--partitions", "1"), None),
    ("create it again", "TopicCommand", ("--create", "--topic", TOPIC), None),
    ("produce", "ConsoleProducer", ("--topic", TOPIC), "one\ntwo\nthree\n"),
    (
        "consume in a group",
        "consumer.ConsoleConsumer",
        (
            *("--topic", TOPIC, "--group", GROUP, "--from-beginning"),
            *("--max-messages", "3", "--timeout-ms", "30000"),
        ),
        None,
    ),
    ("list topics", "TopicCommand", ("--list", "--topic", TOPIC), None),
    ("grow it", "TopicCommand", ("--alter", "--topic", TOPIC, "--partitions", "3"), None),
    ("describe a topic", "TopicCommand", ("--describe", "--topic", TOPIC), None),
    ("describe an unknown topic", "TopicCommand", ("--describe", "--topic", "unknown"), None),
    ("offsets", "GetOffsetShell", ("--topic", TOPIC), None),
    ("list groups", _GROUPS, ("--list",), None),
    ("list groups of all kinds", "GroupsCommand", ("--list",), None),
    ("describe a group", _GROUPS, ("--describe", "--group", GROUP), None),
    ("describe its state", _GROUPS, ("--describe", "--group", GROUP, "--state"), None),
    ("describe its members", _GROUPS, ("--describe", "--group", GROUP, "--members"), None),
    ("describe an unknown group", _GROUPS, ("--describe", "--group", "unknown"), None),
    (
        "reset offsets",
        _GROUPS,
        (
            *("--reset-offsets", "--group", GROUP, "--topic", TOPIC),
            *("--to-earliest", "--execute"),
        ),
        None,
    ),
    ("delete offsets", _GROUPS, ("--delete-offsets", "--group", GROUP, "--topic", TOPIC), None),
    ("delete a group", _GROUPS, ("--delete", "--group", GROUP), None),
    (
        "set a topic's configuration",
        _CONFIGS,
        (
            *("--alter", "--entity-type", "topics", "--entity-name", TOPIC),
            *("--add-config", "retention.ms=9000000"),
        ),
        None,
    ),
    (
        "show it",
        _CONFIGS,
        ("--describe", "--entity-type", "topics", "--entity-name", TOPIC),
        None,
    ),
    (
        "set a broker's configuration",
        _CONFIGS,
        (
            *("--alter", "--entity-type", "brokers", "--entity-name", "1"),
            *("--add-config", "log.cleaner.threads=2"),
        ),
        None,
    ),
    (
        "show the broker's",
        _CONFIGS,
        ("--describe", "--entity-type", "brokers", "--entity-name", "1"),
        None,
    ),
    (
        "set one of all brokers",
        _CONFIGS,
        (
            *("--alter", "--entity-type", "brokers", "--entity-default"),
            *("--add-config", "log.retention.ms=1000000000"),
        ),
        None,
    ),
    (
        "show all brokers'",
        _CONFIGS,
        ("--describe", "--entity-type", "brokers", "--entity-default"),
        None,
    ),
    (
        "set a user's password",
        _CONFIGS,
        (
            *("--alter", "--entity-type", "users", "--entity-name", "java"),
            *("--add-config", "SCRAM-SHA-256=[password=word]"),
        ),
        None,
    ),
    (
        "describe users",
        _CONFIGS,
        ("--describe", "--entity-type", "users", "--entity-name", "java"),
        None,
    ),
    ("directories", "LogDirsCommand", ("--describe", "--topic-list", TOPIC), None),
    (
        "elect a leader",
        "LeaderElectionCommand",
        ("--election-type", "preferred", "--topic", TOPIC, "--partition", "0"),
        None,
    ),
    ("list moves of partitions", _REASSIGN, ("--list",), None),
    (
        "propose a move",
        _REASSIGN,
        ("--generate", "--broker-list", "1", "--topics-to-move-json-file", "{topics}"),
        None,
    ),
    (
        "move a partition",
        _REASSIGN,
        ("--execute", "--reassignment-json-file", "{assignment}"),
        None,
    ),
    (
        "see whether it moved",
        _REASSIGN,
        ("--verify", "--reassignment-json-file", "{assignment}"),
        None,
    ),
    (
        "delete records",
        "DeleteRecordsCommand",
        ("--offset-json-file", "{offsets}"),
        None,
    ),
    ("list rights", "AclCommand", ("--list",), None),
    ("versions", "BrokerApiVersionsCommand", (), None),
    ("quorum", "MetadataQuorumCommand", ("describe", "--status"), None),
    ("cluster id", "ClusterTool", ("cluster-id",), None),
    ("endpoints", "ClusterTool", ("list-endpoints",), None),
    ("features", "FeatureCommand", ("describe",), None),
    (
        "a feature that does not exist",
        "FeatureCommand",
        ("upgrade", "--feature", "no.such=3"),
        None,
    ),
    ("transactions", "TransactionsCommand", ("list",), None),
    (
        "producers",
        "TransactionsCommand",
        ("describe-producers", "--topic", TOPIC, "--partition", "0"),
        None,
    ),
    ("delete the topic", "TopicCommand", ("--delete", "--topic", TOPIC), None),
    ("delete it again", "TopicCommand", ("--delete", "--topic", TOPIC), None),
)

_NUMBERS = re.compile(r"\b(lag|Epoch):? *\d+")
_FILES = {
    "topics": {"version": 1, "topics": [{"topic": TOPIC}]},
    "assignment": {
        "version": 1,
        "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [1]}],
    },
    "offsets": {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": 1}]},
}


def run(servers: str) -> Outcomes:
    out: Outcomes = {}
    with TemporaryDirectory() as directory:
        files = {name: str(Path(directory, f"{name}.json")) for name in _FILES}
        for name, content in _FILES.items():
            Path(files[name]).write_text(json.dumps(content), encoding="utf-8")
        for name, command, arguments, stdin in COMMANDS:
            filled = tuple(files.get(each.strip("{}"), each) for each in arguments)
            out[name] = _run(servers, command, filled, stdin)
    return out


def _run(servers: str, command: str, arguments: tuple[str, ...], stdin: str | None) -> Any:
    where = ("--bootstrap-server", servers)
    ordered = (*arguments, *where) if command == "ClusterTool" else (*where, *arguments)
    done = tool(command, *ordered, stdin=stdin, timeout=120)
    lines = [_plain(line) for line in done.stdout.splitlines()]
    return {"exit": done.returncode, "lines": sorted(filter(None, lines))}


def _plain(line: str) -> str:
    """Columns as wide as their content and stack traces are nobody's business."""
    if line.lstrip().startswith(("at ", "...")) or "SLF4J" in line:
        return ""
    words = " ".join(without_made_up(line).split())
    return _NUMBERS.sub(r"\1 (number)", re.sub(r"\[20\d\d-[^]]*\]", "", words)).strip()
