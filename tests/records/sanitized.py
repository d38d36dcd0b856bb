"""Loads the C parts from ``SHOAL_TEST_EXTENSIONS`` in place of what is installed, before any other.

Tests then run on what was compiled there (with sanitizers). It is a plugin of pytest, too.
"""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_directory = Path(os.environ["SHOAL_TEST_EXTENSIONS"])
for _file in _directory.glob("shoal.*.so"):
    _spec = spec_from_file_location(_file.stem, _file)
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[_file.stem] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_file.stem])

from shoal.records import kernel  # noqa: E402 - nothing of ours before the modules above
from shoal.spark import json_kernel  # noqa: E402

if (_directory / "_kernel.so").exists():  # before they are loaded
    kernel._FILE = str(_directory / "_kernel.so")  # type: ignore[misc]
    json_kernel._FILE = str(_directory / "_json_kernel.so")  # type: ignore[misc]
