"""How ``session()`` starts Spark's Python processes. No Spark runs here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from shoal.spark.local import PYTHON_VARIABLE, worker_python


@pytest.fixture(autouse=True)
def no_other_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_local_sessions_start_python_by_the_script_and_clusters_without() -> None:
    assert worker_python("local[2]").endswith("worker-python.sh")
    assert worker_python("spark://127.0.0.1:7077") == sys.executable
    assert worker_python("local-cluster[2,1,1024]") == sys.executable


def test_another_spark_brings_its_own_python_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert worker_python("local") == sys.executable


def test_the_script_leaves_out_what_pyspark_packed_and_nothing_else() -> None:
    packed = "/x/site-packages/pyspark/python/lib"
    jars = "/x/site-packages/pyspark/jars"
    path = f"{packed}/pyspark.zip:/a b:{packed}/py4j-0.10.9.9-src.zip:/mine.zip"
    path += f":{jars}/spark-core_2.13-4.3.0.jar:{jars}/other.jar"
    show = "import os, json, sys; print(json.dumps([os.environ['PYTHONPATH'], sys.argv[1:]]))"
    shown = subprocess.run(
        [worker_python("local"), "-c", show, "x y"],
        env={"PYTHONPATH": path, PYTHON_VARIABLE: sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout) == [f"/a b:/mine.zip:{jars}/other.jar", ["x y"]]
