"""Chooses between the extension modules, written in C for CPython, and the Python they stand for.

Rule: the choice is made when a module is imported, and both give the same results. Where an
extension was not built or cannot be loaded (a machine without a compiler, PyPy, a free-threaded
Python, an interpreter with a lock of its own), Python does its work. ``SHOAL_EXTENSION=python``,
``c`` or ``auto`` forces the choice.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final

from shoal.errors import ConfigError

MODULES: Final = ("shoal.records._objects", "shoal.client._sending")
_VARIABLE: Final = "SHOAL_EXTENSION"


def extension(name: str) -> Any | None:
    """The extension module of this name, or None where Python does its work.

    Raises:
        ConfigError: the variable is none of its words, or asks for one that is not there.
    """
    wish = os.environ.get(_VARIABLE, "auto")
    if wish not in ("auto", "c", "python"):
        raise ConfigError(f"{_VARIABLE}={wish!r} is not one of auto, c, python")
    if wish == "python":
        return None
    try:
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise ImportError("a free-threaded Python cannot load it")
        return import_module(name)
    except ImportError as error:
        if wish == "auto":
            return None
        raise ConfigError(
            f"{_VARIABLE}=c, but {name} was not built ({error}); install a C compiler and run "
            "`make setup` again, or leave the variable away"
        ) from None


def chosen() -> str:
    """Which does the work in this process: ``c``, ``python``, or ``c in part``."""
    found = [extension(name) is not None for name in MODULES]
    return "c" if all(found) else "c in part" if any(found) else "python"
