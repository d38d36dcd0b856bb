"""CRC-32C (Castagnoli) over any buffer.

One function, from the ``crc32c`` package: hardware instructions where the machine has them.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol, cast

Buffer = bytes | bytearray | memoryview


class _Crc32c(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _load() -> _Crc32c:
    # The package's __init__ imports importlib.metadata and email, 35 ms which every start of a
    # broker would pay. Its extension module alone loads in 3 ms.
    package = find_spec("crc32c")
    extension = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if extension and extension.loader:
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
        return cast("_Crc32c", module.crc32c)
    from crc32c import crc32c as whole  # the package is laid out differently than we know

    return cast("_Crc32c", whole)


#: Of the data, or going on from the checksum of what was before it.
crc32c: _Crc32c = _load()
