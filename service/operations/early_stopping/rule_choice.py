"""The early-stopping rule of an experiment that leaves it to the service (`search: auto`).

The rule takes the place of `auto` in the stored spec, as if a user had changed it. `ExperimentRow.rule_choice` has the
reason, what was known of trials and the `max_step` that the user has given, and says that the service may choose again.
A user's own change ends that.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from sqlalchemy.orm import Session

from search.early_stopping.auto_choice import ChosenRule, Training, choose_rule, trials_needed
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.standalone_rules import NoneSpec
from service.operations.early_stopping.rule_change import rebuild_milestones
from service.operations.locked_experiment import LockedExperiment
from service.operations.spec_changes import store_spec
from service.specification.initial_rule import with_rule
from service.specification.models import ExperimentSpec
from service.store.early_stopping.whole_trials import longest_trial, shows_training, training_of, with_ranks
from service.store.events import append_event
from service.store.tables import TrialRow


@dataclass(frozen=True)
class _Known:
    """What the choice follows from: what a trial has shown, and the last step of a training that the user has given."""

    training: Training | None
    max_step: int | None

    @classmethod
    def of(cls, choice: Mapping[str, Any]) -> Self:
        max_step, training = choice.get("max_step"), choice["training"]
        return cls(None if training is None else Training(**training, max_step=max_step), max_step)


def choose_after_trial(locked: LockedExperiment, spec: ExperimentSpec, trial: TrialRow) -> ExperimentSpec | None:
    """Choose again if the trial, which has left its workers, has shown something new.

    Returns the spec that holds from now on; None if it is unchanged. Raises MilestonesMissing.
    """
    experiment = locked.experiment
    if experiment.rule_choice is None or experiment.end_reason is not None:
        return None
    known = _Known.of(experiment.rule_choice)
    if not shows_training(trial, is_length_given=known.max_step is not None):
        return None
    learned = _learned(locked.session, spec, trial, known)
    if learned is None:
        return None
    after = _choose(locked, spec, learned)
    if after.early_stopping != spec.early_stopping:
        rebuild_milestones(locked, after)
    return None if after is spec else after


def choose_after_change(locked: LockedExperiment, before: ExperimentSpec, after: ExperimentSpec) -> ExperimentSpec:
    """Choose again for changed limits, or for a user who hands the choice back with `rule: auto`.

    A user's own rule, or another option of a chosen one, ends the service's choice. The caller rebuilds the milestones
    for the spec that is returned.
    """
    session, experiment = locked.session, locked.experiment
    if isinstance(after.early_stopping, Auto) and before.early_stopping != after.early_stopping:
        known = _Known(None, after.early_stopping.max_step)
        trial = longest_trial(session, experiment.id, is_length_given=known.max_step is not None)
        learned = None if trial is None else _learned(session, after, trial, known)
        return _choose(locked, after, learned or known)
    if before.early_stopping != after.early_stopping:
        experiment.rule_choice = None
    if experiment.rule_choice is not None:
        known = _Known.of(experiment.rule_choice)
        if known.training is not None:
            known = replace(known, training=_counted(session, experiment.id, after, known.training))
        after = _choose(locked, after, known)
    elif _sampler_of(before) != _sampler_of(after):
        announce(locked, after)
    return after


def announce(locked: LockedExperiment, spec: ExperimentSpec) -> None:
    """Say what the service has chosen and why, if it was to choose anything."""
    choice, sampler = locked.experiment.rule_choice, _sampler_of(spec)
    if choice is None and sampler["why"] is None:
        return
    rule = {"options": spec.early_stopping.model_dump(mode="json"), "why": choice and choice["why"]}
    data = {"sampler": sampler, "early_stopping": rule, "training": choice and choice["training"]}
    if choice is not None and "max_step" in choice:
        data["max_step"] = choice["max_step"]
    append_event(locked.session, locked.experiment, "experiment.search_chosen", data, at=locked.now)
    locked.experiment.announced_sampler = sampler["name"]


def _learned(session: Session, spec: ExperimentSpec, trial: TrialRow, known: _Known) -> _Known | None:
    """What is known after the trial has left its workers; None if nothing has changed."""
    before = known.training
    is_complete = before is not None and before.trial_count >= _trials_needed(spec, before) and before.starts_cheaply
    if before is not None and is_complete and not before.is_short_beside(trial.last_step or 0):
        return None
    seen = training_of(session, trial, known=before, max_step=known.max_step)
    if seen is None:
        return None
    training = _counted(session, trial.experiment_id, spec, seen if before is None else before.after(seen))
    if before is not None and _stops_trials(spec):  # whole trials of before are not known by less than they were
        training = replace(training, trial_count=max(training.trial_count, before.trial_count))
    return None if training == before else replace(known, training=training)


def _counted(session: Session, experiment_id: str, spec: ExperimentSpec, training: Training) -> Training:
    """The training with what the first whole trials have shown, if more of them are needed than it knows."""
    is_enough = training.max_step is not None or training.trial_count >= _trials_needed(spec, training)
    return training if is_enough else with_ranks(session, experiment_id, training)


def _choose(locked: LockedExperiment, spec: ExperimentSpec, known: _Known) -> ExperimentSpec:
    """Store the choice for what is known now, with its events."""
    experiment = locked.experiment
    chosen = choose_rule(spec.problem, known.training, max_step=known.max_step, is_settled=_stops_trials(spec))
    stored = stored_choice(chosen, known.training, known.max_step)
    if stored == experiment.rule_choice and chosen.rule == spec.early_stopping:
        return spec
    announced = spec.early_stopping, experiment.rule_choice and experiment.rule_choice["why"]
    after = with_rule(spec, chosen.rule)
    experiment.rule_choice = stored
    store_spec(locked, spec, after)
    if (chosen.rule, chosen.reason) != announced or _sampler_of(after) != _sampler_of(spec):
        announce(locked, after)
    return after


def _trials_needed(spec: ExperimentSpec, training: Training) -> int:
    return trials_needed(spec.problem, is_settled=_stops_trials(spec) or training.max_step is not None)


def _stops_trials(spec: ExperimentSpec) -> bool:
    return not isinstance(spec.early_stopping, Auto | NoneSpec)


def _sampler_of(spec: ExperimentSpec) -> dict[str, str | None]:
    return {"name": spec.chosen_sampler.name, "why": spec.chosen_sampler.reason}


def stored_choice(chosen: ChosenRule, training: Training | None, max_step: int | None) -> dict[str, Any]:
    """The `rule_choice` of an experiment.

    Earlier versions know no `max_step`. They ignore it beside the training, and could not read one in it.
    """
    facts = None
    if training is not None:
        facts = asdict(training)
        del facts["max_step"]
    return {"why": chosen.reason, "training": facts} | ({} if max_step is None else {"max_step": max_step})
