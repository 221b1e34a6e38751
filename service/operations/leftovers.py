"""What a trial's earlier attempts have left in the storage: the next one removes it when it has newer checkpoints."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.store.attempts import resumed_elsewhere
from service.store.generations import exploiters_beside, places_of
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials import checkpoints_of

NAMED_AGAIN = 10
"""So many runs are named once more although a later attempt should have removed them: they may have been in use then,
or it may have died amid it."""


@dataclass(frozen=True)
class Leftovers:
    """URIs of checkpoints, oldest first; and names of runs, whose folders may hold what nobody knows of."""

    checkpoints: list[str]
    runs: list[str]


def run_name(experiment: ExperimentRow, trial: TrialRow, attempt: int) -> str:
    """Unique to the attempt: where its checkpoints go, below the storage."""
    return f"{experiment.name}-{experiment.id}/trial-{trial.number}-attempt-{attempt}"


def leftovers(session: Session, experiment: ExperimentRow, trial: TrialRow, attempt: AttemptRow) -> Leftovers:
    """Of the attempts before this one, but for what another trial goes on from.

    Attempts remove the runs before them when they have saved so much that no earlier checkpoint is kept. So of the runs
    before that of the oldest checkpoint kept only the last NAMED_AGAIN are named; what is in use for longer than these
    last stays.
    """
    if attempt.number == 1:
        return Leftovers([], [])
    in_use = {*resumed_elsewhere(session, trial), *_awaited(session, trial)}
    rows = [row for row in checkpoints_of(session, trial.id) if row.attempt < attempt.number]
    oldest = min((row.attempt for row in rows), default=1)
    runs = [run_name(experiment, trial, number) for number in range(max(1, oldest - NAMED_AGAIN), attempt.number)]
    return Leftovers(
        checkpoints=[row.uri for row in rows if row.uri not in in_use],
        runs=[run for run in runs if not _is_in_use(run, in_use)],
    )


def _awaited(session: Session, trial: TrialRow) -> set[str]:
    """What others will go on from when they are started, for the first time or again."""
    return {place.uri for place in places_of(session, exploiters_beside(session, trial)).values()}


def _is_in_use(run: str, in_use: Collection[str]) -> bool:
    return any(f"/{run}/" in uri for uri in in_use)
