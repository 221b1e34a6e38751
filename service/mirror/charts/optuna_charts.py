"""Which charts an experiment's data allows, most of them by Optuna's plotting, and how its trials look to Optuna."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization import matplotlib as plots

from search.analysis.importance import MIN_TRIALS
from search.problem import Direction
from search.samplers.optuna.conversion import distribution_of, frozen_trial
from search.samplers.optuna.frozen_study import frozen_study
from search.space.parameters import CategoricalParameter, Parameter
from search.space.space import Space
from service.mirror.charts.chart_data import ChartData, ChartTrial
from service.mirror.charts.importance_chart import draw_importances, importances
from service.mirror.charts.score_charts import draw_scores

MIN_TRIALS_TO_COMPARE = 2
MAX_OBJECTIVES = 3
"""Only the first ones get charts of their own: there are four for each."""
MAX_PARAMS = 30
"""Optuna draws all of them into one chart, which for a hundred takes minutes and is unreadable."""
COSTLY = ("parallel_coordinate", "slices")
MAX_IN_LEGEND = 12
MAX_METRIC_LENGTH, MAX_METRIC_BYTES = 60, 180
"""Of a metric in the name of a chart's file, which has at most 255 bytes."""

DrawChart = Callable[[], Any]
"""Draws into matplotlib's current figure."""


def charts_of(data: ChartData) -> list[tuple[str, DrawChart]]:
    """Names and drawing functions, the costly ones last: the service ends this process when it takes too long."""
    return sorted(_all_charts(data), key=lambda chart: chart[0].startswith(COSTLY))


def _all_charts(data: ChartData) -> Iterator[tuple[str, DrawChart]]:
    study = _study(data)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    for index, metric in enumerate(data.metrics[:MAX_OBJECTIVES] if complete else []):
        yield from _objective_charts(data, study, index, metric, len(complete))
    if len(data.metrics) in (2, 3) and complete:
        yield "pareto_front", partial(plots.plot_pareto_front, study, target_names=data.metrics)
    if any(len(trial.curve) > 1 for trial in data.trials):
        yield "learning_curves", partial(_draw_curves, data)


def _objective_charts(
    data: ChartData, study: optuna.Study, index: int, metric: str, count: int
) -> Iterator[tuple[str, DrawChart]]:
    several = len(data.metrics) > 1
    suffix = f"_of_{index + 1}_{_filename(metric)}" if several else ""
    shown: dict[str, Any] = {
        "target_name": f"curve score of {metric}" if data.by_score else metric,
        **({"target": lambda trial: trial.values[index]} if several else {}),
    }
    history = partial(draw_scores, data) if data.by_score else partial(plots.plot_optimization_history, study, **shown)
    yield f"optimization_history{suffix}", history
    if count < MIN_TRIALS_TO_COMPARE:
        return
    found: dict[str, float] = {}
    if count >= MIN_TRIALS:
        values = {one.number: known[index] for one in data.trials if (known := _shown_values(data, one)) is not None}
        found = importances(data, values, "maximize" if data.by_score else data.directions[index])
    if found:
        yield f"importance{suffix}", partial(draw_importances, found, shown["target_name"])
    params = _shown_params(study, found)
    yield f"parallel_coordinate{suffix}", partial(plots.plot_parallel_coordinate, study, params, **shown)
    yield f"slices{suffix}", partial(plots.plot_slice, study, params, **shown)


def _shown_params(study: optuna.Study, importance: Mapping[str, float]) -> list[str]:
    """The parameters that a chart has an axis for: of many, the most important ones."""
    names = sorted({name for trial in study.get_trials(deepcopy=False) for name in trial.params})
    most_important = sorted(names, key=lambda name: -importance.get(name, 0.0))[:MAX_PARAMS]
    return [name for name in names if name in most_important]


def _draw_curves(data: ChartData) -> None:
    """Draw the learning curves, with a cross where early stopping ended a trial."""
    shown = [trial for trial in data.trials if trial.curve]
    axes = plots.plot_intermediate_values(
        frozen_study(
            ["minimize"],
            [frozen_trial(one.number, TrialState.PRUNED, values=None, curve=dict(one.curve)) for one in shown],
        )
    )
    stops = [one.curve[-1] for one in shown if one.stopped_early]
    if stops:
        axes.scatter(*zip(*stops, strict=True), marker="x", color="black", zorder=3, label="stopped early")
    axes.set_title("Learning curves")
    axes.set_ylabel(data.curve_metric)
    legend = axes.get_legend()
    if legend is not None and len(shown) > MAX_IN_LEGEND:
        legend.remove()


def _study(data: ChartData) -> optuna.Study:
    """Fill gaps between the numbers with failed trials, because Optuna's plots take a trial's number as its index."""
    space = Space.model_validate(data.space)
    distributions = {name: _display_distribution(parameter) for name, parameter in space.root.items()}
    known = {
        one.number: _trial(space, distributions, one, values, constrained=data.constrained)
        for one in data.trials
        if (values := _shown_values(data, one)) is not None and not space.mistakes_in(one.params)
    }
    numbers = range(max(known, default=-1) + 1)
    directions: list[Direction] = ["maximize"] if data.by_score else data.directions
    return frozen_study(directions, [known.get(number) or frozen_trial(number, TrialState.FAIL) for number in numbers])


def _shown_values(data: ChartData, one: ChartTrial) -> list[float] | None:
    if data.by_score:
        return None if one.score is None else [one.score]
    return one.values if one.completed else None


def _trial(
    space: Space, distributions: dict[str, BaseDistribution], one: ChartTrial, values: list[float], *, constrained: bool
) -> FrozenTrial:
    violation = float("inf") if one.violation is None else one.violation
    return frozen_trial(
        one.number,
        TrialState.COMPLETE,
        params={name: _display_value(space.root[name], value) for name, value in one.params.items()},
        distributions={name: distributions[name] for name in one.params},
        values=values,
        constraints=[violation] if constrained else None,
    )


def _display_distribution(parameter: Parameter) -> BaseDistribution:
    """Return choices as text, because Optuna does not distinguish 1 from true."""
    if isinstance(parameter, CategoricalParameter):
        return CategoricalDistribution([_display_value(parameter, choice) for choice in parameter.choices])
    return distribution_of(parameter)


def _display_value(parameter: Parameter, value: Any) -> Any:
    if not isinstance(parameter, CategoricalParameter):
        return value
    texts = [choice if isinstance(choice, str) else json.dumps(choice) for choice in parameter.choices]
    return value if isinstance(value, str) and len(set(texts)) == len(texts) else json.dumps(value)


def _filename(metric: str) -> str:
    legal = "".join(one if one.isalnum() or one in "-." else "_" for one in metric)[:MAX_METRIC_LENGTH]
    return legal.encode()[:MAX_METRIC_BYTES].decode(errors="ignore")
