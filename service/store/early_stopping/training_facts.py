"""What a trial has shown of how trials run, from its reports and checkpoints."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from search.early_stopping.training_facts import MIN_RANKED, Training, concordance
from service.domain.statuses import TrialStatus
from service.store.tables import AttemptRow, EventRow, ReportRow, TrialRow
from service.store.trials.ended_trials import have_run_to_completion, ran_to_completion
from service.store.trials.trials import is_of_search

LEFT = (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.PRUNED, TrialStatus.PAUSED)
MAX_RANKED = 8
"""The first whole trials are compared, which no rule has judged on their way."""


def longest_trial(session: Session, experiment_id: str, *, is_length_given: bool) -> TrialRow | None:
    """The trial with the most steps of which `shows_training` is true; None if there is none."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.last_step.is_not(None))
    trials = session.scalars(query.order_by(TrialRow.last_step.desc(), TrialRow.number))
    return next((trial for trial in trials if shows_training(trial, is_length_given=is_length_given)), None)


def shows_training(trial: TrialRow, *, is_length_given: bool) -> bool:
    """Whether it is a trial of the search that shows what a training is like: one that has run to its end.

    If the length of a training is given, each one is that has trained and has left its workers without a failure.
    """
    if trial.confirms is not None:
        return False
    if not is_length_given:
        return ran_to_completion(trial)
    return trial.status in LEFT and trial.last_step is not None


def _whole_trials(session: Session, experiment_id: str, before: int | None) -> Sequence[TrialRow]:
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, is_of_search(), have_run_to_completion())
    if before is not None:
        query = query.where(TrialRow.number < before)
    return session.scalars(query.order_by(TrialRow.number)).all()


def training_of(session: Session, trial: TrialRow, *, known: Training | None = None) -> Training | None:
    """Measured by the database's clock; None for a trial that has not reported the objective.

    Reports without the objective do not count: trials are not compared at them. Checkpoints are read from all events,
    so only of a trial that is much longer than the `known` one, or the first to run to its end.
    """
    query = select(func.count(), func.min(ReportRow.step), func.max(ReportRow.step)).where(*_with_value(trial))
    count, first_step, last_step = session.execute(query).one()
    if not count:
        return None
    is_whole = ran_to_completion(trial)
    is_known = known is not None and not known.is_short_beside(last_step) and known.trial_count >= is_whole
    start, step = _seconds(session, trial)
    return Training(
        number=trial.number,
        report_count=count,
        last_step=last_step,
        first_step=first_step,
        checkpoint_gap=known.checkpoint_gap if known and is_known else _checkpoint_gap(session, trial, last_step),
        start_seconds=start,
        seconds=None if step is None else step * count,
        trial_count=int(is_whole),
        max_step=None if known is None else known.max_step,
        assumed_max_step=None if known is None else known.assumed_max_step,
    )


def with_ranks(session: Session, experiment_id: str, training: Training) -> Training:
    """The training with what the first trials that ran to their ends have shown at its rungs.

    Where others are compared meanwhile, only the first ones are not chosen by their ranks.
    """
    found = _whole_trials(session, experiment_id, MIN_RANKED if training.compares_first_trials else None)
    whole = [trial for trial in found if trial.value is not None][:MAX_RANKED]
    if len(whole) < MIN_RANKED:
        return replace(training, trial_count=max(1, len(whole)))
    ends = [trial.value or 0.0 for trial in whole]
    shares = {
        str(rung): round(concordance([_value_at(session, trial, rung) for trial in whole], ends), 3)
        for rung in training.rungs
    }
    return replace(training, trial_count=len(whole), concordances=shares)


def _value_at(session: Session, trial: TrialRow, rung: int) -> float:
    """The first value at the rung or beyond; of a shorter trial its last one. Curves are too long to be read here."""
    values = select(ReportRow.value).where(*_with_value(trial)).limit(1)
    first = session.scalar(values.where(ReportRow.step >= rung).order_by(ReportRow.step))
    return first if first is not None else session.scalars(values.order_by(ReportRow.step.desc())).one() or 0.0


def _with_value(trial: TrialRow) -> tuple[ColumnElement[bool], ...]:
    return ReportRow.trial_id == trial.id, ReportRow.value.is_not(None)


def _seconds(session: Session, trial: TrialRow) -> tuple[float | None, float | None]:
    """The seconds of the start and of a step in the last attempt. The start is what precedes the first step."""
    own = *_with_value(trial), ReportRow.attempt == trial.attempt_count
    query = select(func.count(), func.min(ReportRow.at), func.max(ReportRow.at)).where(*own)
    count, first, last = session.execute(query).one()
    attempt = AttemptRow.trial_id == trial.id, AttemptRow.number == trial.attempt_count
    claimed = session.scalar(select(AttemptRow.started_at).where(*attempt))
    if count < 2 or claimed is None:  # noqa: PLR2004 - no time between two
        return None, None
    step = (last - first).total_seconds() / (count - 1)
    return max(0.0, (first - claimed).total_seconds() - step), step


def _checkpoint_gap(session: Session, trial: TrialRow, last_step: int) -> int | None:
    """From the events, because only the newest checkpoints are kept."""
    own = EventRow.experiment_id == trial.experiment_id, EventRow.trial_id == trial.id, EventRow.kind == "checkpoint"
    saved = sorted({int(data["step"]) for data in session.scalars(select(EventRow.data).where(*own))})
    if not saved:
        return None
    return max(after - before for before, after in pairwise([0, *saved, max(last_step, saved[-1])]))
