"""What a check has found, and checks as a table."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rich.markup import escape
from rich.table import Table


class CheckState(StrEnum):
    """Whether what was checked works. With a warning it works, but perhaps not as expected."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


COLOURS = {CheckState.OK: "green", CheckState.WARNING: "yellow", CheckState.FAILED: "red"}


@dataclass(frozen=True)
class Check:
    """`advice` is what to do. It is there whenever the state is not OK."""

    subject: str
    state: CheckState
    found: str
    advice: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ok(subject: str, found: str) -> Check:
    return Check(subject, CheckState.OK, found)


def warning(subject: str, found: str, advice: str) -> Check:
    return Check(subject, CheckState.WARNING, found, advice)


def failed(subject: str, found: str, advice: str) -> Check:
    return Check(subject, CheckState.FAILED, found, advice)


def table(checks: Iterable[Check]) -> Table:
    shown = Table.grid(padding=(0, 2))
    shown.add_column(style="bold")
    shown.add_column()
    shown.add_column(overflow="fold")
    for check in checks:
        colour = COLOURS[check.state]
        advice = f"\n[cyan]→ {escape(check.advice)}[/cyan]" if check.advice else ""
        shown.add_row(escape(check.subject), f"[{colour}]{check.state}[/{colour}]", escape(check.found) + advice)
    return shown
