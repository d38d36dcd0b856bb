"""``python -m benchmarks [NAME ...] [--json FILE]``: run benchmarks, all by default.

Flags come last; each benchmark takes those it knows.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

_NOT_BENCHMARKS = {"__init__", "__main__", "measuring"}


def names() -> list[str]:
    """The benchmark modules, by file name."""
    return sorted(
        path.stem
        for path in Path(__file__).parent.glob("*.py")
        if path.stem not in _NOT_BENCHMARKS and hasattr_main(path)
    )


def hasattr_main(path: Path) -> bool:
    """Whether a file is a benchmark, without importing it."""
    return "def main(" in path.read_text()


def main() -> None:
    """Run the benchmarks named on the command line."""
    arguments = sys.argv[1:]
    first_flag = next((n for n, one in enumerate(arguments) if one.startswith("-")), len(arguments))
    wanted, flags = arguments[:first_flag] or names(), arguments[first_flag:]
    unknown = set(wanted) - set(names())
    if unknown:
        sys.exit(
            f"no benchmark called {', '.join(sorted(unknown))}; there are: {', '.join(names())}"
        )
    for name in wanted:
        print(name)
        importlib.import_module(f"benchmarks.{name}").main(flags)


if __name__ == "__main__":
    main()
