"""How an experiment names its sampler: `{sampler: tpe, seed: 7, options: {}}`."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, Self

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from search.json_types import JsonModel
from search.mistakes import Mistake, listed, parse, refuse
from search.names_elsewhere import SAMPLERS as SAMPLERS_ELSEWHERE
from search.names_elsewhere import called_here, unknown_name
from search.plugins import PluginFailed, is_accepted, plugin_failures
from search.problem import Problem, SpaceExhausted
from search.samplers.registry import SAMPLERS, own_samplers_in_words, sampler_plugins
from search.samplers.sampler import ChosenSampler, LibraryMissing, Proposer, Sampler, source_of

_PATH = ("search", "sampler")
log = logging.getLogger(__name__)


class Missing(Sampler):
    """Stands for a sampler of another package that has been removed, or has other options, since its experiment began.

    Everything but a proposal still works. The experiment waits, because the package may come back.
    """

    name: str
    why: str

    @property
    def lacking(self) -> str:
        return f"cannot be used: {self.why}"

    def proposer(self, problem: Problem, seed: int) -> Proposer:  # noqa: ARG002
        raise LibraryMissing(f"{self.name} {self.lacking}")


class SamplerSpec(JsonModel):
    """`options` are the sampler's own, with Optuna's names. Without a seed the service derives one.

    `warm_start` names earlier experiments, from which some proposals come as far as they predict the trials' ranks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: str = Field(default="tpe", description=own_samplers_in_words())
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    """the same seed and history give the same proposals; absent: from the experiment's id"""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """the sampler's options, with Optuna's names"""
    warm_start: tuple[str, ...] = Field(default=(), max_length=20)
    """names or ids of earlier experiments, from whose trials the search learns"""
    repeats: bool = False
    """whether a configuration may be proposed again before all of them have been tried"""
    curve_score: bool | None = None
    """whether trials rank by their learning curves as far as they got; absent: as the sampler's documentation says"""

    @model_validator(mode="after")
    def _sampler_and_options_exist(self, validation: ValidationInfo) -> Self:
        if not is_accepted("search", validation):
            refuse(type(self).__name__, self._mistakes(), self.model_dump())
        return self

    def chosen_for(self, problem: Problem) -> ChosenSampler:
        """The sampler with its options; for `auto` the sampler that it chooses, with the reason."""
        sampler, chosen = self._sampler(), None
        is_warm = problem.warm_started or bool(self.warm_start)
        problem = replace(problem, warm_started=is_warm, repeats=self.repeats)
        with suppress(PluginFailed), self._failures():  # the warnings say what it raises
            chosen = sampler.chooses(problem)
        return chosen or ChosenSampler(self.sampler, sampler)

    def uses_curve_score(self, problem: Problem) -> bool:
        """As the specification says, or else as suits the sampler, if the problem has curve scores."""
        if self.curve_score is not None:
            return problem.has_curve_score and self.curve_score
        sampler, is_wanted = self.chosen_for(problem).sampler, False
        with suppress(PluginFailed), self._failures():  # the warnings say what it raises
            is_wanted = sampler.gains_by_curve_score(problem)
        return problem.has_curve_score and is_wanted

    def uses_priors(self, problem: Problem) -> bool:
        """Whether some proposals come from the parameters' priors."""
        return bool(problem.space.prior_values) and self._why_no_priors(problem) is None

    def weighs_warm_starts(self, problem: Problem) -> bool:
        """Whether some proposals come from earlier experiments, as far as these have predicted the ranks of trials."""
        sampler = self.chosen_for(problem).sampler
        return bool(self.warm_start) and sampler.learns and sampler.takes_priors

    def learns_from_partial_params(self, problem: Problem) -> bool:
        """Whether a trial of an earlier experiment counts although some of its parameters are not known."""
        return self.weighs_warm_starts(problem) or self.chosen_for(problem).sampler.learns_from_partial_params

    def mistakes_with(self, problem: Problem, *, accepted: bool = False) -> list[Mistake]:
        """Why the sampler does not suit the problem, at paths from the experiment's spec; empty if it does.

        `accepted`: it is an experiment's already. That another package's raises now keeps nothing from changing.
        """
        sampler = self._sampler()
        unsupported = [
            Mistake(_PATH, f"{self.sampler} does not support {feature}; these samplers do: {_able(problem)}")
            for feature in problem.features()
            if feature in sampler.unsupported
        ]
        if not self._is_plugin:
            return unsupported + sampler.mistakes_with(problem)
        try:
            with self._failures():
                return unsupported or self._mistakes_of_plugin(problem, sampler)
        except PluginFailed as error:
            log.exception("the sampler %s failed", self.sampler)
            return [] if accepted else [Mistake(_PATH, str(error))]

    def _mistakes_of_plugin(self, problem: Problem, sampler: Sampler) -> list[Mistake]:
        """Lists what is wrong with its first proposal, too. Raises what the sampler raises."""
        if isinstance(sampler, Missing):  # was accepted with these options, and the package has changed since
            return []
        try:
            mistakes = sampler.mistakes_with(problem)
            if mistakes:
                return mistakes
            _call_hooks(sampler, problem)
            proposer = sampler.proposer(problem, self.seed or 0)
            params = proposer.propose(0)
            source_of(proposer, 0)
            return [Mistake(_PATH, f"{self.sampler} proposes {one}") for one in problem.space.mistakes_in(params)]
        except SpaceExhausted:
            return []

    def warnings_with(self, problem: Problem) -> list[Mistake]:
        """What the sampler does not learn from although the problem has it, at paths from the experiment's spec.

        Of another package's, also what its hooks raise: this is shown in lists of all experiments.
        """
        chosen = self.chosen_for(problem)
        if isinstance(chosen.sampler, Missing):
            why = f"{chosen.name} {chosen.sampler.lacking}"
            return [Mistake(_PATH, f"{why}; until the service can use it, no trial is proposed")]
        try:
            with self._failures():
                if self._is_plugin:
                    _call_hooks(chosen.sampler, problem)
                return list(self._warnings_with(problem, chosen))
        except PluginFailed as error:
            return [Mistake(_PATH, str(error))]

    def _warnings_with(self, problem: Problem, chosen: ChosenSampler) -> Iterator[Mistake]:
        name, sampler = chosen.name, chosen.sampler
        by_values = not self.uses_curve_score(problem)
        yield from sampler.warnings_with(replace(problem, curve_score=not by_values))
        if self.warm_start and not sampler.learns:
            message = f"has no effect on what {name} proposes: it does not learn from trials"
            yield Mistake(("search", "warm_start"), message)
        blind = [feature for feature in problem.features() if feature in sampler.drawn_at_random]
        if blind:
            at_random = dict.fromkeys(one for feature in blind for one in problem.parameters_with(feature))
            message = f"{name} learns nothing about {' and '.join(blind)}, and draws {listed(at_random)} at random"
            yield Mistake(_PATH, f"{message}; tpe learns about them")
        if self.curve_score and (why := _why_no_curve_score(problem, sampler)):
            yield Mistake(("search", "curve_score"), f"has no effect: {why}")
        would_use_it = self.curve_score is None and problem.prunes and sampler.gains_by_curve_score(problem)
        if would_use_it and len(problem.directions) > 1:
            message = "is not used with several objectives: a trial that early stopping ends ranks after completed ones"
            yield Mistake(("search", "curve_score"), message)
        if (priors := problem.space.prior_values) and (why := self._why_no_priors(problem)):
            for parameter in priors:
                yield Mistake(("space", parameter, "prior"), f"has no effect: {why}")
        elif priors and (index := problem.space.forbids(priors)) is not None:
            message = "forbids the configuration that the priors name, so it is never proposed"
            yield Mistake(("forbid", index), message)
        if by_values and problem.prunes and not problem.population and not sampler.learns_from_pruned_trials:
            message = f"{name} learns from completed trials only, not from those that early stopping ends; tpe does"
            yield Mistake(_PATH, message)

    def _why_no_priors(self, problem: Problem) -> str | None:
        if len(problem.directions) > 1:
            return "priors are used with one objective only"
        if problem.population:
            return "all trials of a population start before any of them ends"
        chosen = self.chosen_for(problem)
        if not chosen.sampler.takes_priors:
            others = listed(name for name, kind in SAMPLERS.items() if kind.takes_priors)
            return f"{chosen.name} proposes from a list of its own; priors are used by {others}"
        return None

    @property
    def _is_plugin(self) -> bool:
        return self.sampler in sampler_plugins().kinds

    def _failures(self) -> AbstractContextManager[None]:
        return plugin_failures(self.sampler, is_plugin=self._is_plugin)

    def _sampler(self) -> Sampler:
        try:
            with self._failures():
                return SAMPLERS[self.sampler].model_validate(self.options)
        except (PluginFailed, KeyError, ValidationError):  # the latter two are of a stored spec
            return Missing(name=self.sampler, why="; ".join(map(str, self._mistakes())))

    def _mistakes(self) -> list[Mistake]:
        if self.sampler not in SAMPLERS:
            if self.sampler in sampler_plugins().broken:
                return [Mistake(("sampler",), sampler_plugins().broken[self.sampler])]
            unknown = unknown_name("sampler", self.sampler, SAMPLERS_ELSEWHERE, [*SAMPLERS])
            return [Mistake(("sampler",), unknown)]
        try:
            with self._failures():
                return self._mistakes_of(SAMPLERS[self.sampler])
        except PluginFailed as error:
            return [Mistake(("sampler",), str(error))]

    def _mistakes_of(self, kind: type[Sampler]) -> list[Mistake]:
        _, mistakes = parse(TypeAdapter[Any](kind), self.options)
        found = [self._with_known_options(mistake, kind).under("options") for mistake in mistakes]
        if missing := kind.missing():
            advice = "use tpe or auto, or have the library installed where the service runs"
            found.append(Mistake(("sampler",), f"{self.sampler} {missing}: {advice}"))
        return found

    def _with_known_options(self, mistake: Mistake, kind: type[Sampler]) -> Mistake:
        """An unknown option's mistake, which lists the sampler's options; any other as it is."""
        if len(mistake.path) != 1 or mistake.path[0] in kind.model_fields:
            return mistake
        options = listed(kind.model_fields) or "none"
        return Mistake(mistake.path, f"unknown option; the options of {self.sampler}: {options}")


def _able(problem: Problem) -> str:
    """The samplers that support all features of the problem."""
    features = frozenset(problem.features())
    return listed(name for name, kind in SAMPLERS.items() if not features & kind.unsupported)


def _call_hooks(sampler: Sampler, problem: Problem) -> None:
    """Raises what one of them raises. Those that propose are not called."""
    sampler.chooses(problem)
    sampler.gains_by_curve_score(problem)
    sampler.startup_count(problem)
    bool(sampler.learns_from_pruned_trials)
    sampler.missing()
    sampler.model_dump(mode="json")


def sampler_meant(name: str) -> str | None:
    """The sampler that a name of another tuner means; None if it is not known."""
    return called_here(name, SAMPLERS_ELSEWHERE, [*SAMPLERS])


def _why_no_curve_score(problem: Problem, sampler: Sampler) -> str | None:
    if not sampler.learns:
        return "the sampler does not learn from trials"
    if not problem.prunes:
        return "without early stopping trials rank by their values"
    if problem.population:
        return "the params of a population's trials change while they train"
    return None if problem.has_curve_score else "with several objectives trials rank by their values"
