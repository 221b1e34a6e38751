"""The early-stopping rule of an experiment that leaves it to the service (`search: auto`).

The rule takes the place of `auto` in the stored spec, as if a user had changed it. `ExperimentRow.rule_choice` has the
reason and what was known of trainings, and says that the service may choose again. A user's own change ends that.
"""

from dataclasses import replace

from sqlalchemy.orm import Session

from search.early_stopping.auto_choice import choose_rule, trials_needed
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.wrappable_rules import NoneSpec
from search.early_stopping.training_facts import Training
from service.operations.early_stopping.recorded_milestones import MAX_LOCKED_EVENTS
from service.operations.early_stopping.rule_change import rebuild_milestones
from service.operations.early_stopping.stored_choice import facts_in, may_show_lowest_rung, stored_choice, training_in
from service.operations.locked_experiment import LockedExperiment
from service.operations.stored_spec_change import store_spec
from service.runtime.caches.experiment_caches import spec_of
from service.specification.initial_rule import given_training, with_rule
from service.specification.models import ExperimentSpec
from service.store.early_stopping.training_facts import longest_trial, shows_training, training_of, with_ranks
from service.store.events import append_event
from service.store.experiments import may_run_trials
from service.store.tables import TrialRow
from service.store.trials.ended_trials import ran_to_completion

EVENTS_OF_A_CHOICE = 10
"""At most so many are added before the milestones are read."""


def choose_after_trial(locked: LockedExperiment, spec: ExperimentSpec, trial: TrialRow) -> ExperimentSpec | None:
    """Choose again if the trial, which has left its workers, has shown something new.

    Returns the spec that holds from now on; None if it is unchanged. Raises MilestonesMissing.
    """
    experiment = locked.experiment
    if experiment.rule_choice is None:
        return None
    known = training_in(experiment.rule_choice)
    assumed = known if known is not None and known.is_length_assumed else None
    if experiment.end_reason is not None and (assumed is None or not may_run_trials(experiment)):
        return None
    if shows_training(trial, is_length_given=known is not None and known.is_length_given):
        learned = _learned(locked.session, spec, trial, known)
    else:
        learned = assumed and assumed.for_trials(experiment.trial_count, spec.problem.parallelism)
    return None if learned is None or learned == known else _change_rule(locked, spec, learned)


def choose_while_training(locked: LockedExperiment, trial: TrialRow) -> None:
    """Choose by an assumed length, if the trial has come far enough, and no other trial has let the service choose.

    Nothing is chosen if so many reports would have to be read that the lock would be kept for long: then trials that
    run to their ends are waited for.
    """
    experiment = locked.experiment
    spec = spec_of(experiment)
    is_long = experiment.event_count + EVENTS_OF_A_CHOICE > MAX_LOCKED_EVENTS
    if is_long or not may_show_lowest_rung(experiment, spec, trial):
        return
    seen = training_of(locked.session, trial)
    if seen is None or not seen.shows_lowest_rung:
        return
    assumed = seen.for_trials(experiment.trial_count, spec.problem.parallelism)
    if not isinstance(choose_rule(spec.problem, assumed).rule, Auto | NoneSpec):
        _change_rule(locked, spec, assumed)


def _change_rule(locked: LockedExperiment, spec: ExperimentSpec, learned: Training) -> ExperimentSpec | None:
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
        return _choose(locked, after, _known_at_return(locked, after))
    if before.early_stopping != after.early_stopping:
        experiment.rule_choice = None
    if experiment.rule_choice is not None:
        known = training_in(experiment.rule_choice)
        training = None if known is None else _counted(session, experiment.id, after, known)
        after = _choose(locked, after, training)
    elif _sampler_of(before) != _sampler_of(after):
        announce(locked, after)
    return after


def announce(locked: LockedExperiment, spec: ExperimentSpec) -> None:
    """Say what the service has chosen and why, if it was to choose anything."""
    choice, sampler = locked.experiment.rule_choice, _sampler_of(spec)
    if choice is None and sampler["why"] is None:
        return
    rule = {"options": spec.early_stopping.model_dump(mode="json"), "why": choice and choice["why"]}
    data = {"sampler": sampler, "early_stopping": rule, "training": choice and facts_in(choice)}
    append_event(locked.session, locked.experiment, "experiment.search_chosen", data, at=locked.now)
    locked.experiment.announced_sampler = sampler["name"]


def _known_at_return(locked: LockedExperiment, spec: ExperimentSpec) -> Training | None:
    """What is known when a user hands the choice back: also what was known before, if the length is the same."""
    choice, session, known = locked.experiment.rule_choice, locked.session, given_training(spec)
    before = None if choice is None else training_in(choice)
    if known is not None and before is not None and before.max_step == known.max_step:
        return before
    trial = longest_trial(session, locked.experiment.id, is_length_given=known is not None)
    return known if trial is None else _learned(session, spec, trial, known) or known


def _learned(session: Session, spec: ExperimentSpec, trial: TrialRow, known: Training | None) -> Training | None:
    """What is known after the trial has left its workers; None if nothing has changed."""
    if known is not None and _is_enough(spec, trial, known):
        return None
    seen = training_of(session, trial, known=known)
    if seen is None:
        return None
    training = _counted(session, trial.experiment_id, spec, seen if known is None else known.after(seen))
    if known is not None and not known.is_length_given and _stops_trials(spec):
        # whole trials of before are not known by less than they were
        training = replace(training, trial_count=max(training.trial_count, known.trial_count))
    return None if training == known else training


def _is_enough(spec: ExperimentSpec, trial: TrialRow, known: Training) -> bool:
    """Whether the trial can show nothing that matters. With a given length, the first one that ends does."""
    needed = int(ran_to_completion(trial)) if known.is_length_given else _trials_needed(spec, known)
    return known.trial_count >= needed and known.starts_cheaply and not known.is_short_beside(trial.last_step or 0)


def _counted(session: Session, experiment_id: str, spec: ExperimentSpec, training: Training) -> Training:
    """The training with what the first whole trials have shown, if more of them are needed than it knows."""
    is_enough = training.trial_count >= _trials_needed(spec, training) or training.is_length_assumed
    return training if is_enough else with_ranks(session, experiment_id, training)


def _choose(locked: LockedExperiment, spec: ExperimentSpec, training: Training | None) -> ExperimentSpec:
    """Store the choice for what is known now, with its events."""
    experiment = locked.experiment
    chosen = choose_rule(spec.problem, training, is_settled=_stops_trials(spec))
    stored = stored_choice(chosen, training)
    if stored == experiment.rule_choice and chosen.rule == spec.early_stopping:
        return spec
    known = spec.early_stopping, experiment.rule_choice and experiment.rule_choice["why"]
    after = with_rule(spec, chosen.rule)
    experiment.rule_choice = stored
    store_spec(locked, spec, after)
    if (chosen.rule, chosen.reason) != known or _sampler_of(after) != _sampler_of(spec):
        announce(locked, after)
    return after


def _trials_needed(spec: ExperimentSpec, training: Training) -> int:
    is_settled = _stops_trials(spec) and training.assumed_max_step is None  # then the rule spares the first trials
    return trials_needed(spec.problem, is_settled=is_settled, is_length_given=training.is_length_given)


def _stops_trials(spec: ExperimentSpec) -> bool:
    return not isinstance(spec.early_stopping, Auto | NoneSpec)


def _sampler_of(spec: ExperimentSpec) -> dict[str, str | None]:
    return {"name": spec.chosen_sampler.name, "why": spec.chosen_sampler.reason}
