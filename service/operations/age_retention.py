"""What is removed because of its age: logs, packages that nothing uses, and whole experiments.

The age of a log and of an experiment counts from the experiment's end, that of a package from when it was last sent.
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from service.errors import NotFound, WrongState
from service.operations.experiments import lifecycle
from service.operations.packages.package_store import remove_unused_package
from service.runtime.collected_errors import sum_of_all
from service.runtime.context import Context
from service.store.age_retention import ends_of_experiments, experiments_that_ended_before
from service.store.packages import packages_without_experiment
from service.store.tables import ExperimentRow

BATCH = 500
MAX_DAYS = 36_500
"""More of them may go back beyond the first year that a date can have."""


def remove_old_logs(context: Context, now: datetime) -> int:
    """Remove the logs of experiments that ended long ago. Return the number of trials that had some.

    A trial that is not known may be one of another database with the same data directory: its log's own age counts.
    """
    days = context.settings.keep_logs_days
    if not days:
        return 0
    removed = 0
    for logs in _batches(context):
        with context.database.read() as session:
            ends = ends_of_experiments(session, [path.name for path in logs])
        old = [path for path in logs if _is_before(ends.get(path.name, _last_change(path)), _before(now, days))]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        removed += len(old)
    return removed


def removal_note(context: Context, experiment: ExperimentRow, trial_id: str, now: datetime) -> str:
    """What to say in place of a log that was removed for its age; empty for any other."""
    days = context.settings.keep_logs_days
    is_old = days > 0 and _is_before(experiment.ended_at, _before(now, days))
    if not is_old or (context.settings.logs_dir / trial_id).exists():
        return ""
    return (
        f"[paceline: there is no log; logs are removed {days:g} days after the experiment's end "
        "(PACELINE_KEEP_LOGS_DAYS)]\n"
    )


def remove_unused_packages(context: Context, now: datetime) -> int:
    """Return the number of packages that were removed."""
    days = context.settings.keep_packages_days
    if not days:
        return 0
    with context.database.read() as session:
        unused = packages_without_experiment(session)
    return sum(remove_unused_package(context, package, _before(now, days)) for package in unused)


def delete_old_experiments(context: Context, now: datetime) -> int:
    """Delete experiments that ended long ago, as a user would. Return their number.

    One that is not in MLflow yet is kept until it is.
    """
    days = context.settings.keep_experiments_days
    if not days:
        return 0
    with context.database.read() as session:
        mirrored = context.settings.mlflow_uri is not None
        old = experiments_that_ended_before(session, _before(now, days), only_mirrored=mirrored)
    return sum_of_all(partial(_delete, context, experiment) for experiment in old)


def _delete(context: Context, experiment: str) -> int:
    try:
        lifecycle.delete(context, experiment)
    except (NotFound, WrongState):  # a user has deleted it, or one of its trials runs again
        return 0
    return 1


def _before(now: datetime, days: float) -> datetime:
    return now - timedelta(days=min(days, MAX_DAYS))


def _is_before(end: datetime | None, time: datetime) -> bool:
    return end is not None and end < time


def _last_change(path: Path) -> datetime | None:
    """None for a directory that was removed meanwhile."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _batches(context: Context) -> Iterator[list[Path]]:
    """The directories of logs. Each has a trial's id as its name."""
    logs = [path for path in context.settings.logs_dir.iterdir() if path.is_dir()]
    for start in range(0, len(logs), BATCH):
        yield logs[start : start + BATCH]
