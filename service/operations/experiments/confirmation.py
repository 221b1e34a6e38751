"""Confirms the winners of a search: runs them again with other seeds, when no trial of the search is left."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.analysis.confirmation import Confirmed, verdict_of
from service.domain.statuses import TrialStatus
from service.operations.locked_experiment import LockedExperiment
from service.operations.transitions import create_trial, revive_trial
from service.specification.models import ExperimentSpec
from service.specification.spec_sections import ConfirmSpec
from service.store.events import append_event
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.best_trials import best_configurations
from service.store.trials.confirmations import confirmations_of, confirmed_trials, lead_of, ranking
from service.store.trials.ended_trials import was_stopped_by_experiment_end
from service.store.trials.trial_seed import first_seed

RUNS_AGAIN = "the experiment runs again after its end"
"""The reason of a trial that goes on because the experiment does whose end had stopped it."""


@dataclass(frozen=True)
class DueConfirmations:
    """The confirmations still to run: `new` ones, and those `stopped` by an end of the experiment that was undone."""

    chosen: Sequence[TrialRow]
    new: Sequence[tuple[TrialRow, int]]
    stopped: Sequence[TrialRow]

    @property
    def any_left(self) -> bool:
        return bool(self.new or self.stopped)


def due_confirmations(locked: LockedExperiment, spec: ExperimentSpec) -> DueConfirmations:
    """As many as `limits.max_trials` allows; all of them without that limit.

    The seeds take turns, so that an early end leaves each configuration about as many.
    """
    if spec.confirm is None:
        return DueConfirmations([], [], [])
    session, experiment = locked.session, locked.experiment
    chosen = best_configurations(session, experiment, spec.space, spec.confirm.top)
    known = {(one.confirms, one.seed): one for one in confirmations_of(session, [experiment.id])}
    wanted = [(trial, seed) for seed in confirmation_seeds(experiment, spec.confirm) for trial in chosen]
    new = [(trial, seed) for trial, seed in wanted if (trial.number, seed) not in known]
    stopped = [known[trial.number, seed] for trial, seed in wanted if (trial.number, seed) in known]
    most = spec.limits.max_trials
    room = len(new) if most is None else max(0, most - experiment.trial_count)
    return DueConfirmations(chosen, new[:room], [one for one in stopped if was_stopped_by_experiment_end(one)])


def begin_confirmation(locked: LockedExperiment, spec: ExperimentSpec) -> bool:
    """Queue the confirmations that are due. False if there are none.

    A function of the stored trials, and so complete after any crash.
    """
    due = due_confirmations(locked, spec)
    if due.any_left:
        _announce(locked, spec, due)
    for one in due.stopped:
        revive_trial(locked, one, TrialStatus.QUEUED, reason=RUNS_AGAIN)
    for trial, seed in due.new:
        params = dict(trial.params)
        create_trial(locked, params, "confirm", source="confirmation", confirms=trial, seed=seed)
    return due.any_left


def confirmation_seeds(experiment: ExperimentRow, confirm: ConfirmSpec) -> Sequence[int]:
    """The seeds of the confirmations of each configuration; the search's own seed is not among them."""
    first = first_seed(experiment) or 0
    return range(first + 1, first + 1 + confirm.seeds)


def end_confirmation(locked: LockedExperiment) -> None:
    """Say what the confirmations have shown, when an experiment ends that has some."""
    session, experiment = locked.session, locked.experiment
    confirmations = confirmations_of(session, [experiment.id]) if experiment.spec.get("confirm") else []
    if not confirmations:
        return
    rank = ranking(experiment, confirmed_trials(session, [experiment.id]), confirmations)
    verdict = verdict_of(rank, lead_of(experiment, rank))
    data = {"verdict": verdict, "ranking": [_figures(one) for one in rank]}
    append_event(session, experiment, "experiment.confirmed", data, at=locked.now)


def _announce(locked: LockedExperiment, spec: ExperimentSpec, due: DueConfirmations) -> None:
    seeds = sorted({seed for _, seed in due.new} | {one.seed or 0 for one in due.stopped})
    numbers = {trial.number for trial, _ in due.new} | {one.confirms for one in due.stopped}
    which = ", ".join(f"trial {trial.number} ({trial.value:g})" for trial in due.chosen if trial.number in numbers)
    best = f"its best trials by {spec.objective.metric}"
    data = {
        "reason": f"the search has ended ({locked.experiment.end_reason}); {best} run again with other seeds: {which}",
        "chosen": [{"number": trial.number, "id": trial.id, "value": trial.value} for trial in due.chosen],
        "seeds": seeds,
        "count": len(due.new) + len(due.stopped),
    }
    append_event(locked.session, locked.experiment, "experiment.confirming", data, at=locked.now)


def _figures(one: Confirmed) -> dict[str, object]:
    return {
        "number": one.number,
        "value": one.chosen_for,
        "mean": one.mean,
        "standard_error": one.standard_error,
        "n": one.n,
        "failed_count": one.failed_count,
    }
