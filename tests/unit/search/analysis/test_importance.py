"""The importance of parameters, with Optuna as the oracle."""

import math
import random
import warnings

import optuna
import pytest
from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances

from search.analysis.importance import MAX_TRIALS, MIN_TRIALS, Evaluator, Measured, importance_of, sampled
from search.problem import Direction
from search.space.space import Space

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
    some = trials(60)
    study = optuna.create_study(direction=direction)
    oracle = {"ped_anova": PedAnovaImportanceEvaluator(), "fanova": FanovaImportanceEvaluator(n_trees=16, seed=0)}
    distributions = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
        "layers": optuna.distributions.IntDistribution(1, 4),
        "kind": optuna.distributions.CategoricalDistribution([0, 1]),
        "fixed": optuna.distributions.CategoricalDistribution([0]),
        "momentum": optuna.distributions.FloatDistribution(0.0, 1.0),
    }
    for one in some:
        params = {**one.params, "kind": "ab".index(one.params["kind"]), "fixed": 0}  # type: ignore[arg-type]
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
    assert found.reason is not None
    assert f"at least {MIN_TRIALS}" in found.reason


@pytest.mark.parametrize("evaluator", BOTH)
def test_if_all_values_are_equal_there_is_a_reason_instead_of_numbers(evaluator: Evaluator) -> None:
    found = importance_of(SPACE, "minimize", [one._replace(value=1.0) for one in trials(20)], evaluator)
    assert found.parameters == {}
    assert found.reason is not None
    assert "same value" in found.reason


def test_trials_outside_of_a_narrowed_space_are_skipped() -> None:
    odd = Measured(99, {"lr": 5.0, "layers": 1, "kind": "b", "fixed": 1}, 0.0)
    found = importance_of(SPACE, "minimize", [*trials(20), odd])
    assert found == importance_of(SPACE, "minimize", trials(20))


def test_many_trials_are_sampled_the_same_way_each_time() -> None:
    numbers = list(range(5000))
    some = sampled(numbers, "fanova")
    assert some == sampled(list(reversed(numbers)), "fanova")
    assert len(some) == len(set(some)) == MAX_TRIALS["fanova"]
    assert max(some) > 4000
    assert sampled([3, 1, 2], "fanova") == [1, 2, 3]
