"""Trials as CSV, for spreadsheets and data frames."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from service.api.views.trials import TrialView
from service.store.tables import ExperimentRow
from service.store.trial_values import constraint_names, objective_names


def trials_csv(experiment: ExperimentRow, trials: Sequence[TrialView]) -> str:
    """One line per trial, with objectives, constraints and parameters; a missing value is an empty cell."""
    params = sorted({name for trial in trials for name in trial.params})
    limited = [name for name in constraint_names(experiment) if name not in objective_names(experiment)]
    feasible = ["feasible"] if constraint_names(experiment) else []
    text = io.StringIO()
    writer = csv.writer(text)
    measured = [*objective_names(experiment), *limited, *feasible]
    times = ["started_at", "ended_at"]
    writer.writerow(["number", "id", "status", *measured, "step", *params, "reason", *times, "checkpoint"])
    for trial in trials:
        writer.writerow(
            [
                trial.number,
                trial.id,
                trial.status,
                *(trial.values or [None] * len(objective_names(experiment))),
                *((trial.constraints or {}).get(name) for name in limited),
                *(trial.feasible for _ in feasible),
                trial.step,
                *(trial.params.get(name) for name in params),
                trial.reason,
                *_times(trial),
                trial.checkpoint.uri if trial.checkpoint else None,
            ]
        )
    return text.getvalue()


def _times(trial: TrialView) -> Iterator[Any]:
    return (at.isoformat() if at else None for at in (trial.started_at, trial.ended_at))
