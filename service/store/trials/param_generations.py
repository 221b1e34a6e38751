"""Generations of a trial: the params that it trained with, one after the other, and the checkpoints it resumed from."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.store.tables import CheckpointRow, GenerationRow, ReportRow, TrialRow


@dataclass(frozen=True)
class Exploit:
    """At `event`, a trial took over another trial's checkpoint. `milestone` is the last one at which it was judged."""

    event: int
    milestone: int

    def discards(self, event: int, step: int) -> bool:
        """Whether the report with this event and step was made with weights that the exploit replaced."""
        return event < self.event and step > self.milestone


def generations_of(session: Session, trial_id: str) -> Sequence[GenerationRow]:
    """In their order; empty for a trial that always had its own params."""
    return generations_of_all(session, [trial_id]).get(trial_id, [])


def generations_of_all(session: Session, trial_ids: Collection[str]) -> Mapping[str, Sequence[GenerationRow]]:
    """As `generations_of`, by trial."""
    query = select(GenerationRow).where(GenerationRow.trial_id.in_(trial_ids))
    found: defaultdict[str, list[GenerationRow]] = defaultdict(list)
    for row in session.scalars(query.order_by(GenerationRow.number)):
        found[row.trial_id].append(row)
    return found


def first_params(session: Session, trials: Collection[TrialRow]) -> list[dict[str, Any]]:
    """The params that each of the trials began with."""
    generations = generations_of_all(session, [trial.id for trial in trials])
    return [generations[trial.id][0].params if trial.id in generations else trial.params for trial in trials]


def exploits_of(session: Session, experiment_id: str) -> Mapping[str, Sequence[Exploit]]:
    """The exploits of each trial, by its id; without trials that always had their own params."""
    query = select(GenerationRow.trial_id, GenerationRow.began_at_event, GenerationRow.milestone).join(
        TrialRow, TrialRow.id == GenerationRow.trial_id
    )
    found: defaultdict[str, list[Exploit]] = defaultdict(list)
    for trial_id, event, milestone in session.execute(query.where(TrialRow.experiment_id == experiment_id)):
        if milestone is not None:
            found[trial_id].append(Exploit(event, milestone))
    return found


def of_newest_generation() -> ColumnElement[bool]:
    """The condition for checkpoints that a trial saved with its present params."""
    first = select(func.max(GenerationRow.first_attempt)).where(GenerationRow.trial_id == CheckpointRow.trial_id)
    return CheckpointRow.attempt >= func.coalesce(first.correlate(CheckpointRow).scalar_subquery(), 0)


def has_own_values(session: Session, trial: TrialRow) -> bool:
    """Whether the trial has reported the first objective with its present params. Until then its values are a donor's.

    A report counts only beyond the step of the checkpoint that the newest generation resumed from.
    """
    if trial.attempt_count == 0 or (trial.attempt_count == 1 and trial.status == TrialStatus.RUNNING):
        return True  # only a later attempt continues from a donor's checkpoint
    query = select(GenerationRow).where(GenerationRow.trial_id == trial.id, GenerationRow.donor.is_not(None))
    newest = session.scalar(query.order_by(GenerationRow.number.desc()).limit(1))
    return newest is None or _has_reported_in(session, newest)


def _has_reported_in(session: Session, generation: GenerationRow) -> bool:
    query = select(ReportRow.step).where(
        ReportRow.trial_id == generation.trial_id,
        ReportRow.step > generation.resume_step,
        ReportRow.attempt >= generation.first_attempt,
        ReportRow.value.is_not(None),
    )
    return session.scalar(query.limit(1)) is not None


def exploiters_beside(session: Session, trial: TrialRow) -> Sequence[str]:
    """The other trials of the experiment that have resumed from a donor's checkpoint and may resume from it again.

    Their donor may be any trial: one that has saved nothing itself passes on the checkpoint that it resumed from.
    """
    has_exploited = select(GenerationRow.number).where(GenerationRow.trial_id == TrialRow.id).exists()
    others = select(TrialRow.id).where(TrialRow.experiment_id == trial.experiment_id, TrialRow.id != trial.id)
    may_go_on = TrialRow.status.not_in([TrialStatus.COMPLETED, TrialStatus.PRUNED])
    return session.scalars(others.where(may_go_on, has_exploited)).all()
