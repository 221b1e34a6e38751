"""The percentile rule, as Optuna's PercentilePruner implements it."""

from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.rules.quantile_base import Quantile


class Percentile(Quantile):
    """`percentile`: a trial must be among the best part of the completed trials, in percent."""

    rule: Literal["percentile"] = "percentile"
    """the name of the rule"""
    percentile: Annotated[float, Field(ge=0, le=100)]
    """a trial must be among this share of the completed trials, in percent"""

    @property
    def best_percent(self) -> float:
        return self.percentile

    def cutoff_name(self) -> str:
        return f"the edge of the best {self.percentile:g}%"
