"""The early-stopping rule of a specification that leaves it to the service, before the first trial."""

from search.early_stopping import Rule
from search.early_stopping.auto_choice import ChosenRule, choose_rule
from search.early_stopping.rules.auto import Auto
from service.specification.models import ExperimentSpec
from service.specification.stored_spec import parse_stored_spec


def initial_rule(spec: ExperimentSpec) -> tuple[ExperimentSpec, ChosenRule | None]:
    """The spec with the rule that is chosen, and that rule with its reason; None if it is the user's own."""
    if not isinstance(spec.early_stopping, Auto):
        return spec, None
    chosen = choose_rule(spec.problem, None, max_step=given_max_step(spec))
    return with_rule(spec, chosen.rule), chosen


def given_max_step(spec: ExperimentSpec) -> int | None:
    """The last step of a training, if the spec leaves the rule to the service and gives it."""
    return spec.early_stopping.max_step if isinstance(spec.early_stopping, Auto) else None


def with_rule(spec: ExperimentSpec, rule: Rule) -> ExperimentSpec:
    """Parsed again, because the spec caches what depends on the rule."""
    document = spec.model_dump(mode="json") | {"early_stopping": rule.model_dump(mode="json")}
    return parse_stored_spec(document)
