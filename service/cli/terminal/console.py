"""The terminal: the two consoles, JSON output, and errors with their exit codes."""

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from trainer.process_log.control_characters import escaped
from trainer.process_log.setup import writes_json

logger = logging.getLogger(__name__)

EXIT_FAILED, EXIT_USAGE = 1, 2
PIPED_WIDTH = 100_000
"""A pipe has no width of its own. No table is wrapped there: each row is one line."""


class SafeConsole(Console):
    """Shows the control characters of what it prints: names and messages that the service answers are those of users.

    All that a console writes is rendered here, also a live view, and what is nested in it. A string is escaped before:
    Rich cuts and wraps by the width that it measures.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escaped(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escaped(segment.text))


def _environment() -> dict[str, str]:
    """The environment without a COLUMNS that is no width: Rich would print nothing into 0 columns."""
    columns = os.environ.get("COLUMNS", "")
    has_columns = columns.isascii() and columns.isdigit() and int(columns) > 0
    return {name: value for name, value in os.environ.items() if has_columns or name != "COLUMNS"}


def _width(environment: Mapping[str, str]) -> int | None:
    """None where Rich finds it: in a terminal, or in COLUMNS. Standard output is None where it is closed."""
    return None if "COLUMNS" in environment or (sys.stdout and sys.stdout.isatty()) else PIPED_WIDTH


_ENVIRONMENT = _environment()
out = SafeConsole(width=_width(_ENVIRONMENT), _environ=_ENVIRONMENT)
err = SafeConsole(stderr=True, _environ=_ENVIRONMENT)


def exit_code_of(ended: dict[str, Any]) -> int:
    """The exit code of a command that has followed the experiment to its end."""
    return EXIT_FAILED if ended["status"] == "failed" else 0


def fail(errors: Iterable[str], exit_code: int, hints: Iterable[str] = ()) -> NoReturn:
    """A process whose log is JSON writes the errors there."""
    if writes_json():
        for line in (*errors, *hints):
            logger.error("%s", line)
        sys.exit(exit_code)
    for line in errors:
        err.print(f"[red]error:[/red] {escape(line)}", soft_wrap=True, highlight=False)
    for line in hints:
        err.print(f"[cyan]hint:[/cyan] {escape(line)}", soft_wrap=True, highlight=False)
    sys.exit(exit_code)


def print_warnings(warnings: Iterable[dict[str, str]]) -> None:
    """Print what the service warns of, beside the answer, so that scripts can read the answer alone."""
    for one in warnings:
        where = f"{one['path']}: " if one["path"] else ""
        err.print(f"[yellow]warning:[/yellow] {escape(where + one['message'])}", soft_wrap=True, highlight=False)


def say(sentence: str) -> None:
    """Beside the output, so that scripts can read that alone."""
    err.print(escape(sentence), soft_wrap=True, highlight=False)


def print_result(result: Any, shown: RenderableType, *, as_json: bool) -> None:
    """Print an answer of the API: as JSON for scripts, otherwise as `shown` for people."""
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    elif out.is_terminal:
        _print_whole(shown)
    else:
        with out.capture() as printed:
            _print_whole(shown)
        typer.echo("\n".join(line.rstrip() for line in printed.get().split("\n")), nl=False)


def _print_whole(shown: RenderableType) -> None:
    """Lines that are longer than the terminal are left to the terminal, from which they are copied whole."""
    out.print(shown, highlight=False, soft_wrap=isinstance(shown, str), crop=False)
