"""The median rule (Golovin et al., 2017), as Optuna's MedianPruner implements it."""

from typing import Literal

from search.early_stopping.rules.quantile_base import Quantile


class Median(Quantile):
    """The percentile rule at 50."""

    rule: Literal["median"] = "median"
    """the name of the rule"""

    @property
    def best_percent(self) -> float:
        return 50

    def cutoff_name(self) -> str:
        return "the median"
