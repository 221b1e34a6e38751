"""What another rule compares trials with, learnt from what they have reported so far."""

from collections.abc import Iterator

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from search.early_stopping import Memory, rule_for
from search.replay import remember
from service.domain.statuses import LIVE_TRIAL
from service.operations.replaying import KINDS, PAGE, events_of
from service.spec.models import ExperimentSpec
from service.store.curves import Told, told_after
from service.store.tables import ExperimentRow, MilestoneRow, TrialRow


def relearn(session: Session, experiment: ExperimentRow, spec: ExperimentSpec) -> None:
    """For an experiment whose early stopping has changed. Nobody is judged again for what was reported before."""
    session.flush()
    session.execute(delete(MilestoneRow).where(MilestoneRow.experiment_id == experiment.id))
    trials = session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment.id)).all()
    numbers = {trial.id: trial.number for trial in trials}
    events = events_of(_told(session, experiment), numbers, spec.measure.metric)
    memory = remember(rule_for(spec.early_stopping), spec.measure, events)
    ids = {number: trial_id for trial_id, number in numbers.items()}
    rows = list(_rows(experiment, memory, ids))
    for first in range(0, len(rows), PAGE):
        session.execute(insert(MilestoneRow), rows[first : first + PAGE])
    for trial in trials:
        if trial.status in LIVE_TRIAL:
            trial.judged_step = max(memory.curves[trial.number], default=None)


def _told(session: Session, experiment: ExperimentRow) -> Iterator[Told]:
    seq = 0
    while page := told_after(session, experiment.id, KINDS, seq, experiment.event_count, PAGE):
        yield from page
        seq = page[-1].seq


def _rows(experiment: ExperimentRow, memory: Memory, ids: dict[int, str]) -> Iterator[dict[str, object]]:
    for number, reached in memory.reached.items():
        for milestone, (value, pool) in reached.items():
            yield {
                "experiment_id": experiment.id,
                "milestone": milestone,
                "trial_id": ids[number],
                "number": number,
                "pool": pool,
                "value": value,
            }
