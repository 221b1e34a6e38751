"""One trial for the terminal: what it is, how it went, and each of its attempts with its error."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape

from service.cli.terminal.terminal_tables import number, status
from service.cli.terminal.text_layout import facts
from service.cli.terminal.value_texts import parameters
from service.domain import cost_summary

Json = dict[str, Any]


def trial(one: Json) -> RenderableType:
    attempts = [part for attempt in one["attempts"] for part in ("", facts(_attempt_facts(attempt)))]
    return Group(facts(_facts(one)), *attempts)


def _facts(one: Json) -> Iterator[tuple[str, str]]:
    yield "trial", f"{one['number']} ({one['id']}) of {one['experiment_id']}"
    yield "status", status(one)
    if one["reason"]:
        yield "reason", escape(one["reason"])
    if one["stopping"]:
        yield "asked to stop", escape(one["stopping"])
    yield "parameters", escape(parameters(one["params"], digits=None))
    yield "source", escape(_source(one))
    yield from _measured(one)
    if saved := one["checkpoint"]:
        yield "checkpoint", escape(f"{saved['uri']} (step {saved['step']})")
    if one["cost"]:
        yield "cost", cost_summary.summary(one["cost"])


def _source(one: Json) -> str:
    """Where the params come from; `source` is missing in a trial of an earlier version."""
    if one["confirms"] is not None:
        return f"trial {one['confirms']}, to confirm it with seed {one['seed']}"
    return one["source"] or str(one["origin"])


def _measured(one: Json) -> Iterator[tuple[str, str]]:
    if one["step"] is not None:
        yield "step", str(one["step"])
    for name, value in (one["values"] | (one["constraints"] or {})).items():
        yield escape(name), number(value)
    if one["feasible"] is False:
        yield "constraints", "[red]broken[/red]"


def _attempt_facts(attempt: Json) -> Iterator[tuple[str, str]]:
    error = attempt["error"] or {}
    outcome = ": ".join(filter(None, [attempt["outcome"] or _progress(attempt), error.get("kind")]))
    yield f"attempt {attempt['number']}", f"{escape(outcome)}, by {escape(attempt['agent'])}"
    if attempt["resumed_from"]:
        yield "resumed from", escape(f"{attempt['resumed_from']} (step {attempt['resumed_step']})")
    if error:
        yield "error", escape(error["message"])
    if error.get("traceback"):
        yield "traceback", escape(error["traceback"].rstrip())


def _progress(attempt: Json) -> str:
    """Of an attempt that has not ended. A start takes minutes where packages are installed."""
    has_begun = attempt["last_report_at"] or attempt["cost"]["starting_seconds"] is not None
    return "running" if has_begun else f"starting (claimed at {attempt['started_at']}; no sign of its function yet)"
