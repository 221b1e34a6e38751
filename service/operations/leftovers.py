"""What a trial's earlier attempts have left in the storage: the next one removes it when it has newer checkpoints."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.store.attempts import resumed_elsewhere
from service.store.generations import exploiters_beside, places_of
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials import checkpoints_of


@dataclass(frozen=True)
class Leftovers:
    """URIs of checkpoints, oldest first; and names of runs, whose folders may hold what nobody knows of."""

    checkpoints: list[str]
    runs: list[str]


def run_name(experiment: ExperimentRow, trial: TrialRow, attempt: int) -> str:
    """Unique to the attempt: where its checkpoints go, below the storage."""
    return f"{experiment.name}-{experiment.id}/trial-{trial.number}-attempt-{attempt}"


def leftovers(session: Session, experiment: ExperimentRow, trial: TrialRow, attempt: AttemptRow) -> Leftovers:
    """Of the attempts before this one, but for what another trial goes on from."""
    if attempt.number == 1:
        return Leftovers([], [])
    in_use = {*resumed_elsewhere(session, trial), *_awaited(session, trial)}
    uris = [row.uri for row in checkpoints_of(session, trial.id) if row.attempt < attempt.number]
    runs = [run_name(experiment, trial, number) for number in range(1, attempt.number)]
    return Leftovers(
        checkpoints=[uri for uri in uris if uri not in in_use],
        runs=[run for run in runs if not _is_in_use(run, in_use)],
    )


def _awaited(session: Session, trial: TrialRow) -> set[str]:
    """What others will go on from when they are started, for the first time or again."""
    return {place.uri for place in places_of(session, exploiters_beside(session, trial)).values()}


def _is_in_use(run: str, in_use: Collection[str]) -> bool:
    return any(f"/{run}/" in uri for uri in in_use)
