"""Covariance matrix adaptation evolution strategy."""

from functools import partial
from typing import Annotated, ClassVar

from optuna.samplers import CmaEsSampler
from pydantic import Field, model_validator

from search.mistakes import Mistake, refuse
from search.problem import Feature, Problem
from search.samplers.optuna.ask import without_warning
from search.samplers.optuna.internals_checks import usable
from search.samplers.optuna.public_api_fallback import ReplayProposer
from search.samplers.sampler import Proposer, Sampler, too_large
from search.thread_safe_import import import_modules


class Cmaes(Sampler):
    """Optuna's CmaEsSampler, without the options that Optuna is about to remove."""

    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.OBJECTIVES, Feature.CONSTRAINTS})
    drawn_at_random: ClassVar[frozenset[Feature]] = frozenset({Feature.CATEGORICALS, Feature.CONDITIONS})

    n_startup_trials: Annotated[int, Field(ge=0)] = 1
    popsize: Annotated[int, Field(ge=4)] | None = None
    consider_pruned_trials: bool = False
    use_separable_cma: bool = False
    with_margin: bool = False
    lr_adapt: bool = False

    @model_validator(mode="after")
    def _variants_exclude_each_other(self) -> "Cmaes":
        chosen = [name for name in ("use_separable_cma", "with_margin", "lr_adapt") if getattr(self, name)]
        mistakes = [Mistake((name,), f"cannot be used together with {chosen[0]}") for name in chosen[1:]]
        refuse(type(self).__name__, mistakes, self.model_dump())
        return self

    @property
    def learns_from_pruned_trials(self) -> bool:
        return self.consider_pruned_trials

    def mistakes_with(self, problem: Problem) -> list[Mistake]:  # noqa: ARG002
        return too_large("popsize", self.popsize or 0, 100_000)

    def startup_count(self, problem: Problem) -> int:  # noqa: ARG002
        return self.n_startup_trials

    def proposer(self, problem: Problem, seed: int) -> Proposer:
        import_modules("cmaes")
        options = self.model_dump()
        if not usable("cmaes"):
            public = partial(without_warning, CmaEsSampler, warn_independent_sampling=False, **options)
            return ReplayProposer(problem, seed, lambda seed: public(seed=seed))
        from search.samplers.optuna.cmaes_proposer import CmaesProposer  # noqa: PLC0415 - only where it works

        return CmaesProposer(problem, seed, **options)
