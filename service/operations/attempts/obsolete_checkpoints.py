"""What attempts have left in the storage and nobody needs any more.

A trial's next attempt removes what those before it have left, when it has newer checkpoints. What another trial was to
go on from just then stays; agents remove it when the experiment is over.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.runtime.spec_cache import spec_of
from service.store.attempts import resumed_elsewhere
from service.store.donated_checkpoints import donations, ended_with_donations, known_checkpoints, may_be_tried_again
from service.store.generations import exploiters_beside, places_of
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials import checkpoints_of
from trainer.wire import Kind

NAMED_AGAIN = 10
"""So many runs are named once more although a later attempt should have removed them: they may have been in use then,
or it may have died amid it."""

NAMED_FOR = timedelta(hours=1)
"""After an experiment's end, what it has left is named to agents for so long: who asks removes it at once."""


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


def obsolete(session: Session, storage: str, now: datetime) -> list[str]:
    """Directories of experiments that have ended lately, which hold what others have gone on from, and nobody will."""
    return [
        directory
        for experiment in ended_with_donations(session, now - NAMED_FOR)
        if spec_of(experiment).trainer.kind is not Kind.EXTERNAL  # what those save is theirs
        for directory in sorted(set(_obsolete(session, experiment, storage)))
    ]


def _obsolete(session: Session, experiment: ExperimentRow, storage: str) -> Iterator[str]:
    """The folder of a run in which nothing is needed any more; else the checkpoint alone."""
    places = places_of(session, may_be_tried_again(session, experiment.id))
    needed = known_checkpoints(session, experiment.id) | {place.uri for place in places.values()}
    folder, mark, query = storage.partition("?")
    run = rf"{re.escape(folder.rstrip('/'))}/{re.escape(experiment.name)}-{experiment.id}/trial-\d+-attempt-\d+"
    for uri in donations(session, experiment.id) - needed:
        found = re.fullmatch(rf"({run})/(?!\.+[?]|\.+$)[^/?]+{re.escape(mark + query)}", uri)
        if found is not None:  # else it is nothing that our slots have saved
            is_needed = any(other.startswith(f"{found[1]}/") for other in needed)
            yield uri if is_needed else f"{found[1]}{mark}{query}"
