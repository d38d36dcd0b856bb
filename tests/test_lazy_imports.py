"""Imports inside functions: each belongs to a group with a reason (``docs/adr``, lazy imports)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "shoal"

# Not installed with every Shoal: whoever lacks one can use the rest.
EXTRAS = {
    "pyarrow",
    "pyspark",
    "pandas",
    "PIL",
    "yaml",
    "kafka",
    "aiokafka",
    "crc32c",
    "cryptography",
    "starlette",
    "uvicorn",
}
# Installed, but so slow to load that what can do without them does.
SLOW = {"numpy", "cramjam", "lz4", "zlib", "rich", "difflib", "ipaddress"}

START = {
    "a broker starts without what its first client may not need": [
        "broker/__main__.py",
        "broker/broker.py",
        "broker/config.py",
        "broker/dispatch.py",
        "broker/flags.py",
        "broker/sasl.py",
    ],
    "a name of the package is loaded when it is used": [
        "__init__.py",
        "spark/__init__.py",
        "spark/history/__init__.py",
        "testing/__init__.py",
    ],
    "a command loads what it runs, not what its neighbours run": [
        "cli/acl.py",
        "cli/commands.py",
        "cli/completion.py",
        "cli/config.py",
        "cli/connecting.py",
        "cli/demo.py",
        "cli/demo_spark.py",
        "cli/fleet.py",
        "cli/group.py",
        "cli/main.py",
        "cli/ui.py",
        "cli/version.py",
        "cli/what_if.py",
        "testing/simulation/kinds.py",
    ],
    "every run of pytest loads the plugin, few of them need a broker": ["testing/pytest_plugin.py"],
    "only an error about what is missing asks how Shoal was installed": ["errors.py"],
    "few clients have tokens, and HTTP loads slowly": ["client/broker_links.py"],
    "only who asks for columns needs Arrow": [
        "client/fetch_buffer.py",
        "client/polling.py",
        "client/producer.py",
        "client/ranges.py",
        "fleet/exporter.py",
        "fleet/recent.py",
        "log/columns.py",
        "spark/decoding.py",
        "web/cluster_watch.py",
    ],
    "only who reads recordings needs Parquet, which brings pandas along": ["fleet/sources.py"],
    "small groups are assigned without arrays": [
        "assign/encoding.py",
        "assign/hash_order.py",
        "assign/model.py",
        "assign/range.py",
        "assign/roundrobin.py",
        "assign/server.py",
        "assign/sticky.py",
    ],
    "only who names an assignor of a package looks for it": [
        "assign/loading.py",
        "broker/assignor_process.py",
        "client/config.py",
    ],
    "the C kernel's loader and the batches it reads need each other": ["records/batch.py"],
    "a task of Spark loads what it does: read, write or commit": [
        "spark/cluster.py",
        "spark/committer.py",
        "spark/exactly_once.py",
        "spark/local.py",
        "spark/process_cache.py",
        "spark/source.py",
    ],
}


def imports_in_functions(path: Path) -> Iterator[str]:
    def walk(node: ast.AST, inside: bool) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if inside and isinstance(child, ast.Import):
                yield from (name.name for name in child.names)
            elif inside and isinstance(child, ast.ImportFrom):
                yield child.module or ""
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from walk(child, inside or is_function)

    return walk(ast.parse(path.read_text(encoding="utf-8")), False)


def unexplained(path: Path) -> list[str]:
    return [name for name in imports_in_functions(path) if name.split(".")[0] not in EXTRAS | SLOW]


FILES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
EXPLAINED = {file for files in START.values() for file in files}


@pytest.mark.parametrize("file", FILES)
def test_an_import_inside_a_function_has_a_reason(file):
    if file not in EXPLAINED:
        assert unexplained(FILES[file]) == [], "move it up, or say in START why it stays"


@pytest.mark.parametrize("file", sorted(EXPLAINED))
def test_no_reason_outlives_its_imports(file):
    assert unexplained(FILES[file]), "take it out of START"
