"""A trial and its attempts in the words of the terminal."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from search.samplers.sampler import Source
from service.cli.terminal.attempt_facts import attempt_facts
from service.cli.terminal.trial_facts import SOURCES

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
