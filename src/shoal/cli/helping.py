"""What ``--help`` shows: options in groups, names for values, examples.

Rule: a command declares its options and nothing else. How they are laid out, what their values are
called when the command does not say, and which examples stand below is decided here, for all
commands alike. Written from the attributes of parameters that every supported Typer has, so that
the page is the same with all of them.
"""

from __future__ import annotations

import inspect
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from shoal.cli.examples import EXAMPLES

CONNECTION: Final = "Connection"
"""The panel of the options that every command for a cluster has; it comes last."""
_PANELS_LAST: Final = (CONNECTION,)
_VALUES: Final = {"int": "N", "float": "NUMBER", "Path": "FILE"}
_FIRST_COLUMN_MAX: Final = 30


def prepare(app: typer.Typer) -> None:
    """Let an application show its help our way, before its commands are made."""
    app.info.cls = HelpfulGroup
    if app.registered_callback is not None:
        app.registered_callback.cls = HelpfulGroup
    for command in app.registered_commands:
        command.cls = HelpfulCommand


class HelpfulCommand(TyperCommand):
    """A command with its options in groups, and examples below them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return _usage(self, ctx)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the base names it
        _write_help_text(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)


class HelpfulGroup(TyperGroup):
    """The same for a command that has commands."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*_usage(self, ctx), "COMMAND [ARGS]..."]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the base names it
        _write_help_text(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Whole sentences: Typer's own cut them after 45 characters, whatever the width."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, _first_sentence(command.help or ""))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                _write_pairs(formatter, rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)


def _first_sentence(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _write_help_text(command: Any, formatter: Any) -> None:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        formatter.write_paragraph()
        with formatter.indentation():
            _write_text(formatter, paragraph)


def _usage(command: Any, ctx: Any) -> list[str]:
    pieces = ["[OPTIONS]"]
    for param in command.get_params(ctx):
        if param.param_type_name == "argument" and not getattr(param, "hidden", False):
            name = value_name(param)
            pieces.append(name if param.required or name.startswith("[") else f"[{name}]")
    return pieces


def value_name(param: Any) -> str:
    """What the value of a parameter is called: ``GROUP``, ``N``, ``TOPIC...``."""
    if param.metavar:
        return str(param.metavar)
    is_argument = param.param_type_name == "argument"
    name: str = param.name if is_argument else max(param.opts, key=len).lstrip("-")
    word = name.replace("_", "-").split("-")[-1].upper()
    kind = _kind(param)
    if not is_argument:
        return _VALUES.get(kind, word)
    return f"{word.removesuffix('S')}..." if param.nargs != 1 else word


def _kind(param: Any) -> str:
    """The type of one value, by the declaration: Typer's names for it have changed over time."""
    described = getattr(param, "type_descriptor", None)
    kind = getattr(described, "annotation", None) or getattr(param, "type", None)
    text = str(getattr(kind, "name", None) or kind).lower()
    for known in _VALUES:
        if known.lower() in text:
            return known
    return "str"


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    arguments: list[tuple[str, str]] = []
    panels: dict[str, list[tuple[str, str]]] = {"Options": []}
    for param in command.get_params(ctx):
        if getattr(param, "hidden", False):
            continue
        if param.param_type_name == "argument":
            arguments.append((value_name(param), _about(param)))
        else:
            panel = getattr(param, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append((_flags(param), _about(param)))
    if arguments:
        with formatter.section("Arguments"):
            _write_pairs(formatter, arguments)
    for name in sorted(panels, key=lambda one: one in _PANELS_LAST):
        if panels[name]:
            with formatter.section(name):
                _write_pairs(formatter, panels[name])


def _write_pairs(formatter: Any, rows: list[tuple[str, str]]) -> None:
    """Names left, what they mean right; a name that is too long has a line of its own.

    Not the formatter's own, which breaks words at their hyphens: ``--from-file`` is one word.
    """
    limit = max(12, min(_FIRST_COLUMN_MAX, formatter.width // 2 - formatter.current_indent))
    left = min(max(len(name) for name, _ in rows), limit)
    margin = " " * formatter.current_indent
    for name, text in rows:
        start = len(margin) + left + 2
        lines = _wrapped(text, formatter.width - start) or [""]
        if len(name) > left:
            lines.insert(0, "")
        first, *others = lines
        formatter.write(f"{margin}{name:<{left}}  {first}".rstrip() + "\n")
        for line in others:
            formatter.write(f"{'':<{start}}{line}\n")


def _write_text(formatter: Any, text: str, more: str = "") -> None:
    """A paragraph; ``more`` is the indentation of all lines but the first."""
    margin = " " * formatter.current_indent
    lines = _wrapped(text, formatter.width - len(margin) - len(more))
    for index, line in enumerate(lines):
        formatter.write(f"{margin}{more if index else ''}{line}\n")


def _write_command(formatter: Any, command: str) -> None:
    """A line for the shell; one that does not fit is continued as a shell reads it."""
    margin = " " * formatter.current_indent
    lines = _wrapped(command, formatter.width - len(margin) - 6)
    if len(lines) > 1 and len(margin) + len(command) <= formatter.width:
        lines = [command]
    for index, line in enumerate(lines):
        end = " \\" if index < len(lines) - 1 else ""
        formatter.write(f"{margin}{'    ' if index else ''}{line}{end}\n")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False, break_long_words=False)


def _flags(param: Any) -> str:
    names = sorted(param.opts, key=len)
    shown = ", ".join(names)
    if param.secondary_opts:
        shown = f"{shown} / {', '.join(param.secondary_opts)}"
    is_flag = getattr(param, "is_flag", False) or getattr(param, "count", False)
    return shown if is_flag else f"{shown} {value_name(param)}"


def _about(param: Any) -> str:
    notes = list(_notes(param))
    text = (param.help or "").strip()
    return f"{text}  [{'; '.join(notes)}]".strip() if notes else text


def _notes(param: Any) -> Iterator[str]:
    many = getattr(param, "multiple", False)
    if many:
        yield "may be repeated"
    default = param.default
    is_shown = getattr(param, "show_default", False) and default is not None and default != ""
    if is_shown and not callable(default) and not many and not isinstance(default, bool):
        yield f"default: {default.name if isinstance(default, Path) else default}"
    elif param.secondary_opts and isinstance(default, bool):
        yield f"default: {(param.opts if default else param.secondary_opts)[0].lstrip('-')}"
    if param.required and param.param_type_name == "option":
        yield "required"


def _write_examples(ctx: Any, formatter: Any) -> None:
    words = tuple(ctx.command_path.split()[1:])
    examples = EXAMPLES.get(" ".join(words), ())
    if not examples:
        return
    with formatter.section("Examples"):
        for command, why in examples:
            _write_text(formatter, f"# {why}")
            _write_command(formatter, command)


def words_of(example: str) -> list[str]:
    """The arguments of the last ``shoal`` in an example, which may be a pipe."""
    part = [one for one in example.split("|") if one.strip().startswith("shoal ")][-1]
    return shlex.split(part.partition(">")[0].partition("<")[0], comments=True)[1:]
