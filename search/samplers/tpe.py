"""Tree-structured Parzen estimator."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.problem import Observation, Problem
from search.samplers.constrained_draw import constrained_draw
from search.samplers.optuna.ask import ask, without_warning
from search.samplers.optuna.tpe_history import TpeHistory
from search.samplers.optuna.tpe_sampler import HistoryTpeSampler
from search.samplers.sampler import Sampler, too_large
from search.space.space import Params


class Tpe(Sampler):
    """Optuna's TPESampler. `multivariate` defaults to true with one objective and to false with several."""

    learns_from_partial_params: ClassVar[bool] = True

    n_startup_trials: Annotated[int, Field(ge=0)] = 10
    n_ei_candidates: Annotated[int, Field(ge=1)] = 24
    multivariate: bool | None = None
    group: bool = False
    constant_liar: bool = True

    @model_validator(mode="after")
    def _group_is_multivariate(self) -> Self:
        if self.group and self.multivariate is False:
            refuse("Tpe", [Mistake(("group",), "needs multivariate: true")], self.model_dump())
        return self

    def mistakes_with(self, problem: Problem) -> list[Mistake]:  # noqa: ARG002
        return too_large("n_ei_candidates", self.n_ei_candidates, 10_000)  # each is compared with each trial

    def proposer(self, problem: Problem, seed: int) -> "TpeProposer":
        return TpeProposer(problem, seed, self)


class TpeProposer:
    """Keeps the history as columns of numbers, so that a proposal converts only what is new."""

    def __init__(self, problem: Problem, seed: int, options: Tpe) -> None:
        self._problem, self._seed, self._options = problem, seed, options
        self._history = TpeHistory(problem)

    def learn(self, observation: Observation) -> None:
        self._history.learn(observation)

    def propose(self, number: int) -> Params:
        rows = self._history.without(number, running=self._options.constant_liar)
        options = self._options.model_dump()
        if self._options.group:
            options["multivariate"] = True

        def draw(seed: int) -> Params:
            sampler = without_warning(HistoryTpeSampler, history=self._history, rows=rows, seed=seed, **options)
            return ask(self._problem, sampler, [], number)

        return constrained_draw(self._problem.space, self._seed, number, draw)
