"""What an experiment stores of a rule that the service has chosen: the reason, and what was known of trainings."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from search.early_stopping.auto_choice import ChosenRule, may_assume_length
from search.early_stopping.rules.auto import Auto
from search.early_stopping.training_facts import Training
from service.specification.models import ExperimentSpec
from service.store.tables import ExperimentRow, TrialRow

WITH_LENGTH = "training_with_length"
COMPARED_EARLY = "training_compared_early"


def stored_choice(chosen: ChosenRule, training: Training | None) -> dict[str, Any]:
    """The `rule_choice` of an experiment.

    Earlier versions take each `training` for that of a whole trial. Where the length is given it may be another one, so
    it has a place that they do not read.
    """
    facts = {} if training is None else asdict(training)
    if training is not None and training.compares_first_trials:
        place = WITH_LENGTH if training.is_length_given else COMPARED_EARLY
        unused = "assumed_max_step" if training.is_length_given else "max_step"
        return {"why": chosen.reason, "training": None, place: _without(facts, unused)}
    return {"why": chosen.reason, "training": _without(facts, "max_step", "assumed_max_step") or None}


def _without(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in names}


def training_in(choice: Mapping[str, Any]) -> Training | None:
    facts = facts_in(choice)
    return None if facts is None else Training(**facts)


def facts_in(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    facts: dict[str, Any] | None = choice.get(WITH_LENGTH) or choice.get(COMPARED_EARLY) or choice["training"]
    return facts


def may_show_lowest_rung(experiment: ExperimentRow, spec: ExperimentSpec, trial: TrialRow) -> bool:
    """Whether a trial that still trains, and has just saved a checkpoint, may be enough to choose a rule by."""
    choice = experiment.rule_choice
    if choice is None or facts_in(choice) is not None or not isinstance(spec.early_stopping, Auto):
        return False
    return experiment.end_reason is None and trial.confirms is None and may_assume_length(spec.problem)
