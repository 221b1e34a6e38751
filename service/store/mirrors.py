"""The position of the MLflow mirror in each experiment's events, and what it reads to write the next ones."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from datetime import datetime, timedelta

from sqlalchemy import Select, delete, func, or_, select
from sqlalchemy.orm import Session, aliased

from service.store.advisory_locks import AdvisoryLock, try_advisory_lock
from service.store.sql.database import Database, database_now
from service.store.sql.get_or_create import get_or_create
from service.store.tables import EventRow, ExperimentRow, GenerationRow, MirrorRow, MirrorRunRow, TrialRow

_MIRROR_LOCK = 7_205_759_404  # any number that no other lock uses, the same in every service process
_CHARTS_LOCK = 7_205_759_405
_READ_TOGETHER = 100  # events
_CURSOR = func.coalesce(MirrorRow.cursor, 0)


def try_mirror_lock(database: Database) -> AbstractContextManager[AdvisoryLock]:
    """Try to take the mirror's lock, which one service process per database holds at a time."""
    return try_advisory_lock(database, _MIRROR_LOCK)


def try_charts_lock(database: Database) -> AbstractContextManager[AdvisoryLock]:
    """Try to take the lock for drawing charts."""
    return try_advisory_lock(database, _CHARTS_LOCK)


def lag(session: Session) -> int:
    """The number of events that are not mirrored yet, over all experiments."""
    behind = select(func.sum(ExperimentRow.event_count - _CURSOR)).outerjoin(
        MirrorRow, MirrorRow.experiment_id == ExperimentRow.id
    )
    return int(session.scalar(behind) or 0)


def oldest_waiting(session: Session) -> datetime | None:
    """The time of the oldest event that is not mirrored yet."""
    first = (
        select(func.min(EventRow.at))
        .join(ExperimentRow, ExperimentRow.id == EventRow.experiment_id)
        .outerjoin(MirrorRow, MirrorRow.experiment_id == ExperimentRow.id)
        .where(ExperimentRow.event_count > _CURSOR, EventRow.seq == _CURSOR + 1)
    )
    return session.scalar(first)


def experiments_behind(session: Session) -> list[str]:
    """The experiments with events to mirror, the one that was mirrored least recently first."""
    behind = (
        select(ExperimentRow.id)
        .outerjoin(MirrorRow, MirrorRow.experiment_id == ExperimentRow.id)
        .where(ExperimentRow.event_count > _CURSOR)
        .order_by(func.coalesce(MirrorRow.updated_at, ExperimentRow.created_at), ExperimentRow.id)
    )
    return list(session.scalars(behind))


def behind_or_recent(session: Session, recent: timedelta) -> set[str]:
    """The experiments with events to mirror, and those that were mirrored recently."""
    since = database_now(session) - recent
    mirrored = session.scalars(select(MirrorRow.experiment_id).where(MirrorRow.updated_at >= since))
    return {*experiments_behind(session), *mirrored}


def is_catching_up(session: Session, experiment: ExperimentRow, since: datetime) -> bool:
    """Whether MLflow lacks events of the experiment, and no error has kept them from it since then."""
    mirror = session.get(MirrorRow, experiment.id)
    if mirror is None:
        return True
    has_failed = mirror.error is not None and mirror.updated_at >= since
    return not has_failed and mirror.cursor < experiment.event_count


def mirrors_of(session: Session, experiment_ids: Collection[str]) -> dict[str, MirrorRow]:
    """The mirror of each experiment, by its id; without experiments that are not in MLflow yet."""
    rows = session.scalars(select(MirrorRow).where(MirrorRow.experiment_id.in_(experiment_ids)))
    return {row.experiment_id: row for row in rows}


def events_to_mirror(
    session: Session, experiment_id: str, cursor: int, most_events: int, most_points: int
) -> list[EventRow]:
    """The events after the cursor, at least one if there is any. No further ones once they have `most_points`.

    They are read piece by piece, since all of them may take a GB: reports can have thousands of metrics.
    """
    query = select(EventRow).where(EventRow.experiment_id == experiment_id, EventRow.seq > cursor)
    query = query.order_by(EventRow.seq).limit(most_events).execution_options(yield_per=_READ_TOGETHER)
    events: list[EventRow] = []
    points = 0
    with closing(session.scalars(query)) as rows:
        for event in rows:
            events.append(event)
            points += _point_count(event)
            if points >= most_points:
                break
    return events


def _point_count(event: EventRow) -> int:
    """The number of points of metrics in a report, or in the samples of a node's load."""
    samples = event.data.get("samples") or ()
    return len(event.data.get("metrics") or ()) + sum(len(sample["metrics"]) for sample in samples)


def count_events(session: Session, experiment_id: str, up_to: int, kinds: Sequence[str]) -> int:
    count = select(func.count()).where(
        EventRow.experiment_id == experiment_id, EventRow.seq <= up_to, EventRow.kind.in_(kinds)
    )
    return int(session.scalar(count) or 0)


def best_end(
    session: Session, experiment_id: str, up_to: int, kinds: Sequence[str], objective: int, *, maximize: bool
) -> EventRow | None:
    """The end of the feasible trial with the best value of objective number `objective`, up to event `up_to`.

    Confirmations are left out, and ends that were taken back by then.
    """
    value = EventRow.data[("values", objective)].as_float()
    ends = (
        _standing_ends(experiment_id, up_to, kinds)
        .where(value.is_not(None), EventRow.data["feasible"].as_boolean().is_not(False))
        .where(EventRow.data["confirms"].as_integer().is_(None))
        .order_by(value.desc() if maximize else value.asc(), EventRow.data["number"].as_integer())
        .limit(1)
    )
    return session.scalars(ends).first()


def ends_up_to(session: Session, experiment_id: str, up_to: int, kinds: Sequence[str]) -> list[EventRow]:
    """The ends of trials up to event `up_to`, in their order, without those that were taken back by then."""
    return list(session.scalars(_standing_ends(experiment_id, up_to, kinds).order_by(EventRow.seq)))


def _standing_ends(experiment_id: str, up_to: int, kinds: Sequence[str]) -> Select[EventRow]:
    """Ends of trials that do not run again after them."""
    queued = aliased(EventRow)
    revived = (
        select(queued.trial_id, func.max(queued.seq).label("seq"))
        .where(queued.experiment_id == experiment_id, queued.seq <= up_to, queued.kind == "trial.queued")
        .group_by(queued.trial_id)
        .subquery()
    )
    return (
        select(EventRow)
        .outerjoin(revived, revived.c.trial_id == EventRow.trial_id)
        .where(EventRow.experiment_id == experiment_id, EventRow.seq <= up_to, EventRow.kind.in_(kinds))
        .where(or_(revived.c.seq.is_(None), revived.c.seq < EventRow.seq))
    )


def trials_named(session: Session, trial_ids: set[str]) -> dict[str, TrialRow]:
    return {row.id: row for row in session.scalars(select(TrialRow).where(TrialRow.id.in_(trial_ids)))}


def runs_of(session: Session, trial_ids: set[str]) -> dict[tuple[str, int], str]:
    """The ids of MLflow's runs, by trial and generation."""
    rows = session.scalars(select(MirrorRunRow).where(MirrorRunRow.trial_id.in_(trial_ids)))
    return {(row.trial_id, row.generation): row.run_id for row in rows}


def existing(session: Session, experiment_ids: Collection[str]) -> set[str]:
    """The ids of the experiments that were not deleted."""
    return set(session.scalars(select(ExperimentRow.id).where(ExperimentRow.id.in_(experiment_ids))))


def run_keys_of(session: Session, trial_ids: set[str]) -> set[tuple[str, int]]:
    """The trials that exist, with each of their generations."""
    later = select(GenerationRow.trial_id, GenerationRow.number).where(GenerationRow.trial_id.in_(trial_ids))
    found = {(trial_id, number) for trial_id, number in session.execute(later)}
    return found | {(trial_id, 0) for trial_id in trials_named(session, trial_ids)}


def begin(
    session: Session, experiment_id: str, mlflow_experiment_id: str, parent_run_id: str
) -> tuple[str, str] | None:
    """Store what MLflow has of a new experiment, unless another service has done so; return the ids that are stored.

    None if the experiment was deleted.
    """
    mirror = _row(session, experiment_id)
    if mirror is None:
        return None
    if mirror.mlflow_experiment_id and mirror.parent_run_id:
        return mirror.mlflow_experiment_id, mirror.parent_run_id
    mirror.mlflow_experiment_id, mirror.parent_run_id = mlflow_experiment_id, parent_run_id
    mirror.error = None
    return mlflow_experiment_id, parent_run_id


def advance(
    session: Session, experiment_id: str, after: int, cursor: int, new_runs: Mapping[tuple[str, int], str]
) -> bool:
    """Record that MLflow has the events after `after` up to `cursor`, and its `new_runs` by trial and generation.

    Without effect unless MLflow has exactly those up to `after` so far: otherwise this service has lost its lock
    meanwhile, or everything is to be mirrored again. Nor if another run is stored for one of them: the first one stays.
    Return whether it had effect.
    """
    if new_runs:
        _keep(session, experiment_id)
    mirror = session.get(MirrorRow, experiment_id, with_for_update=True)
    if mirror is None or mirror.cursor != after:
        return False
    stored = runs_of(session, {trial_id for trial_id, _ in new_runs})
    if any(stored.get(key, run_id) != run_id for key, run_id in new_runs.items()):
        return False
    mirror.cursor, mirror.error, mirror.updated_at = cursor, None, database_now(session)
    for (trial_id, generation), run_id in new_runs.items():
        facts = {"experiment_id": experiment_id, "run_id": run_id}
        session.merge(MirrorRunRow(trial_id=trial_id, generation=generation, **facts))
    return True


def rewind(session: Session, experiment_id: str, after: int) -> None:
    """Have the events after `after` mirrored again, if they are."""
    mirror = session.get(MirrorRow, experiment_id, with_for_update=True)
    if mirror is not None and mirror.cursor > after:
        mirror.cursor = after


def remove(session: Session, experiment_ids: Collection[str]) -> None:
    """Remove what is known of the experiments in MLflow, so that everything is mirrored again.

    The mirrors first: an `advance` in another transaction has then been committed, and its runs are deleted, too; or
    it finds another cursor.
    """
    session.execute(delete(MirrorRow).where(MirrorRow.experiment_id.in_(experiment_ids)))
    session.execute(delete(MirrorRunRow).where(MirrorRunRow.experiment_id.in_(experiment_ids)))


def without_ids(session: Session) -> set[str]:
    """The experiments with an empty id from MLflow, which earlier versions stored when another program answered."""
    of_experiment = or_(MirrorRow.mlflow_experiment_id == "", MirrorRow.parent_run_id == "")
    found = set(session.scalars(select(MirrorRow.experiment_id).where(of_experiment)))
    return found | set(session.scalars(select(MirrorRunRow.experiment_id).where(MirrorRunRow.run_id == "")))


def remove_all(session: Session) -> int:
    """As `remove`; return the number of experiments, of which everything is mirrored again."""
    session.execute(delete(MirrorRow))
    session.execute(delete(MirrorRunRow))
    return session.scalar(select(func.count()).select_from(ExperimentRow)) or 0


def fail(session: Session, experiment_id: str, error: str) -> None:
    mirror = _row(session, experiment_id)
    if mirror is not None:
        mirror.error = error


def fail_all(session: Session, experiment_ids: Sequence[str], error: str) -> None:
    """Store an error with all of the experiments. The next pass mirrors them in the order that is given here."""
    now, present = database_now(session), existing(session, experiment_ids)
    rows = mirrors_of(session, experiment_ids)
    for place, experiment_id in enumerate(one for one in experiment_ids if one in present):
        mirror = rows.get(experiment_id) or MirrorRow(experiment_id=experiment_id, cursor=0)
        mirror.error, mirror.updated_at = error, now + timedelta(microseconds=place)
        session.add(mirror)


def _keep(session: Session, experiment_id: str) -> None:
    """Take the lock of the experiment that a new row which refers to it takes, if the experiment still exists.

    Before any lock of the mirror: a deletion locks them in this order, and would be a deadlock with another.
    """
    query = select(ExperimentRow.id).where(ExperimentRow.id == experiment_id)
    session.execute(query.with_for_update(read=True, key_share=True))


def _row(session: Session, experiment_id: str) -> MirrorRow | None:
    """Return the mirror's row of the experiment, locked, created if needed; None if the experiment has been deleted."""
    if session.get(ExperimentRow, experiment_id) is None:
        return None
    now = database_now(session)
    mirror = get_or_create(session, MirrorRow, experiment_id, cursor=0, updated_at=now)
    mirror.updated_at = now
    return mirror
