"""Queries on experiments."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, exists, func, literal, or_, select, tuple_
from sqlalchemy.orm import Session

from service.domain.end_reasons import CONFIRMED_ENDS, ENDS_THAT_LET_TRIALS_RUN, STATUS_AFTER_END, EndReason
from service.domain.statuses import LIVE_EXPERIMENT, ExperimentStatus
from service.store.sql.column_types import UtcDateTime
from service.store.tables import ExperimentRow, WarmStartRow


def may_run_trials(experiment: ExperimentRow) -> bool:
    """Whether trials may run and start, new ones or at least those that are queued."""
    return experiment.end_reason is None or experiment.end_reason in _with_trials(experiment)


def _with_trials(experiment: ExperimentRow) -> frozenset[EndReason]:
    """The end reasons with which trials may still start."""
    return ENDS_THAT_LET_TRIALS_RUN | CONFIRMED_ENDS if experiment.spec.get("confirm") else ENDS_THAT_LET_TRIALS_RUN


def that_may_run_trials() -> ColumnElement[bool]:
    """The condition for experiments of which `may_run_trials` is true."""
    is_confirmed = ExperimentRow.spec[("confirm", "top")].as_string().is_not(None)
    return or_(
        ExperimentRow.end_reason.is_(None),
        ExperimentRow.end_reason.in_(ENDS_THAT_LET_TRIALS_RUN),
        ExperimentRow.end_reason.in_(CONFIRMED_ENDS) & is_confirmed,
    )


def has_ended_search(experiment: ExperimentRow) -> bool:
    """Whether only confirmations are still to come: the search's last trials end, or its winners run again."""
    return bool(experiment.spec.get("confirm")) and experiment.end_reason in CONFIRMED_ENDS


class StartableExperiment(NamedTuple):
    id: str
    priority: int


def startable_experiments(session: Session) -> list[StartableExperiment]:
    """Experiments that may start trials: those that run and of which `may_run_trials` is true; the oldest first."""
    query = select(ExperimentRow.id, ExperimentRow.priority).where(
        ExperimentRow.status == ExperimentStatus.RUNNING, that_may_run_trials()
    )
    rows = session.execute(query.order_by(ExperimentRow.created_at, ExperimentRow.id))
    return [StartableExperiment(*row) for row in rows]


def spec_versions(session: Session, ids: Collection[str]) -> dict[str, int]:
    """The `spec_changed_at_event` of each experiment, by its id."""
    query = select(ExperimentRow.id, ExperimentRow.spec_changed_at_event).where(ExperimentRow.id.in_(ids))
    return dict(session.execute(query).all())


def find_experiment(session: Session, name_or_id: str) -> ExperimentRow | None:
    return session.scalar(_named(name_or_id))


def lock_experiment(session: Session, name_or_id: str) -> ExperimentRow | None:
    """Lock the experiment until the end of the transaction. Its trials and events change only under this lock."""
    return session.scalar(_named(name_or_id).with_for_update().execution_options(populate_existing=True))


def lock_for(ids: Select[str]) -> Select[ExperimentRow]:
    """A query that locks the experiments with the ids that another query selects.

    They are locked in the order of their ids, so that two transactions that lock several cannot deadlock.
    """
    query = select(ExperimentRow).where(ExperimentRow.id.in_(ids)).order_by(ExperimentRow.id)
    return query.with_for_update().execution_options(populate_existing=True)


def experiments_with(session: Session, ids: Sequence[str]) -> list[ExperimentRow]:
    """Return the experiments with these ids that exist, in the order of `ids`."""
    rows = {row.id: row for row in session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(ids)))}
    return [rows[id_] for id_ in ids if id_ in rows]


class EndedExperiment(NamedTuple):
    """Another event, or another end, is another version of the experiment."""

    id: str
    event_count: int
    ended_at: datetime | None


def ended_after(session: Session, time: datetime) -> list[EndedExperiment]:
    """The experiments that ended after `time`, in the order of their ends."""
    query = select(ExperimentRow.id, ExperimentRow.event_count, ExperimentRow.ended_at).where(
        ExperimentRow.status.in_(set(STATUS_AFTER_END.values())), ExperimentRow.ended_at > time
    )
    return [EndedExperiment(*row) for row in session.execute(query.order_by(ExperimentRow.ended_at, ExperimentRow.id))]


def experiments_limited_in_time(session: Session) -> Sequence[ExperimentRow]:
    """Live experiments with a limit that passes as time does: of the experiment, of a trial, or between reports."""
    limits = (
        ("limits", "max_seconds"),
        ("limits", "max_gpu_hours"),
        ("limits", "max_trial_seconds"),
        ("limits", "kill_trial_after_seconds"),
        ("failures", "report_timeout_seconds"),
    )
    limited = or_(*(ExperimentRow.spec[limit].as_string().is_not(None) for limit in limits))
    return session.scalars(select(ExperimentRow).where(ExperimentRow.status.in_(LIVE_EXPERIMENT), limited)).all()


def page_of_experiments(
    session: Session, *, status: str | None, tag: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[ExperimentRow]:
    """Newest first. `tag`: as `name:value`.

    `after`: the creation time and the id of the last experiment of the page before.
    """
    query = select(ExperimentRow).order_by(ExperimentRow.created_at.desc(), ExperimentRow.id.desc())
    if status:
        query = query.where(ExperimentRow.status == status)
    if tag:
        query = query.where(_has_tag(tag, session.get_bind().dialect.name))
    if after is not None:
        created_at, experiment_id = after
        position = tuple_(ExperimentRow.created_at, ExperimentRow.id)
        query = query.where(position < tuple_(literal(created_at, UtcDateTime), literal(experiment_id)))
    return list(session.scalars(query.limit(limit)))


def _has_tag(tag: str, dialect: str) -> ColumnElement[bool]:
    """Names may have colons, too. Not by a JSON path, in which SQLite does not find all names."""
    each = func.json_each if dialect == "sqlite" else func.json_each_text
    found = each(ExperimentRow.tags).table_valued("key", "value")
    return exists(select(found.c.key).where(found.c.key + ":" + found.c.value == tag))


def _named(name_or_id: str) -> Select[ExperimentRow]:
    return select(ExperimentRow).where(or_(ExperimentRow.id == name_or_id, ExperimentRow.name == name_or_id))


def find_experiment_by_key(session: Session, key: str) -> ExperimentRow | None:
    return session.scalar(select(ExperimentRow).where(ExperimentRow.idempotency_key == key))


def warm_starts_of(session: Session, experiment_ids: Collection[str]) -> dict[str, list[Any]]:
    """A summary of each earlier experiment that a search has learned from, by the experiment of the search."""
    query = select(WarmStartRow.experiment_id, WarmStartRow.sources)
    return dict(session.execute(query.where(WarmStartRow.experiment_id.in_(experiment_ids))).all())
