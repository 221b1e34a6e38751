"""How an experiment names its rule: `{rule: asha, min_step: 1, reduction_factor: 3}`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from search.early_stopping.asha import Asha
from search.early_stopping.base import RuleOptions
from search.early_stopping.median import Median
from search.early_stopping.rule import Rule
from search.mistakes import Mistake, listed, parse, refuse


class NoneSpec(RuleOptions):
    """Every trial runs to its end."""

    rule: Literal["none"] = "none"


RULES: dict[str, type[RuleOptions]] = {"asha": Asha, "median": Median, "none": NoneSpec}

# In the API's description, and not to be had yet.
PLANNED = ("hyperband", "percentile", "threshold", "patient", "wilcoxon")

# A new rule is a model with the methods of `Rule`, here and in RULES.
_Tagged = Annotated[Asha | Median | NoneSpec, Field(discriminator="rule")]
_RULE: TypeAdapter[Asha | Median | NoneSpec] = TypeAdapter(_Tagged)


def _with_every_mistake(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(given, RuleOptions):
        return handler(given)
    if not isinstance(given, Mapping):
        refuse("EarlyStoppingSpec", [Mistake((), "must be an object such as {rule: asha}")], given)
    rule = given.get("rule", "none")
    if not isinstance(rule, str) or rule not in RULES:
        refuse("EarlyStoppingSpec", [Mistake(("rule",), _unknown(rule))], given)
    parsed, mistakes = parse(_RULE, {"rule": "none", **given}, tags=RULES)
    refuse("EarlyStoppingSpec", [_explained(mistake, rule) for mistake in mistakes], given)
    return parsed


# Validated as a field, every mistake comes at once; `{}` is `{rule: none}`.
EarlyStoppingSpec = Annotated[_Tagged, WrapValidator(_with_every_mistake)]


def rule_for(spec: EarlyStoppingSpec) -> Rule:
    return spec


def _unknown(rule: Any) -> str:
    if rule in PLANNED:
        return f"'{rule}' is not available yet; available: {listed(RULES)}"
    return f"unknown rule '{rule}'; available: {listed(RULES)}"


def _explained(mistake: Mistake, rule: str) -> Mistake:
    options = [name for name in RULES[rule].model_fields if name != "rule"]
    if len(mistake.path) != 1 or mistake.path[0] in options:
        return mistake
    return Mistake(mistake.path, f"unknown option; the options of {rule}: {listed(options) or 'none'}")
