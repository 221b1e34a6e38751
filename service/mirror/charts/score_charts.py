"""What charts show of trials that are judged by their curve scores."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib import pyplot as plt

from search.numbers_in_messages import counted
from service.mirror.charts.chart_data import ChartData, ChartTrial

CUT_SHORT_STYLE: dict[str, Any] = {"marker": "x", "color": "gray"}


def note_on_scores(data: ChartData) -> str:
    """The title of a chart by curve scores."""
    scored = [one for one in data.trials if one.score is not None]
    cut_short = sum(one.stopped_early for one in scored)
    return (
        f"All {counted(len(scored), 'trial')} by curve score, {cut_short} of them cut short by early stopping\n"
        "(the share of the other trials that this trial outranks at the steps both have reached)"
    )


def draw_scores(data: ChartData) -> None:
    """Draw the values of completed trials with the best so far, and below them the scores of all trials."""
    _, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(9, 7))
    completed = [one for one in data.trials if one.completed]
    others = [one for one in data.trials if not one.completed]
    above.scatter(*_columns(_values(completed)), label="completed")
    above.scatter(*_columns(_values(others)), **CUT_SHORT_STYLE, label="last value of a trial that was cut short")
    above.step(*_columns(_best_so_far(data, completed)), where="post", color="tab:red", label="best")
    above.set_ylabel(data.metrics[0])
    above.legend(fontsize="small")
    below.scatter(*_columns(_scores(completed)))
    below.scatter(*_columns(_scores(others)), **CUT_SHORT_STYLE)
    below.set_ylabel(f"curve score of {data.metrics[0]}")
    below.set_xlabel("Trial")


def _values(trials: Sequence[ChartTrial]) -> dict[int, float]:
    return {one.number: one.values[0] for one in trials if one.values}


def _scores(trials: Sequence[ChartTrial]) -> dict[int, float]:
    return {one.number: one.score for one in trials if one.score is not None}


def _best_so_far(data: ChartData, completed: Sequence[ChartTrial]) -> dict[int, float]:
    feasible = _values([one for one in completed if not data.constrained or one.violation == 0])
    best = accumulate(feasible.values(), min if data.directions[0] == "minimize" else max)
    return dict(zip(feasible, best, strict=True))


def _columns(points: Mapping[int, float]) -> tuple[list[int], list[float]]:
    return list(points), list(points.values())
