"""Tree-structured Parzen estimator."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import optuna
from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.samplers.asking import ask, made
from search.samplers.base import Sampler
from search.samplers.history import History
from search.samplers.obeying import obeying
from search.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem


class Tpe(Sampler):
    """Optuna's TPESampler. `multivariate` left out: true with one objective, false with several."""

    takes_parts: ClassVar[bool] = True

    n_startup_trials: Annotated[int, Field(ge=0)] = 10
    n_ei_candidates: Annotated[int, Field(ge=1)] = 24
    multivariate: bool | None = None
    group: bool = False
    constant_liar: bool = True

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if self.group and self.multivariate is False:
            refuse("Tpe", [Mistake(("group",), "needs multivariate: true")], self.model_dump())
        return self

    def proposer(self, problem: "Problem") -> "TpeProposer":
        return TpeProposer(problem, self)


class TpeProposer:
    """Keeps the history as Optuna's trials, so that a proposal converts only what is new."""

    def __init__(self, problem: "Problem", options: Tpe) -> None:
        self._problem, self._options = problem, options
        self._history = History(problem)

    def learn(self, observation: "Observation") -> None:
        self._history.learn(observation)

    def propose(self, number: int) -> Params:
        history = self._history.without(number)
        return obeying(self._problem, number, lambda seed: ask(self._problem, self._sampler(seed), history, number))

    def _sampler(self, seed: int) -> optuna.samplers.TPESampler:
        options = self._options
        return made(
            optuna.samplers.TPESampler,
            n_startup_trials=options.n_startup_trials,
            n_ei_candidates=options.n_ei_candidates,
            multivariate=True if options.group else options.multivariate,
            group=options.group,
            constant_liar=options.constant_liar,
            seed=seed,
        )
