"""Metrics of objectives and constraints that no trial has reported, told before the first trial ends without them."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from search.mistakes import listed
from service.domain.statuses import TrialStatus
from service.store.tables import ExperimentRow, ReportRow, TrialRow
from service.store.trials.trial_values import constraint_values, objective_values

HAVE_RESULTS = (TrialStatus.COMPLETED, TrialStatus.PRUNED, TrialStatus.PAUSED)


def missing_metrics(
    session: Session, experiments: Sequence[ExperimentRow], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """By id, of experiments whose first trials run and have reported: which metrics are in none of their reports."""
    first = [
        row for row in experiments if counts[row.id]["running"] and not any(counts[row.id][s] for s in HAVE_RESULTS)
    ]
    running = _running_with_reports(session, [row.id for row in first]) if first else {}
    missing = {row.id: _in_none(row, running[row.id]) for row in first if row.id in running}
    lacking = [key for key, names in missing.items() if names]
    reported = _newest_reports(session, [running[key][0] for key in lacking]) if lacking else {}
    # A name that is reported without a finite number is not missing.
    wanted = {key: [name for name in missing[key] if name not in names] for key, (_, names) in reported.items()}
    return {key: _sentence(wanted[key], *one) for key, one in reported.items() if wanted[key]}


def _running_with_reports(session: Session, experiment_ids: Sequence[str]) -> dict[str, list[TrialRow]]:
    query = select(TrialRow).where(
        TrialRow.experiment_id.in_(experiment_ids),
        TrialRow.status == TrialStatus.RUNNING,
        TrialRow.last_step.is_not(None),
    )
    found: dict[str, list[TrialRow]] = {}
    for trial in session.scalars(query.order_by(TrialRow.number)):
        found.setdefault(trial.experiment_id, []).append(trial)
    return found


def _in_none(experiment: ExperimentRow, trials: Iterable[TrialRow]) -> list[str]:
    known = [objective_values(experiment, one) | (constraint_values(experiment, one) or {}) for one in trials]
    return [name for name in known[0] if all(values[name] is None for values in known)]


def _newest_reports(session: Session, trials: Sequence[TrialRow]) -> dict[str, tuple[int, list[str]]]:
    """By experiment, the number of its trial and the names of the metrics in the newest report of it."""
    query = (
        select(TrialRow.experiment_id, TrialRow.number, ReportRow.metrics)
        .join(ReportRow, (ReportRow.trial_id == TrialRow.id) & (ReportRow.step == TrialRow.last_step))
        .where(TrialRow.id.in_([trial.id for trial in trials]))
    )
    return {experiment: (number, sorted(metrics)) for experiment, number, metrics in session.execute(query)}


def _sentence(missing: Sequence[str], number: int, reported: Sequence[str]) -> str:
    has = listed(reported) or "no metric"
    return f"no report so far has a number for {listed(missing)}; the newest report of trial {number} has {has}"
