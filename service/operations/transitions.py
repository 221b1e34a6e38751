"""The only writer of statuses: a row and its event change together."""

import secrets
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from search.early_stopping.plugin_rules import bracket_of, has_trait
from search.space.space import Params
from service.domain.end_reasons import REVERSIBLE_ENDS, EndReason
from service.domain.event_kinds import EXPERIMENT_MOVED, TRIAL_MOVED
from service.domain.statuses import (
    EXPERIMENT_MOVES,
    FAILED_BY_REPORT,
    LIVE_TRIAL,
    TRIAL_MOVES,
    TRIAL_REVIVALS,
    ExperimentStatus,
    StopCause,
    TrialStatus,
)
from service.operations.locked_experiment import LockedExperiment
from service.operations.plugin_rule_errors import logged_failures
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.observations.observations import seed_of
from service.store.early_stopping.history import StoredCompleted
from service.store.events import append_event
from service.store.sql.bulk_writes import change_later
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.param_generations import has_own_values
from service.store.trials.trial_seed import first_seed
from service.store.trials.trial_values import is_feasible, objective_values

_ENDING = frozenset(
    {
        StopCause.TARGET_REACHED,
        StopCause.DIVERGED,
        StopCause.BAD_OBJECTIVE,
        StopCause.USER,
        StopCause.EXPERIMENT_ENDED,
    }
)
"""The causes that end a trial which is about to pause."""


def move_experiment(locked: LockedExperiment, to: ExperimentStatus, *, reason: EndReason | None) -> bool:
    """Return False if `EXPERIMENT_MOVES` does not allow the move; another caller was faster."""
    experiment = locked.experiment
    if to not in EXPERIMENT_MOVES[ExperimentStatus(experiment.status)]:
        return False
    experiment.status = to
    if not EXPERIMENT_MOVES[to]:
        experiment.ended_at = locked.now
    data = {"reason": reason, "detail": experiment.end_detail}
    append_event(locked.session, experiment, EXPERIMENT_MOVED[to], data, at=locked.now)
    return True


def revive_experiment(locked: LockedExperiment) -> bool:
    """Reopen an experiment whose end a user takes back. False if its end reason is final.

    Or let its search continue, if its winners are being confirmed and it has not ended yet.
    """
    experiment = locked.experiment
    if experiment.end_reason not in REVERSIBLE_ENDS:
        return False
    ended_at = experiment.ended_at.isoformat() if experiment.ended_at else None
    ended = {"ended_by": experiment.end_reason, "ended_at": ended_at}
    if experiment.ended_at is not None:
        experiment.status = ExperimentStatus.RUNNING
    experiment.end_reason = experiment.end_detail = experiment.ended_at = None
    data = {"reason": None, "detail": None, **ended}
    append_event(locked.session, experiment, "experiment.running", data, at=locked.now)
    return True


def create_trial(
    locked: LockedExperiment,
    params: Params,
    origin: str,
    *,
    source: str,
    estimate: dict[str, Any] | None = None,
    warm_start: dict[str, Any] | None = None,
    key: str | None = None,
    confirms: TrialRow | None = None,
    seed: int | None = None,
) -> TrialRow:
    """Create a queued trial with the experiment's next number.

    `origin` is `search`, `enqueue` for a configuration from a user, or `confirm`. `source` is what the search took it
    from, `user`, or `confirmation`; `estimate` and `warm_start` are those of the `Proposal`. `key` is the
    Idempotency-Key of the user's call. `confirms` is the trial whose params run again, with the `seed`.
    """
    session, experiment, now = locked.session, locked.experiment, locked.now
    id_, number = f"t-{secrets.token_hex(6)}", experiment.trial_count
    change_later(experiment, trial_count=number + 1)
    data = {"number": number, "params": params, "origin": origin, "source": source}
    seed = first_seed(experiment) if seed is None else seed
    bracket = None if confirms is not None else _drawn_bracket(session, experiment, number)
    if bracket is not None:
        data |= {"bracket": bracket}
    if confirms is not None:
        data |= {"confirms": confirms.number, "seed": seed}
    trial = TrialRow(
        id=id_,
        experiment_id=experiment.id,
        number=number,
        params=params,
        origin=origin,
        source=source,
        estimate=estimate,
        warm_start=warm_start,
        confirms=None if confirms is None else confirms.number,
        seed=seed,
        bracket=bracket,
        status=TrialStatus.QUEUED,
        killed=False,
        attempt_count=0,
        enqueue_key=key,
        changed_at_event=append_event(session, experiment, "trial.created", data, at=now, trial_id=id_),
        created_at=now,
        queued_at=now,
    )
    session.add(trial)
    session.flush()
    return trial


def _drawn_bracket(session: Session, experiment: ExperimentRow, number: int) -> dict[str, Any] | None:
    """A `Bracket` as JSON, for what has completed by now; None if the early-stopping rule gives none."""
    spec = spec_of(experiment)
    rule, completed = spec.early_stopping, StoredCompleted(session, experiment.id)
    if not has_trait(rule, "draws_brackets"):
        return None
    drawn = None
    with logged_failures(rule, f"the bracket of trial {number}"):
        drawn = bracket_of(rule, number, seed_of(spec, experiment.id), completed)
    return None if drawn is None else asdict(drawn)


def move_trial(locked: LockedExperiment, trial: TrialRow, to: TrialStatus, *, reason: str | None, **facts: Any) -> bool:
    """Return False if `TRIAL_MOVES` does not allow the move; another caller was faster."""
    session, experiment, at = locked.session, locked.experiment, locked.now
    if to not in TRIAL_MOVES[TrialStatus(trial.status)]:
        return False
    if to not in LIVE_TRIAL and not has_own_values(session, trial):
        trial.value = trial.values = trial.violation = trial.best_step = None  # it never trained with its params
    trial.status = to
    trial.reason = reason
    if to is TrialStatus.QUEUED:
        trial.queued_at = at
    if to in (TrialStatus.QUEUED, TrialStatus.PAUSED):
        trial.stop_cause = trial.stop_reason = None  # the request was for the attempt that has ended
        trial.killed = False
    if to is TrialStatus.PAUSED:
        facts |= {"milestone": trial.paused_milestone, "step": trial.last_step}
    else:
        trial.paused_milestone = trial.paused_value = None
    if to is TrialStatus.RUNNING and trial.started_at is None:
        trial.started_at = at
    if to is TrialStatus.STOPPED:
        facts |= {"cause": trial.stop_cause}
    if to not in LIVE_TRIAL:
        trial.ended_at = at
        facts |= {"values": list(objective_values(experiment, trial).values()), "step": trial.last_step}
        facts |= {} if trial.best_step is None else {"best_step": trial.best_step}
        facts |= {} if (feasible := is_feasible(experiment, trial)) is None else {"feasible": feasible}
        facts |= {} if trial.confirms is None else {"confirms": trial.confirms}
    data = {"number": trial.number, "reason": reason, **facts}
    trial.changed_at_event = append_event(session, experiment, TRIAL_MOVED[to], data, at=at, trial_id=trial.id)
    return True


def revive_trial(locked: LockedExperiment, trial: TrialRow, to: TrialStatus, *, reason: str) -> bool:
    """Undo a trial's end at a user's request. Return False if `TRIAL_REVIVALS` does not allow the move."""
    if to not in TRIAL_REVIVALS.get(TrialStatus(trial.status), ()):
        return False
    session, experiment, at = locked.session, locked.experiment, locked.now
    data = {"number": trial.number, "reason": reason, "ended_as": trial.status}
    trial.status = to
    trial.reason = reason
    trial.failure_kind = trial.stop_cause = trial.stop_reason = trial.ended_at = None
    trial.killed = False
    trial.queued_at = at
    trial.forgiven_attempts = trial.attempt_count
    trial.changed_at_event = append_event(session, experiment, TRIAL_MOVED[to], data, at=at, trial_id=trial.id)
    return True


def request_stop(trial: TrialRow, cause: StopCause, reason: str) -> None:
    """Ask a running trial to leave; its holder learns of it with the answer to its next call.

    The first cause is kept, with three exceptions:

    1. A cause that ends the trial replaces a pause and the trial's time limit, which both wait for a report.
    2. A report that fails the trial replaces a stop by a user or by the experiment's end.
    3. A user's stop replaces that of the experiment's end, which would be taken back when the limit is moved.
    """
    waits = trial.stop_cause in {StopCause.PAUSED, StopCause.MAX_TRIAL_SECONDS} and cause in _ENDING
    fails = trial.stop_cause in {StopCause.USER, StopCause.EXPERIMENT_ENDED} and cause in FAILED_BY_REPORT
    is_final = trial.stop_cause == StopCause.EXPERIMENT_ENDED and cause is StopCause.USER
    if trial.stop_cause is None or ((waits or fails or is_final) and trial.stop_cause != cause):
        trial.stop_cause = cause
        trial.stop_reason = reason
