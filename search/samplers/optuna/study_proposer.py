"""Proposals by those of Optuna's samplers that only look at the trials of their study."""

from collections.abc import Callable, Container, Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from search.problem import Observation, Problem
from search.samplers.constrained_draw import MAX_DRAWS, constrained_draw
from search.samplers.estimate import Estimate, NewestDraw
from search.samplers.optuna.ask import newest_draw
from search.samplers.optuna.frozen_trials import FrozenTrials
from search.samplers.sampler import Source
from search.space.space import Params


class StudyProposer:
    """`sampler` creates the sampler from a seed. `usable` selects the trials that it gets.

    Its model starts when `startup_count` of them have one of the `startup_states`, and they are `informative`: from
    other trials it learns nothing, and draws.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        sampler: Callable[[int], optuna.samplers.BaseSampler],
        *,
        usable: Callable[[list[FrozenTrial]], Sequence[FrozenTrial]] = list,
        max_draws: int = MAX_DRAWS,
        startup_count: int = 0,
        startup_states: Container[TrialState] = (TrialState.COMPLETE,),
        informative: Callable[[Sequence[FrozenTrial]], bool] = bool,
    ) -> None:
        self._startup_count, self._startup_states = startup_count, startup_states
        self._problem, self._seed, self._sampler = problem, seed, sampler
        self._usable, self._max_draws, self._informative = usable, max_draws, informative
        self._trials = FrozenTrials(problem)
        self._newest_history: tuple[int, Sequence[FrozenTrial]] | None = None
        self._newest_draw = NewestDraw()

    def learn(self, observation: Observation) -> None:
        self._trials.learn(observation)
        self._newest_history = None

    def source(self, number: int) -> Source:
        learned = [trial for trial in self._history_of(number) if trial.state in self._startup_states]
        has_model = len(learned) >= self._startup_count and (not learned or self._informative(learned))
        return "model" if has_model else "start_up"

    def propose(self, number: int) -> Params:
        history = self._history_of(number)

        def draw(seed: int) -> Params:
            self._newest_draw = newest_draw(self._problem, self._sampler(seed), history, number)
            return self._newest_draw.params

        return constrained_draw(self._problem.space, self._seed, number, draw, max_draws=self._max_draws)

    def estimate(self, number: int, params: Params) -> Estimate | None:
        return self._newest_draw.estimate(number, params)

    def _history_of(self, number: int) -> Sequence[FrozenTrial]:
        """What the sampler of trial `number` learns from, kept because both a proposal and its source need it."""
        if self._newest_history is None or self._newest_history[0] != number:
            trials = self._trials.without(number)
            usable = self._usable(self._trials.ranked(trials) if self._problem.curve_score else trials)
            self._newest_history = number, usable
        return self._newest_history[1]
