"""Are the arguments of a public call what its signature says? If not: one line, at once.

``@checks_arguments`` reads the annotations of a class's public methods and looks at what comes in
before the method does, so that a mistake is told in the caller's words and in the caller's thread,
not three layers below as a missing attribute.

Rule: types only, and what no value of a type can mean (a negative timeout). Whether a topic exists
or a partition is assigned is for those to say who know. Every annotation in use stands in
``_CHECKS``; one that does not fails when the class is made.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

from shoal.access.rules import Acl, AclFilter
from shoal.client.foreign_names import our_argument
from shoal.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)

C = TypeVar("C", bound=type)

INT64_END: Final = 2**63
_PARTITION_END: Final = 2**31

_Check = Callable[[str, Any], str | None]
"""Name of the parameter and value: what is wrong with it, or ``None``."""


def _named(value: Any) -> str:
    return f"not {value!r}" if isinstance(value, str | int | float) else f"not {_kind(value)}"


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _is(kind: type | tuple[type, ...], wanted: str) -> _Check:
    def check(name: str, value: Any) -> str | None:
        # True is a number to Python, and never meant as one.
        if isinstance(value, kind) and not isinstance(value, bool):
            return None
        return f"{name} must be {wanted}, {_named(value)}"

    return check


def _anything(_name: str, _value: Any) -> str | None:
    return None


_string = _is(str, "a string")


def _number(name: str, value: Any) -> str | None:
    wrong = _is(int, "a whole number")(name, value)
    if wrong is None and not -INT64_END <= value < INT64_END:
        raise ValueError(f"{name}={value} does not fit the 64 bits it is sent in")
    return wrong


def check_offset(tp: TopicPartition, offset: Any) -> None:
    """An offset to seek to or to commit.

    Raises:
        TypeError, ValueError: there is no such offset.
    """
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise TypeError(f"the offset of {tp} must be a whole number, {_named(offset)}")
    if not 0 <= offset < INT64_END:
        raise ValueError(f"{offset} is not an offset of {tp}: they go from 0 to {INT64_END - 1}")


def _boolean(name: str, value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{name} must be True or False, {_named(value)}"


def _seconds(name: str, value: Any) -> str | None:
    wrong = _is((int, float), "a number of seconds")(name, value)
    if wrong is None and (value < 0 or math.isnan(value)):
        raise ValueError(f"{name}={value} is not a time to wait")
    return wrong


def _callable(name: str, value: Any) -> str | None:
    return None if callable(value) else f"{name} must be callable, {_named(value)}"


def _partition(name: str, value: Any) -> str | None:
    if not isinstance(value, TopicPartition):
        return f"{name} must be a TopicPartition, {_named(value)}"
    parts: list[Any] = [*value]  # whatever they were said to be
    topic, number = parts
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if not isinstance(topic, str) or not is_number or not 0 <= number < _PARTITION_END:
        return f"{name} must be TopicPartition(topic, number), not {value!r}"
    return None


def _many(one: _Check, wanted: str) -> _Check:
    def check(name: str, value: Any) -> str | None:
        # One partition is a tuple, one name is a string: both could be walked through.
        alone = isinstance(value, TopicPartition | str | bytes | Mapping)
        if alone or not isinstance(value, Collection):
            return f"{name} must be a list of {wanted}, {_named(value)}"
        return next((wrong for item in value if (wrong := one(f"each of {name}", item))), None)

    return check


def _mapping(key: _Check, one: _Check, wanted: str) -> _Check:
    def check(name: str, value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return f"{name} must be a dict of {wanted}, {_named(value)}"
        for item, held in value.items():
            wrong = key(f"each key of {name}", item) or one(f"{name}[{item}]", held)
            if wrong:
                return wrong
        return None

    return check


def _range(name: str, value: Any) -> str | None:
    match value:
        case (int(), int()):
            return _number(name, value[0]) or _number(name, value[1])
    return f"{name} must be (start, end), {_named(value)}"


def _topics(name: str, value: Any) -> str | None:
    if isinstance(value, re.Pattern):
        return None
    names = [value] if isinstance(value, str) else value
    wrong = _many(_string, "topics")(name, names)
    if not wrong and "" in names:
        return f"{name} must not name a topic ''"
    return wrong and f"{wrong}; or one name, or a compiled pattern"


def _listener(name: str, value: Any) -> str | None:
    methods = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
    if isinstance(value, type):
        return f"{name} must be an object, not the class {value.__name__}; make one"
    if any(hasattr(value, method) for method in methods):
        return None
    return f"{name} must have any of {', '.join(methods)}, {_named(value)}"


def _list(name: str, value: Any) -> str | None:
    # Text is a sequence of letters by accident, and nobody means to send those.
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return None
    return f"{name} must be a list, {_named(value)}"


def _end_or_time(name: str, value: Any) -> str | None:
    return _number(name, value) if isinstance(value, int) else _named_end(name, value)


def _offset_to_commit(name: str, value: Any) -> str | None:
    return _number(name, value) if isinstance(value, int) else _one_offset(name, value)


def _offset_to_seek(name: str, value: Any) -> str | None:
    return None if isinstance(value, OffsetAndMetadata) else _number(name, value)


_named_end = _is(str, "a name or a number")
_offset = _is(OffsetAndMetadata, "OffsetAndMetadata(offset)")
_one_offset = _is(OffsetAndMetadata, "an offset or OffsetAndMetadata")
_many_partitions = _many(_partition, "TopicPartitions")


def _one_or_many(name: str, value: Any) -> str | None:
    # A pair or a name is a collection by accident: it was meant as one partition.
    is_pair = isinstance(value, tuple) and not all(isinstance(one, TopicPartition) for one in value)
    if isinstance(value, str | TopicPartition) or is_pair or not isinstance(value, Collection):
        return _partition(name, value)
    return _many_partitions(name, value)


def each_partition(
    given: tuple[TopicPartition | Collection[TopicPartition], ...],
) -> list[TopicPartition]:
    """One by one or in collections, as Java has them: what they name, in order."""
    return [tp for one in given for tp in ([one] if isinstance(one, TopicPartition) else one)]


_CHECKS: Final[dict[str, _Check]] = {
    "Any": _anything,
    "bool": _boolean,
    "str": _string,
    "int": _number,
    "float": _seconds,
    "int | str": _end_or_time,
    "str | int": _end_or_time,
    "int | OffsetAndMetadata": _offset_to_seek,
    "TopicPartition": _partition,
    "TopicPartition | Collection[TopicPartition]": _one_or_many,
    "Collection[str]": _many(_string, "strings"),
    "Collection[int]": _many(_number, "whole numbers"),
    "Collection[TopicPartition]": _many_partitions,
    "Collection[str] | re.Pattern[str] | str": _topics,
    "RebalanceListener | Any": _listener,
    "CommitCallback": _callable,
    "Handler": _callable,
    "ConsumerGroupMetadata": _is(ConsumerGroupMetadata, "consumer.group_metadata()"),
    "PreparedTransaction": _is(PreparedTransaction, "what prepare_transaction() returned"),
    "Offsets": _mapping(_partition, _offset, "TopicPartition to OffsetAndMetadata"),
    "Ranges": _mapping(_partition, _range, "TopicPartition to (start, end)"),
    "Acl": _is(Acl, "an Acl"),
    "AclFilter": _is(AclFilter, "an AclFilter"),
    "AclFilter | Acl": _is((AclFilter, Acl), "an AclFilter or an Acl"),
    "Sequence[str]": _many(_string, "strings"),
    "Sequence[Any]": _list,
    "Mapping[TopicPartition, int]": _mapping(_partition, _number, "TopicPartition to int"),
    "Mapping[TopicPartition, int | str]": _mapping(
        _partition, _end_or_time, "TopicPartition to a time or an end"
    ),
    "Mapping[TopicPartition, OffsetAndMetadata | int]": _mapping(
        _partition, _offset_to_commit, "TopicPartition to offset"
    ),
    "Mapping[str, int]": _mapping(_string, _number, "names to numbers"),
    "Mapping[str, str]": _mapping(_string, _is((str, int, float), "a string"), "names to strings"),
    "Mapping[str, float | None]": _mapping(
        _string, _is((int, float, type(None)), "a number"), "names to numbers"
    ),
    "Mapping[str, str | None]": _mapping(
        _string, _is((str, int, float, type(None)), "a string"), "names to strings"
    ),
    "pa.RecordBatch | pa.Table": lambda name, value: (
        None
        # Of the class: to ask the object itself for nbytes makes pyarrow add up every buffer.
        if hasattr(type(value), "schema") and hasattr(type(value), "nbytes")
        else f"{name} must be a pyarrow RecordBatch or Table, {_named(value)}"
    ),
}


def _optional(check: _Check) -> _Check:
    return lambda name, value: None if value is None else check(name, value)


def _check_for(annotation: str) -> _Check:
    kind = annotation.removesuffix(" | None")
    check = _CHECKS.get(annotation) or _CHECKS[kind]
    return check if check is _CHECKS.get(annotation) else _optional(check)


class _Signature:
    """What one method takes, by place and by name."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.name = method.__name__
        self.places: list[tuple[str, _Check]] = []
        self.names: dict[str, _Check] = {}
        self.rest: tuple[str, _Check] | None = None
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            check = _check_for(str(parameter.annotation))
            if parameter.kind is parameter.VAR_POSITIONAL:
                self.rest = (parameter.name, check)
                continue
            self.names[parameter.name] = check
            if parameter.kind is not parameter.KEYWORD_ONLY:
                self.places.append((parameter.name, check))

    def check(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        for (name, check), value in zip(self.places, arguments, strict=False):
            self._raise(check(name, value))
        if self.rest is not None:
            name, check = self.rest
            for value in arguments[len(self.places) :]:
                if check is _string and isinstance(value, list | set | frozenset | dict):
                    self._raise(f"give {name} one by one, {self.name}(*{name}), {_named(value)}")
                self._raise(check(f"each of {name}", value))
        for name, value in keywords.items():
            if name in self.names:
                self._raise(self.names[name](name, value))
            elif (ours := our_argument(name, self.names)) is not None:
                self._raise(f"unknown argument {name!r}; here it is {ours}")
            # what else is not, Python refuses by itself

    def _raise(self, wrong: str | None) -> None:
        if wrong:
            raise TypeError(f"{self.name}(): {wrong}")


def checks_arguments(*, leave: Collection[str] = ()) -> Callable[[C], C]:
    """A class decorator: every public method checks its arguments, save those in ``leave``."""

    def decorate(owner: C) -> C:
        for name, method in list(vars(owner).items()):
            if not name.startswith("_") and inspect.isfunction(method) and name not in leave:
                setattr(owner, name, _checking(method))
        return owner

    return decorate


def _checking(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = _Signature(method)
    if not signature.names and signature.rest is None:
        return method
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def awaited(self: Any, *arguments: Any, **keywords: Any) -> Any:
            signature.check(arguments, keywords)
            return await method(self, *arguments, **keywords)

        return awaited

    @wraps(method)
    def called(self: Any, *arguments: Any, **keywords: Any) -> Any:
        signature.check(arguments, keywords)
        return method(self, *arguments, **keywords)

    return called
