"""A trial and its attempts in the words of the terminal."""

from datetime import UTC, datetime
from io import StringIO
from typing import Any, get_args

import pytest
from rich.console import Console

from search.samplers.sampler import Source
from service.cli.terminal.attempt_facts import attempt_facts
from service.cli.terminal.trial_facts import SOURCES, trial

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ATTEMPT: dict[str, Any] = {
    "number": 1,
    "agent": "local",
    "outcome": None,
    "error": None,
    "resumed_from": None,
    "started_at": "2026-01-01T11:48:00Z",
    "began_at": None,
    "last_report_at": None,
    "cost": {"starting_seconds": None},
}
TRIAL: dict[str, Any] = {
    "id": "t-1",
    "number": 3,
    "experiment_id": "x-1",
    "status": "running",
    "reason": None,
    "stopping": None,
    "params": {"lr": 0.1},
    "origin": "search",
    "source": "model",
    "confirms": None,
    "step": None,
    "values": {},
    "constraints": None,
    "feasible": None,
    "checkpoint": None,
    "cost": None,
    "attempts": [],
}
CALLER = "ask x-bc7e"
STARTING = "its workers have not called the training function yet (Ray may be installing trainer.runtime_env)"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"outcome": "stopped"}, "stopped as asked, on agent local"),
        ({"outcome": "stopped", "agent": CALLER}, "stopped, run by the external caller"),
        ({"outcome": "completed"}, "completed, on agent local"),
        (
            {"outcome": "completed", "error": {"kind": "silent", "message": ""}},
            "completed, but failed: silent, on agent local",
        ),
        (
            {"outcome": "failed", "error": {"kind": "lost", "message": ""}, "agent": CALLER},
            "failed: lost, run by the external caller",
        ),
        (
            {"began_at": "2026-01-01T11:59:20Z", "cost": {"starting_seconds": 1.5}},
            "running for 40 s, no report yet, on agent local",
        ),
        (
            {"started_at": "2026-01-01T08:55:00Z", "last_report_at": "2026-01-01T11:49:00Z"},
            "running for 3 h 5 min, last report 11 min ago, on agent local",
        ),
        ({"last_report_at": "2026-01-01T12:00:09Z"}, "running for 12 min, last report 0 s ago, on agent local"),
        ({}, f"starting for 12 min, on agent local: {STARTING}"),
        ({"cost": {"starting_seconds": 720.0}}, f"starting for 12 min, on agent local: {STARTING}"),
        ({"agent": CALLER}, "running for 12 min, no report yet, run by the external caller"),
    ],
)
def test_an_attempt_says_how_it_went_and_where(changes: dict[str, Any], text: str) -> None:
    assert next(attempt_facts(ATTEMPT | changes, NOW)) == ("attempt 1", text)


def test_a_further_attempt_without_a_checkpoint_has_started_from_the_beginning() -> None:
    assert "resumed from" not in dict(attempt_facts(ATTEMPT, NOW))
    again = dict(attempt_facts(ATTEMPT | {"number": 2}, NOW))
    assert again["resumed from"] == "nothing: there was no checkpoint, so it started from the beginning"


def test_each_source_of_params_has_words() -> None:
    assert {*get_args(Source), "user"} == set(SOURCES)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (
            {"model": "gp", "value": 0.25, "low": 0.125, "high": 0.375, "improvement_probability": 0.421},
            "0.25 (0.125 to 0.375), 42% likely to be better than all before",
        ),
        (
            {"model": "tpe", "value": None, "good_probability": 0.617, "good_share": 0.1},
            "62% likely to be among the best 10%",
        ),
        (
            {"model": "gp", "value": 1e9, "low": 1e9 - 0.001, "high": 1e9 + 0.001},
            "1000000000 (999999999.999 to 1000000000.001)",
        ),
        ({"model": "annealing", "value": 0.3}, "0.3"),
        ({"model": "annealing", "good_probability": 0.3}, "30% likely to be among the best"),
    ],
)
def test_a_trial_says_what_the_model_expected(estimate: dict[str, Any], text: str) -> None:
    shown = Console(width=120, file=StringIO())
    with shown.capture() as capture:
        shown.print(trial(TRIAL | {"estimate": estimate}, NOW))
    [line] = [line for line in capture.get().splitlines() if line.startswith("expected")]
    assert line.split(maxsplit=1)[1] == text


def test_a_trial_without_a_model_expects_nothing() -> None:
    shown = Console(width=120, file=StringIO())
    with shown.capture() as capture:
        shown.print(trial(TRIAL | {"estimate": None}, NOW))
    assert "expected" not in capture.get()
