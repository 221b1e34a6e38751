"""Draws an experiment's pictures, with Optuna's own plotting: `python -m service.mirror.chart_process DIRECTORY`.

A process of its own, that has the sketch as its first line of input and ends when its input does: drawing takes seconds
of a processor and more memory than the rest of the service, and whatever goes wrong in it is nobody else's trouble.
"""

import json
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization import matplotlib as plots

from search.analysis.importance import MIN_TRIALS
from search.problem import sign_of
from search.samplers.optuna.conversion import distribution_of, frozen_trial
from search.samplers.optuna.frozen_study import frozen_study
from search.space.parameters import CategoricalParameter, Parameter
from search.space.space import Space
from service.mirror.chart_data import Finished, Sketch

FEWEST_TO_COMPARE = 2
MOST_OBJECTIVES = 3
"""Of more than these no pictures are drawn one by one: four for each would be too many to look at."""
MOST_IN_LEGEND = 12
DOTS_PER_INCH = 110
log = logging.getLogger("paceline.drawing")  # others log to stderr that they look for fonts, or miss a directory
log.addHandler(logging.StreamHandler(sys.stdout))
log.propagate = False

Draw = Callable[[], Any]
"""Draws into matplotlib's current figure."""


def draw(sketch: Sketch, directory: Path) -> list[Path]:
    """All pictures that the trials allow, as PNG. One that fails is left out, and the output says why."""
    made = []
    for name, picture in _pictures(sketch):
        path = directory / f"{name}.png"
        mpl.rcdefaults()  # some of Optuna's pictures set a style, which is not meant for the next ones
        try:
            picture()
            mpl.pyplot.gcf().savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight")
            made.append(path)
        except Exception:  # the others are none the worse for it
            log.exception("the picture %s could not be drawn", name)
        finally:
            mpl.pyplot.close("all")
    return made


def _pictures(sketch: Sketch) -> Iterator[tuple[str, Draw]]:
    study = _study(sketch)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    for place, metric in enumerate(sketch.metrics[:MOST_OBJECTIVES] if complete else []):
        yield from _of_one_objective(sketch, study, place, metric, len(complete))
    if len(sketch.metrics) in (2, 3) and complete:
        yield "pareto_front", partial(plots.plot_pareto_front, study, target_names=sketch.metrics)
    if any(len(trial.curve) > 1 for trial in sketch.trials):
        yield "learning_curves", partial(_curves, sketch)


def _of_one_objective(
    sketch: Sketch, study: optuna.Study, place: int, metric: str, count: int
) -> Iterator[tuple[str, Draw]]:
    several = len(sketch.metrics) > 1
    suffix = f"_of_{place + 1}_{_filename(metric)}" if several else ""
    shown: dict[str, Any] = {
        "target_name": metric,
        **({"target": lambda trial: trial.values[place]} if several else {}),
    }
    yield f"optimization_history{suffix}", partial(plots.plot_optimization_history, study, **shown)
    if count < FEWEST_TO_COMPARE:
        return
    yield f"parallel_coordinate{suffix}", partial(plots.plot_parallel_coordinate, study, **shown)
    yield f"slices{suffix}", partial(plots.plot_slice, study, **shown)
    if count >= MIN_TRIALS:
        sign = sign_of(sketch.directions[place])  # PED-ANOVA asks what makes a target low
        judged = {**shown, **({"target": lambda trial: sign * trial.values[place]} if several else {})}
        evaluator = PedAnovaImportanceEvaluator()
        yield f"importance{suffix}", partial(plots.plot_param_importances, study, evaluator=evaluator, **judged)


def _curves(sketch: Sketch) -> None:
    """With a cross where early stopping ended a trial."""
    drawn = [trial for trial in sketch.trials if trial.curve]
    axes = plots.plot_intermediate_values(
        frozen_study(
            ["minimize"],
            [frozen_trial(one.number, TrialState.PRUNED, values=None, curve=dict(one.curve)) for one in drawn],
        )
    )
    stops = [one.curve[-1] for one in drawn if one.stopped_early]
    if stops:
        axes.scatter(*zip(*stops, strict=True), marker="x", color="black", zorder=3, label="stopped early")
    axes.set_title("Learning curves")
    axes.set_ylabel(sketch.curve_metric)
    legend = axes.get_legend()
    if legend is not None and len(drawn) > MOST_IN_LEGEND:
        legend.remove()


def _study(sketch: Sketch) -> optuna.Study:
    """Gaps between the numbers are filled, because Optuna's history takes a trial's number for its place."""
    space = Space.model_validate(sketch.space)
    distributions = {name: _shown(parameter) for name, parameter in space.root.items()}
    known = {
        one.number: _trial(space, distributions, one, constrained=sketch.constrained)
        for one in sketch.trials
        if one.completed and one.values is not None and not space.mistakes_in(one.params)
    }
    numbers = range(max(known, default=-1) + 1)
    return frozen_study(
        sketch.directions, [known.get(number) or frozen_trial(number, TrialState.FAIL) for number in numbers]
    )


def _trial(
    space: Space, distributions: dict[str, BaseDistribution], one: Finished, *, constrained: bool
) -> FrozenTrial:
    violation = float("inf") if one.violation is None else one.violation
    return frozen_trial(
        one.number,
        TrialState.COMPLETE,
        params={name: _shown_value(space.root[name], value) for name, value in one.params.items()},
        distributions={name: distributions[name] for name in one.params},
        values=one.values,
        constraints=[violation] if constrained else None,
    )


def _shown(parameter: Parameter) -> BaseDistribution:
    """Choices as text, since Optuna takes 1 and true for the same."""
    if isinstance(parameter, CategoricalParameter):
        return CategoricalDistribution([_shown_value(parameter, choice) for choice in parameter.choices])
    return distribution_of(parameter)


def _shown_value(parameter: Parameter, value: Any) -> Any:
    if not isinstance(parameter, CategoricalParameter):
        return value
    texts = [choice if isinstance(choice, str) else json.dumps(choice) for choice in parameter.choices]
    return value if isinstance(value, str) and len(set(texts)) == len(texts) else json.dumps(value)


def _filename(metric: str) -> str:
    return "".join(one if one.isalnum() or one in "-." else "_" for one in metric)[:60]


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    os.nice(10)
    warnings.simplefilter("ignore")  # Optuna calls its plotting experimental; Matplotlib misses glyphs of some names
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sketch = Sketch.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    draw(sketch, Path(sys.argv[1]))


if __name__ == "__main__":
    mpl.use("Agg")
    main()
