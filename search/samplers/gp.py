"""Bayesian optimization with Gaussian processes."""

from typing import TYPE_CHECKING, Annotated, ClassVar

import optuna
from optuna.trial import FrozenTrial
from pydantic import Field

from search.lazy_import import loaded
from search.mistakes import Mistake
from search.problem import Need
from search.samplers.base import Sampler
from search.samplers.constrained_draw import obeying
from search.samplers.optuna.ask import ask, made
from search.samplers.optuna.history import History
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem, Setting

MOST_VALUES = 2_000_000
"""Optuna lays out all values of a parameter with steps, several times for each proposal."""
_LIBRARIES = (
    "scipy.stats",
    "torch",
    "torch.utils._device",
    *(f"optuna._gp.{name}" for name in ("acqf", "batched_lbfgsb", "gp", "optim_mixed", "prior", "search_space")),
)
_CURE = "make the step larger, or a float of it without a step"


class Gp(Sampler):
    """Optuna's GPSampler. The time of a proposal grows with the cube of the completed trials: for hundreds of them."""

    cannot: ClassVar[frozenset[Need]] = frozenset({Need.CONDITIONS})

    n_startup_trials: Annotated[int, Field(ge=0)] = 10
    deterministic_objective: bool = False

    def unsuited(self, setting: "Setting") -> list[Mistake]:
        return [
            Mistake(("space", name), f"gp takes at most {MOST_VALUES:,} values, here are {len(values):,}: {_CURE}")
            for name, parameter in setting.space.root.items()
            if (values := parameter.values()) is not None and len(values) > MOST_VALUES
        ]

    def proposer(self, problem: "Problem") -> "GpProposer":
        loaded(*_LIBRARIES)
        return GpProposer(problem, self)


class GpProposer:
    """Fits each model from its prior: a model that starts from the last one's fit would depend on who was asked."""

    def __init__(self, problem: "Problem", options: Gp) -> None:
        self._problem, self._options = problem, options
        self._history = History(problem)

    def learn(self, observation: "Observation") -> None:
        self._history.learn(observation)

    def propose(self, number: int) -> Params:
        history = _comparable(self._history.without(number))
        return obeying(
            self._problem, number, lambda seed: ask(self._problem, self._sampler(seed), history, number), tries=2
        )

    def _sampler(self, seed: int) -> optuna.samplers.GPSampler:
        return made(
            optuna.samplers.GPSampler,
            seed=seed,
            n_startup_trials=max(1, self._options.n_startup_trials),  # without any trial there is nothing to fit
            deterministic_objective=self._options.deterministic_objective,
            warn_independent_sampling=False,
        )


def _comparable(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Without completed trials that do not say how they keep to constraints that others speak of."""
    most = max((len(trial.constraints) for trial in trials), default=0)
    return [trial for trial in trials if not trial.values or len(trial.constraints) == most]
