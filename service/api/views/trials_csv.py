"""Trials as CSV, for spreadsheets and data frames.

A spreadsheet runs a cell that begins as a formula does. Such a text gets an apostrophe in front, by which spreadsheets
show it as it is; a text that is a number stays one.
"""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any

from search.reported_numbers import is_decimal
from service.api.views.trials import TrialView
from service.store.tables import ExperimentRow
from service.store.trials.trial_values import constraint_names, objective_names, takes_best

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With the full-width forms of the first four, which some spreadsheets take for them."""


@dataclass(frozen=True)
class _Column:
    name: str
    value_of: Callable[[TrialView], Any]


def trials_csv(experiment: ExperimentRow, trials: Sequence[TrialView]) -> str:
    """One line per trial, with objectives, constraints, parameters and cost; a missing value is an empty cell.

    A metric with the name of a column of the trial is `metrics.NAME`, a parameter with that of another column
    `params.NAME`.
    """
    columns = _columns(experiment, trials)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(harmless(column.name) for column in columns)
    for trial in trials:
        writer.writerow(harmless(column.value_of(trial)) for column in columns)
    return text.getvalue()


def _columns(experiment: ExperimentRow, trials: Sequence[TrialView]) -> list[_Column]:
    feasible = [_field("feasible")] if constraint_names(experiment) else []
    before, between, after = [_field(name) for name in ("number", "id", "status")], [_field("step")], _last(experiment)
    own = {"feasible", *(column.name for column in [*before, *between, *after])}
    measured = _unlike(own, _measured(experiment), "metrics")
    names = sorted({name for trial in trials for name in trial.params})
    params = [_Column(name, partial(_param, name)) for name in names]
    named = _unlike({*own, *(column.name for column in measured)}, params, "params")
    return [*before, *measured, *feasible, *between, *named, *after]


def _last(experiment: ExperimentRow) -> list[_Column]:
    """The columns of a trial after its params."""
    by_spec = ["best_step"] if takes_best(experiment) else []
    by_spec += ["confirms", "seed"] if experiment.spec.get("confirm") else []
    return [
        _field("reason"),
        _Column("started_at", lambda trial: _time(trial.started_at)),
        _Column("ended_at", lambda trial: _time(trial.ended_at)),
        _Column("checkpoint", lambda trial: trial.checkpoint and trial.checkpoint.uri),
        *(_field(name) for name in [*by_spec, "source", "failure_kind", "attempt_count"]),
        _Column("worker_seconds", lambda trial: trial.cost and trial.cost.worker_seconds),
        _Column("gpu_seconds", lambda trial: trial.cost and trial.cost.gpu_seconds),
    ]


def _measured(experiment: ExperimentRow) -> list[_Column]:
    """The objectives, and the constraints on other metrics."""
    objectives = objective_names(experiment)
    limited = [name for name in constraint_names(experiment) if name not in objectives]
    return [
        *(_Column(name, partial(_objective, name)) for name in objectives),
        *(_Column(name, partial(_constraint, name)) for name in limited),
    ]


def _unlike(others: Collection[str], columns: Iterable[_Column], kind: str) -> list[_Column]:
    """The columns, with the kind in front of the names that others have."""
    return [replace(one, name=f"{kind}.{one.name}") if one.name in others else one for one in columns]


def _field(name: str) -> _Column:
    return _Column(name, attrgetter(name))


def _objective(name: str, trial: TrialView) -> float | None:
    return trial.values[name]


def _constraint(name: str, trial: TrialView) -> float | None:
    return (trial.constraints or {}).get(name)


def _param(name: str, trial: TrialView) -> Any:
    return trial.params.get(name)


def _time(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def harmless(cell: Any) -> Any:
    """Return the cell so that no spreadsheet takes it for a formula."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA_STARTS):
        return cell
    is_number = is_decimal(cell) and cell == cell.strip()
    return cell if is_number else f"'{cell}"
