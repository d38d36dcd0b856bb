"""Style that a program can check: functions, banned words, leftovers, a test beside each module."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.peers import need
from tests.peers.cache import program

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))

FUNCTION_LINES_MAX = 70

BANNED_NAMES = {"utils", "util", "common", "helpers", "base", "core", "models", "interfaces"}
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX)\b")
DANGEROUS = re.compile(r"\b(pickle\.loads?|yaml\.load\(|yaml\.unsafe_load|eval\()")
THIS_MACHINE = re.compile(r"/(work|root)/|/tmp/(bash_jobs|shoal)")


def tracked(*patterns: str) -> list[Path]:
    git = need(lambda: program("git", "to look at every file of the repository"))
    shown = subprocess.run(
        [git, "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for line in shown.stdout.splitlines() if (path := ROOT / line).is_file()]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_functions_fit_on_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            length = (node.end_lineno or 0) - first.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_names_say_something_and_nothing_is_left_over(path: Path) -> None:
    assert path.stem not in BANNED_NAMES
    text = path.read_text()
    assert not LEFTOVERS.search(text)
    assert not DANGEROUS.search(text)


def test_only_disk_opens_files_in_the_log() -> None:
    for path in (ROOT / "src" / "shoal" / "log").glob("*.py"):
        if path.stem == "disk":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "open", f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_text_files_say_their_encoding(path: Path) -> None:
    """Else it depends on the locale of whoever runs it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = {keyword.arg for keyword in node.keywords}
            if node.func.attr in {"read_text", "write_text"}:
                assert "encoding" in named, f"{path.name}:{node.lineno}"


def test_secrets_are_compared_in_constant_time() -> None:
    # CVE-2021-38153: a byte-wise comparison of a proof tells how much of it was right.
    suspicious = re.compile(r"(proof|password|signature|stored_key|digest\w*)\s*[!=]=")
    for path in SOURCES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if suspicious.search(line) and "None" not in line:
                pytest.fail(f"{relative(path)}:{number}: use hmac.compare_digest: {line.strip()}")


def test_no_tracked_file_names_this_machine() -> None:
    for path in tracked("*.py", "*.md", "*.toml", "*.yml", "Makefile", ".ci/*"):
        if path == Path(__file__).resolve():
            continue
        match = THIS_MACHINE.search(path.read_text(errors="replace"))
        assert match is None, f"{relative(path)} names {match[0] if match else ''}"


def test_a_test_with_other_peoples_clients_is_marked() -> None:
    """Continuous integration may run it twice; everything else has to pass at once."""
    theirs = re.compile(
        r"\b(import|from) (confluent_kafka|aiokafka\b|tests\.\S+\.(python|node)_clients)"
    )
    marked = re.compile(r"\bmark\.(peer|kafka|spark)\b")
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        assert marked.search(text) or not theirs.search(text), relative(path)


def test_every_module_has_a_test_file_of_its_package() -> None:
    packages = {path.parent.name for path in SOURCES if path.parent.parent.name == "shoal"}
    for package in packages - {"handlers", "apis"}:
        assert list((ROOT / "tests" / package).glob("test_*.py")), f"tests/{package} is empty"


# Two classes of one name, and why: each stays inside its package, where the word is the right one.
SAME_NAME = {
    "AbortedTransaction": "the log's index entry, and Kafka's field of Fetch made of it",
    "Assignment": "the public result of an assignor; Kafka's name in messages",
    "Broker": "the broker itself; the public one of tests, which owns it",
    "Coordinator": "of groups; Kafka's name in FindCoordinator",
    "Filter": "which records compaction keeps; Kafka's name in DeleteAcls",
    "Group": "what every kind of group is; Kafka's name in OffsetFetch",
    "Listener": "an address of the broker; Kafka's name in DescribeQuorum",
    "MemberIdentity": "how people tell members apart; Kafka's name in LeaveGroup",
    "Node": "the public one; Kafka's name in DescribeQuorum",
    "Partition": "the broker's; Kafka's name in messages",
    "PartitionMetadata": "the client's image; Kafka's name in a stored record",
    "Partitions": "all of the broker's; Kafka's name in OffsetFetch",
    "ProducerState": "where a transactional producer is; Kafka's name in DescribeProducers",
    "Topic": "the broker's; Kafka's name in messages",
    "TopicMetadata": "the client's image; Kafka's name in a stored record",
    "TopicPartition": "the public one; Kafka's name in a stored record",
    "Transaction": "the simulator's model; Kafka's name in AddPartitionsToTxn",
    "TransactionState": "Kafka's states; Kafka's name in two answers",
}


def test_a_class_name_is_used_twice_only_where_this_file_says_why() -> None:
    """Parts of messages carry Kafka's names, and what begins with _ is its module's own affair."""
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        of_messages = "wire" in path.parts
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add("wire" if of_messages else relative(path))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    new = {name: sorted(found) for name, found in twice.items() if name not in SAME_NAME}
    assert not new, f"rename one of each, or say why above: {new}"
    assert set(SAME_NAME) <= set(twice), "take it out: it has one meaning again"
