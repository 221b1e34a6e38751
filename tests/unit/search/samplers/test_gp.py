"""The Gaussian process proposes what a study of Optuna does, but for its threshold."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import GPSampler

from search.problem import Direction, Observation, Problem, Status
from search.samplers import SamplerSpec
from search.samplers.constrained_draw import derived_seed
from search.samplers.optuna.gp import model_space
from search.samplers.optuna.gp.losses import Array
from search.samplers.optuna.gp.model_space import ModelSteps, on_steps, without_steps
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.unit.search.samplers.optuna_comparison import (
    MIXED,
    frozen_trial_of,
    mixed,
    observed,
    of_paceline,
    size,
    study_of,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Clip non-finite values"),
]


class FromBestExpected(GPSampler):
    """Its threshold is the greatest posterior mean of the feasible trials, in place of the best value."""

    def __init__(self, feasible: Sequence[bool], **options: Any) -> None:
        super().__init__(**options)
        self._is_feasible = torch.tensor(feasible)

    def _optimize_acqf(self, acqf: Any, best_params: Array | None) -> Array:  # noqa: ARG002
        improvement = getattr(acqf, "_acqf", acqf)
        observed = improvement._gpr._X_train[self._is_feasible]
        means, _ = improvement._gpr.posterior(observed)
        improvement._threshold = means.max().item()
        found: Array = super()._optimize_acqf(acqf, observed[means.argmax()][None].numpy())
        return found


@pytest.mark.parametrize(
    ("space", "suggest", "facts"),
    [
        pytest.param(MIXED, mixed, {}, marks=pytest.mark.slow),
        (MIXED, mixed, {"largest": 100}),
        pytest.param(MIXED, mixed, {"largest": 60}, marks=pytest.mark.slow),
        pytest.param(MIXED, mixed, {"deterministic": True}, marks=pytest.mark.slow),
        pytest.param(MIXED, mixed, {"deterministic": True, "largest": 100}, marks=pytest.mark.slow),
        pytest.param(MIXED, mixed, {"objectives": 2}, marks=pytest.mark.slow),
    ],
    ids=[
        "numbers and choices",
        "constrained",
        "the best is not feasible",
        "deterministic",
        "deterministic and constrained",
        "two objectives",
    ],
)
def test_gp_proposes_what_a_study_of_optuna_does(
    space: Space, suggest: Callable[[optuna.Trial], Params], facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as no number has so many values that it is continuous for the model.

    A single objective that may be noisy has another threshold than Optuna's.
    """
    monkeypatch.setattr(model_space, "MAX_DISCRETE", math.inf)
    objectives, deterministic = facts.get("objectives", 1), facts.get("deterministic", False)
    options = {"n_startup_trials": 4, "deterministic_objective": deterministic}
    study = study_of(space, SamplerSpec(sampler="gp", options=options), objectives)
    params = of_paceline(study_of(space, SamplerSpec(sampler="random")), 8)
    history = [observed(number, one, objectives) for number, one in enumerate(params)]
    violations = [size(one) - facts.get("largest", math.inf) for one in params]
    if "largest" in facts:
        history = [replace(one, constraints=(found,)) for one, found in zip(history, violations, strict=True)]
    feasible = [found <= 0 for found in violations]
    sampler = GPSampler if deterministic or objectives > 1 else partial(FromBestExpected, feasible)
    optuna_study = optuna.create_study(
        directions=list(study.problem.directions),
        sampler=sampler(seed=derived_seed(7, 8), warn_independent_sampling=False, **options),
    )
    optuna_study.add_trials([frozen_trial_of(observation) for observation in history])
    assert propose(study, history, 8) == suggest(optuna_study.ask())


@pytest.mark.parametrize(
    ("one", "values"),
    [
        (IntDistribution(8, 1024, log=True), [8, 9, 500, 1024]),
        (IntDistribution(-7, 65, step=3), [-7, -4, 65]),
        (FloatDistribution(0.0, 1.0, step=0.02), [0.0, 0.02, 0.98, 1.0]),
    ],
)
def test_a_number_without_its_steps_is_at_the_same_place_for_the_model(
    one: BaseDistribution, values: list[Any]
) -> None:
    from optuna._gp.search_space import SearchSpace  # noqa: PLC0415 - as the sampler uses it

    space, continuous = {"x": one}, without_steps({"x": one})
    trials = [optuna.trial.create_trial(params={"x": x}, distributions=space, value=0) for x in values]
    places, same = (SearchSpace(given).get_normalized_params(trials) for given in (space, continuous))
    assert not SearchSpace(continuous).discrete_indices.size
    assert same == pytest.approx(places)
    assert [on_steps(space, SearchSpace(continuous).get_unnormalized_param(at))["x"] for at in same] == pytest.approx(
        values
    )
    borders = [SearchSpace(continuous).get_unnormalized_param(np.array([at])) for at in (0.0, 1.0)]
    assert [on_steps(space, border)["x"] for border in borders] == [values[0], values[-1]]


def test_the_best_step_beside_the_best_place_is_taken() -> None:
    """A model knows that the nearest one has been tried: it expects nothing of it."""
    from optuna._gp.search_space import SearchSpace  # noqa: PLC0415 - as the sampler uses it

    space = {"a": FloatDistribution(0, 1), "b": IntDistribution(0, 99), "c": IntDistribution(1, 2000, log=True)}

    def acquisition(points: Array) -> Array:
        values = [SearchSpace(without_steps(space)).get_unnormalized_param(point) for point in points]
        rounded = [on_steps(space, one) for one in values]
        return -np.array([abs(one["b"] - 42) + abs(one["c"] - 7) + 9 * (one["b"] == 41) for one in rounded])

    found = ModelSteps(space).best_near(np.array([0.123, 0.415, 0.22]), acquisition)
    assert on_steps(space, SearchSpace(without_steps(space)).get_unnormalized_param(found)) == {
        "a": 0.123,
        "b": 42,
        "c": 7,
    }


@pytest.mark.slow
def test_maximizing_is_the_mirror_of_minimizing_also_where_trials_diverge() -> None:
    """The losses differ by orders of magnitude, so that their logarithms count."""

    def proposed(direction: Direction) -> Params:
        sign = 1 if direction == "minimize" else -1
        study = Study(Problem(LINE, (direction,)), SamplerSpec(sampler="gp", options={"n_startup_trials": 8}), 7)
        history = [
            Observation(number, {"x": number / 10}, "completed", (sign * 10 ** (number - 4.0),)) for number in range(9)
        ]
        return propose(study, [*history, Observation(9, {"x": 0.95}, "diverged")], 10)

    assert proposed("minimize") == proposed("maximize")


WIDE = Space.model_validate({name: {"type": "int", "low": 0, "high": 999} for name in "ab"})


@pytest.mark.slow
@pytest.mark.parametrize("prunes", [False, True], ids=["whole", "early stopping"])
def test_the_best_of_many_whole_numbers_is_found(*, prunes: bool) -> None:
    view = StudyView(Study(Problem(WIDE, ("minimize",), prunes=prunes), SamplerSpec(sampler="gp"), 7))
    losses = []
    for number in range(25):
        params = view.propose([], number)
        assert WIDE.mistakes_in(params) == []
        losses.append(sum((float(str(value)) / 1000 - 0.6) ** 2 for value in params.values()))
        rungs = ((1, losses[-1]), (3, losses[-1]))
        view.update([Observation(number, params, "completed", (losses[-1],), 9, losses[-1], rungs=rungs)])
    assert min(losses) < 1e-4


@pytest.mark.slow
def test_gp_stays_in_the_space_and_proposes_the_same_after_a_restart() -> None:
    study = study_of(MIXED, SamplerSpec(sampler="gp", options={"n_startup_trials": 2}))
    history = [observed(number, propose(study, [], number), 1) for number in range(3)]
    history += [Observation(3, propose(study, [], 3), "running"), Observation(4, propose(study, [], 4), "diverged")]
    view = StudyView(study, history)
    assert MIXED.mistakes_in(view.propose([], 5)) == []
    assert view.propose([], 6) == propose(study, history[::-1], 6)


@pytest.mark.parametrize(
    ("parameters", "facts", "given", "count"),
    [
        (1, {}, None, 5),
        (3, {"max_trials": 100}, None, 7),
        (6, {"max_trials": 100}, None, 10),
        (20, {}, None, 10),
        (3, {"max_trials": 20}, None, 5),
        (3, {"max_trials": 7}, None, 4),
        (3, {"max_trials": 7, "prunes": True}, None, 10),  # most of the draws are stopped early
        (20, {"max_trials": 7}, 12, 12),
        (20, {"max_trials": 7}, 0, 2),  # one value tells a model nothing
    ],
)
def test_the_model_starts_the_earlier_the_fewer_parameters_and_trials_there_are(
    parameters: int, facts: dict[str, Any], given: int | None, count: int
) -> None:
    space = Space.model_validate({f"x{index}": {"type": "float", "low": 0, "high": 1} for index in range(parameters)})
    problem = Problem(space, ("minimize",), **facts)
    view = StudyView(Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": given}), 7))
    for number in range(count):
        assert view.source(number) == "start_up"
        params: Params = dict.fromkeys(space.root, (number + 1) / (count + 1))
        view.update([Observation(number, params, "completed", (float(number),))])
    assert view.source(count) == "model"


LINE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})


@pytest.mark.parametrize("status", ["completed", "diverged"])
def test_a_draw_because_the_trials_tell_nothing_is_not_said_to_come_from_the_model(status: Status) -> None:
    view = StudyView(Study(Problem(LINE, ("minimize",)), SamplerSpec(sampler="gp", options={"n_startup_trials": 2}), 7))
    for number in range(5):
        assert view.source(number) == "start_up"
        values = (0.5,) if status == "completed" else None
        view.update([Observation(number, {"x": number / 5}, status, values)])
    view.update([Observation(5, {"x": 0.9}, "completed", (1.0,)), Observation(6, {"x": 0.8}, "completed", (2.0,))])
    assert view.source(7) == "model"


@pytest.mark.parametrize(
    ("facts", "last_value"),
    [({}, None), ({}, 0.5), ({"prunes": True}, None), ({"constrained": True}, 0.5)],
    ids=["nothing reported", "stopped", "early stopping", "constrained"],
)
def test_a_model_without_enough_trials_draws_what_is_drawn_before_it_is_loaded(
    facts: dict[str, Any], last_value: float | None
) -> None:
    """Before it is loaded, any trial that has ended may be one that it learns from."""
    study = Study(Problem(MIXED, ("minimize",), **facts), SamplerSpec(sampler="gp", options={"n_startup_trials": 2}), 3)
    params = [propose(study, [], number) for number in range(4)]
    step = None if last_value is None else 1
    stopped = [Observation(number, params[number], "stopped", None, step, last_value) for number in range(2)]
    view = StudyView(study, stopped)
    assert view.source(3) == "start_up"
    assert view.propose([], 3) == params[3]


STARTUP_DRAWS = """
import sys

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, propose

space = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
study = Study(Problem(space, ("minimize",), prunes=len(sys.argv) > 1), SamplerSpec(sampler="gp"), 0)
done = [Observation(number, propose(study, [], number), "completed", (0.5,)) for number in range(4)]
propose(study, done, 4)
sys.exit("torch" in sys.modules)
"""


@pytest.mark.parametrize("arguments", [[], ["early stopping"]], ids=["whole", "early stopping"])
def test_the_first_draws_do_not_wait_for_the_import_of_torch(arguments: list[str]) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", STARTUP_DRAWS, *arguments], check=True)


def history_of(
    value: Callable[[float], float], *, violation: Callable[[float], float] | None = None, count: int = 9
) -> list[Observation]:
    return [
        Observation(
            number,
            {"x": x},
            "completed",
            (value(x),),
            last_step=1,
            last_value=value(x),
            constraints=None if violation is None else (violation(x),),
            rungs=((1, value(x)),),
        )
        for number, x in enumerate(np.linspace(0, 1, count).tolist())
    ]


@pytest.mark.parametrize("prunes", [False, True], ids=["whole", "early stopping"])
def test_while_all_values_are_equal_it_draws_at_random(*, prunes: bool) -> None:
    """A model of them would propose corners only, which are far from all trials."""
    problem = Problem(LINE, ("minimize",), prunes=prunes)
    study = Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), 7)
    history = history_of(lambda _: 2.5)
    assert [propose(study, history, n) for n in range(9, 19)] == [propose(study, [], n) for n in range(9, 19)]


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [-1000, -40, 40, 900])
def test_proposals_do_not_depend_on_the_scale_of_values_and_violations(exponent: int) -> None:
    spec = SamplerSpec(sampler="gp", options={"n_startup_trials": 4})
    factor = 2.0**exponent
    for constrained in (False, True):
        study = Study(Problem(LINE, ("minimize",), constrained=constrained), spec, 7)

        def proposed(factor: float, study: Study = study, *, constrained: bool = constrained) -> list[Params]:
            violation = (lambda x: factor * (0.5 - x)) if constrained else None
            history = history_of(lambda x: factor * (x - 0.3) ** 2, violation=violation)
            return [propose(study, history, number) for number in (9, 10)]

        assert proposed(factor) == proposed(1.0)


def test_an_infinite_violation_is_as_bad_as_the_worst_of_the_others() -> None:
    study = Study(Problem(LINE, ("minimize",), constrained=True), SamplerSpec(sampler="gp"), 7)

    def proposed(worst: float) -> Params:
        history = history_of(lambda x: x, violation=lambda x: worst if x == 0 else 0.5 - x)
        return propose(study, history, 9)

    assert proposed(math.inf) == proposed(0.5)
