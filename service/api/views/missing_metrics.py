"""Metrics of objectives and constraints that no trial has reported, told before the first trial ends without them."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy.orm import Session

from search.mistakes import listed
from service.domain.statuses import TrialStatus
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.running_reports import newest_metric_names, running_with_reports
from service.store.trials.trial_values import constraint_values, objective_values

HAVE_RESULTS = (TrialStatus.COMPLETED, TrialStatus.PRUNED, TrialStatus.PAUSED)


def missing_metrics(
    session: Session, experiments: Sequence[ExperimentRow], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """A sentence for each experiment whose first trials lack metrics in all of their reports so far, by its id."""
    first = [
        row for row in experiments if counts[row.id]["running"] and not any(counts[row.id][s] for s in HAVE_RESULTS)
    ]
    running = running_with_reports(session, [row.id for row in first]) if first else {}
    missing = {row.id: _in_none(row, running[row.id]) for row in first if row.id in running}
    lacking = [key for key, names in missing.items() if names]
    reported = newest_metric_names(session, [running[key][0] for key in lacking]) if lacking else {}
    # A name that is reported without a finite number is not missing.
    wanted = {key: [name for name in missing[key] if name not in names] for key, (_, names) in reported.items()}
    return {key: _sentence(wanted[key], *one) for key, one in reported.items() if wanted[key]}


def _in_none(experiment: ExperimentRow, trials: Iterable[TrialRow]) -> list[str]:
    known = [objective_values(experiment, one) | (constraint_values(experiment, one) or {}) for one in trials]
    return [name for name in known[0] if all(values[name] is None for values in known)]


def _sentence(missing: Sequence[str], number: int, reported: Sequence[str]) -> str:
    has = listed(reported) or "no metric"
    return f"no report so far has a number for {listed(missing)}; the newest report of trial {number} has {has}"
