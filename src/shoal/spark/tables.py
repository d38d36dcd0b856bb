"""Options of a table in a catalog: what ``CREATE TABLE … USING shoal OPTIONS (…)`` says.

Spark hands them over mixed with the properties of the table, each twice: ``subscribe`` and
``option.subscribe``. How they get to the table's readers is told in ``source.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from shoal.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_OPTION: Final = "option."
_COMMENT: Final = "shoal options: "
_SECRET: Final = ("password", "secret", "token", "jaas")


def is_table(options: Mapping[str, str]) -> bool:
    """Are these the options of a table that is being created?"""
    return "provider" in options


def of_table(options: Mapping[str, str]) -> dict[str, str]:
    """The user's options among the properties of a table.

    Raises:
        ConfigError: one is a secret, which the catalog would keep in the open.
    """
    given = {
        name.removeprefix(_OPTION): value
        for name, value in options.items()
        if name.startswith(_OPTION)
    }
    for name in given:
        if any(word in name.lower() for word in _SECRET):
            raise ConfigError(
                f"option {name} would be kept in the catalog; leave it out of CREATE TABLE and "
                f"give it in each query, after the name of the table: WITH ('{name}' = '…')"
            )
    reads = any(name.lower() in ("subscribe", "subscribepattern", "assign") for name in given)
    if "topic" in given and not reads:
        given["subscribe"] = given["topic"]
    return given


def as_comment(given: Mapping[str, str]) -> str:
    """The options as text that the schema can keep."""
    return _COMMENT + json.dumps(dict(sorted(given.items())))


def from_comment(schema: StructType) -> dict[str, str]:
    """The options that a schema keeps, if it does."""
    for field in schema.fields:
        comment = field.metadata.get("comment", "")
        if comment.startswith(_COMMENT):
            kept: dict[str, str] = json.loads(comment.removeprefix(_COMMENT))
            return kept
    return {}
