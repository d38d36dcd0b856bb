"""Columns of the source that a query reads and does not use.

Spark tells a Python source nothing of what a query needs, so every column of the schema is decoded
and handed over. Who names the needed ones in ``.schema()`` before ``load()`` spares the rest; here
is said which they are.

Rule: the answer comes from the optimized plan of Spark's driver, and a plan of a shape we do not
know has no answer. Nothing is ever read or changed for it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_SCANS: Final = ("DataSourceV2ScanRelation", "StreamingDataSourceV2ScanRelation")


def unused_columns(frame: DataFrame) -> list[str]:
    """The columns of ``format("shoal")`` that this DataFrame does not need, in their order.

    A DataFrame that reads nothing from there needs none, and wastes none.
    """
    return unused_in(frame._jdf.queryExecution().optimizedPlan())


def unused_in(plan: Any) -> list[str]:
    """The same of an optimized plan of the JVM."""
    scans, used = [], {one.exprId().id() for one in _each(plan.output())}
    left = [plan]
    while left:
        node = left.pop()
        if node.getClass().getSimpleName() in _SCANS:
            scans.append(node)
            continue
        used.update(one.exprId().id() for one in _each(node.references().toSeq()))
        left += _each(node.children())
    return [
        one.name()
        for scan in scans
        if scan.relation().table().name() == "shoal"
        for one in _each(scan.output())
        if one.exprId().id() not in used
    ]


def advice(unused: list[str]) -> str:
    """What to do about them, in a line."""
    noun = "column" if len(unused) == 1 else "columns"
    return (
        f"nothing uses {noun} {', '.join(unused)} of format('shoal'), which Shoal decodes "
        "anyway; name the others in .schema(…) before load() to spare that"
    )


def _each(sequence: Any) -> Iterator[Any]:
    """The entries of a sequence of Scala."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
