"""Brute force: every configuration of a finite space."""

from typing import ClassVar

from search.mistakes import Mistake
from search.problem import Problem
from search.samplers.grid import GridProposer, all_values
from search.samplers.sampler import Sampler


class BruteForce(Sampler):
    """Optuna's BruteForceSampler, in an order derived from the seed.

    `avoid_premature_stop`: a configuration counts as untried while its only trials are running. It may be tried twice,
    but it is not missed if its trial is lost.
    """

    is_exhaustive: ClassVar[bool] = True
    takes_priors: ClassVar[bool] = False

    avoid_premature_stop: bool = False

    def mistakes_with(self, problem: Problem) -> list[Mistake]:
        return [
            Mistake(("space", name), "brute_force needs a step here")
            for name, parameter in problem.space.root.items()
            if parameter.values() is None
        ]

    def proposer(self, problem: Problem, seed: int) -> GridProposer:
        return GridProposer(problem.space, all_values(problem.space), seed, repeat_running=self.avoid_premature_stop)


class BruteForceAnew(BruteForce):
    """A brute force that repeats what an earlier experiment has tried: in this one it may be the best."""

    learns: ClassVar[bool] = False

    def proposer(self, problem: Problem, seed: int) -> GridProposer:
        repeat_running = self.avoid_premature_stop
        return GridProposer(problem.space, all_values(problem.space), seed, repeat_running=repeat_running, anew=True)
