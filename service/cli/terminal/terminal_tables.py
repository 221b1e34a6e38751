"""Experiments, trials and what belongs to a trial as tables for the terminal."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape

from search.numbers_in_messages import counted
from service.cli.client.commands_in_messages import with_commands
from service.cli.terminal.progress_view import COLOURS, clock, finished_share, shortened_traceback
from service.cli.terminal.text_layout import facts, table
from service.cli.terminal.value_texts import float_text, parameters, value_text
from service.domain import cost_summary

Json = dict[str, Any]
DIGITS = 6
"""Of a metric's value."""


def experiments(found: Iterable[Json]) -> RenderableType:
    return table(("experiment", "id", "status", "trials", "best", "created (UTC)"), map(_experiment_row, found))


def _experiment_row(one: Json) -> tuple[str, ...]:
    done = sum(one["counts"].values()) - one["counts"].get("queued", 0) - one["counts"].get("running", 0)
    return escape(one["name"]), one["id"], status(one), finished_share(one, done), _best(one), _time(one["created_at"])


def experiment(one: Json, its_trials: Iterable[Json], now: datetime, *, left_out: int = 0) -> RenderableType:
    """`left_out`: how many trials there are before those that are shown."""
    parts: list[RenderableType] = [facts(_experiment_facts(one)), "", trials(its_trials, now)]
    if left_out:
        earlier = f"{counted(left_out, 'earlier trial')} not shown. All of them: --all; the best ones: --top 20"
        parts += ["", earlier]
    return Group(*parts)


def _experiment_facts(one: Json) -> Iterable[tuple[str, str]]:
    yield "experiment", f"{escape(one['name'])} ({one['id']})"
    why = ": ".join(filter(None, [one.get("end_reason"), one.get("end_detail")]))
    yield "status", f"{_ending(one) or status(one)} {escape(f'({why})') if why else ''}"
    if one.get("traceback"):
        yield "traceback", escape(shortened_traceback(one["traceback"]))
    if one.get("waiting_for"):
        yield "waiting for", escape(with_commands(one["waiting_for"]))
    if one.get("missing_metrics"):
        yield "metrics", f"[yellow]{escape(one['missing_metrics'])}[/yellow]"
    yield from chosen(one)
    if one.get("best"):
        yield "best", f"{_best(one)} by trial {one['best']['number']}: {escape(parameters(one['best']['params']))}"
    if one.get("cost"):
        yield "cost", cost_summary.summary(one["cost"], one["spec"]["limits"].get("max_gpu_hours"))
    if one.get("mlflow_url"):
        yield "MLflow", escape(one["mlflow_url"])
    if one.get("mlflow_error"):
        yield "MLflow's error", escape(one["mlflow_error"])
    for warning in one.get("warnings", ()):
        yield "warning", escape(f"{warning['path']}: {warning['message']}")


def _ending(one: Json) -> str | None:
    """How many trials of an experiment with an end reason still run; None if it has none, or none runs."""
    left = one.get("counts", {}).get("running", 0)
    if not one.get("ending") or not left:
        return None
    return f"[yellow]ending:[/yellow] {counted(left, 'trial')} still {'runs' if left == 1 else 'run'}"


def chosen(one: Json) -> Iterator[tuple[str, str]]:
    """The sampler and the stopping rule, with the reason of those that the service chose."""
    for name in ("sampler", "early_stopping"):
        if part := one.get(name):
            why = f": {part['why']}" if part["why"] else ""
            yield name.replace("_", " "), escape(f"{part['name']}{why}")


def trials(found: Iterable[Json], now: datetime) -> RenderableType:
    columns = ("trial", "id", "status", "time", "step", "value", "parameters", "reason")
    return table(columns, (_trial_row(one, now) for one in found))


def _trial_row(one: Json, now: datetime) -> tuple[str, ...]:
    value = ", ".join(number(value) for value in one["values"].values())
    step = "" if one.get("step") is None else str(one["step"])
    confirms = "" if one.get("confirms") is None else f"confirms trial {one['confirms']} with seed {one['seed']}"
    reason = escape(one.get("reason") or confirms)
    texts = (escape(parameters(one["params"])), reason)
    return str(one["number"]), one["id"], status(one), _duration(one, now), step, value, *texts


def _duration(one: Json, now: datetime) -> str:
    """What its attempts took, also the one that runs. Empty before the first one."""
    ended = cost_summary.held_seconds(one["cost"]) if one.get("cost") else None
    if (since := one.get("running_since")) is None:
        return "" if ended is None else clock(ended)
    return clock((ended or 0.0) + max(0.0, (now - datetime.fromisoformat(since)).total_seconds()))


def reports(found: Iterable[Json]) -> RenderableType:
    return table(("step", "metrics", "attempt", "time (UTC)"), map(_report_row, found))


def _report_row(one: Json) -> tuple[str, ...]:
    metrics = escape(parameters(one["metrics"], DIGITS))
    return str(one["step"]), metrics, str(one["attempt"]), _time(one["at"])


def decisions(found: Iterable[Json]) -> RenderableType:
    return table(("step", "decision", "rule", "value", "cutoff", "reason"), map(_decision_row, found))


def _decision_row(one: Json) -> tuple[str, ...]:
    numbers = (number(one["value"]), number(one["cutoff"]))
    return str(one["step"]), one["decision"], one["rule"], *numbers, escape(one["reason"])


def checkpoints(found: Iterable[Json], best_step: int | None = None) -> RenderableType:
    """`best_step`: that of the trial's best checkpoint, which is kept beside the newest."""
    columns = ("step", "attempt", "value", "size", "kept", "time (UTC)", "uri")
    return table(columns, (_checkpoint_row(one, best_step) for one in found))


def _checkpoint_row(one: Json, best_step: int | None) -> tuple[str, ...]:
    is_best = one["step"] == best_step and not one.get("removed_at")
    pinned = "pinned" if one.get("pinned") else ""
    kept = "removed" if one.get("removed_at") else ", ".join(filter(None, ["best" if is_best else "", pinned]))
    where = (_time(one["at"]), escape(one["uri"]))
    return str(one["step"]), str(one["attempt"]), number(one.get("value")), size(one.get("bytes")), kept, *where


def checkpoint_plan(plan: Json) -> RenderableType:
    """What retention would do with each checkpoint, and the totals."""
    shown = table(("trial", "step", "size", "action", "why"), map(_plan_row, plan["items"]))
    totals = [f"{verb} {plan[verb]['count']} ({size(plan[verb]['bytes'])})" for verb in ("remove", "keep")]
    return Group(shown, "", ", ".join(totals))


def _plan_row(one: Json) -> tuple[str, ...]:
    action = "[red]remove[/red]" if one["action"] == "remove" else one["action"]
    return str(one["trial_number"]), str(one["step"]), size(one["bytes"]), action, escape(one["why"])


def best(one: Json, metric: str, now: datetime) -> RenderableType:
    """The best trial, or the Pareto front of several objectives."""
    if "items" in one:
        directions = ", ".join(f"{escape(each['metric'])} ({each['direction']})" for each in one["objectives"])
        shown = f"the first {len(one['items'])} of " if one["next_cursor"] else ""
        return Group(
            f"Pareto front of {directions}: {shown}{counted(one['count'], 'trial')}", "", trials(one["items"], now)
        )
    found = facts(_best_facts(one, metric))
    confirmed = (one.get("confirmation") or {}).get("ranking")
    return Group(found, "", confirmations(confirmed)) if confirmed else found


def confirmations(ranking: Iterable[Json]) -> RenderableType:
    """The configurations that were run again with other seeds."""
    return table(("trial", "id", "mean", "standard error", "n", "failed", "chosen for"), map(_mean_row, ranking))


def _mean_row(one: Json) -> tuple[str, ...]:
    means = (number(one["mean"]), number(one["standard_error"]), str(one["n"]), str(one["failed_count"]))
    return str(one["number"]), one["id"], *means, number(one["value"])


def _best_facts(one: Json, metric: str) -> Iterable[tuple[str, str]]:
    yield "trial", f"{one['number']} ({one['id']})"
    yield escape(metric), number(one["value"])
    if one.get("best_step") is not None:
        yield "best step", str(one["best_step"])
    for name, value in one["params"].items():
        yield escape(name), escape(value_text(value))
    checkpoint = one.get("checkpoint")
    yield "checkpoint", escape(f"{checkpoint['uri']} (step {checkpoint['step']})") if checkpoint else "none"
    if one.get("confirmation"):
        yield "confirmation", escape(one["confirmation"]["verdict"])


def status(one: Json) -> str:
    """The status of an experiment or a trial, with the kind of its failure: `failed: diverged`."""
    colour = COLOURS.get(one["status"], "default")
    shown = ": ".join(filter(None, [one["status"], one.get("failure_kind")]))
    return f"[{colour}]{escape(shown)}[/{colour}]"


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
