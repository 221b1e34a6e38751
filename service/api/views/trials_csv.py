"""Trials as CSV, for spreadsheets and data frames.

A spreadsheet runs a cell that begins as a formula does. Such a text gets an apostrophe in front, by which spreadsheets
show it as it is; a text that is a number stays one.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from search.reported_numbers import is_decimal
from service.api.views.trials import TrialView
from service.store.tables import ExperimentRow
from service.store.trials.trial_values import constraint_names, objective_names, takes_best

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With the full-width forms of the first four, which some spreadsheets take for them."""


def trials_csv(experiment: ExperimentRow, trials: Sequence[TrialView]) -> str:
    """One line per trial, with objectives, constraints, parameters and cost; a missing value is an empty cell.

    A metric with the name of a column of the trial is `metrics.NAME`, a parameter with that of another column
    `params.NAME`.
    """
    by_spec = ["best_step"] if takes_best(experiment) else []
    by_spec += ["confirms", "seed"] if experiment.spec.get("confirm") else []
    params = sorted({name for trial in trials for name in trial.params})
    limited = [name for name in constraint_names(experiment) if name not in objective_names(experiment)]
    feasible = ["feasible"] if constraint_names(experiment) else []
    text = io.StringIO()
    writer = csv.writer(text)
    times = ["started_at", "ended_at"]
    more = [*by_spec, "source", "failure_kind", "attempt_count", "worker_seconds", "gpu_seconds"]
    own = ["number", "id", "status", "feasible", "step", "reason", *times, "checkpoint", *more]
    measured = _unlike(own, [*objective_names(experiment), *limited], "metrics")
    named = _unlike([*own, *measured], params, "params")
    header = ["number", "id", "status", *measured, *feasible, "step", *named, "reason", *times, "checkpoint", *more]
    writer.writerow(map(harmless, header))
    for trial in trials:
        writer.writerow(
            harmless(cell)
            for cell in [
                trial.number,
                trial.id,
                trial.status,
                *trial.values.values(),
                *((trial.constraints or {}).get(name) for name in limited),
                *(trial.feasible for _ in feasible),
                trial.step,
                *(trial.params.get(name) for name in params),
                trial.reason,
                *_times(trial),
                trial.checkpoint.uri if trial.checkpoint else None,
                *(getattr(trial, name) for name in by_spec),
                trial.source,
                trial.failure_kind,
                trial.attempt_count,
                trial.cost.worker_seconds if trial.cost else None,
                trial.cost.gpu_seconds if trial.cost else None,
            ]
        )
    return text.getvalue()


def _unlike(others: Sequence[str], names: Sequence[str], kind: str) -> list[str]:
    """The names of columns, with the kind in front of those that others have."""
    return [f"{kind}.{name}" if name in others else name for name in names]


def harmless(cell: Any) -> Any:
    """Return the cell so that no spreadsheet takes it for a formula."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA_STARTS):
        return cell
    is_number = is_decimal(cell) and cell == cell.strip()
    return cell if is_number else f"'{cell}"


def _times(trial: TrialView) -> Iterator[Any]:
    return (at.isoformat() if at else None for at in (trial.started_at, trial.ended_at))
