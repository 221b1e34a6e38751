"""What a person wrote as a rule, with every mistake in it told at once."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from search.early_stopping.rule_base import RuleOptions
from search.mistakes import MISSING, Mistake, listed, parse, refuse


def one_of(rules: Mapping[str, type[RuleOptions]], adapter: TypeAdapter[Any]) -> WrapValidator:
    """For a field that holds one of these, told apart by `rule`; `{}` is `{rule: none}`."""

    def check(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(given, RuleOptions):
            return handler(given)
        if not isinstance(given, Mapping):
            refuse("EarlyStoppingSpec", [Mistake((), "must be an object such as {rule: asha}")], given)
        rule = given.get("rule", "none")
        if not isinstance(rule, str) or rule not in rules:
            unknown = f"unknown rule '{rule}'; available: {listed(rules)}"
            refuse("EarlyStoppingSpec", [Mistake(("rule",), unknown)], given)
        parsed, mistakes = parse(adapter, {"rule": "none", **given}, tags=rules)
        refuse("EarlyStoppingSpec", [_explained(mistake, rules[rule], rule) for mistake in mistakes], given)
        return parsed

    return WrapValidator(check)


def _explained(mistake: Mistake, model: type[RuleOptions], rule: str) -> Mistake:
    options = [name for name in model.model_fields if name != "rule"]
    if mistake.message == MISSING and (what := model.model_fields[str(mistake.path[0])].description):
        return Mistake(mistake.path, f"{MISSING}: {what}")
    if len(mistake.path) != 1 or mistake.path[0] in options:
        return mistake
    return Mistake(mistake.path, f"unknown option; the options of {rule}: {listed(options) or 'none'}")
