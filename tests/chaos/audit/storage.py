"""Of a trial's checkpoints no more than asked for are known, and no more than that, and one, are left on disk."""

from collections.abc import Iterator

from tests.chaos.schedule import Victim
from tests.chaos.snapshot import Attempt, Experiment, Snapshot, Trial

REMOVAL_SECONDS = 5.0
"""For a slot to remove what is needed no more. One that is killed before leaves it there."""


def storage(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        keep = int((experiment.spec.get("checkpoints") or {}).get("keep", 1))
        for trial in experiment.trials:
            whose = f"{experiment.name}: trial {trial.number}"
            if len(trial.checkpoints) > keep:
                yield f"{whose}: {len(trial.checkpoints)} of its checkpoints are known, not {keep}"
            if len(trial.stored) > keep + 1 and _had_its_turn(snapshot, experiment, trial, keep):
                yield f"{whose}: {len(trial.stored)} of its checkpoints are left on disk: {', '.join(trial.stored)}"


def _had_its_turn(snapshot: Snapshot, experiment: Experiment, trial: Trial, keep: int) -> bool:
    """Whether the last attempt has come so far as to replace all that was there before it."""
    last = trial.attempts[-1]
    own = [one for one in experiment.events if (one.kind, one.trial) == ("checkpoint", trial.id)]
    replaced = sum(one.data["attempt"] == last.number for one in own) >= keep
    return replaced and last.kind is None and not _slot_was_struck_after(snapshot, last)


def _slot_was_struck_after(snapshot: Snapshot, attempt: Attempt) -> bool:
    end = attempt.ended_at or float("inf")
    strikes = [one.at for one in snapshot.record.struck if one.kill.victim in (Victim.SLOT, Victim.RAY)]
    return any(end <= at <= end + REMOVAL_SECONDS for at in strikes)
