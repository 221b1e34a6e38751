"""Finds checkpoints and run folders in the storage that are no longer needed.

An attempt removes what the trial's earlier attempts have left, once it has newer checkpoints. A checkpoint that another
trial resumes from is kept until the experiment is over; then agents remove it.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.operations.checkpoints.folders import run_of, uri_below
from service.runtime.caches.experiment_caches import readable, spec_of
from service.store.attempts import cut_off_attempts, resumed_elsewhere
from service.store.checkpoints.donated_checkpoints import (
    donations,
    ended_with_donations,
    known_checkpoints,
    retryable_trial_ids,
)
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials.param_generations import exploiters_beside, resume_points
from service.store.trials.trials import checkpoints_of
from trainer.wire import Kind, PartlyNeededFolder

REPEATED_RUNS = 10
"""The number of runs that are listed again although a later attempt should have removed them. They may have been in use
then, or that attempt may have been killed before it removed them."""

CUT_OFF_FOR = timedelta(minutes=5)
"""The time after which a cut-off attempt's slot has learned that nothing more is accepted, unless it is gone."""

LISTED_FOR = timedelta(hours=1)
"""The time after an experiment's end during which its obsolete directories are listed to agents."""


@dataclass(frozen=True)
class EarlierFiles:
    """URIs of checkpoints, oldest first, and names of runs, whose folders may hold files that were never reported."""

    checkpoints: list[str]
    runs: list[str]


def earlier_files(session: Session, experiment: ExperimentRow, trial: TrialRow, attempt: AttemptRow) -> EarlierFiles:
    """The files of the trial's earlier attempts, without those that another trial resumes from.

    An attempt removes the runs before it once it has saved so many checkpoints that no earlier one is kept. So only the
    last `REPEATED_RUNS` of the runs before the oldest kept checkpoint are listed. A run that is in use for longer than
    that is not listed again.
    """
    if attempt.number == 1:
        return EarlierFiles([], [])
    in_use = {*resumed_elsewhere(session, trial), *_resumed_later(session, trial)}
    rows = [row for row in checkpoints_of(session, trial.id) if row.attempt < attempt.number]
    oldest = min((row.attempt for row in rows), default=1)
    first = max(1, oldest - REPEATED_RUNS)
    runs = [run_of(experiment, trial.number, number) for number in range(first, attempt.number)]
    return EarlierFiles(
        checkpoints=[row.uri for row in rows if row.uri not in in_use],
        runs=[run for run in runs if not _is_in_use(run, in_use)],
    )


def _resumed_later(session: Session, trial: TrialRow) -> set[str]:
    """The checkpoints that other trials will resume from when they start."""
    return {point.uri for point in resume_points(session, exploiters_beside(session, trial)).values()}


def _is_in_use(run: str, in_use: Collection[str]) -> bool:
    return any(f"/{run}/" in uri for uri in in_use)


@dataclass(frozen=True)
class ObsoleteFiles:
    """URIs of directories that go, and folders of which only the checkpoints with the given names stay."""

    directories: list[str]
    partly_needed: list[PartlyNeededFolder]


def obsolete_files(session: Session, storage: str, now: datetime) -> ObsoleteFiles:
    """What no trial can resume from in the folders of experiments that have ended recently.

    These are checkpoints that other trials resumed from, and those of attempts that were cut off: the slot of such an
    attempt does not know which of its checkpoints count, and no later attempt may have saved enough to remove them.
    """
    donated = [
        directory
        for experiment in readable(ended_with_donations(session, now - LISTED_FOR))
        if spec_of(experiment).trainer.kind is not Kind.EXTERNAL  # their holders manage their own files
        for directory in sorted(set(_obsolete_in(session, experiment, storage)))
    ]
    left = [PartlyNeededFolder(directory=one, keep=names) for one, names in _cut_off(session, storage, now)]
    unneeded = [one.directory for one in left if not one.keep]
    return ObsoleteFiles(list(dict.fromkeys([*donated, *unneeded])), [one for one in left if one.keep])


def _cut_off(session: Session, storage: str, now: datetime) -> Iterator[tuple[str, list[str]]]:
    """The folders of cut-off attempts, with the names of the checkpoints in them that are needed.

    A slot that was frozen may still write to its folder, so a folder is listed some time after its attempt.
    """
    found = cut_off_attempts(session, now - LISTED_FOR, now - CUT_OFF_FOR)
    for experiment in readable({experiment.id: experiment for experiment, _, _ in found}.values()):
        if spec_of(experiment).trainer.kind is Kind.EXTERNAL:
            continue
        points = resume_points(session, retryable_trial_ids(session, experiment.id))
        needed = known_checkpoints(session, experiment.id) | {point.uri for point in points.values()}
        own = [(trial, attempt) for other, trial, attempt in found if other.id == experiment.id]
        for run in (run_of(experiment, trial.number, attempt.number) for trial, attempt in own):
            folder = uri_below(storage, run)
            names = sorted(_names_in(folder, needed))
            if names or not _is_in_use(run, needed):  # otherwise the storage had another URI then
                yield folder, names


def _names_in(folder: str, uris: Collection[str]) -> Iterator[str]:
    """The names in the folder through which these URIs lead."""
    path = f"{folder.partition('?')[0]}/"
    for uri in uris:
        if uri.startswith(path):
            yield uri.removeprefix(path).partition("?")[0].partition("/")[0]


def _obsolete_in(session: Session, experiment: ExperimentRow, storage: str) -> Iterator[str]:
    """Yield the whole folder of a run if nothing in it is needed, otherwise the checkpoint alone."""
    points = resume_points(session, retryable_trial_ids(session, experiment.id))
    needed = known_checkpoints(session, experiment.id) | {point.uri for point in points.values()}
    folder, separator, query = storage.partition("?")
    run = rf"{re.escape(folder.rstrip('/'))}/{re.escape(experiment.name)}-{experiment.id}/trial-\d+-attempt-\d+"
    for uri in donations(session, experiment.id) - needed:
        found = re.fullmatch(rf"({run})/(?!\.+[?]|\.+$)[^/?]+{re.escape(separator + query)}", uri)
        if found is not None:  # otherwise no slot has saved it
            is_needed = any(other.startswith(f"{found[1]}/") for other in needed)
            yield uri if is_needed else f"{found[1]}{separator}{query}"
