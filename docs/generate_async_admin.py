"""Writes the methods of AsyncAdmin from those of Admin (python -m docs.generate_async_admin).

Both are a list of what can be asked; written twice by hand they would drift apart.
"""

from __future__ import annotations

import re
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src" / "shoal" / "client"
TARGET = CLIENT / "async_admin.py"
FIRST, LAST = "    # --- cluster and topics ---\n", "    # --- the end ---\n"


def module() -> str:
    """The text of ``async_admin.py`` as it should be."""
    head, _, rest = TARGET.read_text(encoding="utf-8").partition(FIRST)
    _, _, foot = rest.partition(LAST)
    return head + FIRST + _awaited(_methods()) + LAST + foot


def _methods() -> str:
    text = (CLIENT / "admin.py").read_text(encoding="utf-8")
    return text.partition(FIRST)[2].partition(LAST)[0]


def _awaited(text: str) -> str:
    text = re.sub(r"^    def ", "    async def ", text, flags=re.MULTILINE)
    text = re.sub(
        r"^( +)(return )?self\._call\(", r"\1\2await self._call(", text, flags=re.MULTILINE
    )
    # An example in a docstring.
    return re.sub(r"^( +)admin\.", r"\1await admin.", text, flags=re.MULTILINE)


def main() -> None:
    """Write the module; ``ruff format`` breaks the lines that have become too long."""
    TARGET.write_text(module(), encoding="utf-8")


if __name__ == "__main__":
    main()
