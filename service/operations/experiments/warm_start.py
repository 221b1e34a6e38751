"""Warm start: the observations of earlier experiments, copied when a new experiment is submitted."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from search.mistakes import Mistake, listed
from search.warm_starts.trial_selection import Source, select_trials, to_json
from service.errors import Invalid
from service.operations.locked_experiment import LockedExperiment
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.runtime.observations.observations import observation_of
from service.runtime.observations.targets_and_constraints import known_values
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.experiments import find_experiment
from service.store.tables import ExperimentRow, TrialRow, WarmStartRow
from service.store.trials.confirmations import confirmations_of
from service.store.trials.trials import newest_trials

MAX_TRIALS = 2000
"""The number of trials read of each earlier experiment: those that changed last."""


@dataclass(frozen=True)
class WarmStart:
    """The observations, and a summary of each source, both as JSON."""

    observations: list[Any]
    sources: list[Any]


def gather_warm_start(context: Context, spec: ExperimentSpec) -> WarmStart | None:
    """Read the observations of the experiments in `search.warm_start`; None if there are none.

    Raises Invalid for experiments that the search cannot use.
    """
    if not spec.search.warm_start:
        return None
    with context.database.read() as session:
        found = [find_experiment(session, name) for name in spec.search.warm_start]
        mistakes = list(_mistakes(spec, found))
        if mistakes:
            raise Invalid(mistakes)
        rows = [row for row in found if row is not None]
        read = [_source(session, spec, row) for row in rows]
    observations, report = select_trials(spec.problem, spec.search, [source for source, _ in read])
    for taken, (_, left_out) in zip(report, read, strict=True):
        taken.left_out += left_out
    sources = [{"id": row.id, **taken.to_json()} for row, taken in zip(rows, report, strict=True)]
    return WarmStart(to_json(observations), sources)


def store_warm_start(locked: LockedExperiment, found: WarmStart) -> None:
    session, experiment = locked.session, locked.experiment
    session.add(WarmStartRow(experiment_id=experiment.id, observations=found.observations, sources=found.sources))
    append_event(session, experiment, "experiment.warm_started", {"sources": found.sources}, at=locked.now)


def _mistakes(spec: ExperimentSpec, found: list[ExperimentRow | None]) -> Iterator[Mistake]:
    wanted = {one.metric for one in spec.objectives}
    for index, (name, row) in enumerate(zip(spec.search.warm_start, found, strict=True)):
        path = ("search", "warm_start", index)
        if row is None:
            yield Mistake(path, f"there is no experiment {name!r}; GET /v1/experiments lists them")
        elif row in found[:index]:
            yield Mistake(path, f"experiment {row.name!r} appears twice")
        elif missing := sorted(wanted - spec_of(row).valued_metrics):
            known, what = ", ".join(sorted(spec_of(row).valued_metrics)), listed(missing)
            verb = "is no objective or constraint" if len(missing) == 1 else "are no objectives or constraints"
            yield Mistake(path, f"{what} {verb} of {row.name!r}; a search can learn from its {known}")


def _source(session: Session, spec: ExperimentSpec, row: ExperimentRow) -> tuple[Source, Counter[str]]:
    """Return what the search learns from the experiment, and how many of its trials were left out, by reason."""
    ran_under, left_out = spec_of(row), Counter[str]()
    trials = newest_trials(session, row.id, MAX_TRIALS)
    count = row.trial_count - len(confirmations_of(session, [row.id]))
    if count > len(trials):
        left_out[f"older than the newest {MAX_TRIALS}"] = count - len(trials)
    usable = [trial for trial in trials if _has_constraint_metrics(spec, ran_under, trial)]
    if len(usable) < len(trials):
        left_out["a constraint's metric is not known"] = len(trials) - len(usable)
    observations = [observation_of(spec, trial, ran_under=ran_under) for trial in usable]
    return Source(row.name, ran_under.config, observations), left_out


def _has_constraint_metrics(spec: ExperimentSpec, ran_under: ExperimentSpec, trial: TrialRow) -> bool:
    known = known_values(ran_under, trial)
    return all(one.metric in known for one in spec.constraints)
