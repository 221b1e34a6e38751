"""Finds checkpoints and run folders in the storage that are no longer needed.

An attempt removes what the trial's earlier attempts have left, once it has newer checkpoints. A checkpoint that another
trial resumes from is kept until the experiment is over; then agents remove it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.operations.checkpoints.folders import (
    UrisByFolder,
    experiment_folder,
    is_path,
    run_of,
    split_query,
    uri_below,
)
from service.runtime.caches.experiment_caches import readable, spec_of
from service.store.attempts import FailedAttempt, failed_attempts, resumed_elsewhere
from service.store.checkpoints.checkpoints import checkpoints_of
from service.store.checkpoints.donated_checkpoints import donations, known_checkpoints, retryable_trial_ids
from service.store.checkpoints.missing_checkpoints import uncounted_checkpoints
from service.store.experiments import ended_after
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials.param_generations import exploiters_beside
from service.store.trials.resume_point import resume_points
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
    """The files of the trial's earlier attempts, without those that another trial resumes from, or that are missing.

    An attempt removes the runs before it once it has saved so many checkpoints that no earlier one is kept. So only the
    last `REPEATED_RUNS` of the runs before the oldest kept checkpoint are listed. A run that is in use for longer than
    that is not listed again.
    """
    if attempt.number == 1:
        return EarlierFiles([], [])
    in_use = {*resumed_elsewhere(session, trial), *_resumed_later(session, trial)}
    unlisted = in_use | uncounted_checkpoints(session, attempt)
    rows = [row for row in checkpoints_of(session, trial.id) if row.attempt < attempt.number]
    oldest = min((row.attempt for row in rows), default=1)
    first = max(1, oldest - REPEATED_RUNS)
    runs = [run_of(experiment, trial.number, number) for number in range(first, attempt.number)]
    return EarlierFiles(
        checkpoints=[row.uri for row in rows if row.uri not in unlisted],
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


@dataclass(frozen=True)
class _Leftovers:
    """What no trial can resume from of an experiment. `cut_off`: folders of attempts, and when those ended."""

    donated: list[str]
    cut_off: list[tuple[datetime, PartlyNeededFolder]]


class _LeftoversCache:
    """Keeps the leftovers of recently ended experiments, each until it changes: all agents ask again and again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, _Leftovers]] = {}

    def of_all(self, versions: Mapping[str, object], find: Callable[[str], _Leftovers]) -> list[_Leftovers]:
        """`versions` are by experiment, and other experiments are forgotten."""
        known = self._known
        found = {
            id_: known[id_] if id_ in known and known[id_][0] == version else (version, find(id_))
            for id_, version in versions.items()
        }
        self._known = found
        return [leftovers for _, leftovers in found.values()]


_cache = _LeftoversCache()


def obsolete_files(session: Session, storage: str, now: datetime) -> ObsoleteFiles:
    """What no trial can resume from in the folders of experiments that have ended recently.

    These are checkpoints that other trials resumed from, and those of attempts that were cut off: the slot of such an
    attempt does not know which of its checkpoints count, and no later attempt may have saved enough to remove them. It
    may still write if it was frozen, so its folder is listed some time after the attempt.
    """
    versions = {row.id: (row, storage) for row in ended_after(session, now - LISTED_FOR)}
    leftovers = _cache.of_all(versions, lambda id_: _leftovers(session, id_, storage))
    donated = [directory for one in leftovers for directory in one.donated]
    cut_off = [folder for one in leftovers for ended_at, folder in one.cut_off if ended_at < now - CUT_OFF_FOR]
    unneeded = [folder.directory for folder in cut_off if not folder.keep]
    return ObsoleteFiles(list(dict.fromkeys([*donated, *unneeded])), [folder for folder in cut_off if folder.keep])


def _leftovers(session: Session, experiment_id: str, storage: str) -> _Leftovers:
    """None of an experiment of `kind: external`, whose holders manage their own files."""
    experiment = session.get(ExperimentRow, experiment_id)
    if experiment is None or not readable([experiment]) or spec_of(experiment).trainer.kind is Kind.EXTERNAL:
        return _Leftovers([], [])
    donated, attempts = donations(session, experiment.id), failed_attempts(session, experiment.id)
    if not donated and not attempts:
        return _Leftovers([], [])
    points = resume_points(session, retryable_trial_ids(session, experiment.id))
    needed = known_checkpoints(session, experiment.id) | {point.uri for point in points.values()}
    return _Leftovers(
        donated=sorted(set(_obsolete_in(experiment, storage, donated - needed, UrisByFolder(needed)))),
        cut_off=list(_cut_off(experiment, storage, attempts, needed)),
    )


def _cut_off(
    experiment: ExperimentRow, storage: str, attempts: Sequence[FailedAttempt], needed: Collection[str]
) -> Iterator[tuple[datetime, PartlyNeededFolder]]:
    """The folders of the attempts, with the names of the checkpoints in them that are needed."""
    by_folder, in_use = UrisByFolder(needed), _runs_in(experiment, needed)
    for one in attempts:
        run = run_of(experiment, one.trial_number, one.number)
        folder = uri_below(storage, run)
        names = sorted(set(_names_in(folder, by_folder)))
        if names or run not in in_use:  # otherwise the storage had another URI then
            yield one.ended_at, PartlyNeededFolder(directory=folder, keep=names)


def _runs_in(experiment: ExperimentRow, uris: Iterable[str]) -> set[str]:
    """The experiment's runs through whose folders these URIs lead, in whatever storage."""
    run = re.compile(rf"(?=/({re.escape(experiment_folder(experiment))}/trial-\d+-attempt-\d+)/)")
    return {found[1] for uri in uris for found in run.finditer(uri)}


def _names_in(folder: str, uris: UrisByFolder) -> Iterator[str]:
    """The names in the folder through which these URIs lead."""
    path = f"{split_query(folder)[0]}/"
    for uri in uris.below(folder):
        yield split_query(uri)[0].removeprefix(path).partition("/")[0]


def _obsolete_in(
    experiment: ExperimentRow, storage: str, donated: Iterable[str], needed: UrisByFolder
) -> Iterator[str]:
    """Yield the whole folder of a run if nothing in it is needed, otherwise the checkpoint alone."""
    folder, separator, query = split_query(storage)
    run = rf"{re.escape(folder.rstrip('/'))}/{re.escape(experiment_folder(experiment))}/trial-\d+-attempt-\d+"
    name = r"(?!\.+$)[^/]+" if is_path(storage) else r"(?!\.+[?]|\.+$)[^/?]+"
    saved = re.compile(rf"({run})/{name}{re.escape(separator + query)}")
    for uri in donated:
        found = saved.fullmatch(uri)
        if found is not None:  # otherwise no slot has saved it
            yield uri if any(needed.below(found[1])) else f"{found[1]}{separator}{query}"
