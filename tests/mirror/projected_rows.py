"""Rows of an experiment, a trial and events that are in no database, for tests of pure functions."""

from datetime import UTC, datetime, timedelta
from typing import Any

from service.store.tables import EventRow, ExperimentRow, TrialRow

START = datetime(2026, 11, 1, tzinfo=UTC)
BEST = [{"metric": "val/loss", "direction": "minimize", "report": "best"}]


def experiment(**spec: Any) -> ExperimentRow:
    objectives = [{"metric": "loss", "direction": "minimize"}]
    whole = {"name": "e", "space": {"lr": {}}, "objectives": objectives, **spec}
    return ExperimentRow(id="x-1", name="e", spec=whole, tags={}, status="running", created_at=START)


def trial(number: int = 0, **params: Any) -> TrialRow:
    return TrialRow(id=f"t-{number}", experiment_id="x-1", number=number, params=params, origin="search")


def event(seq: int, kind: str, trial_id: str | None = "t-0", **data: Any) -> EventRow:
    at = START + timedelta(seconds=seq)
    return EventRow(experiment_id="x-1", seq=seq, kind=kind, trial_id=trial_id, data=data, at=at)
