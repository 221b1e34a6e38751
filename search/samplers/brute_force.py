"""Every configuration of a finite space."""

from typing import TYPE_CHECKING

from search.mistakes import Mistake
from search.samplers.base import Sampler
from search.samplers.grid import GridProposer, whole

if TYPE_CHECKING:
    from search.problem import Problem, Setting


class BruteForce(Sampler):
    """Optuna's BruteForceSampler, in an order drawn from the seed.

    `avoid_premature_stop`: while a configuration's only trials are running, it counts as not yet tried: it may be tried
    twice, and none is missed because its trial was lost.
    """

    avoid_premature_stop: bool = False

    def unsuited(self, setting: "Setting") -> list[Mistake]:
        return [
            Mistake(("space", name), "brute_force needs a step here")
            for name, parameter in setting.space.root.items()
            if parameter.values() is None
        ]

    def proposer(self, problem: "Problem") -> GridProposer:
        return GridProposer(problem, whole(problem.space), again=self.avoid_premature_stop)
