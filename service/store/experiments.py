"""Queries on experiments."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, literal, or_, select, tuple_
from sqlalchemy.orm import Session

from service.domain.statuses import LIVE_EXPERIMENT, NO_NEW_TRIALS, ExperimentStatus, TrialStatus
from service.store.sql.column_types import UtcDateTime
from service.store.tables import ExperimentRow, TrialRow, WarmStartRow

PAGE = 20
"""So many experiments are read at a time where it is not known how many are needed."""


def may_run_trials(experiment: ExperimentRow) -> bool:
    """Whether trials may run and start, new ones or at least those that are queued."""
    return experiment.end_reason is None or experiment.end_reason in NO_NEW_TRIALS


def find_experiment(session: Session, name_or_id: str) -> ExperimentRow | None:
    return session.scalar(_named(name_or_id))


def lock_experiment(session: Session, name_or_id: str) -> ExperimentRow | None:
    """Takes the experiment's lock until the end of the transaction: its trials and events change under it only."""
    return session.scalar(_named(name_or_id).with_for_update().execution_options(populate_existing=True))


def lock_for(ids: Select[str]) -> Select[ExperimentRow]:
    """The query that does what `lock_experiment` does, for the ids that another finds.

    Always in the same order, so that two who lock several cannot wait for each other.
    """
    query = select(ExperimentRow).where(ExperimentRow.id.in_(ids)).order_by(ExperimentRow.id)
    return query.with_for_update().execution_options(populate_existing=True)


def startable_experiment_ids(session: Session) -> Sequence[str]:
    """Those that may start trials, in the order in which they may: priority, then fewest running, then oldest."""
    running = (
        select(func.count())
        .where(TrialRow.experiment_id == ExperimentRow.id, TrialRow.status == TrialStatus.RUNNING)
        .scalar_subquery()
    )
    query = select(ExperimentRow.id).where(
        ExperimentRow.status == ExperimentStatus.RUNNING,
        or_(ExperimentRow.end_reason.is_(None), ExperimentRow.end_reason.in_(NO_NEW_TRIALS)),
    )
    return session.scalars(query.order_by(ExperimentRow.priority.desc(), running, ExperimentRow.created_at)).all()


def pages_of(line: Sequence[str]) -> Iterator[Sequence[str]]:
    """Of the line, whose first ones most often decide: to read a thousand specifications takes a tenth of a second."""
    return (line[first : first + PAGE] for first in range(0, len(line), PAGE))


def experiments_with(session: Session, ids: Sequence[str]) -> list[ExperimentRow]:
    """Those of them that there are, in their order."""
    rows = {row.id: row for row in session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(ids)))}
    return [rows[id_] for id_ in ids if id_ in rows]


def experiments_limited_in_time(session: Session) -> Sequence[ExperimentRow]:
    """The live ones in which time may end something other than a lease."""
    limits = (("limits", "max_seconds"), ("limits", "max_trial_seconds"), ("failures", "report_timeout_seconds"))
    limited = or_(*(ExperimentRow.spec[limit].as_string().is_not(None) for limit in limits))
    return session.scalars(select(ExperimentRow).where(ExperimentRow.status.in_(LIVE_EXPERIMENT), limited)).all()


def page_of_experiments(
    session: Session, *, status: str | None, tag: tuple[str, str] | None, after: tuple[datetime, str] | None, limit: int
) -> list[ExperimentRow]:
    """Newest first. `after` is when the last one seen was created, and its id."""
    query = select(ExperimentRow).order_by(ExperimentRow.created_at.desc(), ExperimentRow.id.desc())
    if status:
        query = query.where(ExperimentRow.status == status)
    if tag:
        query = query.where(ExperimentRow.tags[tag[0]].as_string() == tag[1])
    if after is not None:
        created_at, experiment_id = after
        place = tuple_(ExperimentRow.created_at, ExperimentRow.id)
        query = query.where(place < tuple_(literal(created_at, UtcDateTime), literal(experiment_id)))
    return list(session.scalars(query.limit(limit)))


def _named(name_or_id: str) -> Select[ExperimentRow]:
    return select(ExperimentRow).where(or_(ExperimentRow.id == name_or_id, ExperimentRow.name == name_or_id))


def find_experiment_by_key(session: Session, key: str) -> ExperimentRow | None:
    return session.scalar(select(ExperimentRow).where(ExperimentRow.idempotency_key == key))


def warm_starts_of(session: Session, experiment_ids: Collection[str]) -> dict[str, list[Any]]:
    """What was taken from each earlier experiment, by the one that took it."""
    query = select(WarmStartRow.experiment_id, WarmStartRow.sources)
    return dict(session.execute(query.where(WarmStartRow.experiment_id.in_(experiment_ids))).all())
