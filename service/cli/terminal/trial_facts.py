"""One trial for the terminal: what it is, how it went, and each of its attempts with its error."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape

from search.numbers_in_messages import distinct_texts
from service.cli.terminal.attempt_facts import attempt_facts
from service.cli.terminal.terminal_tables import number, status
from service.cli.terminal.text_layout import facts
from service.cli.terminal.value_texts import parameters
from service.domain import cost_summary

SOURCES = {
    "start_up": "drawn before the sampler's model starts",
    "model": "proposed by the sampler's model",
    "grid": "the next of the grid",
    "sequence": "the next of the quasi-random sequence",
    "random": "drawn at random",
    "prior": "drawn from the priors",
    "incumbent": "close to the best trial so far",
    "warm_start": "learned from an earlier experiment",
    "user": "given by a user",
}
"""The values of a trial's `source` in words."""

Json = dict[str, Any]


def trial(one: Json, now: datetime) -> RenderableType:
    attempts = [part for attempt in one["attempts"] for part in ("", facts(attempt_facts(attempt, now)))]
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
    if expected := ", ".join(_expected(one.get("estimate") or {})):
        yield "expected", expected
    yield from _measured(one)
    if saved := one["checkpoint"]:
        yield "checkpoint", escape(f"{saved['uri']} (step {saved['step']})")
    if one["cost"]:
        yield "cost", cost_summary.summary(one["cost"])


def _source(one: Json) -> str:
    """Where the params come from; `source` is missing in a trial of an earlier version."""
    if one["confirms"] is not None:
        return f"trial {one['confirms']}, to confirm it with seed {one['seed']}"
    source = one["source"] or str(one["origin"])
    return SOURCES.get(source, source)


def _expected(estimate: Json) -> Iterator[str]:
    """What the sampler's model expected of the trial. That of a plugin may tell less than others."""
    known = {name: one for name, one in estimate.items() if one is not None}
    if {"low", "high"} <= known.keys():
        value, low, high = distinct_texts(known.get("value", known["low"]), known["low"], known["high"])
        yield f"{value} ({low} to {high})" if "value" in known else f"{low} to {high}"
    elif "value" in known:
        yield number(known["value"])
    if "improvement_probability" in known:
        yield f"{known['improvement_probability']:.0%} likely to be better than all before"
    if "good_probability" in known:
        share = f" {known['good_share']:.0%}" if "good_share" in known else ""
        yield f"{known['good_probability']:.0%} likely to be among the best{share}"


def _measured(one: Json) -> Iterator[tuple[str, str]]:
    if one["step"] is not None:
        yield "step", str(one["step"])
    for name, value in (one["values"] | (one["constraints"] or {})).items():
        yield escape(name), number(value)
    if one.get("best_step") is not None:
        yield "best step", str(one["best_step"])
    if one["feasible"] is False:
        yield "constraints", "[red]broken[/red]"
