"""Parameter importance, replayed rules and previews of spaces as tables for the terminal."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from search.numbers_in_messages import counted
from service.cli.terminal.terminal_tables import chosen, number
from service.cli.terminal.text_layout import facts, table
from service.cli.terminal.value_texts import parameters

BAR_WIDTH = 30

Json = dict[str, Any]


def importance(found: Json) -> RenderableType:
    kind = "trials by their curve scores" if found["measure"] == "curve_score" else "completed trials"
    basis = f"{found['used_count']} of {found['trial_count']} {kind}"
    heading = escape(f"importance for {found['metric']} by {found['evaluator']}, from {basis}")
    if found["reason"]:
        return Group(heading, "", escape(found["reason"]))
    bars = Table.grid(padding=(0, 2))
    for name, share in found["parameters"].items():
        bars.add_row(escape(name), f"{share:.3f}", "█" * round(share * BAR_WIDTH))
    left_out = (f"{escape(name)} is left out: {escape(reason)}" for name, reason in found["left_out"].items())
    return Group(heading, "", bars, *left_out)


def replay(found: Json) -> RenderableType:
    summary = facts(_replay_facts(found))
    if not found["stopped"]:
        return summary
    names = ("trial", "id", "status", "step", "steps saved", "reason")
    return Group(
        summary, "", "trials that the rule would have stopped:", table(names, map(_stop_row, found["stopped"]))
    )


def _stop_row(one: Json) -> tuple[str, ...]:
    steps = (str(one["step"]), str(one["steps_saved"]))
    return str(one["number"]), one["id"], one["status"], *steps, escape(one["reason"])


def _replay_facts(found: Json) -> Iterator[tuple[str, str]]:
    yield "metric", escape(f"{found['metric']} ({found['direction']})")
    yield "stopped", f"{found['stopped_count']} of {counted(found['trial_count'], 'trial')}"
    yield "saved", f"{found['steps_saved']} of {counted(found['step_count'], 'step')} ({found['fraction_saved']:.0%})"
    if found["pause_count"]:
        yield "paused", f"{counted(found['pause_count'], 'time')}; {counted(len(found['released']), 'time')} resumed"
    yield "best trial", _best(found)
    if found["unknown_count"]:
        yield (
            "unknown",
            (
                f"{counted(found['unknown_count'], 'trial')} would have continued past the step where the "
                f"experiment's own rule stopped them"
            ),
        )


def _best(found: Json) -> str:
    best, then = found["best"], found["best_then"]
    if best is None:
        return "no trial has a value"
    shown = f"trial {best['number']} ({number(best['value'])})"
    if not found["best_lost"]:
        return f"{shown}, not stopped by the rule"
    instead = (
        f"the best of the others is trial {then['number']} ({number(then['value'])})" if then else "no other remains"
    )
    return f"{shown} would have been stopped; {instead}"


def preview(found: Json) -> RenderableType:
    summary = facts([("configurations", _size(found)), *chosen(found)])
    never = (f"never used: {escape(one['path'])}: {escape(one['message'])}" for one in found["dead"])
    samples = (escape(f"{place:>4}  {parameters(sample)}") for place, sample in enumerate(found["samples"]))
    warnings = (escape(f"{one['path']}: {one['message']}") for one in found.get("warnings", ()))
    warned = (f"[yellow]warning:[/yellow] {warning}" for warning in warnings)
    return Group(summary, *never, *warned, "", *samples)


def _size(found: Json) -> str:
    if found["size"] is not None:
        return str(found["size"])
    uncounted = "not finite, or too many to count"
    if found["sampler"]["name"] == "grid" and found["sampler"]["options"].get("search_space"):
        return f"those of search.options.search_space (the space has more: {uncounted})"
    return uncounted
