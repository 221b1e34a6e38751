"""Searches without a model, and Optuna's, for the comparison at equal time."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler

from benchmarks.harness.problems import Point, Task
from benchmarks.harness.search_port import MIN_STEP, REDUCTION_FACTOR, Ask, Trial
from benchmarks.harness.searchers import OptunaTrial, distributions_of

PRUNERS: dict[str, Callable[[Task], BasePruner]] = {
    "none": lambda _task: NopPruner(),
    "median": lambda _task: MedianPruner(),
    "halving": lambda _task: SuccessiveHalvingPruner(MIN_STEP, REDUCTION_FACTOR),
    "hyperband": lambda task: HyperbandPruner(MIN_STEP, task.steps, REDUCTION_FACTOR),
}


def search_with_study(task: Task, sampler: BaseSampler, pruner: str) -> Ask:
    study = optuna.create_study(sampler=sampler, pruner=PRUNERS[pruner](task))
    distributions = distributions_of(task)
    return lambda: OptunaTrial(study, study.ask(distributions))


@dataclass
class FirstStep:
    """A random configuration that pauses after its first step, or goes on from there to its end."""

    point: Point
    goes_on: bool = False
    steps_done: int = 0
    value: float = np.inf

    def report(self, step: int, value: float) -> bool:
        self.steps_done, self.value = step, value
        return self.goes_on

    def end(self, value: float | None) -> None:
        """Nothing is learned from the end."""


@dataclass
class FirstStepThenBest:
    """Egele et al., 2023: `count` random configurations train one step, and the best of them to their ends."""

    random: Ask
    count: int
    trials: list[FirstStep] = field(default_factory=list)

    def ask(self) -> Trial:
        if len(self.trials) < self.count:
            self.trials.append(FirstStep(self.random().point))
            return self.trials[-1]
        waiting = [one for one in self.trials if not one.goes_on and one.steps_done]
        best = min(waiting, key=lambda one: one.value, default=None) or FirstStep(self.random().point)
        best.goes_on = True
        return best
