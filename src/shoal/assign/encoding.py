"""Assignments of a whole group as the bytes of SyncGroup, without building partition objects.

    int16 version, array of (string topic, array of int32 partition), nullable bytes user data

Versions 0 to 3 differ in the first field only. A topic stands where it appears first in the list,
with all its partitions in list order. Big endian; string = int16 length + UTF-8, array = int32
count, bytes = int32 length or -1 for null.

The arrays take another way than the obvious one to the same bytes: the place of every name, count
and number is computed first, then each kind is written in one go. That every place holds a value of
some width is said by a view with a stride of one byte.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from shoal.assign.model import Assignment
from shoal.assign.partitions import Layout, PartitionView, by_topic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shoal.assign.arrays import Ints, Longs

HIGHEST_VERSION: Final = 3

_NULL = struct.pack(">i", -1)
# Members times topics looked at together; bounds the memory.
_CELLS_MAX = 1 << 22


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """One member's assignment."""
    grouped = by_topic(assignment.partitions)
    parts = [struct.pack(">hi", version, len(grouped))]
    for topic, numbers in grouped.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si", len(name), name, len(numbers)))
        parts.append(struct.pack(f">{len(numbers)}i", *numbers))
    data = assignment.user_data
    parts.append(_NULL if data is None else struct.pack(">i", len(data)) + data)
    return b"".join(parts)


def encode_group(
    group: Mapping[str, Assignment], version: int = HIGHEST_VERSION
) -> dict[str, bytes]:
    """Every member's assignment."""
    views = []
    for assignment in group.values():
        view = assignment.partitions
        if assignment.user_data is not None or not isinstance(view, PartitionView):
            break
        views.append(view)
    else:
        if views and all(view.layout is views[0].layout for view in views):
            return dict(zip(group, _encode_views(views, version), strict=True))
    return {member_id: encode_assignment(given, version) for member_id, given in group.items()}


def _encode_views(views: Sequence[PartitionView], version: int) -> list[bytes]:
    layout = views[0].layout
    at_once = max(1, _CELLS_MAX // max(1, len(layout.topics)))
    encoded = []
    for start in range(0, len(views), at_once):
        encoded += _encode_some(layout, views[start : start + at_once], version)
    return encoded


def _encode_some(layout: Layout, views: Sequence[PartitionView], version: int) -> list[bytes]:
    import numpy as np

    from shoal.assign.arrays import stable_order

    lengths = np.fromiter(map(len, views), dtype=np.int64, count=len(views))
    numbers = np.concatenate([view.numbers for view in views])
    members = np.repeat(np.arange(len(views), dtype=np.int32), lengths)
    topics = np.repeat(np.arange(len(layout.topics), dtype=np.int32), layout.counts)[numbers]
    group_of, firsts = _groups(members, topics, len(views) * len(layout.topics), layout)
    order = stable_order(group_of, len(firsts))
    sizes = np.bincount(group_of, minlength=len(firsts))
    partitions = (numbers - np.array(layout.starts, dtype=np.int32)[topics])[order]
    member_of, topic_of = members[firsts], topics[firsts]

    names = [topic.encode() for topic in layout.topics]
    heads = np.array([2 + len(name) for name in names], dtype=np.int64)[topic_of]
    spans = heads + 4 + 4 * sizes
    # Each member's bytes: version and count, its groups, null user data.
    inside = np.bincount(member_of, weights=spans, minlength=len(views)).astype(np.int64)
    ends = np.cumsum(6 + inside + 4)
    before_member = 10 * member_of + 6
    starts = np.cumsum(spans) - spans + before_member
    out = np.zeros(int(ends[-1]), dtype=np.uint8)
    first_bytes = ends - inside - 10
    _write(out, first_bytes, np.full(len(views), version, dtype=">i2"))
    counts = np.bincount(member_of, minlength=len(views))
    _write(out, first_bytes + 2, counts.astype(">i4"))
    for width in set(map(len, names)):
        chosen = heads == 2 + width
        table = np.zeros(len(names), dtype=f"V{2 + width}")
        for index, name in enumerate(names):
            if len(name) == width:
                table[index] = np.void(struct.pack(f">h{width}s", width, name))
        _write(out, starts[chosen], table[topic_of[chosen]])
    _write(out, starts + heads, sizes.astype(">i4"))
    within = np.arange(len(partitions)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    _write(out, np.repeat(starts + heads + 4, sizes) + 4 * within, partitions.astype(">i4"))
    _write(out, ends - 4, np.full(len(views), -1, dtype=">i4"))
    data = out.data
    cuts = [0, *ends.tolist()]
    return [bytes(data[start:end]) for start, end in pairwise(cuts)]


def _groups(members: Ints, topics: Ints, cells: int, layout: Layout) -> tuple[Ints, Longs]:
    """Per entry the number of its group, by first appearance; per group its first entry."""
    import numpy as np

    keys = members * np.int64(len(layout.topics)) + topics
    entries = np.arange(len(keys), dtype=np.int32)
    first_of = np.zeros(cells, dtype=np.int32)
    # The last write to a cell stays; written backwards that is the first entry.
    first_of[keys[::-1]] = entries[::-1]
    first = first_of[keys]
    is_first = first == entries
    number = np.cumsum(is_first, dtype=np.int32) - 1
    group_of: Ints = number[first]
    return group_of, np.flatnonzero(is_first)


def _write(out: NDArray[np.uint8], positions: Longs, values: NDArray[Any]) -> None:
    """Put values of any width at byte positions of any alignment."""
    import numpy as np

    width = values.dtype.itemsize
    if out.size >= width:
        view = np.ndarray(
            (out.size - width + 1,), dtype=values.dtype, buffer=out.data, strides=(1,)
        )
        view[positions] = values
