"""Experiments, trials and what belongs to a trial as tables for the terminal."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from search.numbers_in_messages import counted
from service.cli.terminal.progress_view import COLOURS
from service.cli.terminal.value_texts import float_text, parameters, value_text
from service.domain import cost_summary

Json = dict[str, Any]
DIGITS = 6
"""Of a metric's value."""

MIN_WIDTHS = {
    "id": 14,
    "status": 9,
    "trials": 8,
    "created": 16,
    "trial": 5,
    "step": 5,
    "value": 10,
    "attempt": 7,
    "time": 16,
    "decision": 8,
    "rule": 6,
    "cutoff": 10,
    "steps saved": 11,
}


def experiments(found: Iterable[Json]) -> Table:
    table = columns("experiment", "id", "status", "trials", "best", "created")
    for one in found:
        done = sum(one["counts"].values()) - one["counts"].get("queued", 0) - one["counts"].get("running", 0)
        trials = f"{done}/{one['spec']['limits']['max_trials']}"
        table.add_row(one["name"], one["id"], _status(one), trials, _best(one), _time(one["created_at"]))
    return table


def experiment(one: Json, its_trials: Iterable[Json]) -> RenderableType:
    return Group(facts(_experiment_facts(one)), "", trials(its_trials))


def _experiment_facts(one: Json) -> Iterable[tuple[str, str]]:
    yield "experiment", f"{escape(one['name'])} ({one['id']})"
    why = ": ".join(filter(None, [one.get("end_reason"), one.get("end_detail")]))
    yield "status", f"{_status(one)} {escape(f'({why})') if why else ''}"
    if one.get("waiting_for"):
        yield "waiting for", escape(one["waiting_for"])
    yield from chosen(one)
    if one.get("best"):
        yield "best", f"{_best(one)} by trial {one['best']['number']}: {escape(parameters(one['best']['params']))}"
    if one.get("cost"):
        yield "cost", cost_summary.summary(one["cost"])
    if one.get("mlflow_url"):
        yield "MLflow", one["mlflow_url"]
    if one.get("mlflow_error"):
        yield "MLflow's error", escape(one["mlflow_error"])
    for warning in one.get("warnings", ()):
        yield "warning", escape(f"{warning['path']}: {warning['message']}")


def chosen(one: Json) -> Iterator[tuple[str, str]]:
    """The sampler and the stopping rule, with the reason of those that the service chose."""
    for name in ("sampler", "early_stopping"):
        if part := one.get(name):
            why = f": {part['why']}" if part["why"] else ""
            yield name.replace("_", " "), escape(f"{part['name']}{why}")


def trials(found: Iterable[Json]) -> Table:
    table = columns("trial", "id", "status", "step", "value", "parameters", "reason")
    for one in found:
        value = ", ".join(number(value) for value in one["values"].values())
        step = "" if one.get("step") is None else str(one["step"])
        confirms = "" if one.get("confirms") is None else f"confirms trial {one['confirms']} with seed {one['seed']}"
        reason = escape(one.get("reason") or confirms)
        row = (str(one["number"]), one["id"], _status(one), step, value, escape(parameters(one["params"])), reason)
        table.add_row(*row)
    return table


def reports(found: Iterable[Json]) -> Table:
    table = columns("step", "metrics", "attempt", "time", wrapped="metrics")
    for one in found:
        table.add_row(
            str(one["step"]), escape(parameters(one["metrics"], DIGITS)), str(one["attempt"]), _time(one["at"])
        )
    return table


def decisions(found: Iterable[Json]) -> Table:
    table = columns("step", "decision", "rule", "value", "cutoff", "reason", wrapped="reason")
    for one in found:
        numbers = [number(one["value"]), number(one["cutoff"])]
        table.add_row(str(one["step"]), one["decision"], one["rule"], *numbers, escape(one["reason"]))
    return table


def checkpoints(found: Iterable[Json]) -> Table:
    table = columns("step", "attempt", "size", "kept", "uri", "time", wrapped="uri")
    for one in found:
        kept = "removed" if one.get("removed_at") else "pinned" if one.get("pinned") else ""
        facts_of_one = (str(one["step"]), str(one["attempt"]), size(one.get("bytes")), kept)
        table.add_row(*facts_of_one, escape(one["uri"]), _time(one["at"]))
    return table


def checkpoint_plan(plan: Json) -> RenderableType:
    """What retention would do with each checkpoint, and the totals."""
    table = columns("trial", "step", "size", "action", "why", wrapped="why")
    for one in plan["items"]:
        action = "[red]remove[/red]" if one["action"] == "remove" else one["action"]
        table.add_row(str(one["trial_number"]), str(one["step"]), size(one["bytes"]), action, escape(one["why"]))
    totals = [f"{verb} {plan[verb]['count']} ({size(plan[verb]['bytes'])})" for verb in ("remove", "keep")]
    return Group(table, "", ", ".join(totals))


def best(one: Json, metric: str) -> RenderableType:
    """The best trial, or the Pareto front of several objectives."""
    if "items" in one:
        directions = ", ".join(f"{escape(each['metric'])} ({each['direction']})" for each in one["objectives"])
        shown = f"the first {len(one['items'])} of " if one["next_cursor"] else ""
        return Group(f"Pareto front of {directions}: {shown}{counted(one['count'], 'trial')}", "", trials(one["items"]))
    found = facts(_best_facts(one, metric))
    confirmed = (one.get("confirmation") or {}).get("ranking")
    return Group(found, "", confirmations(confirmed)) if confirmed else found


def confirmations(ranking: Iterable[Json]) -> Table:
    """The configurations that were run again with other seeds."""
    table = columns("trial", "id", "mean", "standard error", "n", "failed", "chosen for")
    for one in ranking:
        means = [number(one["mean"]), number(one["standard_error"]), str(one["n"]), str(one["failed_count"])]
        table.add_row(str(one["number"]), one["id"], *means, number(one["value"]))
    return table


def _best_facts(one: Json, metric: str) -> Iterable[tuple[str, str]]:
    yield "trial", f"{one['number']} ({one['id']})"
    yield escape(metric), number(one["value"])
    for name, value in one["params"].items():
        yield escape(name), escape(value_text(value))
    checkpoint = one.get("checkpoint")
    yield "checkpoint", escape(f"{checkpoint['uri']} (step {checkpoint['step']})") if checkpoint else "none"
    if one.get("confirmation"):
        yield "confirmation", escape(one["confirmation"]["verdict"])


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """A table of (label, text) rows without a header."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    return table


def columns(*names: str, wrapped: str = "") -> Table:
    """A table in which ids and numbers are never cut. Texts share the remaining width: cut, or `wrapped` onto lines."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name in names:
        table.add_column(
            name,
            overflow="fold" if name == wrapped else "ellipsis",
            no_wrap=name != wrapped,
            min_width=MIN_WIDTHS.get(name),
            ratio=None if name in MIN_WIDTHS else 1,
        )
    return table


def _status(one: Json) -> str:
    colour = COLOURS.get(one["status"], "default")
    return f"[{colour}]{one['status']}[/{colour}]"


def _best(one: Json) -> str:
    found = one.get("best")
    if not found:
        return ""
    return escape(f"{one['spec']['objectives'][0]['metric']} {number(found['value'])}")


def number(value: float | None) -> str:
    """Six digits, or `-` for a missing value."""
    return "-" if value is None else float_text(value, DIGITS)


def size(count: int | None) -> str:
    """In the largest unit of which there is at least one, or `-` for an unknown size."""
    if count is None:
        return "-"
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count} B"


def _time(iso: str) -> str:
    return iso[:16].replace("T", " ")
