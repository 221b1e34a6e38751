"""Quasi-Monte Carlo: the points of a low-discrepancy sequence."""

from functools import partial
from typing import Any, ClassVar, Literal

from optuna.samplers import QMCSampler

from search.problem import Problem
from search.samplers.optuna.ask import without_warning
from search.samplers.optuna.internals_checks import usable
from search.samplers.optuna.public_api_fallback import ReplayProposer
from search.samplers.sampler import Proposer, Sampler
from search.thread_safe_import import import_modules


class Qmc(Sampler):
    """Optuna's QMCSampler: trial `n` gets point `n` of the sequence, whatever the history is.

    Every parameter has a coordinate of its own, also a conditional one, whose coordinate is unused where it does not
    exist. With `scramble` the sequence depends on the seed.
    """

    learns: ClassVar[bool] = False
    takes_priors: ClassVar[bool] = False

    qmc_type: Literal["sobol", "halton"] = "sobol"
    scramble: bool = False

    def proposer(self, problem: Problem, seed: int) -> Proposer:
        import_modules("scipy.stats")
        options: dict[str, Any] = self.model_dump()
        if not usable("qmc"):
            public = partial(without_warning, QMCSampler, seed=seed, warn_independent_sampling=False, **options)
            return ReplayProposer(problem, seed, lambda _: public())
        from search.samplers.optuna.qmc_proposer import QmcProposer  # noqa: PLC0415 - only where it works

        return QmcProposer(problem, seed, **options)
