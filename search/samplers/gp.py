"""Bayesian optimization with Gaussian processes."""

from typing import Annotated, ClassVar

import optuna
from optuna.trial import FrozenTrial
from pydantic import Field

from search.mistakes import Mistake
from search.problem import Feature, Observation, Problem
from search.samplers.constrained_draw import constrained_draw
from search.samplers.optuna.ask import ask, without_warning
from search.samplers.optuna.frozen_trials import FrozenTrials
from search.samplers.optuna.gp_modules import GP_MODULES
from search.samplers.sampler import Sampler
from search.space.space import Params
from search.thread_safe_import import import_modules

MAX_VALUES = 2_000_000
"""Optuna lays out all values of a parameter with steps, several times for each proposal."""


class Gp(Sampler):
    """Optuna's GPSampler, for hundreds of trials: a proposal's time grows with the cube of the completed trials."""

    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.CONDITIONS})

    n_startup_trials: Annotated[int, Field(ge=0)] = 10
    deterministic_objective: bool = False

    def mistakes_with(self, problem: Problem) -> list[Mistake]:
        return [
            Mistake(
                ("space", name),
                f"gp supports at most {MAX_VALUES:,} values, and this parameter has {len(values):,}: "
                "use a larger step, or a float without a step",
            )
            for name, parameter in problem.space.root.items()
            if (values := parameter.values()) is not None and len(values) > MAX_VALUES
        ]

    def proposer(self, problem: Problem, seed: int) -> "GpProposer":
        import_modules(*GP_MODULES)
        return GpProposer(problem, seed, self)


class GpProposer:
    """Each model is fitted from its prior. If it started from the last fit, it would depend on earlier proposals."""

    def __init__(self, problem: Problem, seed: int, options: Gp) -> None:
        self._problem, self._seed, self._options = problem, seed, options
        self._trials = FrozenTrials(problem)

    def learn(self, observation: Observation) -> None:
        self._trials.learn(observation)

    def propose(self, number: int) -> Params:
        history = _with_all_constraints(self._trials.without(number))

        def draw(seed: int) -> Params:
            return ask(self._problem, self._sampler(seed), history, number)

        return constrained_draw(self._problem.space, self._seed, number, draw, max_draws=2)

    def _sampler(self, seed: int) -> optuna.samplers.GPSampler:
        return without_warning(
            optuna.samplers.GPSampler,
            seed=seed,
            n_startup_trials=max(1, self._options.n_startup_trials),  # a model needs at least one trial
            deterministic_objective=self._options.deterministic_objective,
            warn_independent_sampling=False,
        )


def _with_all_constraints(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Leave out completed trials without known violations, if other trials have known ones."""
    count = max((len(trial.constraints) for trial in trials), default=0)
    return [trial for trial in trials if not trial.values or len(trial.constraints) == count]
