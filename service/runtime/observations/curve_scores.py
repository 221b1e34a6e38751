"""The curve scores of an experiment's trials: one scale for completed trials and those that early stopping ended."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from sqlalchemy import ColumnElement, and_, or_
from sqlalchemy.orm import Session

from search.curve_score import curve_of, scores
from service.domain.statuses import TrialStatus
from service.runtime.observations.observations import observation_of, with_rungs
from service.specification.models import ExperimentSpec
from service.store.early_stopping.milestones import ReachedMilestone
from service.store.tables import TrialRow
from service.store.trials.ended_trials import have_run_to_completion
from service.store.trials.measured_trial import MeasuredTrial
from service.store.trials.trials import any_with, is_of_search
from trainer.wire import FailureKind

Measure = Literal["value", "curve_score"]

CUT_SHORT = TrialStatus.PRUNED, TrialStatus.PAUSED
"""Trials that early stopping has ended or paused."""
_DIVERGED = and_(TrialRow.status == TrialStatus.FAILED, TrialRow.failure_kind == FailureKind.DIVERGED)


def measure_of(session: Session, experiment_id: str, spec: ExperimentSpec) -> Measure:
    """What an analysis judges trials by: values, or curve scores if early stopping has ended or paused some trials."""
    is_scored = spec.problem.has_curve_score and any_with(session, experiment_id, *CUT_SHORT)
    return "curve_score" if is_scored else "value"


def may_be_judged(measure: Measure) -> ColumnElement[bool]:
    """The condition for trials of the search that have ended or paused with something to judge them by."""
    if measure == "value":
        return and_(is_of_search(), have_run_to_completion())
    ended = TrialRow.status.in_((TrialStatus.COMPLETED, *CUT_SHORT, TrialStatus.STOPPED))
    return and_(is_of_search(), or_(ended, _DIVERGED))


def curve_scores(
    spec: ExperimentSpec, trials: Sequence[MeasuredTrial], reached: Iterable[ReachedMilestone]
) -> dict[int, float]:
    """The share of the others among these trials that each ranks before, by number. Unknown ones are left out.

    `reached` are all milestones of the experiment.
    """
    milestones: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for row in reached:
        milestones[row.number][row.milestone] = row.value
    curves = {}
    for trial in trials:
        curve = curve_of(spec.problem, with_rungs(spec, observation_of(spec, trial), milestones))
        if curve is not None:
            curves[trial.number] = curve
    return dict(zip(curves, scores(list(curves.values())).tolist(), strict=True))
