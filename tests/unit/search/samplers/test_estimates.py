"""What a sampler's model expected of a trial when it proposed it."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from search.problem import Direction, Observation, Problem
from search.samplers import SamplerSpec
from search.samplers.estimate import Estimate, estimate_as_json
from search.samplers.sampler import Proposer
from search.space.space import Params, Space
from search.study import Study, StudyView

SPACE = {"x": {"type": "float", "low": 0, "high": 1}, "y": {"type": "float", "low": 0, "high": 1}}
CONDITIONAL = {
    "x": SPACE["x"],
    "kind": {"type": "categorical", "choices": ["a", "b"]},
    "y": SPACE["y"] | {"when": {"kind": "b"}},
}
Loss = Callable[[Params], float]


def study(sampler: str, space: dict[str, Any] = SPACE, direction: Direction = "minimize", **fields: Any) -> Study:
    problem = Problem(Space.model_validate(space), (direction,), max_trials=60, **fields)
    return Study(problem, SamplerSpec(sampler=sampler), 7)


def x_of(params: Params) -> float:
    return float(str(params["x"]))


def bowl(params: Params) -> float:
    return (x_of(params) - 0.3) ** 2 + (float(str(params.get("y", 0.5))) - 0.6) ** 2 + 1


def completed(history: Iterable[Params], value: Loss) -> list[Observation]:
    return [Observation(number, params, "completed", (value(params),)) for number, params in enumerate(history)]


def drawn(space: dict[str, Any], count: int) -> list[Params]:
    random = SamplerSpec(sampler="random")
    view = StudyView(Study(Problem(Space.model_validate(space), ("minimize",)), random, 3))
    return [view.propose([], number) for number in range(count)]


def expected(one: Study, history: list[Observation]) -> tuple[Params, Estimate]:
    view = StudyView(one, history)
    params = view.propose([], len(history))
    estimate = view.estimate(len(history), params)
    assert estimate is not None
    return params, Estimate(**estimate)


def searched(one: Study, value: Loss, count: int) -> list[tuple[dict[str, Any] | None, float]]:
    view, changes, found = StudyView(one), list[Observation](), list[tuple[dict[str, Any] | None, float]]()
    for number in range(count):
        params = view.propose(changes, number)
        found.append((view.estimate(number, params), value(params)))
        changes = [Observation(number, params, "completed", (value(params),))]
    return found


@pytest.mark.parametrize("space", [SPACE, CONDITIONAL])
@pytest.mark.parametrize(
    "scale", [lambda loss: loss, lambda loss: -1e6 * loss + 3, lambda loss: 1e-9 * loss, lambda loss: np.exp(20 * loss)]
)
def test_gp_expects_a_value_in_units_of_the_objective(space: dict[str, Any], scale: Callable[[float], float]) -> None:
    """The last scale is one of which the model learns the logarithms."""
    direction: Direction = "maximize" if scale(2) < scale(1) else "minimize"

    def value(params: Params) -> float:
        return float(scale(bowl(params)))

    params, estimate = expected(study("gp", space, direction), completed(drawn(space, 24), value))
    values = sorted(value(params) for params in drawn(space, 24))
    assert estimate.model == "gp"
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low <= estimate.value <= estimate.high
    assert abs(estimate.value - value(params)) < 0.25 * (values[18] - values[6])


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_gp_expects_an_improvement_where_it_is_certain_of_one(direction: Direction) -> None:
    sign = 1 if direction == "minimize" else -1
    history: list[Params] = [{"x": number / 30, "y": 0.5} for number in range(20)]
    _, estimate = expected(study("gp", direction=direction), completed(history, lambda one: -sign * x_of(one)))
    assert estimate.improvement_probability is not None
    assert estimate.improvement_probability > 0.9


def test_gp_is_less_certain_where_values_are_noisy() -> None:
    noise = np.random.default_rng(1).normal(size=24)

    def width(spread: float) -> float:
        numbered = enumerate(drawn(SPACE, 24))
        history = [Observation(at, one, "completed", (bowl(one) + spread * noise[at],)) for at, one in numbered]
        estimate = expected(study("gp"), history)[1]
        assert estimate.low is not None
        assert estimate.high is not None
        return estimate.high - estimate.low

    assert width(0.3) > 3 * width(0.0)


def test_gp_expects_the_value_at_the_end_of_a_curve() -> None:
    """Losses at the first step are larger by 5 than those at the end. Two of three trials were stopped before."""

    def trained(number: int, params: Params) -> Observation:
        end = bowl(params)
        curve = ((1, end + 5), (3, end + 2.5), (9, end))
        if number % 3:
            return Observation(number, params, "pruned", rungs=curve[:2])
        return Observation(number, params, "completed", (end,), rungs=curve)

    one = study("gp", prunes=True)
    params, estimate = expected(one, [trained(number, params) for number, params in enumerate(drawn(SPACE, 24))])
    assert one.scored_problem.curve_score
    assert estimate.value is not None
    assert abs(estimate.value - bowl(params)) < 1


@pytest.mark.parametrize("space", [SPACE, CONDITIONAL])
def test_tpe_tells_good_configurations_from_others(space: dict[str, Any]) -> None:
    _, estimate = expected(study("tpe", space), completed(drawn(space, 40), bowl))
    assert estimate.model == "tpe"
    assert estimate.value is None
    assert estimate.good_share == 0.1
    assert estimate.good_probability is not None
    assert 2 * estimate.good_share < estimate.good_probability < 1


def test_each_model_of_auto_tells_what_it_expects_and_draws_without_a_model_do_not() -> None:
    estimates = [estimate for estimate, _ in searched(study("auto"), bowl, 24)]
    models = [None if estimate is None else estimate["model"] for estimate in estimates]
    assert models == [None] * 6 + ["gp"] * 14 + ["tpe", "gp", "gp", "tpe"]


@pytest.mark.parametrize("sampler", ["random", "qmc", "cmaes", "nsga2"])
def test_samplers_whose_model_expects_no_value_tell_nothing(sampler: str) -> None:
    assert all(estimate is None for estimate, _ in searched(study(sampler), bowl, 14))


def test_an_estimate_is_of_the_proposal_alone() -> None:
    one, history = study("gp"), completed(drawn(SPACE, 12), bowl)
    view = StudyView(one, history)
    params = view.propose([], 12)
    assert view.estimate(12, params) == expected(one, history)[1].to_json()
    assert view.estimate(13, params) is None
    assert view.estimate(12, {**params, "x": 0.123}) is None


def test_a_repetition_that_is_replaced_has_no_estimate() -> None:
    """The model would repeat the best one, and seven of eight configurations are tried."""
    space = {"x": {"type": "int", "low": 0, "high": 7}}
    history = completed([{"x": x} for x in range(8) if x != 6], lambda one: abs(x_of(one) - 2))
    view = StudyView(study("gp", space), history)
    assert view.propose([], 7) == {"x": 6}
    assert view.estimate(7, {"x": 6}) is None


def test_an_estimate_as_json_has_what_its_model_tells() -> None:
    assert Estimate("tpe", good_probability=0.123456789, good_share=0.1).to_json() == {
        "model": "tpe",
        "good_probability": 0.1235,
        "good_share": 0.1,
    }


@pytest.mark.parametrize("space", [SPACE, CONDITIONAL])
def test_values_with_a_large_offset_keep_their_interval(space: dict[str, Any]) -> None:
    history = completed(drawn(space, 24), lambda params: 1e9 + 1e-3 * bowl(params))
    _, estimate = expected(study("gp", space), history)
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize("space", [SPACE, CONDITIONAL])
def test_values_near_the_largest_float_have_no_estimate_or_the_right_one(space: dict[str, Any]) -> None:
    history = completed(drawn(space, 24), lambda params: 1.5e308 * (1.5 - bowl(params)))
    view = StudyView(study("gp", space), history)
    estimate = view.estimate(24, view.propose([], 24))
    assert estimate is None or abs(estimate["value"]) > 1e307


def test_without_a_feasible_trial_nothing_is_improved() -> None:
    history = [
        Observation(number, params, "completed", (bowl(params),), constraints=(1 + x_of(params),))
        for number, params in enumerate(drawn(SPACE, 14))
    ]
    _, estimate = expected(study("gp", constrained=True), history)
    assert estimate.value is not None
    assert estimate.improvement_probability is None


def test_tpe_leaves_out_parameters_that_a_trial_does_not_have() -> None:
    """Each branch has two, of which only those of the best branch tell good trials from others."""
    space: dict[str, Any] = {"kind": {"type": "categorical", "choices": ["a", "b"]}}
    space |= {f"{kind}{n}": SPACE["x"] | {"when": {"kind": kind}} for kind in "ab" for n in (1, 2)}

    def value(params: Params) -> float:
        return sum(float(str(one)) for name, one in params.items() if name != "kind")

    one = Study(study("tpe", space).problem, SamplerSpec(sampler="tpe", options={"group": True}), 7)
    view = StudyView(one, completed(drawn(space, 60), value))
    params = view.propose([], 60)
    sampler = view._proposer._newest_draw.expected.func.__self__  # type: ignore[attr-defined]
    ratios = {names: ratio for names, ratio in sampler._log_ratios.items() if names <= params.keys()}
    assert len(ratios) == 2 < len(sampler._log_ratios)
    assert view.estimate(60, params) == Estimate.of_densities(sum(ratios.values()), 6 / 60).to_json()


class Plugin(Proposer):
    """A proposer whose estimate is what the test says."""

    def __init__(self, told: Any) -> None:
        self._told = told

    def learn(self, observation: Observation) -> None:
        raise NotImplementedError

    def propose(self, number: int) -> Params:
        raise NotImplementedError

    def estimate(self, number: int, params: Params) -> Any:  # noqa: ARG002
        if isinstance(self._told, BaseException):
            raise self._told
        return self._told


NO_ESTIMATES = ZeroDivisionError("no trials"), SystemExit(1), "good", Estimate("own", value=math.nan)


@pytest.mark.parametrize("told", NO_ESTIMATES, ids=["error", "exit", "text", "nan"])
def test_what_is_no_estimate_costs_nothing_but_a_line_in_the_log(told: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert estimate_as_json(Plugin(told), 3, {}) is None
    assert "the estimate of trial 3 is left out" in caplog.text


def test_numbers_of_numpy_become_json() -> None:
    estimate = Estimate("own", value=np.float32(0.5), improvement_probability=np.float64(0.25))  # type: ignore[arg-type]
    assert json.loads(json.dumps(estimate_as_json(Plugin(estimate), 3, {}))) == {
        "model": "own",
        "value": 0.5,
        "improvement_probability": 0.25,
    }
