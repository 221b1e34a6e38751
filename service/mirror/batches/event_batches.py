"""Batches of events: the next ones of an experiment, with what their projection reads beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.mirror.batches.known_results import KnownResults
from service.mirror.runs.objectives import BestValue, objectives_of
from service.mirror.runs.pareto_front import ParetoFront
from service.mirror.runs.projection import CONTENDING_ENDS, BestSoFar, ProjectionInput, takes_back_end
from service.mirror.runs.trial_run_update import TRIAL_ENDS
from service.store import mirrors
from service.store.sql.database import lift_statement_timeout
from service.store.tables import EventRow, ExperimentRow, MirrorRow
from service.store.trials.confirmations import confirmed_winners
from service.store.trials.param_generations import generations_of_all
from service.store.trials.trials import counts_by_status

MAX_EVENTS = 2000
MAX_POINTS = 20_000
"""Of metrics. MLflow takes about 25 calls for these; thousands more would hold up the other experiments."""

READ_SECONDS = 600.0
"""How long PostgreSQL may be silent while the results of a whole experiment are read."""


@dataclass(frozen=True)
class Batch:
    """One experiment's next events. `run_ids` has the known MLflow runs by trial and generation.

    `is_last`: MLflow lacks nothing after this batch.
    """

    given: ProjectionInput
    events: Sequence[EventRow]
    mirror: MirrorRow | None
    run_ids: Mapping[tuple[str, int], str]

    @property
    def after(self) -> int:
        """The number of the last event that MLflow has already."""
        return self.mirror.cursor if self.mirror else 0

    @property
    def cursor(self) -> int:
        """The number of the last event."""
        return self.events[-1].seq

    @property
    def is_last(self) -> bool:
        return self.cursor >= self.given.experiment.event_count


def load_batch(
    session: Session, experiment_id: str, known: KnownResults, most_events: int = MAX_EVENTS
) -> Batch | None:
    """Return None when there are no new events, or the experiment was deleted.

    A batch that failed may be repeated with fewer or with more events.
    """
    experiment, mirror = session.get(ExperimentRow, experiment_id), session.get(MirrorRow, experiment_id)
    cursor = mirror.cursor if mirror else 0
    waiting = _events_after(session, experiment_id, cursor, most_events)
    if experiment is None or not waiting:
        return None
    if takes_back_end(waiting[0]):  # then the results are those after all ends that are taken back together
        waiting = _events_after(session, experiment_id, cursor, MAX_EVENTS)
    events, is_revision = _without_mixed_revivals(waiting)
    if is_revision:
        best = _results_up_to(session, experiment, events[-1].seq)
    else:
        best = known.at(experiment_id, cursor) or _results_up_to(session, experiment, cursor)
        known.keep(experiment_id, cursor, best)
    events = events[:most_events]
    trial_ids = {event.trial_id for event in events if event.trial_id} | {one.trial_id for one in best.values}
    given = ProjectionInput(
        experiment,
        mirrors.trials_named(session, trial_ids),
        # Read after the trials, so that params which a trial has just got have their generation here.
        generations_of_all(session, trial_ids),
        counts_by_status(session, experiment_id),
        best,
        confirmed_winners(session, [experiment]).get(experiment_id),
        is_revision,
    )
    return Batch(given, events, mirror, mirrors.runs_of(session, trial_ids))


def _events_after(session: Session, experiment_id: str, cursor: int, most_events: int) -> Sequence[EventRow]:
    return mirrors.events_to_mirror(session, experiment_id, cursor, min(most_events, MAX_EVENTS), MAX_POINTS)


def _without_mixed_revivals(events: Sequence[EventRow]) -> tuple[Sequence[EventRow], bool]:
    """Return the first of the events, and whether they take back ends of trials.

    If so, none of them is an end, so that the results are those of the whole log up to the last of them. They take back
    the ends of one transaction, so that a repeated batch, which may have more events or fewer, has the same results.
    """
    revivals = [place for place, event in enumerate(events) if takes_back_end(event)]
    if not revivals:
        return events, False
    if revivals[0] > 0:
        return events[: revivals[0]], False
    others = (
        place for place, event in enumerate(events) if event.kind in TRIAL_ENDS or _is_later_revival(event, events[0])
    )
    return events[: next(others, len(events))], True


def _is_later_revival(event: EventRow, first: EventRow) -> bool:
    return takes_back_end(event) and event.at != first.at


def _results_up_to(session: Session, experiment: ExperimentRow, cursor: int) -> BestSoFar:
    """Return the results of the events up to the cursor, as after a start: reading all of them may take long."""
    lift_statement_timeout(session.connection(), READ_SECONDS)
    return BestSoFar(
        mirrors.count_events(session, experiment.id, cursor, tuple(TRIAL_ENDS)),
        _best_values_up_to(session, experiment, cursor),
        _front_up_to(session, experiment, cursor),
    )


def _front_up_to(session: Session, experiment: ExperimentRow, cursor: int) -> ParetoFront | None:
    front = ParetoFront.of(experiment)
    if front is not None:
        for end in mirrors.ends_up_to(session, experiment.id, cursor, CONTENDING_ENDS):
            front = front.after(end)
    return front


def _best_values_up_to(session: Session, experiment: ExperimentRow, cursor: int) -> tuple[BestValue, ...]:
    ends = [
        mirrors.best_end(session, experiment.id, cursor, CONTENDING_ENDS, one.position, maximize=one.maximize)
        for one in objectives_of(experiment)
    ]
    best = (one.best_after((), end) for one, end in zip(objectives_of(experiment), ends, strict=True) if end)
    return tuple(one for one in best if one is not None)
