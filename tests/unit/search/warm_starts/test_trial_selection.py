"""What a search learns from earlier experiments, with Optuna as the oracle."""

from typing import Any

import optuna
import pytest

from search.problem import Observation, Problem, Status
from search.samplers import SamplerSpec
from search.samplers.constrained_draw import derived_seed
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from search.warm_starts.trial_selection import MAX_TRIALS, Source, from_json, select_trials, still_fitting, to_json

# `group` and others are still marked as experimental in Optuna.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

SPACE = Space.model_validate(
    {
        "lr": {"type": "float", "low": 0.001, "high": 0.1, "log": True},
        "layers": {"type": "int", "low": 1, "high": 4},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
    }
)
ADAMW: Params = {"lr": 0.01, "layers": 2, "optimizer": "adamw"}


def a_study(space: Space = SPACE, **search: Any) -> Study:
    return Study(Problem(space, ("maximize",)), SamplerSpec(**search), seed=7)


def observed(params: Params, value: float = 0.5, status: Status = "completed", number: int = 0) -> Observation:
    values = (value,) if status == "completed" else None
    return Observation(number, params, status, values=values, last_step=3, last_value=value)


def source(*trials: Observation, **config: Any) -> Source:
    return Source("earlier", config, trials)


def taken(*sources: Source, **search: Any) -> tuple[list[Observation], list[dict[str, Any]]]:
    study = a_study(**search)
    observations, report = select_trials(study.problem, study.sampler, sources)
    return observations, [one.to_json() for one in report]


def test_trials_in_the_space_are_taken_with_numbers_below_zero_the_newest_last() -> None:
    observations, [report] = taken(source(observed(ADAMW, 0.9, number=8), observed(ADAMW, 0.1, number=3)))
    assert [(one.number, one.values) for one in observations] == [(-1, (0.9,)), (-2, (0.1,))]
    assert report == {"experiment": "earlier", "taken": 2, "left_out": {}, "unknown": [], "dropped": []}


@pytest.mark.parametrize("change", [{"lr": 0.5}, {"layers": 5}, {"layers": 1.5}, {"optimizer": "lion"}, {"lr": "big"}])
def test_trials_outside_of_the_space_are_left_out_and_counted_by_parameter(change: Params) -> None:
    observations, [report] = taken(source(observed(ADAMW | change), observed(ADAMW | change), observed(ADAMW)))
    assert len(observations) == 1
    assert report["left_out"] == {f"{next(iter(change))} is outside of the space": 2}


def test_a_whole_float_is_taken_as_an_int_if_the_parameter_is_an_int_now() -> None:
    [observation], _ = taken(source(observed(ADAMW | {"layers": 3.0})))
    assert observation.params["layers"] == 3
    assert isinstance(observation.params["layers"], int)


def test_a_new_parameter_is_taken_from_the_constants() -> None:
    [observation], [report] = taken(
        source(observed({"lr": 0.01, "layers": 2}), optimizer="sgd", momentum=0.5, epochs=3)
    )
    assert observation.params == {"lr": 0.01, "layers": 2, "optimizer": "sgd", "momentum": 0.5}
    assert report["unknown"] == []


def test_trials_with_unknown_params_are_taken_by_samplers_that_learn_from_partial_params() -> None:
    earlier = source(observed({"lr": 0.01, "layers": 2}), observed(ADAMW | {"optimizer": "sgd"}))
    observations, [report] = taken(earlier)
    assert [one.params for one in observations] == [{"lr": 0.01, "layers": 2}, ADAMW | {"optimizer": "sgd"}]
    assert report["unknown"] == ["momentum", "optimizer"]
    observations, [report] = taken(earlier, sampler="random")
    assert observations == []
    assert sum(report["left_out"].values()) == 2


def test_parameters_that_the_space_lacks_are_dropped_also_conditional_ones() -> None:
    [observation], [report] = taken(source(observed(ADAMW | {"momentum": 0.5, "dropout": 0.1})))
    assert observation.params == ADAMW
    assert report["dropped"] == ["dropout"]


def test_trials_without_results_are_left_out() -> None:
    silent = Observation(0, ADAMW, "stopped")
    trials = [observed(ADAMW, status=status) for status in ("running", "failed", "pruned", "diverged", "stopped")]
    observations, [report] = taken(source(*trials, silent, observed({"other": 1})))
    assert {one.status for one in observations} == {"pruned", "diverged", "stopped"}
    assert report["left_out"] == {
        "failed": 1,
        "no parameter in common": 1,
        "not finished": 1,
        "stopped before it reported": 1,
    }


def test_at_most_the_maximum_number_of_trials_is_taken() -> None:
    many = source(*[observed(ADAMW)] * (MAX_TRIALS - 1))
    observations, reports = taken(many, source(observed(ADAMW), observed(ADAMW)))
    assert len(observations) == MAX_TRIALS
    assert reports[1]["taken"] == 1
    assert list(reports[1]["left_out"].values()) == [1]


def test_the_observations_survive_json() -> None:
    observations, _ = taken(source(observed(ADAMW), observed(ADAMW, status="pruned")))
    assert from_json(to_json(observations)) == observations


def fitting(study: Study, observations: list[Observation]) -> list[int]:
    return [one.number for one in still_fitting(study.problem, study.sampler, observations)]


def test_after_narrowing_only_observations_in_the_space_count() -> None:
    observations, _ = taken(source(observed(ADAMW), observed(ADAMW | {"lr": 0.1}), observed({"lr": 0.01, "layers": 2})))
    narrower = Space.model_validate(SPACE.model_dump() | {"lr": {"type": "float", "low": 0.001, "high": 0.05}})
    assert fitting(a_study(narrower), observations) == [-1, -3]
    assert fitting(a_study(narrower, sampler="random"), observations) == [-1]


HISTORY = [
    observed({"lr": 10 ** (-1 - step / 10), "layers": 1 + step % 4, "optimizer": "adamw"}, value=step / 20, number=step)
    for step in range(20)
]


@pytest.mark.parametrize(
    "search",
    [
        {"sampler": "tpe"},
        {"sampler": "tpe", "options": {"multivariate": False}},
        {"sampler": "tpe", "options": {"group": True}},
        {"sampler": "random"},
        {"sampler": "qmc"},
        {"sampler": "grid"},
        {"sampler": "brute_force"},
        {"sampler": "gp"},
        {"sampler": "nsga2", "options": {"population_size": 4}},
        {"sampler": "nsga3", "options": {"population_size": 4}},
        {"sampler": "cmaes"},
        {"sampler": "cmaes", "options": {"with_margin": True}},
        {"sampler": "auto"},
    ],
    ids=str,
)
def test_every_sampler_learns_from_trials_with_numbers_below_zero(search: dict[str, Any]) -> None:
    steps = {"type": "float", "low": 0.0, "high": 1.0, "step": 0.1}
    space = Space.model_validate({"x": steps, "y": {"type": "int", "low": 0, "high": 4}})
    study = a_study(space, **search)
    points = [(round(step % 11 / 10, 1), step % 5) for step in range(20)]
    trials = [observed({"x": x, "y": y}, x - y, number=step) for step, (x, y) in enumerate(points)]
    observations, [report] = select_trials(study.problem, study.sampler, [source(*trials)])
    assert report.count == 20
    view = StudyView(study, observations)
    seen = list(observations)
    for number in range(3):
        proposed = view.propose(seen, number)
        assert space.mistakes_in(proposed) == []
        assert proposed == propose(study, seen, number)
        seen.append(observed(proposed, 0.5, number=number))


@pytest.mark.parametrize("multivariate", [True, False])
def test_tpe_proposes_what_optuna_does_after_the_same_trials_were_added(multivariate: bool) -> None:
    search: dict[str, Any] = {"options": {"multivariate": multivariate, "n_startup_trials": 5}}
    study = a_study(**search)
    parts = [observed({"lr": 0.02, "layers": 3}, 0.7), observed({"lr": 0.03}, 0.8)]
    observations, _ = select_trials(study.problem, study.sampler, [source(*reversed([*HISTORY, *parts]))])
    assert len(observations) == 22
    sampler = optuna.samplers.TPESampler(
        seed=derived_seed(7, 0), multivariate=multivariate, constant_liar=True, n_startup_trials=5
    )
    optuna_study = optuna.create_study(direction="maximize", sampler=sampler)
    optuna_study.add_trials([added(one) for one in sorted(observations, key=lambda one: one.number)])
    trial = optuna_study.ask()
    expected: Params = {
        "lr": trial.suggest_float("lr", 0.001, 0.1, log=True),
        "layers": trial.suggest_int("layers", 1, 4),
        "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adamw"]),
    }
    if expected["optimizer"] == "sgd":
        expected["momentum"] = trial.suggest_float("momentum", 0.0, 0.9)
    assert propose(study, observations, 0) == expected


def added(observation: Observation) -> optuna.trial.FrozenTrial:
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        "lr": optuna.distributions.FloatDistribution(0.001, 0.1, log=True),
        "layers": optuna.distributions.IntDistribution(1, 4),
        "optimizer": optuna.distributions.CategoricalDistribution(["sgd", "adamw"]),
    }
    params = dict(observation.params)
    assert observation.values
    return optuna.trial.create_trial(
        params=params, distributions={name: distributions[name] for name in params}, value=observation.values[0]
    )
