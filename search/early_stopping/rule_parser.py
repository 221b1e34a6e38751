"""The parser of a rule in an experiment's spec, which reports all mistakes together."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Union

from pydantic import (
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from search.early_stopping.rule import Rule
from search.field_descriptions import field_descriptions
from search.fields_of_later_versions import without_unused
from search.mistakes import MISSING, Mistake, instead_of, parse, refuse
from search.names_elsewhere import NO_RULE_OPTIONS, RULE_OPTIONS, RULES, called_here, unknown_name
from search.plugins import PluginFailed, Plugins, is_accepted, plugin_failures

log = logging.getLogger(__name__)


class Missing(Rule):
    """Stands for a rule of another package that has been removed, or has other options, since its experiment began."""

    model_config = ConfigDict(extra="allow", frozen=True)


def one_of(rules: Mapping[str, type[Rule]], of_packages: Plugins[Rule]) -> Any:
    """The annotation of a field that holds one of these rules, by the name in `rule`; `{}` is `{rule: none}`.

    `of_packages` has those of other packages among them, whose validators may raise anything, and why others cannot be
    used.
    """
    tagged: Any = Annotated[Union[tuple(rules.values())], Field(discriminator="rule")]  # noqa: UP007 - of a tuple
    adapter: TypeAdapter[Any] = TypeAdapter(tagged)

    def check(given: Any, handler: ValidatorFunctionWrapHandler, validation: ValidationInfo) -> Any:
        if isinstance(given, Rule):
            return handler(given)
        if is_accepted("early_stopping", validation) and isinstance(given, Mapping):
            return stored(given)
        if not isinstance(given, Mapping):
            refuse(
                "EarlyStoppingSpec",
                [Mistake((), f"must be an object such as {{rule: {_example(given, rules)}}}")],
                given,
            )
        rule = given.get("rule", "none")
        if not isinstance(rule, str) or rule not in rules:
            unknown = of_packages.broken.get(str(rule)) or unknown_name("rule", str(rule), RULES, [*rules])
            refuse("EarlyStoppingSpec", [Mistake(("rule",), unknown)], given)
        try:
            with plugin_failures(rule, is_plugin=rule in of_packages.kinds):
                parsed, found = parse(adapter, {"rule": "none", **given}, tags=rules)
            mistakes = [_with_known_options(mistake, rules[rule], rule) for mistake in found]
        except PluginFailed as error:  # also of the rule that `patient` wraps
            parsed, mistakes = None, [Mistake(("rule",), str(error))]
        refuse("EarlyStoppingSpec", mistakes, given)
        return parsed

    def stored(given: Mapping[str, Any]) -> Rule:
        name = str(given.get("rule", "none"))
        try:
            with plugin_failures(name, ValidationError, is_plugin=name in of_packages.kinds):
                rule: Rule = adapter.validate_python({"rule": "none", **given})
        except (ValidationError, PluginFailed) as error:
            used = without_unused(dict(given), error) if isinstance(error, ValidationError) else None
            if used is not None:
                return stored(used)
            log.warning("the rule %r is not available, so no trial is stopped: %s", given.get("rule"), error)
            return Missing.model_validate(given)
        return rule

    return Annotated[tagged, WrapValidator(check)]


def _with_known_options(mistake: Mistake, model: type[Rule], rule: str) -> Mistake:
    """What a missing option means, or which options exist instead of an unknown one."""
    options = [name for name in model.model_fields if name != "rule"]
    if mistake.message == MISSING and (meaning := field_descriptions(model).get(str(mistake.path[0]))):
        return Mistake(mistake.path, f"{MISSING}: {meaning}")
    if len(mistake.path) != 1 or mistake.path[0] in options:
        return mistake
    return Mistake(mistake.path, _instead_of(str(mistake.path[0]), options, rule))


def _instead_of(name: str, options: Sequence[str], rule: str) -> str:
    ours = next((one for one in RULE_OPTIONS.get(name, ()) if one in options), None)
    if ours is not None:
        return f"is called {ours} here"
    return NO_RULE_OPTIONS.get(name) or f"unknown option; {instead_of(name, options, f'the options of {rule}')}"


def _example(given: Any, rules: Collection[str]) -> str:
    """The rule that a text in place of an object means, or one that suits most."""
    if not isinstance(given, str):
        return "asha"
    return given if given in rules else called_here(given, RULES, rules) or "asha"
