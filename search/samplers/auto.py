"""A sampler chosen for the experiment, with the reason."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.problem import Need, Setting
from search.samplers.base import Proposer, Sampler
from search.samplers.brute_force import BruteForce
from search.samplers.cmaes import Cmaes
from search.samplers.gp import Gp
from search.samplers.nsga import Nsga2, Nsga3
from search.samplers.qmc import Qmc
from search.samplers.tpe import Tpe

if TYPE_CHECKING:
    from search.problem import Problem

GP_TRIALS = 100
"""A Gaussian process takes a second or more for each proposal, and longer the more trials there are."""
GP_PARALLELISM = 8
EVOLVED_TRIALS = 2000
"""From here on generations have time to evolve, and models grow slow."""
CMAES_PARAMETERS = 5
NSGA2_OBJECTIVES = 3
"""Beyond, crowding distances no longer tell trials apart."""

_SPREAD = "a population's trials begin before any of them has ended, and qmc spreads them evenly"


@dataclass(frozen=True)
class Choice:
    """`why` is a sentence for the user; None where the user has chosen."""

    name: str
    sampler: Sampler
    why: str | None = None


class Auto(Sampler):
    """Looks at the space, the objectives, early stopping, the budget and how many trials run at once."""

    def choice(self, setting: Setting) -> Choice:
        """What it takes: the same for the same setting."""
        most = math.inf if setting.max_trials is None else setting.max_trials
        budget = "trials without end" if setting.max_trials is None else f"{most} trials"
        size = setting.space.size()
        if size is not None and size <= most:
            return Choice(
                "brute_force", BruteForce(), f"the space has {size} configurations: {budget} can try them all"
            )
        if setting.population:
            return Choice("qmc", Qmc(scramble=True), _SPREAD)
        choose = _for_one if setting.objective_count == 1 else _for_several
        return choose(setting, frozenset(setting.needs()), most, budget)

    def proposer(self, problem: "Problem") -> Proposer:
        return self.choice(problem.setting).sampler.proposer(problem)


def _for_one(setting: Setting, needs: frozenset[Need], most: float, budget: str) -> Choice:
    together, count = setting.parallelism, len(setting.space.root)
    if Need.CONDITIONS in needs:
        return Choice("tpe", Tpe(group=True), "the space has conditions, and tpe models each of its branches")
    if setting.prunes:
        return Choice("tpe", Tpe(), "early stopping ends trials, and tpe learns from those too")
    if most <= GP_TRIALS and together <= GP_PARALLELISM and not Gp().unsuited(setting):
        return Choice("gp", Gp(), f"{budget}, {together} at once: few enough for gp to make the most of each")
    if most >= EVOLVED_TRIALS and not needs and count >= CMAES_PARAMETERS:
        return Choice("cmaes", Cmaes(), f"{budget} let cmaes learn how {count} numeric parameters depend on each other")
    return Choice("tpe", Tpe(), f"tpe suits any space, and {budget}, {together} at once")


def _for_several(setting: Setting, needs: frozenset[Need], most: float, budget: str) -> Choice:
    count = setting.objective_count
    if Need.CONDITIONS in needs:
        return Choice("tpe", Tpe(group=True), f"tpe takes {count} objectives and conditions")
    if most < EVOLVED_TRIALS:
        return Choice("tpe", Tpe(), f"{budget} are too few for generations to evolve towards {count} objectives")
    if count <= NSGA2_OBJECTIVES:
        return Choice("nsga2", Nsga2(), f"{budget} let generations evolve, and there are {count} objectives")
    return Choice("nsga3", Nsga3(), f"{budget} let generations evolve, and {count} objectives need reference points")
