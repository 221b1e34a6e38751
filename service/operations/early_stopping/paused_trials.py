"""Paused trials: which of them continue, and how the others end when their experiment ends."""

from collections.abc import Collection
from dataclasses import replace

from search.early_stopping import Release
from search.early_stopping.plugin_rules import has_trait
from service.domain.statuses import StopCause, TrialStatus
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.exploit import exploit
from service.operations.locked_experiment import LockedExperiment
from service.operations.transitions import move_trial
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.observations.observations import seed_of
from service.store.early_stopping.paused_trials import StoredPausedTrials
from service.store.experiments import may_run_trials
from service.store.sql.bulk_writes import WriteSession
from service.store.tables import TrialRow
from service.store.trials.trials import find_trial_numbered, trials_with

RULE_CHANGED = "early stopping was changed"
"""The reason of a trial that continues because the new rule does not pause it."""


def release(decider: Decider, reached: Collection[int] | None = None) -> bool:
    """Queue the paused trials that early stopping lets continue now. Return whether there were any.

    `reached`: the milestones that trials have reached or paused at since the last call; None means all. The caller has
    flushed its changes to paused trials.
    """
    session, experiment, spec = decider.locked.session, decider.locked.experiment, decider.spec
    if not has_trait(spec.early_stopping, "pauses") or not may_run_trials(experiment):
        return False
    assert isinstance(session, WriteSession)  # noqa: S101 - `Database.write` yields no other
    more_to_come = experiment.end_reason is None and spec.has_room(experiment.trial_count)
    waiting = StoredPausedTrials(
        session, experiment.id, spec.compared_metric, spec.space, seed_of(spec, experiment.id), more_to_come, reached
    )
    found, any_queued = True, False
    # The changes that a report makes to its own trial do not matter here: a running trial is not paused.
    with session.stale_reads(TrialRow):
        while found:  # a rule may release more when it sees that these continue
            found = False
            for one in decider.releases(waiting):
                found |= _continue(decider, one)
                session.flush()  # `releases` reads the result before it yields the next
            any_queued |= found
            waiting = replace(waiting, reached=None)
    return any_queued


def end_paused(locked: LockedExperiment, reason: str) -> None:
    """End the paused trials of an experiment that has ended: as pruned, or as stopped under a rule with turns (PBT)."""
    experiment = locked.experiment
    loses = has_trait(spec_of(experiment).early_stopping, "paused_trials_lose")
    to = TrialStatus.PRUNED if loses else TrialStatus.STOPPED
    for trial in trials_with(locked.session, experiment.id, TrialStatus.PAUSED):
        paused = trial.reason or f"paused at step {trial.paused_milestone}"
        why = f"{paused}; the experiment ended before it was resumed: {experiment.end_detail or reason}"
        if to is TrialStatus.STOPPED:
            trial.stop_cause = StopCause.EXPERIMENT_ENDED
        move_trial(locked, trial, to, reason=why)


def _continue(decider: Decider, one: Release) -> bool:
    locked = decider.locked
    trial = find_trial_numbered(locked.session, locked.experiment.id, one.number)
    if trial is None or trial.status != TrialStatus.PAUSED:  # another package's rule may name any
        return False
    decider.record(trial, one.decision, one.milestone, one)
    if one.donor is not None:
        exploit(locked, trial, one)
    return move_trial(locked, trial, TrialStatus.QUEUED, reason=one.reason)
