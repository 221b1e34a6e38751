"""The sampler `auto`: chooses a sampler for the experiment and gives the reason."""

import math
from dataclasses import replace

from search.mistakes import listed
from search.numbers_in_messages import counted
from search.problem import Feature, Problem
from search.samplers.brute_force import BruteForce, BruteForceAnew
from search.samplers.cmaes import Cmaes
from search.samplers.gp import Gp, models_curves
from search.samplers.gp_and_tpe import FIRST_TURN, MAX_GP_TRIALS, GpAndTpe
from search.samplers.nsga import Nsga2, Nsga3
from search.samplers.qmc import Qmc
from search.samplers.sampler import ChosenSampler, Proposer, Sampler
from search.samplers.tpe import Tpe

MAX_GP_PARALLELISM = 8
MAX_GP_TRIALS_OF_TWO_OBJECTIVES = 100
"""On one thread a proposal takes 0.3 to 1.5 s then. With more of them, they are soon one for the model."""
MIN_EVOLUTION_TRIALS = 2000
"""With this many trials generations have time to evolve, and models become slow."""
MAX_TRIED_CONFIGURATIONS = 100
"""A space of so many is tried as a whole also where it is not known how many trials there will be."""
MAX_BRUTE_FORCE = 10
"""In a space of so many configurations, a model has seen most of them when it starts."""
MIN_CMAES_PARAMETERS = 5
MAX_NSGA2_OBJECTIVES = 3
"""With more objectives, crowding distances no longer distinguish trials."""


class Auto(Sampler):
    """Decides by the space, the objectives, early stopping, the budget and the parallelism."""

    def chooses(self, problem: Problem) -> ChosenSampler:
        """Equal problems always get the same sampler."""
        tried = _tried_configurations(problem)
        if tried is not None and tried <= MAX_BRUTE_FORCE:
            reason = f"the space has {counted(tried, 'configuration')}: {_trials_in_words(problem)} can try them all"
            sampler = BruteForceAnew() if problem.warm_started else BruteForce()
            return ChosenSampler("brute_force", sampler, reason)
        if problem.population and not problem.warm_started:
            reason = "all trials of a population start before any of them ends, and qmc spreads them evenly"
            return ChosenSampler("qmc", Qmc(scramble=True), reason)
        problem = replace(problem, population=False)  # its trials start together, but a model has the earlier ones
        chosen = _model_for(problem, tried)
        if tried is None:
            return chosen
        end = f"the search ends when all {counted(tried, 'configuration')} of the space have been tried"
        return replace(chosen, reason=f"{chosen.reason}; {end}", ends_with_space=True)

    def proposer(self, problem: Problem, seed: int) -> Proposer:
        return self.chooses(problem).sampler.proposer(problem, seed)


def _tried_configurations(problem: Problem) -> int | None:
    """The number of configurations if the trials are enough for all of them, each once; else None.

    Any number of trials are, if nothing else ends the search. With another limit, which is probably meant to end it,
    they are enough for a small space.
    """
    is_only_end = problem.max_trials is None and not problem.other_limits
    if problem.population or (problem.repeats and not is_only_end):
        return None
    size = problem.space.size()
    most = MAX_TRIED_CONFIGURATIONS if problem.max_trials is None else problem.max_trials
    return size if size is not None and (is_only_end or size <= most) else None


def _model_for(problem: Problem, tried: int | None) -> ChosenSampler:
    choose = _for_one_objective if len(problem.directions) == 1 else _for_several_objectives
    bounded, ending = (problem, "budget") if tried is None else (replace(problem, max_trials=tried), "space")
    max_trials = math.inf if bounded.max_trials is None else bounded.max_trials
    chosen = choose(problem, frozenset(problem.features()), max_trials, _budget_in_words(problem, tried))
    return _unless_random(chosen, bounded, max_trials, ending)


def _budget_in_words(problem: Problem, tried: int | None) -> str:
    if tried is None:
        budget, is_cut_short = _trials_in_words(problem), _may_be_cut_short(problem)
    else:
        budget = f"a space of {counted(tried, 'configuration')}"
        is_cut_short = tried >= MIN_EVOLUTION_TRIALS and bool(problem.other_limits)
    return f"{budget} that {_other_limits_in_words(problem)} may cut short" if is_cut_short else budget


def _other_limits_in_words(problem: Problem) -> str:
    *others, last = problem.other_limits
    return f"{listed(others)} or {last}" if others else last


def _trials_in_words(problem: Problem) -> str:
    if problem.max_trials is not None:
        return f"a budget of {counted(problem.max_trials, 'trial')}"
    if not problem.other_limits:
        return "a budget without a limit"
    return f"a budget of trials that only {_other_limits_in_words(problem)} limits"


def _may_be_cut_short(problem: Problem) -> bool:
    """Whether the trials are enough for generations to evolve, but another limit may end the search long before."""
    return (problem.max_trials or 0) >= MIN_EVOLUTION_TRIALS and bool(problem.other_limits)


def _unless_random(chosen: ChosenSampler, problem: Problem, max_trials: float, ending: str) -> ChosenSampler:
    """Adds to the reason where the budget or space ends before the sampler's model starts: it is a random search."""
    needed = chosen.sampler.startup_count(problem)
    running = 0 if problem.prunes else problem.parallelism - 1
    if max_trials > needed + running:
        return chosen
    start = f"{counted(needed, 'trial')} {'has' if needed == 1 else 'have'} ended"
    learns = f"its model starts when {start}, so within this {ending} it is not used"
    return replace(chosen, reason=f"{chosen.reason}; but {learns}")


def _for_one_objective(problem: Problem, features: frozenset[Feature], max_trials: float, budget: str) -> ChosenSampler:
    parallelism, count = problem.parallelism, len(problem.space.root)
    has_conditions = Feature.CONDITIONS in features
    lets_generations_evolve = max_trials >= MIN_EVOLUTION_TRIALS and not problem.other_limits
    # Without a limit, a search usually ends after some time.
    runs_short = not lets_generations_evolve or problem.max_trials is None
    gp_learns_most = models_curves(problem) if problem.prunes else runs_short
    is_measured = not has_conditions or not (problem.prunes or problem.constrained)
    if gp_learns_most and is_measured and _suits_gp(problem):
        return _gp_and_tpe_if_installed(problem, max_trials, budget)
    if has_conditions:
        return ChosenSampler("tpe", Tpe(group=True), "the space has conditions, and tpe models each of its branches")
    if problem.prunes:
        return ChosenSampler("tpe", Tpe(), "early stopping may end trials, and tpe learns from stopped trials too")
    if lets_generations_evolve and not features and count >= MIN_CMAES_PARAMETERS:
        reason = f"{budget} lets cmaes learn how {count} numeric parameters depend on each other"
        return ChosenSampler("cmaes", Cmaes(), reason)
    reason = f"tpe suits any space, {budget} and a parallelism of {parallelism}"
    return ChosenSampler("tpe", Tpe(), reason)


def _suits_gp(problem: Problem) -> bool:
    return problem.parallelism <= MAX_GP_PARALLELISM and not Gp().mistakes_with(problem)


def _both_small(problem: Problem, budget: str) -> str:
    return f"{budget} and a parallelism of {problem.parallelism} are small enough for gp"


def _gp_if_installed(small: str, why: str, sampler: Gp | None = None, *, tpe: Tpe | None = None) -> ChosenSampler:
    if missing := Gp.missing():
        return ChosenSampler("tpe", tpe or Tpe(), f"{small}, but it {missing}; tpe suits any space")
    return ChosenSampler("gp", sampler or Gp(), f"{small}, which {why}")


def _gp_and_tpe_if_installed(problem: Problem, max_trials: float, budget: str) -> ChosenSampler:
    why = "learns most from each trial"
    if problem.prunes:
        why += ", including trials that are stopped early"
    if max_trials > FIRST_TURN:
        why += f"; from trial {FIRST_TURN} on every third proposal is tpe's, in case gp stays at a local optimum"
    if max_trials > MAX_GP_TRIALS:
        why += f", and so are all after {MAX_GP_TRIALS} trials, because those of gp take longer with every trial"
    small, sampler = f"a parallelism of {problem.parallelism} is small enough for gp", GpAndTpe()
    if _may_be_cut_short(problem) and not problem.prunes:
        small = f"with {budget}, {small}"
    return _gp_if_installed(small, why, sampler, tpe=sampler.tpe_for(problem))


def _for_several_objectives(
    problem: Problem, features: frozenset[Feature], max_trials: float, budget: str
) -> ChosenSampler:
    count = len(problem.directions)
    if Feature.CONDITIONS in features:
        return ChosenSampler("tpe", Tpe(group=True), f"tpe supports {count} objectives and conditions")
    most = MAX_GP_TRIALS_OF_TWO_OBJECTIVES if count == 2 else MAX_GP_TRIALS  # noqa: PLR2004
    if not problem.prunes and max_trials <= most and _suits_gp(problem):
        return _gp_if_installed(_both_small(problem, budget), "learns most of the trade-off from each trial")
    if max_trials < MIN_EVOLUTION_TRIALS or problem.other_limits:
        is_small = "is" if max_trials < MIN_EVOLUTION_TRIALS else "may be"
        reason = f"{budget} {is_small} too small for generations to evolve with {count} objectives"
        return ChosenSampler("tpe", Tpe(), reason)
    if count <= MAX_NSGA2_OBJECTIVES:
        return ChosenSampler("nsga2", Nsga2(), f"{budget} lets generations evolve, and there are {count} objectives")
    reason = f"{budget} lets generations evolve, and {count} objectives need reference points"
    return ChosenSampler("nsga3", Nsga3(), reason)
