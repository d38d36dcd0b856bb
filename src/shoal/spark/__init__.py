"""The Spark data source, sink and analytics (extra: spark).

Names are imported when first used: without Spark this package still imports, and says what to
install when something of it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.spark.column_use import unused_columns
    from shoal.spark.committer import GroupCommitter
    from shoal.spark.local import register, session
    from shoal.spark.query_metrics import QueryMetrics
    from shoal.spark.time_range import between

__all__ = ["GroupCommitter", "QueryMetrics", "between", "register", "session", "unused_columns"]

_HOMES = {
    "GroupCommitter": "shoal.spark.committer",
    "QueryMetrics": "shoal.spark.query_metrics",
    "between": "shoal.spark.time_range",
    "register": "shoal.spark.local",
    "session": "shoal.spark.local",
    "unused_columns": "shoal.spark.column_use",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'shoal.spark' has no attribute {name!r}")
