"""The rules that stand by themselves, told apart by their name."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from search.early_stopping.rule_base import RuleOptions
from search.early_stopping.rule_parser import one_of
from search.early_stopping.rules.asha import Asha
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.percentile import Median, Percentile
from search.early_stopping.rules.threshold import Threshold
from search.early_stopping.rules.wilcoxon import Wilcoxon


class NoneSpec(RuleOptions):
    """Every trial runs to its end."""

    rule: Literal["none"] = "none"


SIMPLE: dict[str, type[RuleOptions]] = {
    "asha": Asha,
    "hyperband": Hyperband,
    "median": Median,
    "percentile": Percentile,
    "threshold": Threshold,
    "wilcoxon": Wilcoxon,
    "none": NoneSpec,
}

Simple = Asha | Hyperband | Median | Percentile | Threshold | Wilcoxon | NoneSpec
_Tagged = Annotated[Simple, Field(discriminator="rule")]
_ADAPTER: TypeAdapter[Simple] = TypeAdapter(_Tagged)

SimpleRule = Annotated[_Tagged, one_of(SIMPLE, _ADAPTER)]
