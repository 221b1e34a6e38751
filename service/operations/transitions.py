"""The only writer of statuses: the row and its event change together, under the experiment's lock."""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from service.domain.statuses import (
    EXPERIMENT_MOVES,
    EXPERIMENT_REVIVALS,
    LIVE_TRIAL,
    TRIAL_MOVES,
    TRIAL_REVIVALS,
    EndReason,
    ExperimentStatus,
    TrialStatus,
)
from service.store.events import append_event
from service.store.tables import ExperimentRow, TrialRow
from service.store.trial_values import is_feasible, objective_values


def move_experiment(
    session: Session, experiment: ExperimentRow, to: ExperimentStatus, *, reason: EndReason | None, at: datetime
) -> bool:
    """False when the map of moves has no way there: somebody was faster."""
    if to not in EXPERIMENT_MOVES[ExperimentStatus(experiment.status)]:
        return False
    experiment.status = to
    if not EXPERIMENT_MOVES[to]:
        experiment.ended_at = at
    append_event(session, experiment, f"experiment.{to}", {"reason": reason, "detail": experiment.end_detail}, at=at)
    return True


def revive_experiment(session: Session, experiment: ExperimentRow, *, at: datetime) -> bool:
    """Back from its end, whose limit a user has moved. False when its reason has no way back."""
    if experiment.end_reason not in EXPERIMENT_REVIVALS or experiment.ended_at is None:
        return False
    ended = {"ended_by": experiment.end_reason, "ended_at": experiment.ended_at.isoformat()}
    experiment.status = ExperimentStatus.RUNNING
    experiment.end_reason = experiment.end_detail = experiment.ended_at = None
    append_event(session, experiment, "experiment.running", {"reason": None, "detail": None, **ended}, at=at)
    return True


def move_trial(
    session: Session,
    experiment: ExperimentRow,
    trial: TrialRow,
    to: TrialStatus,
    *,
    reason: str | None,
    at: datetime,
    **facts: Any,
) -> bool:
    """False when the map of moves has no way there: somebody was faster."""
    if to not in TRIAL_MOVES[TrialStatus(trial.status)]:
        return False
    trial.status = to
    trial.reason = reason
    if to in (TrialStatus.QUEUED, TrialStatus.PAUSED):
        trial.stop_cause = trial.stop_reason = None  # nothing keeps it from going on when its turn comes
    if to is TrialStatus.PAUSED:
        facts |= {"milestone": trial.paused_milestone, "step": trial.last_step}
    else:
        trial.paused_milestone = trial.paused_value = None
    if to is TrialStatus.RUNNING and trial.started_at is None:
        trial.started_at = at
    if to not in LIVE_TRIAL:
        trial.ended_at = at
        facts |= {"values": objective_values(experiment, trial), "step": trial.last_step}
        facts |= {} if (feasible := is_feasible(experiment, trial)) is None else {"feasible": feasible}
    data = {"number": trial.number, "reason": reason, **facts}
    trial.changed_at_event = append_event(session, experiment, f"trial.{to}", data, at=at, trial_id=trial.id)
    return True


def revive_trial(
    session: Session, experiment: ExperimentRow, trial: TrialRow, to: TrialStatus, *, reason: str, at: datetime
) -> bool:
    """Back from an end, on a user's word: as if it had never come. False when there is no way there from its status."""
    if to not in TRIAL_REVIVALS.get(TrialStatus(trial.status), ()):
        return False
    trial.status = to
    trial.reason = reason
    trial.failure_kind = trial.stop_cause = trial.stop_reason = trial.ended_at = None
    trial.killed = False
    trial.forgiven_attempts = trial.attempt_count
    data = {"number": trial.number, "reason": reason}
    trial.changed_at_event = append_event(session, experiment, f"trial.{to}", data, at=at, trial_id=trial.id)
    return True
