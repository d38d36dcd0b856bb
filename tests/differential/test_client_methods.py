"""The scripts in ``clients`` leave out no method: a new version of a client may bring more."""

from __future__ import annotations

import ast
import struct
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from tests.differential.clients import java_tools
from tests.peers.cache import need
from tests.peers.jars import kafka_jars

SCRIPTS = Path(__file__).parent / "clients"
TRANSACTIONS = {
    "abort_transaction",
    "begin_transaction",
    "commit_transaction",
    "init_transactions",
    "send_offsets_to_transaction",
}
"""``transactions.py`` compares them step by step, and tests/conformance runs clients of them."""

CLASSES = {
    # module, class: script, methods that are not called
    ("confluent_kafka.admin", "AdminClient"): ("confluent.py", {"set_sasl_credentials"}),
    ("confluent_kafka", "Consumer"): ("confluent.py", {"set_sasl_credentials"}),
    ("confluent_kafka", "Producer"): (
        "confluent.py",
        # Another way to send, and the client's own queue.
        {"set_sasl_credentials", "produce_batch", "purge", *TRANSACTIONS},
    ),
    ("kafka", "KafkaAdminClient"): (
        "kafka_python.py",
        {"abort_transaction", "describe_transactions"},
    ),
    # What the client counts, and connections it makes by itself.
    ("kafka", "KafkaConsumer"): (
        "kafka_python.py",
        {"bootstrap", "bootstrap_connected", "metrics"},
    ),
    ("kafka", "KafkaProducer"): (
        "kafka_python.py",
        {"bootstrap_connected", "max_usable_produce_magic", "metrics", *TRANSACTIONS},
    ),
    ("aiokafka.admin", "AIOKafkaAdminClient"): ("aio_kafka.py", set()),
    ("aiokafka", "AIOKafkaConsumer"): ("aio_kafka.py", set()),
    ("aiokafka", "AIOKafkaProducer"): (
        "aio_kafka.py",
        {"transaction", *TRANSACTIONS - {"init_transactions"}},
    ),
}


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_a_script_calls_every_method(module: str, name: str) -> None:
    script, left_out = CLASSES[module, name]
    found = getattr(import_module(module), name)
    methods = {each for each in dir(found) if each[0] != "_" and callable(getattr(found, each))}
    tree = ast.parse((SCRIPTS / script).read_text(encoding="utf-8"))
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    # Some are called by a name in a loop.
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    called |= {name for name in methods if name in named}
    assert methods - called == left_out


@pytest.mark.kafka
def test_every_tool_that_comes_with_apache_kafka_is_run_or_has_a_reason() -> None:
    (jar,) = need(kafka_jars).glob("kafka-tools-4*.jar")
    with zipfile.ZipFile(jar) as archive:
        tools = {
            name.removeprefix("org/apache/kafka/tools/").removesuffix(".class").replace("/", ".")
            for name in archive.namelist()
            if name.endswith(".class") and "$" not in name and _has_main(archive.read(name))
        }
    run = {command for _, command, _, _ in java_tools.COMMANDS} - {"kafka.admin.ConfigCommand"}
    not_run = {name for names in java_tools.NOT_RUN.values() for name in names}
    assert not run & not_run
    assert run | not_run == tools


def _has_main(class_file: bytes) -> bool:
    """Both are entries of the constant pool: the bytes of a text behind its tag and length."""
    return all(
        b"\1" + struct.pack(">H", len(text)) + text in class_file
        for text in (b"main", b"([Ljava/lang/String;)V")
    )
