"""Paused trials: which of them go on, and what becomes of the others when their experiment ends."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from search.early_stopping import Release
from service.domain.statuses import TrialStatus
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.exploit import exploit
from service.operations.transitions import move_trial
from service.runtime.observations import seed_of
from service.runtime.spec_cache import spec_of
from service.specification.models import ExperimentSpec
from service.store.early_stopping.paused_trials import StoredWaiting
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials import reports_of, trial_numbered, trials_with

RULE_CHANGED = "early stopping was changed"
"""Why a trial goes on that waited, where the new rule has it wait no more."""

_RELEASED = "paceline_released"
_PAGE = 1000


def release(
    session: Session,
    experiment: ExperimentRow,
    spec: ExperimentSpec,
    now: datetime,
    reached: Collection[int] | None = None,
) -> bool:
    """Queues the paused trials that early stopping lets go on now. Whether there were any.

    `reached`: the milestones that somebody has reached, or begun to wait at, since this was last asked; None: any. The
    caller holds the lock of the experiment, which is open, and has flushed what it did to paused trials.
    """
    rule = spec.early_stopping
    if not rule.pauses:
        return False
    decider = Decider(session, experiment, spec, now)
    more_to_come = experiment.end_reason is None and experiment.trial_count < spec.limits.max_trials
    waiting = StoredWaiting(
        session, experiment.id, spec.compared_metric, spec.space, seed_of(spec, experiment.id), more_to_come, reached
    )
    found, any_queued = True, False
    with session.no_autoflush:  # what is looked at was flushed by whoever changed it
        while found:  # one that goes on may reach a further milestone at once, and matter to others there
            found = False
            for one in rule.releases(waiting):
                any_queued |= _let_go_on(decider, one)
                session.flush()
                found = True
            waiting = replace(waiting, reached=None)
    if any_queued:
        session.info[_RELEASED] = True
    return any_queued


def has_released(session: Session) -> bool:
    """Whether this transaction has queued trials that were paused: others may be waiting to run them."""
    return bool(session.info.get(_RELEASED))


def give_up_paused(session: Session, experiment: ExperimentRow, reason: str, now: datetime) -> None:
    """The experiment has ended: they have lost, or are stopped where they took turns."""
    loses = spec_of(experiment).early_stopping.paused_trials_lose
    to = TrialStatus.PRUNED if loses else TrialStatus.STOPPED
    for trial in trials_with(session, experiment.id, TrialStatus.PAUSED):
        why = f"paused at step {trial.paused_milestone} when the experiment ended: {reason}"
        move_trial(session, experiment, trial, to, reason=why, at=now)


def _let_go_on(decider: Decider, one: Release) -> bool:
    """False when it came no further than to its next pause."""
    session, experiment, now = decider.session, decider.experiment, decider.now
    trial = trial_numbered(session, experiment.id, one.number)
    decider.record(trial, one.decision, one.milestone, one)
    if one.donor is not None:
        exploit(session, experiment, trial, one, now)
    elif _pauses_again(decider, trial):
        return False
    return move_trial(session, experiment, trial, TrialStatus.QUEUED, reason=one.reason, at=now)


def _pauses_again(decider: Decider, trial: TrialRow) -> bool:
    """Judges what was reported while it left for its pause: that may have brought it to the next milestone already."""
    step = trial.paused_milestone
    while step is not None and step < (trial.last_step or 0):
        page = reports_of(decider.session, trial.id, after_step=step, limit=_PAGE)
        for report in page:
            decider.judge(trial, report.step, report.metrics)
            if trial.stop_cause is not None:
                trial.reason, trial.stop_cause, trial.stop_reason = trial.stop_reason, None, None
                return True
        step = page[-1].step if len(page) == _PAGE else None
    return False
