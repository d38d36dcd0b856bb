"""CRC-32C (Castagnoli) over any buffer.

One function, from the ``crc32c`` package: hardware instructions where the machine has them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import cast

Buffer = bytes | bytearray | memoryview


def _load() -> Callable[[Buffer], int]:
    # The package's __init__ imports importlib.metadata and email, 35 ms which every start of a
    # broker would pay. Its extension module alone loads in 3 ms.
    package = find_spec("crc32c")
    extension = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if extension and extension.loader:
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
        return cast("Callable[[Buffer], int]", module.crc32c)
    from crc32c import crc32c as whole  # the package is laid out differently than we know

    return cast("Callable[[Buffer], int]", whole)


crc32c: Callable[[Buffer], int] = _load()
