"""The parser of a rule in an experiment's spec, which reports all mistakes together."""

from collections.abc import Mapping
from typing import Annotated, Any, Union

from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from search.early_stopping.rule import Rule
from search.mistakes import MISSING, Mistake, listed, parse, refuse


def one_of(rules: Mapping[str, type[Rule]]) -> Any:
    """The annotation of a field that holds one of these rules, by the name in `rule`; `{}` is `{rule: none}`."""
    tagged: Any = Annotated[Union[tuple(rules.values())], Field(discriminator="rule")]  # noqa: UP007 - of a tuple
    adapter: TypeAdapter[Any] = TypeAdapter(tagged)

    def check(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(given, Rule):
            return handler(given)
        if not isinstance(given, Mapping):
            refuse("EarlyStoppingSpec", [Mistake((), "must be an object such as {rule: asha}")], given)
        rule = given.get("rule", "none")
        if not isinstance(rule, str) or rule not in rules:
            unknown = f"unknown rule '{rule}'; available: {listed(rules)}"
            refuse("EarlyStoppingSpec", [Mistake(("rule",), unknown)], given)
        parsed, mistakes = parse(adapter, {"rule": "none", **given}, tags=rules)
        refuse("EarlyStoppingSpec", [_with_known_options(mistake, rules[rule], rule) for mistake in mistakes], given)
        return parsed

    return Annotated[tagged, WrapValidator(check)]


def _with_known_options(mistake: Mistake, model: type[Rule], rule: str) -> Mistake:
    """What a missing option means, or which options exist instead of an unknown one."""
    options = [name for name in model.model_fields if name != "rule"]
    if mistake.message == MISSING and (meaning := model.model_fields[str(mistake.path[0])].description):
        return Mistake(mistake.path, f"{MISSING}: {meaning}")
    if len(mistake.path) != 1 or mistake.path[0] in options:
        return mistake
    return Mistake(mistake.path, f"unknown option; the options of {rule}: {listed(options) or 'none'}")
