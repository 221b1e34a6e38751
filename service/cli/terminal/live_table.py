"""The trials of a running experiment as a table with a curve in each row."""

from datetime import datetime

from rich.table import Table
from rich.text import Text

from service.cli.terminal.curves import Curve, Curves, Scale, sparkline
from service.cli.terminal.progress_view import COLOURS, clock
from service.cli.terminal.text_layout import plain
from service.cli.terminal.value_texts import parameters

CURVE_WIDTH = 24


def live_table(curves: Curves, *, metric: str, maximize: bool, rows: int, now: datetime) -> Table | None:
    """The running trials, then the best ones of the others. None before the first one runs."""
    shown = _chosen(list(curves.by_trial.values()), maximize=maximize)[:rows]
    if not shown:
        return None
    scale = Scale.of(shown) if any(curve.points for curve in shown) else None
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("trial", justify="right")
    table.add_column("status", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("step", justify="right")
    table.add_column(plain(metric), justify="right", no_wrap=True)
    table.add_column(f"to step {scale.last_step}" if scale else "", min_width=CURVE_WIDTH, no_wrap=True)
    table.add_column("parameters", ratio=1, no_wrap=True, overflow="ellipsis")
    for curve in shown:
        table.add_row(*_row(curve, scale, now))
    return table


def _chosen(curves: list[Curve], *, maximize: bool) -> list[Curve]:
    running = [curve for curve in curves if curve.status == "running"]
    others = [curve for curve in curves if curve.status != "running" and curve.points]
    others.sort(key=lambda curve: _newest_value(curve) * (-1 if maximize else 1))
    return [*running, *others]


def _newest_value(curve: Curve) -> float:
    return curve.points[max(curve.points)]


def _row(curve: Curve, scale: Scale | None, now: datetime) -> tuple[str, Text, str, str, str, Text, Text]:
    step, value = curve.newest or ("", None)
    seconds, colour = curve.seconds(now), COLOURS.get(curve.status, "dim")
    return (
        str(curve.number),
        Text(curve.status, style=colour),
        "" if seconds is None else clock(seconds),
        str(step),
        "" if value is None else f"{value:.6g}",
        Text(sparkline(curve.points, scale, CURVE_WIDTH) if scale else "", style=colour),
        plain(parameters(curve.params), style="dim"),
    )
