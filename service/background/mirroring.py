"""The loop that mirrors the event log to MLflow: load, work without a transaction, then note how far it came."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from service.mirror.backoff import Patience
from service.mirror.errors import MlflowAway, MlflowRefused
from service.mirror.objectives import Best, objectives_of
from service.mirror.pareto_front import Front
from service.mirror.projection import CONTENDING_ENDS, TRIAL_ENDS, Facts, Projection, Standing, Update, project
from service.mirror.runs import experiment_run, trial_run
from service.runtime import garbage_collection
from service.store import mirrors
from service.store.events import events_after
from service.store.generations import generations_of_all
from service.store.sql.database import Database
from service.store.tables import EventRow, ExperimentRow, MirrorRow
from service.store.trials import counts_by_status

if TYPE_CHECKING:
    from service.mirror.tracking_client import Tracking

BATCH = 2000
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """What one round tells MLflow of one experiment. `runs` are those known already."""

    facts: Facts
    events: Sequence[EventRow]
    mirror: MirrorRow | None
    runs: Mapping[tuple[str, int], str]


class Mirroring:
    """Feeds MLflow from where the cursor stands. MLflow may be away for as long as it likes: nothing waits for it.

    The cursor moves after MLflow has taken a batch, so a kill in between repeats it, and a repeat changes nothing.
    """

    name = "mirroring"
    is_behind = False

    def __init__(
        self, database: Database, tracking_uri: str, *, every: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.every = every
        self._database = database
        self._uri = tracking_uri
        self._patience = Patience(clock)
        self._tracking: Tracking | None = None
        self._fronts: dict[str, tuple[int, Front]] = {}

    def run_once(self) -> int:
        """One batch of each experiment that is behind; the count of events mirrored.

        Raises MlflowAway while MLflow does not answer. What MLflow refuses concerns one experiment: it is noted there.
        """
        with mirrors.try_mirror_lock(self._database) as mine:
            counts = self._mirror_all() if mine else []
        self.is_behind = BATCH in counts
        return sum(counts)

    def _mirror_all(self) -> list[int]:
        with self._database.read() as session:
            behind = mirrors.experiments_behind(session)
        return [self._try(experiment_id) for experiment_id in behind if not self._patience.waits(experiment_id)]

    def _try(self, experiment_id: str) -> int:
        try:
            count = self._mirror(experiment_id)
        except MlflowAway as error:
            self._note(experiment_id, error)
            raise
        except MlflowRefused as error:
            self._note(experiment_id, error)
            self._patience.failed(experiment_id)
            log.warning("experiment %s is not mirrored: %s", experiment_id, error)
            return 0
        self._patience.succeeded(experiment_id)
        return count

    def _mirror(self, experiment_id: str) -> int:
        with self._database.read() as session:
            batch = _load(session, experiment_id, self._fronts.pop(experiment_id, None))
        if batch is None:
            return 0
        projection = project(batch.facts, batch.events)
        new_runs, cursor = self._tell(batch, projection), batch.events[-1].seq
        with self._database.write() as session:
            mirrors.advance(session, experiment_id, cursor, new_runs)
        if projection.standing.front is not None and batch.facts.experiment.ended_at is None:
            self._fronts[experiment_id] = (cursor, projection.standing.front)
        return len(batch.events)

    def _tell(self, batch: Batch, projection: Projection) -> dict[tuple[str, int], str]:
        """Sends a batch; the runs made for it, by trial and generation."""
        tracking, facts = self._connected(), batch.facts
        mlflow_experiment_id, parent_run_id = self._place_of(facts.experiment, batch.mirror)
        new_runs: dict[tuple[str, int], str] = {}
        for run, update in projection.runs.items():
            run_id = batch.runs.get(run)
            if run_id is None:
                new = trial_run(facts.experiment, facts.trials[run.trial_id], parent_run_id, facts.generation(run))
                run_id, is_new = tracking.ensure_run(mlflow_experiment_id, new, update.started_at)
                new_runs[run] = run_id
                update = update.first(new.params, is_new=is_new)  # noqa: PLW2901 - the same, with what is said only once
            tracking.write(run_id, update)
        tracking.write(parent_run_id, projection.parent)
        return new_runs

    def _place_of(self, experiment: ExperimentRow, mirror: MirrorRow | None) -> tuple[str, str]:
        """MLflow's experiment and the parent run, made on first sight."""
        if mirror and mirror.mlflow_experiment_id and mirror.parent_run_id:
            return mirror.mlflow_experiment_id, mirror.parent_run_id
        tracking = self._connected()
        mlflow_experiment_id = tracking.ensure_experiment(experiment)
        new = experiment_run(experiment)
        parent_run_id, _ = tracking.ensure_run(mlflow_experiment_id, new, experiment.created_at)
        tracking.write(parent_run_id, Update(experiment.created_at, new.params))
        with self._database.write() as session:
            mirrors.begin(session, experiment.id, mlflow_experiment_id, parent_run_id)
        return mlflow_experiment_id, parent_run_id

    def _connected(self) -> "Tracking":
        if self._tracking is None:
            with garbage_collection.frozen_afterwards():
                from service.mirror.tracking_client import Tracking  # noqa: PLC0415 - MLflow takes seconds to import

            self._tracking = Tracking(self._uri)
        return self._tracking

    def _note(self, experiment_id: str, error: Exception) -> None:
        with self._database.write() as session:
            mirrors.fail(session, experiment_id, str(error))


def _load(session: Session, experiment_id: str, known: tuple[int, Front] | None) -> Batch | None:
    """None when there is nothing to tell, or the experiment has been deleted meanwhile.

    `known` is a front of several objectives, and the event up to which it is one.
    """
    experiment, mirror = session.get(ExperimentRow, experiment_id), session.get(MirrorRow, experiment_id)
    cursor = mirror.cursor if mirror else 0
    events = events_after(session, experiment_id, cursor, BATCH)
    if experiment is None or not events:
        return None
    best = _best_before(session, experiment, cursor)
    ended_count = mirrors.count_events(session, experiment_id, cursor, tuple(TRIAL_ENDS))
    trial_ids = {event.trial_id for event in events if event.trial_id} | {one.trial_id for one in best}
    facts = Facts(
        experiment,
        mirrors.trials_named(session, trial_ids),
        generations_of_all(session, trial_ids),  # after the trials, so that params are theirs or have a row here
        counts_by_status(session, experiment_id),
        Standing(ended_count, best, _front_before(session, experiment, cursor, known)),
    )
    return Batch(facts, events, mirror, mirrors.runs_of(session, trial_ids))


def _front_before(
    session: Session, experiment: ExperimentRow, cursor: int, known: tuple[int, Front] | None
) -> Front | None:
    if known is not None and known[0] == cursor:
        return known[1]
    front = Front.of(experiment)
    if front is not None:
        for end in mirrors.ends_up_to(session, experiment.id, cursor, CONTENDING_ENDS):
            front = front.after(end)
    return front


def _best_before(session: Session, experiment: ExperimentRow, cursor: int) -> tuple[Best, ...]:
    ends = [
        mirrors.best_end(session, experiment.id, cursor, CONTENDING_ENDS, one.place, maximize=one.maximize)
        for one in objectives_of(experiment)
    ]
    best = (one.best_of((), end) for one, end in zip(objectives_of(experiment), ends, strict=True) if end)
    return tuple(one for one in best if one is not None)
