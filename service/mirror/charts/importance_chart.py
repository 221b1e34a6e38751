"""The importance of parameters as a chart: of up to 1,000 trials the same numbers as in the API."""

from collections.abc import Mapping

from matplotlib import pyplot as plt

from search.analysis.importance import Measured, importance_of, sampled
from search.analysis.importance_evaluators import Evaluator
from search.problem import Direction
from search.space.space import Space
from service.mirror.charts.chart_data import ChartData

EVALUATOR: Evaluator = "ped_anova"


def importances(data: ChartData, values: Mapping[int, float], direction: Direction) -> dict[str, float]:
    """The importance of each parameter, the largest first; empty if there are too few trials.

    `values` by number judge the trials.
    """
    chosen = set(sampled([*values], EVALUATOR))
    measured = [Measured(one.number, one.params, values[one.number]) for one in data.trials if one.number in chosen]
    return importance_of(Space.model_validate(data.space), direction, measured, EVALUATOR).parameters


def draw_importances(found: Mapping[str, float], target: str) -> None:
    _, axes = plt.subplots(figsize=(7, max(4, 0.3 * len(found))))
    names = [*found][::-1]
    bars = axes.barh(names, [found[name] for name in names])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.margins(x=0.1)
    axes.set_xlabel(f"importance for {target} (PED-ANOVA; the sum is 1)")
    axes.set_title("Importance of parameters")
