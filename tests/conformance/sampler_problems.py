"""Problems and histories on which every sampler is tested."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from pydantic import TypeAdapter

from search.problem import Observation, Problem, Status
from search.samplers import SamplerSpec
from search.space.forbidden import Forbidden
from search.space.space import Params, Space
from search.study import Study, propose

SEED = 7
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "tpe": [{"n_startup_trials": 3}, {"n_startup_trials": 3, "group": True, "constant_liar": False}],
    "gp": [{"n_startup_trials": 3}],
    "cmaes": [{"popsize": 4}, {"popsize": 4, "with_margin": True, "consider_pruned_trials": True}],
    "nsga2": [{"population_size": 4}, {"population_size": 4, "crossover": "spx", "mutation": "polynomial"}],
    "nsga3": [{"population_size": 4}],
    "qmc": [{}, {"qmc_type": "halton", "scramble": True}],
    "brute_force": [{}, {"avoid_premature_stop": True}],
}
"""What each sampler is tested with, if its defaults learn from many trials only, or it has ways of its own."""

NUMBERS = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "width": {"type": "int", "low": 8, "high": 512, "log": True},
    "drop": {"type": "float", "low": 0.0, "high": 0.5, "step": 0.125},
}
CATEGORICAL = {**NUMBERS, "act": {"type": "categorical", "choices": ["relu", 1, True, None]}}
CONDITIONAL = {**CATEGORICAL, "slope": {"type": "float", "low": 0, "high": 1, "when": {"act": "relu"}}}
FINITE = {
    "depth": {"type": "int", "low": 1, "high": 4},
    "act": {"type": "categorical", "choices": ["relu", "gelu"]},
    "slope": {"type": "float", "low": 0, "high": 1, "step": 0.25, "when": {"act": "relu"}},
}
FINITE_NUMBERS = {name: {"type": "int", "low": 0, "high": 5} for name in "ab"}
ONE_VALUE = {"only": {"type": "float", "low": 0.5, "high": 0.5}, "fixed": {"type": "int", "low": 3, "high": 3}}
EXTREME = {
    "x": {"type": "float", "low": 1e-300, "high": 1e300, "log": True},
    "y": {"type": "int", "low": 0, "high": 2**53},
}
"""Ends whose quotient no float holds."""
ONE_PARAMETER = {"x": {"type": "float", "low": 0, "high": 1}}


def _space(parameters: dict[str, Any], *forbidden: dict[str, Any]) -> Space:
    space = Space.model_validate(parameters)
    return space.without(TypeAdapter(Forbidden).validate_python(forbidden))


PROBLEMS = {
    "numbers": Problem(_space(NUMBERS), ("minimize",)),
    "maximize": Problem(_space(NUMBERS), ("maximize",)),
    "categorical": Problem(_space(CATEGORICAL), ("minimize",)),
    "conditional": Problem(_space(CONDITIONAL), ("minimize",)),
    "forbidden": Problem(_space(NUMBERS, {"lr": {"min": 0.01}, "drop": 0.0}, {"width": {"max": 16}}), ("minimize",)),
    "finite": Problem(_space(FINITE), ("minimize",), max_trials=12),
    "finite and forbidden": Problem(_space(FINITE, {"act": "relu", "depth": {"min": 3}}), ("minimize",)),
    "finite numbers": Problem(_space(FINITE_NUMBERS), ("minimize",)),
    "one value": Problem(_space(ONE_VALUE), ("minimize",)),
    "one parameter": Problem(_space(ONE_PARAMETER), ("minimize",)),
    "extreme ends": Problem(_space(EXTREME), ("minimize",)),
    "two objectives": Problem(_space(CATEGORICAL), ("minimize", "maximize")),
    "constrained": Problem(_space(CATEGORICAL), ("minimize",), constrained=True),
    "early stopping": Problem(_space(NUMBERS), ("maximize",), prunes=True, max_trials=100),
}

STATUSES: Sequence[Status] = (
    "completed",
    "completed",
    "pruned",
    "completed",
    "failed",
    "running",
    "completed",
    "diverged",
    "stopped",
    "completed",
)


def history_of(problem: Problem, count: int) -> list[Observation]:
    """Trials of every status, with random configurations of the problem's space."""
    draws = Study(problem, SamplerSpec(sampler="random"), SEED)
    found = []
    for number, status in zip(range(count), cycle(STATUSES), strict=False):
        params = propose(draws, [], number)
        found.append(_observation(problem, number, params, status))
    return found


def _observation(problem: Problem, number: int, params: Params, status: Status) -> Observation:
    value = float((number * 7919) % 101)  # differs from trial to trial, in no order
    return Observation(
        number=number,
        params=params,
        status=status,
        values=tuple(value + index for index in range(len(problem.directions))) if status == "completed" else None,
        last_step=number % 5 if number % 3 else None,
        last_value=value if number % 3 else None,
        constraints=(value - 50,) if problem.constrained else None,
        rungs=tuple((3**power, value - power) for power in range(number % 4)) if problem.prunes else (),
    )


def changes_of(history: Sequence[Observation]) -> Iterator[list[Observation]]:
    """The history as it comes in: each trial runs before it gets its status, and the last ones end first."""
    for one in history:
        yield [Observation(one.number, one.params, "running")]
    for one in reversed(history):
        yield [one]
