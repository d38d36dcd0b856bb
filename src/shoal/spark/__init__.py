"""The Spark data source, sink and analytics (extra: spark).

Names are imported when first used: without Spark this package still imports, and says what to
install when something of it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.spark.committer import GroupCommitter
    from shoal.spark.local import register, session

__all__ = ["GroupCommitter", "register", "session"]

_HOMES = {
    "GroupCommitter": "shoal.spark.committer",
    "register": "shoal.spark.local",
    "session": "shoal.spark.local",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'shoal.spark' has no attribute {name!r}")
