"""Experiments and trials as tables for the terminal."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from service.cli.progress import COLOURS, parameters

Json = dict[str, Any]
WIDTHS = {"id": 14, "status": 9, "trials": 8, "created": 16, "trial": 5, "step": 5, "value": 10}


def experiments(found: Iterable[Json]) -> Table:
    table = _columns("experiment", "id", "status", "trials", "best", "created")
    for one in found:
        done = sum(one["counts"].values()) - one["counts"].get("queued", 0) - one["counts"].get("running", 0)
        trials = f"{done}/{one['spec']['limits']['max_trials']}"
        table.add_row(one["name"], one["id"], _status(one), trials, _best(one), _time(one["created_at"]))
    return table


def experiment(one: Json, its_trials: Iterable[Json]) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for label, text in _facts(one):
        facts.add_row(label, text)
    return Group(facts, "", trials(its_trials))


def _facts(one: Json) -> Iterable[tuple[str, str]]:
    yield "experiment", f"{escape(one['name'])} ({one['id']})"
    why = ": ".join(filter(None, [one.get("end_reason"), one.get("end_detail")]))
    yield "status", f"{_status(one)} {escape(f'({why})') if why else ''}"
    if one.get("waiting_for"):
        yield "waiting for", escape(one["waiting_for"])
    if one.get("best"):
        yield "best", f"{_best(one)} by trial {one['best']['number']}: {escape(parameters(one['best']['params']))}"
    if one.get("mlflow_url"):
        yield "MLflow", one["mlflow_url"]


def trials(found: Iterable[Json]) -> Table:
    table = _columns("trial", "id", "status", "step", "value", "parameters", "reason")
    for one in found:
        value = ", ".join("-" if value is None else f"{value:.6g}" for value in one.get("values") or [])
        step = "" if one.get("step") is None else str(one["step"])
        reason = escape(one.get("reason") or "")
        row = (str(one["number"]), one["id"], _status(one), step, value, escape(parameters(one["params"])), reason)
        table.add_row(*row)
    return table


def best(one: Json, metric: str) -> RenderableType:
    """The best trial, or the trials on the front of several objectives."""
    if "items" in one:
        directions = ", ".join(f"{escape(each['metric'])} ({each['direction']})" for each in one["objectives"])
        shown = f"the first {len(one['items'])} of " if one["next_cursor"] else ""
        return Group(f"Pareto front of {directions}: {shown}{one['count']} trials", "", trials(one["items"]))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("trial", f"{one['number']} ({one['id']})")
    table.add_row(metric, f"{one['values'][0]:.6g}")
    for name, value in one["params"].items():
        table.add_row(escape(name), escape(str(value)))
    checkpoint = one.get("checkpoint")
    table.add_row("checkpoint", escape(f"{checkpoint['uri']} (step {checkpoint['step']})") if checkpoint else "none")
    return table


def _columns(*names: str) -> Table:
    """Whatever the terminal's width, ids and numbers stay whole; parameters and reasons share the rest."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name in names:
        table.add_column(
            name,
            overflow="ellipsis",
            no_wrap=True,
            min_width=WIDTHS.get(name),
            ratio=None if name in WIDTHS else 1,
        )
    return table


def _status(one: Json) -> str:
    colour = COLOURS.get(one["status"], "default")
    return f"[{colour}]{one['status']}[/{colour}]"


def _best(one: Json) -> str:
    found = one.get("best")
    if not found:
        return ""
    return escape(f"{one['spec']['objectives'][0]['metric']} {found['values'][0]:.6g}")


def _time(iso: str) -> str:
    return iso[:16].replace("T", " ")
