"""A trial has at most `keep` checkpoints in the database, and at most one more on disk."""

from collections.abc import Iterator

from tests.chaos.audit.fault_periods import fault_periods
from tests.chaos.evidence.snapshot import Attempt, Experiment, Snapshot, Trial
from tests.chaos.faults.schedule import Target

REMOVAL_SECONDS = 10.0
"""How long a slot may take to remove an obsolete checkpoint. A slot that is killed earlier leaves it there."""


def storage(snapshot: Snapshot) -> Iterator[str]:
    for experiment, trial, keep in _trials(snapshot):
        whose = f"{experiment.name}: trial {trial.number}"
        if len(trial.checkpoints) > keep:
            yield f"{whose}: {len(trial.checkpoints)} of its checkpoints are known, not {keep}"
        if len(trial.stored) > keep + 1 and _should_be_clean(snapshot, experiment, trial, keep):
            yield f"{whose}: {len(trial.stored)} of its checkpoints are left on disk: {', '.join(trial.stored)}"


def unjudged(snapshot: Snapshot) -> int:
    """How many trials have more on disk, and may."""
    return sum(
        len(trial.stored) > keep + 1 and not _should_be_clean(snapshot, experiment, trial, keep)
        for experiment, trial, keep in _trials(snapshot)
    )


def _trials(snapshot: Snapshot) -> Iterator[tuple[Experiment, Trial, int]]:
    """All trials, with how many checkpoints each may keep."""
    for experiment in snapshot.experiments:
        keep = int((experiment.spec.get("checkpoints") or {}).get("keep", 1))
        yield from ((experiment, trial, keep) for trial in experiment.trials)


def _should_be_clean(snapshot: Snapshot, experiment: Experiment, trial: Trial, keep: int) -> bool:
    """Whether the last attempt saved enough checkpoints to replace all earlier ones."""
    last = trial.attempts[-1]
    own = [one for one in experiment.events if (one.kind, one.trial) == ("checkpoint", trial.id)]
    replaced = sum(one.data["attempt"] == last.number for one in own) >= keep
    return replaced and last.kind is None and not _slot_was_killed_after(snapshot, last)


def _slot_was_killed_after(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether it was killed before it has removed all, which takes longer if the storage was away meanwhile."""
    end = attempt.ended_at or float("inf")
    away = (one for one in fault_periods(snapshot.record) if one.fault.planned.target is Target.STORAGE)
    removed = max([end, *(one.until for one in away if one.overlaps(attempt))]) + REMOVAL_SECONDS
    kills = [one.at for one in snapshot.record.faults if one.planned.target in {Target.SLOT, Target.RAY, Target.UP}]
    return any(end <= at <= removed for at in kills)
