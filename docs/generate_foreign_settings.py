"""Writes docs/reference/other-clients.md: ``python -m docs.generate_foreign_settings``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "reference" / "other-clients.md"

_HEAD = """# Settings of other clients

Generated from the code by `python -m docs.generate_foreign_settings`.

`Consumer.from_properties`, `Producer.from_properties` and `Admin.from_properties` take a dict
that works with confluent-kafka, a Java program's properties, and the keywords of kafka-python and
aiokafka. Each setting is one of three: taken, left out because it has no effect here (told once in
the log), or refused with what to do instead. Every setting of those clients stands here or among
[our own](settings.md); names with dots may have underscores.
[`shoal config check FILE`](cli.md) says it of each line of a file.

"""


def page() -> str:
    """The page as it should be."""
    from shoal import ConsumerConfig, ProducerConfig
    from shoal.client import foreign_settings as tables

    same = sorted({f.name for kind in (ConsumerConfig, ProducerConfig) for f in fields(kind)})
    lines = [_HEAD + "## Taken under another name", "", "| setting | here |", "|---|---|"]
    lines += [f"| `{name}` | `{found.ours}` |" for name, found in sorted(tables.TAKEN.items())]
    lines += ["| `sasl.jaas.config` | user and password, or client id and secret, in it |", ""]
    lines += ["## Without effect", "", "| setting | because |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in sorted(tables.LEFT_OUT.items())]
    lines += ["", "## Without effect with one value, refused with others", ""]
    lines += ["| setting | no effect | because | otherwise |", "|---|---|---|---|"]
    for name, one in sorted(tables.UNLESS.items()):
        fine = ", ".join(f"`{value}`" for value in one.fine if value) or "empty"
        lines.append(f"| `{name}` | {fine} | {one.why} | {one.instead} |")
    lines += ["", "## Refused", "", "| setting | instead |", "|---|---|"]
    lines += [f"| `{name}` | {instead} |" for name, instead in sorted(tables.REFUSED.items())]
    lines += ["", "## The same name", "", ", ".join(f"`{name}`" for name in same) + ".", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
