"""The search's view of each experiment: a cache of the history in SQL, rebuilt from it at any time."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from sqlalchemy import select

from search.constraints import violations
from search.problem import Observation, Problem, Status
from search.space import Params
from search.study import StudyView
from service.domain.statuses import TrialStatus
from service.operations.measuring import newest_values
from service.spec.models import ExperimentSpec
from service.store.database import Database
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials import trials_changed_after
from trainer.wire import FailureKind

MAX_VIEWS = 64

_STATUSES: dict[TrialStatus, Status] = {
    TrialStatus.QUEUED: "running",  # proposed and not yet known: the same to a sampler
    TrialStatus.RUNNING: "running",
    TrialStatus.COMPLETED: "completed",
    TrialStatus.PRUNED: "pruned",
    TrialStatus.FAILED: "failed",
    TrialStatus.STOPPED: "stopped",
}


@dataclass
class _Cached:
    spec: ExperimentSpec
    view: StudyView
    seen_event: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)


class Proposals:
    """Proposes configurations; one at a time for an experiment, several experiments at once."""

    def __init__(self) -> None:
        self._views: OrderedDict[str, _Cached] = OrderedDict()
        self._guard = threading.Lock()

    def propose(self, database: Database, experiment_id: str, number: int) -> Params:
        """The configuration of trial `number`, from all that is known now. Raises SpaceExhausted."""
        cached = self._cached(database, experiment_id)
        with cached.guard:
            with database.read() as session:
                changed = trials_changed_after(session, experiment_id, cached.seen_event)
            cached.view.update([observation_of(cached.spec, trial) for trial in changed])
            cached.seen_event = max([cached.seen_event, *(trial.changed_at_event for trial in changed)])
            return cached.view.propose([], number)

    def _cached(self, database: Database, experiment_id: str) -> _Cached:
        with self._guard:
            if experiment_id not in self._views:
                spec = _spec(database, experiment_id)
                self._views[experiment_id] = _Cached(spec, StudyView(_problem(spec, experiment_id)))
            self._views.move_to_end(experiment_id)
            while len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
            return self._views[experiment_id]


def _spec(database: Database, experiment_id: str) -> ExperimentSpec:
    with database.read() as session:
        document = session.scalar(select(ExperimentRow.spec).where(ExperimentRow.id == experiment_id))
    return ExperimentSpec.model_validate(document)


def _problem(spec: ExperimentSpec, experiment_id: str) -> Problem:
    return Problem(
        space=spec.space,
        directions=tuple(objective.direction for objective in spec.objectives),
        sampler=spec.search,
        seed=seed_of(spec, experiment_id),
        constrained=spec.setting.constrained,
        prunes=spec.setting.prunes,
        max_trials=spec.limits.max_trials,
        parallelism=spec.limits.parallelism,
    )


def seed_of(spec: ExperimentSpec, experiment_id: str) -> int:
    """The spec's, or one that stays with the experiment."""
    return spec.search.seed if spec.search.seed is not None else int(experiment_id.removeprefix("x-"), 16) % 2**31


def observation_of(spec: ExperimentSpec, trial: TrialRow) -> Observation:
    known = newest_values(spec, trial)
    values = tuple(known[one.metric] for one in spec.objectives if one.metric in known)
    is_whole = len(values) == len(spec.objectives)
    return Observation(
        number=trial.number,
        params=trial.params,
        status=_status(trial, is_whole=is_whole),
        values=values if is_whole else None,
        last_step=trial.last_step,
        last_value=trial.value,
    )


        constraints=violations(spec.constraints, known) if spec.constraints else None,
def _status(trial: TrialRow, *, is_whole: bool) -> Status:
    if trial.failure_kind == FailureKind.DIVERGED:
        return "diverged"
    if trial.status == TrialStatus.COMPLETED and not is_whole:
        return "failed"  # nothing to learn from
    return _STATUSES[TrialStatus(trial.status)]
