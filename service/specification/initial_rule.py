"""The early-stopping rule of a specification that leaves it to the service, before the first trial."""

from search.early_stopping import Rule
from search.early_stopping.auto_choice import ChosenRule, choose_rule
from search.early_stopping.rules.auto import Auto
from search.early_stopping.training_facts import Training
from service.specification.models import ExperimentSpec
from service.specification.stored_spec import parse_stored_spec


def initial_rule(spec: ExperimentSpec) -> tuple[ExperimentSpec, ChosenRule | None]:
    """The spec with the rule that is chosen, and that rule with its reason; None if it is the user's own."""
    if not isinstance(spec.early_stopping, Auto):
        return spec, None
    chosen = choose_rule(spec.problem, given_training(spec))
    return with_rule(spec, chosen.rule), chosen


def given_training(spec: ExperimentSpec) -> Training | None:
    """What the spec says of a training to the service, which is to choose a rule."""
    rule = spec.early_stopping
    return Training.given(rule.max_step) if isinstance(rule, Auto) and rule.max_step is not None else None


def with_rule(spec: ExperimentSpec, rule: Rule) -> ExperimentSpec:
    """Parsed again, because the spec caches what depends on the rule."""
    document = spec.model_dump(mode="json") | {"early_stopping": rule.model_dump(mode="json")}
    return parse_stored_spec(document)
