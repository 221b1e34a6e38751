"""Tree-structured Parzen estimator."""

from typing import Annotated, ClassVar, Self

from optuna.samplers import TPESampler
from optuna.trial import TrialState
from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.problem import Problem
from search.samplers.optuna.ask import without_warning
from search.samplers.optuna.internals_checks import usable
from search.samplers.optuna.study_proposer import StudyProposer
from search.samplers.sampler import Proposer, Sampler, too_large

MAX_SCORED_PARALLELISM = 4
"""Measured with 4 and with 16 trials at the same time: docs/reference/performance.md."""


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

    def startup_count(self, problem: Problem) -> int:  # noqa: ARG002
        return self.n_startup_trials

    def gains_by_curve_score(self, problem: Problem) -> bool:
        """Only with few parallel trials: with many, TPE would cluster proposals where early steps look good."""
        return problem.parallelism <= MAX_SCORED_PARALLELISM

    def proposer(self, problem: Problem, seed: int) -> Proposer:
        is_multivariate = len(problem.directions) == 1 if self.multivariate is None else self.multivariate
        options = {**self.model_dump(), "multivariate": is_multivariate or self.group}
        if not usable("tpe"):
            return StudyProposer(
                problem,
                seed,
                lambda seed: without_warning(TPESampler, seed=seed, **options),
                startup_count=self.n_startup_trials,
                startup_states=(TrialState.COMPLETE, TrialState.PRUNED),
            )
        from search.samplers.optuna.tpe.sampler import ColumnsProposer  # noqa: PLC0415 - only where it works

        return ColumnsProposer(problem, seed, **options)
