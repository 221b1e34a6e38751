"""How an experiment names its sampler: `{sampler: tpe, seed: 7, options: {}}`."""

from dataclasses import replace
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, model_validator

from search.mistakes import Mistake, listed, parse, refuse
from search.problem import Problem
from search.samplers.auto import Auto, ChosenSampler
from search.samplers.registry import SAMPLERS
from search.samplers.sampler import Sampler


class SamplerSpec(BaseModel):
    """`options` are the sampler's own, with Optuna's names. Without a seed the service derives one.

    `warm_start` names earlier experiments: the sampler learns from their trials before the first trial.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: str = "tpe"
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    options: dict[str, JsonValue] = Field(default_factory=dict)
    warm_start: tuple[str, ...] = Field(default=(), max_length=20)

    @model_validator(mode="after")
    def _sampler_and_options_exist(self) -> Self:
        refuse(type(self).__name__, self._mistakes(), self.model_dump())
        return self

    def chosen_for(self, problem: Problem) -> ChosenSampler:
        """The sampler with its options; for `auto` the sampler that it chooses, with the reason."""
        sampler = self._sampler()
        if self.warm_start:
            problem = replace(problem, population=False)  # the sampler has trials to learn from
        return sampler.choose(problem) if isinstance(sampler, Auto) else ChosenSampler(self.sampler, sampler)

    def mistakes_with(self, problem: Problem) -> list[Mistake]:
        """Why the sampler does not suit the problem, at paths from the experiment's spec; empty if it does."""
        features = frozenset(problem.features())
        able = listed(name for name, kind in SAMPLERS.items() if not features & kind.unsupported)
        sampler = self._sampler()
        return [
            Mistake(("search", "sampler"), f"{self.sampler} does not support {feature}; these samplers do: {able}")
            for feature in problem.features()
            if feature in sampler.unsupported
        ] + sampler.mistakes_with(problem)

    def _sampler(self) -> Sampler:
        return SAMPLERS[self.sampler].model_validate(self.options)

    def _mistakes(self) -> list[Mistake]:
        if self.sampler not in SAMPLERS:
            return [Mistake(("sampler",), f"unknown sampler '{self.sampler}'; available: {listed(SAMPLERS)}")]
        kind = SAMPLERS[self.sampler]
        _, mistakes = parse(TypeAdapter[Any](kind), self.options)
        return [self._with_known_options(mistake, kind).under("options") for mistake in mistakes]

    def _with_known_options(self, mistake: Mistake, kind: type[Sampler]) -> Mistake:
        """An unknown option's mistake, which lists the sampler's options; any other as it is."""
        if len(mistake.path) != 1 or mistake.path[0] in kind.model_fields:
            return mistake
        options = listed(kind.model_fields) or "none"
        return Mistake(mistake.path, f"unknown option; the options of {self.sampler}: {options}")
