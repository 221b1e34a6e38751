"""The importance of parameters, with Optuna as the oracle."""

import math
import random
import warnings
from typing import Any

import optuna
import pytest
from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances

from search.analysis.importance import MAX_TRIALS, MIN_TRIALS, Evaluator, Measured, importance_of, sampled
from search.problem import Direction
from search.space.parameters import CategoricalParameter
from search.space.space import Space
from search.space.unit_scale import from_unit

pytestmark = pytest.mark.slow

SPACE = Space.model_validate(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "layers": {"type": "int", "low": 1, "high": 4},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "fixed": {"type": "categorical", "choices": [1]},
        "momentum": {"type": "float", "low": 0.0, "high": 1.0, "when": {"kind": "a"}},
    }
)
BOTH: list[Evaluator] = ["ped_anova", "fanova"]


def trials(count: int, seed: int = 7) -> list[Measured]:
    """Mainly the learning rate matters, and the layers a little."""
    chance = random.Random(seed)  # noqa: S311

    def value_of(name: str, _parameter: object) -> object:
        return {
            "lr": 10 ** chance.uniform(-4, 0),
            "layers": chance.randint(1, 4),
            "kind": chance.choice("ab"),
            "fixed": 1,
            "momentum": chance.random(),
        }[name]

    drawn = [SPACE.draw(value_of) for _ in range(count)]  # type: ignore[arg-type]
    return [
        Measured(number, params, (math.log10(params["lr"]) + 2) ** 2 + 0.01 * params["layers"])  # type: ignore[operator, arg-type]
        for number, params in enumerate(drawn)
    ]


@pytest.mark.parametrize("evaluator", BOTH)
@pytest.mark.parametrize(("factor", "offset"), [(1e-9, 0), (2.0**-40, 0), (1e250, 0), (1, 1e6)])
def test_importances_do_not_depend_on_the_unit(evaluator: Evaluator, factor: float, offset: float) -> None:
    some = trials(60)
    found = importance_of(SPACE, "minimize", some, evaluator).parameters
    others = [one._replace(value=one.value * factor + offset) for one in some]
    again = importance_of(SPACE, "minimize", others, evaluator).parameters
    assert again == pytest.approx(found, abs=0.02)


@pytest.mark.parametrize("evaluator", BOTH)
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_importances_are_optunas(evaluator: Evaluator, direction: Direction) -> None:
    """FANOVA judges numbers on their own scales: a logarithmic one for the learning rate, and four equal parts."""
    some, on_unit_scale = trials(60), evaluator == "fanova"
    study = optuna.create_study(direction=direction)
    oracle = {"ped_anova": PedAnovaImportanceEvaluator(), "fanova": FanovaImportanceEvaluator(n_trees=16, seed=0)}
    unit = optuna.distributions.FloatDistribution(0.0, 1.0)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        "lr": unit if on_unit_scale else optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
        "layers": unit if on_unit_scale else optuna.distributions.IntDistribution(1, 4),
        "kind": optuna.distributions.CategoricalDistribution([0, 1]),
        "fixed": optuna.distributions.CategoricalDistribution([0]),
        "momentum": optuna.distributions.FloatDistribution(0.0, 1.0),
    }
    for one in some:
        params = {**one.params, "kind": "ab".index(one.params["kind"]), "fixed": 0}  # type: ignore[arg-type]
        if on_unit_scale:
            params |= {"lr": math.log10(params["lr"]) / 4 + 1, "layers": (params["layers"] - 0.5) / 4}  # type: ignore[operator, arg-type]
        own = {name: distributions[name] for name in params}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=own, value=one.value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = get_param_importances(study, evaluator=oracle[evaluator])
    found = importance_of(SPACE, direction, some, evaluator)
    assert found.parameters == pytest.approx(expected)
    assert direction == "maximize" or next(iter(found.parameters)) == "lr"
    assert found.used_count == 60


@pytest.mark.filterwarnings("ignore:Some regimes for parameter")  # as the module does in the service
@pytest.mark.parametrize("count", [15, 20])
def test_what_matters_is_found_in_few_trials(count: int) -> None:
    searches = [importance_of(SPACE, "minimize", trials(count, seed)).parameters for seed in range(40)]
    assert sum(next(iter(one)) == "lr" for one in searches) >= 35


def test_fanova_says_that_it_cannot_judge_conditional_parameters() -> None:
    found = importance_of(SPACE, "minimize", trials(30), "fanova")
    assert "momentum" not in found.parameters
    assert "ped_anova" in found.left_out["momentum"]
    assert importance_of(SPACE, "minimize", trials(30)).parameters["momentum"] >= 0


def test_too_few_trials_give_a_reason_instead_of_numbers() -> None:
    found = importance_of(SPACE, "minimize", trials(MIN_TRIALS - 1))
    assert found.parameters == {}
    assert found.reason == "needs at least 10 trials that have ended with a value or a curve score, has 9"
    outside = [one._replace(params={}) for one in trials(2)]
    found = importance_of(SPACE, "minimize", [*trials(MIN_TRIALS - 1), *outside])
    assert found.reason is not None
    assert found.reason.endswith(", has 9; 2 trials outside of the present space")


@pytest.mark.parametrize("evaluator", BOTH)
def test_if_all_values_are_equal_there_is_a_reason_instead_of_numbers(evaluator: Evaluator) -> None:
    found = importance_of(SPACE, "minimize", [one._replace(value=1.0) for one in trials(20)], evaluator)
    assert found.parameters == {}
    assert found.reason is not None
    assert "same value" in found.reason


@pytest.mark.parametrize("evaluator", BOTH)
def test_if_no_parameter_varied_there_is_a_reason_instead_of_numbers(evaluator: Evaluator) -> None:
    same = [one._replace(params=trials(1)[0].params) for one in trials(20)]
    found = importance_of(SPACE, "minimize", same, evaluator)
    assert (found.parameters, found.used_count) == ({}, 20)
    assert found.reason == "each parameter that can be judged has the same value in all of these trials"


@pytest.mark.parametrize("evaluator", BOTH)
def test_a_parameter_that_did_not_vary_has_no_importance(evaluator: Evaluator) -> None:
    space = Space.model_validate({name: {"type": "float", "low": 0.0, "high": 1.0} for name in ("tried", "same")})
    some = [Measured(number, {"tried": number / 20, "same": 0.5}, number) for number in range(20)]
    assert importance_of(space, "minimize", some, evaluator).parameters == {"tried": 1.0, "same": 0.0}


WIDE = [
    {"type": "int", "low": 10**9, "high": 10**9 + 20},
    {"type": "int", "low": -(2**53), "high": 2**53, "step": 2**40},
    {"type": "float", "low": -1e300, "high": 1e300},
    {"type": "float", "low": 1e-300, "high": 1e300, "log": True},
    {"type": "float", "low": 1e-12, "high": 1e-9, "log": True},
]


@pytest.mark.parametrize("parameter", WIDE, ids=str)
def test_fanova_tells_numbers_of_any_size_apart(parameter: dict[str, Any]) -> None:
    assert importance_of(*of_one_parameter(parameter), "fanova").parameters["one"] > 0.9


@pytest.mark.parametrize("parameter", [one for one in WIDE if one["type"] == "float"], ids=str)
def test_fanova_tells_numbers_apart_in_a_small_part_of_the_range(parameter: dict[str, Any]) -> None:
    assert importance_of(*of_one_parameter(parameter, part=1e-5), "fanova").parameters["one"] > 0.9


def of_one_parameter(parameter: dict[str, Any], part: float = 1.0) -> tuple[Space, Direction, list[Measured]]:
    """Trials in the lowest part of the parameter's range, which alone matters."""
    space = Space.model_validate({"one": parameter, "other": {"type": "float", "low": 0.0, "high": 1.0}})
    number_parameter, chance, some = space.root["one"], random.Random(7), []  # noqa: S311
    assert not isinstance(number_parameter, CategoricalParameter)
    for number in range(60):
        share = part * chance.random()
        params = {"one": from_unit(number_parameter, share), "other": chance.random()}
        some.append(Measured(number, params, share))
    return space, "minimize", some


def test_trials_outside_of_a_narrowed_space_are_skipped() -> None:
    odd = Measured(99, {"lr": 5.0, "layers": 1, "kind": "b", "fixed": 1}, 0.0)
    found = importance_of(SPACE, "minimize", [*trials(20), odd])
    assert found == importance_of(SPACE, "minimize", trials(20))


@pytest.mark.parametrize("evaluator", BOTH)
def test_importances_do_not_depend_on_the_order_of_the_trials(evaluator: Evaluator) -> None:
    some = [one._replace(value=round(one.value)) for one in trials(40)]
    found = importance_of(SPACE, "minimize", some, evaluator)
    assert all(
        importance_of(SPACE, "minimize", others, evaluator) == found for others in (some[::-1], some[1::2] + some[::2])
    )


def test_many_trials_are_sampled_the_same_way_each_time() -> None:
    numbers = list(range(5000))
    some = sampled(numbers, "fanova")
    assert some == sampled(list(reversed(numbers)), "fanova")
    assert len(some) == len(set(some)) == MAX_TRIALS["fanova"]
    assert max(some) > 4000
    assert sampled([3, 1, 2], "fanova") == [1, 2, 3]
