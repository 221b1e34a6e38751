"""Gaussian processes and TPE by turns, which `auto` takes for one objective."""

from dataclasses import dataclass, replace

from search.mistakes import Mistake
from search.problem import Observation, Problem
from search.samplers.estimate import Estimate, estimate_of
from search.samplers.gp import Gp
from search.samplers.optuna.internals_checks import import_gp_modules, usable
from search.samplers.sampler import Proposer, Source, source_of
from search.samplers.tpe import Tpe
from search.space.space import Params

FIRST_TURN, TPE_TURN = 20, 3
"""From this trial on, every third proposal is TPE's: before, `gp` finds more alone."""
MAX_GP_TRIALS = 200
"""With Optuna 5.0 and ten parameters a proposal takes 0.15 s after 25 trials, 0.16 s after 50, 0.22 s after 100 and
0.35 s after 200, on one thread. The time grows with the number of completed trials."""


class GpAndTpe(Gp):
    """`gp` for the first 20 trials; from then on every third proposal is TPE's, and after 200 trials every one.

    A Gaussian process finds the bottom of a valley in few trials, but on functions with many valleys it may stay in one
    of them for hundreds. Measured: docs/reference/performance.md.
    """

    def proposer(self, problem: Problem, seed: int) -> Proposer:
        return ByTurns(super().proposer(problem, seed), self._tpes_proposer(problem, seed))

    def warnings_with(self, problem: Problem) -> list[Mistake]:  # noqa: ARG002 - it ends with TPE's proposals
        return []

    @staticmethod
    def tpe_for(problem: Problem) -> Tpe:
        return Tpe(group=bool(problem.space.conditional))

    def _tpes_proposer(self, problem: Problem, seed: int) -> Proposer:
        tpe = self.tpe_for(problem)
        scores_curves = problem.curve_score and tpe.gains_by_curve_score(problem)
        return tpe.proposer(replace(problem, curve_score=scores_curves), seed)

    def _model(self, problem: Problem, seed: int, needed: int) -> Proposer:
        """TPE's model where Optuna's public GPSampler would draw the parameters under conditions at random."""
        import_gp_modules()
        if problem.space.conditional and not usable("gp"):
            return self._tpes_proposer(problem, seed)
        return super()._model(problem, seed, needed)


@dataclass(frozen=True)
class ByTurns:
    """Two proposers that learn from the same trials. The number of a trial says whose turn it is."""

    gp: Proposer
    tpe: Proposer

    def learn(self, observation: Observation) -> None:
        self.gp.learn(observation)
        self.tpe.learn(observation)

    def propose(self, number: int) -> Params:
        return self._proposer_of(number).propose(number)

    def source(self, number: int) -> Source:
        return source_of(self._proposer_of(number), number)

    def estimate(self, number: int, params: Params) -> Estimate | None:
        return estimate_of(self._proposer_of(number), number, params)

    def _proposer_of(self, number: int) -> Proposer:
        is_tpe = number >= FIRST_TURN and number % TPE_TURN == TPE_TURN - 1
        return self.tpe if is_tpe or number >= MAX_GP_TRIALS else self.gp
