"""The rules that stand alone, by name: those that the rule `patient` may wrap."""

from typing import TYPE_CHECKING, Literal

from search.early_stopping.rule import Rule, StoppingRule
from search.early_stopping.rule_parser import one_of
from search.early_stopping.rules.asha import Asha
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.median import Median
from search.early_stopping.rules.percentile import Percentile
from search.early_stopping.rules.threshold import Threshold
from search.early_stopping.rules.wilcoxon import Wilcoxon


class NoneSpec(Rule):
    """No early stopping: every trial runs to its end."""

    rule: Literal["none"] = "none"


WRAPPABLE_RULES: dict[str, type[Rule]] = {
    "asha": Asha,
    "hyperband": Hyperband,
    "median": Median,
    "percentile": Percentile,
    "threshold": Threshold,
    "wilcoxon": Wilcoxon,
    "none": NoneSpec,
}

if TYPE_CHECKING:
    WrappableRule = StoppingRule | NoneSpec
else:
    WrappableRule = one_of(WRAPPABLE_RULES)
