"""The rules that stand alone, by name: those that the rule `patient` may wrap."""

from typing import TYPE_CHECKING, Literal, get_origin

from search.early_stopping.rule import Rule, StoppingRule
from search.early_stopping.rule_parser import one_of
from search.early_stopping.rules.asha import Asha
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.median import Median
from search.early_stopping.rules.percentile import Percentile
from search.early_stopping.rules.threshold import Threshold
from search.early_stopping.rules.wilcoxon import Wilcoxon
from search.plugins import RULE_GROUP, plugins


class NoneSpec(Rule):
    """No early stopping: every trial runs to its end."""

    rule: Literal["none"] = "none"
    """no early stopping"""


OWN_RULES: dict[str, type[Rule]] = {
    "asha": Asha,
    "hyperband": Hyperband,
    "median": Median,
    "percentile": Percentile,
    "threshold": Threshold,
    "wilcoxon": Wilcoxon,
    "none": NoneSpec,
}


def _flaw(name: str, kind: type[Rule]) -> str | None:
    """A stored rule is found again by its field `rule`."""
    default = kind.model_fields["rule"].default
    if default != name or get_origin(kind.model_fields["rule"].annotation) is not Literal:
        return f'its field must be `rule: Literal["{name}"] = "{name}"`, the name of its entry point'
    return None


PLUGINS = plugins(RULE_GROUP, Rule, {*OWN_RULES, "patient", "pbt", "auto"}, _flaw, advised=StoppingRule)


def is_plugin(rule: Rule) -> bool:
    """Whether the rule, or the one that it wraps, is of another package."""
    wrapped = getattr(rule, "wrapped_rule", None)  # an object, not a rule, where a stored rule is not available
    return rule.rule in PLUGINS.kinds or (isinstance(wrapped, Rule) and wrapped.rule in PLUGINS.kinds)


WRAPPABLE_RULES: dict[str, type[Rule]] = {
    **OWN_RULES,
    **{name: kind for name, kind in PLUGINS.kinds.items() if issubclass(kind, StoppingRule)},
}

if TYPE_CHECKING:
    WrappableRule = StoppingRule | NoneSpec
else:
    WrappableRule = one_of(WRAPPABLE_RULES, PLUGINS)
