"""Duplicates of runs in MLflow that no service knows of: the one that was creating them was killed.

MLflow may execute a creation after the service that has asked for it was killed. Another service, or this one after its
start, has not seen the run then, and has created another one.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.orm import Session

from service.mirror.mlflow_errors import MlflowUnavailable
from service.mirror.runs.new_runs import NewRun, experiment_run, trial_run
from service.mirror.runs.projection import RunKey
from service.mirror.tracking_server.connection import TrackingConnection
from service.store import mirrors
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow
from service.store.trials.param_generations import generations_of_all

if TYPE_CHECKING:  # importing MLflow takes seconds
    from service.mirror.tracking_server.run_lookup import RunLookup

AFTER_START_SECONDS = (30.0, 300.0)
AFTER_END_SECONDS = 300.0
AGAIN_SECONDS = 30.0
"""After MLflow has not answered."""
RECENT = timedelta(hours=1)
"""MLflow is taken to execute no creation later than this: an experiment last mirrored before has no duplicates."""


class _Look(NamedTuple):
    at: float
    experiment_id: str


class _StoredRun(NamedTuple):
    """A run that the database has the id of, and how it was created."""

    new: NewRun
    run_id: str


class DuplicateRuns:
    """Looks for duplicates some time after the service's start, and after each experiment's end.

    `clock` counts seconds from any start, as `time.monotonic` does.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._looks: list[_Look] = []

    def service_began(self) -> None:
        """An earlier service may have been killed while it wrote what MLflow lacks, or shortly after."""
        with self._database.read() as session:
            found = mirrors.behind_or_recent(session, RECENT)
        now = self._clock()
        self._looks += [_Look(now + after, one) for after in AFTER_START_SECONDS for one in found]

    def experiment_ended(self, experiment_id: str) -> None:
        """Another service may have been killed while it mirrored the experiment, all of which MLflow now has."""
        self._looks.append(_Look(self._clock() + AFTER_END_SECONDS, experiment_id))

    def delete_next(self, connection: TrackingConnection) -> None:
        """Look at one experiment, if it is time for one: the calls may take long. Raises the errors of the mirror."""
        due = min(self._looks, default=None)
        if due is None or due.at > self._clock():
            return
        self._looks.remove(due)
        try:
            self._look(connection.client, due.experiment_id)
        except MlflowUnavailable:
            self._looks.append(due._replace(at=self._clock() + AGAIN_SECONDS))
            raise

    def _look(self, tracking: "RunLookup", experiment_id: str) -> None:
        with self._database.read() as session:
            experiment, mirror = session.get(ExperimentRow, experiment_id), session.get(MirrorRow, experiment_id)
        if experiment and mirror and mirror.mlflow_experiment_id and mirror.parent_run_id:
            self._delete(tracking, experiment, mirror.mlflow_experiment_id, mirror.parent_run_id)

    def _delete(
        self, tracking: "RunLookup", experiment: ExperimentRow, mlflow_experiment_id: str, parent_run_id: str
    ) -> None:
        tracking.delete_duplicates(mlflow_experiment_id, experiment_run(experiment), parent_run_id)
        unfinished = tracking.unfinished_runs(mlflow_experiment_id)
        with self._database.read() as session:
            doubled = list(_stored_instead(session, experiment, parent_run_id, unfinished))
        for one in doubled:
            tracking.delete_duplicates(mlflow_experiment_id, one.new, one.run_id)


def _stored_instead(
    session: Session, experiment: ExperimentRow, parent_run_id: str, unfinished: Mapping[str, RunKey]
) -> Iterator[_StoredRun]:
    """Yield each stored run whose trial has a second, unfinished run in MLflow."""
    trial_ids = {key.trial_id for key in unfinished.values()}
    stored, trials = mirrors.runs_of(session, trial_ids), mirrors.trials_named(session, trial_ids)
    generations = generations_of_all(session, trial_ids)
    for run_id, key in unfinished.items():
        kept, trial = stored.get(key), trials.get(key.trial_id)  # None: the experiment may be deleted meanwhile
        if kept is not None and trial is not None and kept != run_id:
            of_trial = generations.get(key.trial_id, ())
            generation = next((one for one in of_trial if one.number == key.generation), None)
            yield _StoredRun(trial_run(experiment, trial, parent_run_id, generation), kept)
