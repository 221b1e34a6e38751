"""A study: a problem, the sampler that searches it, and its proposals as a function of the history."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from search.distinct_proposals import DistinctProposals
from search.plugins import exits_as_errors
from search.priors.proposer import PriorProposer
from search.problem import Observation, Problem
from search.samplers.estimate import estimate_as_json
from search.samplers.registry import sampler_plugins
from search.samplers.sampler import ChosenSampler, Proposer, Source, source_of
from search.samplers.sampler_spec import SamplerSpec
from search.space.space import Params
from search.warm_starts.proposer import Contribution, WarmStartProposer


@dataclass(frozen=True)
class Study:
    """Everything that a proposal depends on, except the history.

    `seed` is the sampler's own, or one that the service derived because the sampler has none.
    """

    problem: Problem
    sampler: SamplerSpec
    seed: int

    @property
    def chosen_sampler(self) -> ChosenSampler:
        return self.sampler.chosen_for(self.problem)

    @property
    def weighs_warm_starts(self) -> bool:
        return self.sampler.weighs_warm_starts(self.problem)

    @property
    def is_distinct(self) -> bool:
        """Whether proposals are kept from repeating a configuration."""
        space, chosen = self.problem.space, self.chosen_sampler
        may_repeat = space.has_known_configurations if chosen.sampler.may_repeat else space.has_finite_part
        may_try_again = self.sampler.repeats and not chosen.ends_with_space
        return may_repeat and not may_try_again and not chosen.sampler.is_exhaustive

    @property
    def scored_problem(self) -> Problem:
        """The problem as the sampler sees it, with `curve_score` decided, and no more trials than the search has."""
        problem = replace(self.problem, curve_score=self.sampler.uses_curve_score(self.problem))
        return replace(problem, max_trials=problem.space.size()) if self.chosen_sampler.ends_with_space else problem

    def new_proposer(self) -> Proposer:
        """The sampler's, or one that also proposes from priors and earlier experiments if there are some."""
        problem = self.scored_problem
        proposer = self.chosen_sampler.sampler.proposer(problem, self.seed)
        if self.sampler.uses_priors(self.problem):
            proposer = PriorProposer(proposer, problem, self.seed)
        return WarmStartProposer(proposer, problem, self.seed) if self.weighs_warm_starts else proposer


class StudyView:
    """An in-memory view of a study's history, which is updated with changes instead of being rebuilt.

    It proposes what `propose` returns for the current history, in whatever order the updates came. Not thread-safe.
    `scores_curves`: it learns from the rungs of observations, also of running trials.
    What a sampler raises is an Exception: `SystemExit` becomes PluginExited.
    """

    @exits_as_errors()
    def __init__(self, study: Study, history: Iterable[Observation] = ()) -> None:
        chosen = study.chosen_sampler
        self._sampler = chosen.sampler
        self.scores_curves = study.scored_problem.curve_score
        self._proposer = study.new_proposer()
        self._distinct = None
        if study.is_distinct:
            space, ends_with_space = study.problem.space, chosen.ends_with_space
            self._distinct = DistinctProposals(space, study.seed, ends_with_space=ends_with_space)
        self._checked_space = study.problem.space if chosen.name in sampler_plugins().kinds else None
        self.update(history)

    @exits_as_errors()
    def update(self, changes: Iterable[Observation]) -> None:
        """Add new trials and replace known ones; the last observation of a trial number counts."""
        for observation in changes:
            self._proposer.learn(observation)
            if self._distinct is not None:
                self._distinct.learn(observation)

    @exits_as_errors()
    def propose(self, changes: Iterable[Observation], number: int) -> Params:
        """Apply the changes and return the params of trial `number`. Raises SpaceExhausted."""
        self.update(changes)
        params = self._proposer.propose(number)
        if self._checked_space is not None and (mistakes := self._checked_space.mistakes_in(params)):
            raise ValueError(f"the sampler's proposal is not in the space: {'; '.join(map(str, mistakes))}")
        return params if self._distinct is None else self._distinct.instead_of(params, number)

    @exits_as_errors()
    def import_library(self) -> None:
        """Import what later proposals need, which may take seconds."""
        self._sampler.import_library()

    @exits_as_errors()
    def source(self, number: int) -> Source:
        """What the proposal of trial `number` comes from; a model, if the sampler does not tell."""
        return source_of(self._proposer, number)

    def estimate(self, number: int, params: Params) -> dict[str, Any] | None:
        """What the sampler's model expects of the newest proposal, `params` of trial `number`: an `Estimate` as JSON.

        None if it does not tell, or the proposal is not its own. Never raises.
        """
        return estimate_as_json(self._proposer, number, params)

    def contribution(self, number: int) -> Contribution:
        """What earlier experiments have to do with the proposal of trial `number`."""
        return self._proposer.contribution(number) if isinstance(self._proposer, WarmStartProposer) else Contribution()


def propose(study: Study, history: Iterable[Observation], number: int) -> Params:
    """The params of trial `number`: a pure function, which gives the same answer in any process.

    The order of the history does not matter. The random numbers are derived from (seed, number), so a search that is
    rebuilt after a restart continues unchanged. Raises SpaceExhausted when no configuration is left.
    """
    return StudyView(study, history).propose([], number)
