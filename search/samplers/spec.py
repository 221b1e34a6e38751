"""How an experiment names its sampler: `{sampler: tpe, seed: 7, options: {}}`."""

from dataclasses import replace
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, model_validator

from search.mistakes import Mistake, listed, parse, refuse
from search.problem import Setting
from search.samplers.auto import Auto, Choice
from search.samplers.base import Sampler
from search.samplers.registry import SAMPLERS


class SamplerSpec(BaseModel):
    """`options` are the sampler's own, with Optuna's names; without a seed the service draws one.

    `warm_start` names earlier experiments, from whose trials it learns before the first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: str = "tpe"
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    options: dict[str, JsonValue] = Field(default_factory=dict)
    warm_start: tuple[str, ...] = Field(default=(), max_length=20)

    @model_validator(mode="after")
    def _known(self) -> Self:
        refuse(type(self).__name__, self._mistakes(), self.model_dump())
        return self

    def chosen(self, setting: Setting) -> Choice:
        """The sampler with its options; for `auto` what it takes, and why."""
        sampler = self._sampler()
        if self.warm_start:
            setting = replace(setting, population=False)  # there is something to learn from
        return sampler.choice(setting) if isinstance(sampler, Auto) else Choice(self.sampler, sampler)

    def unsuited(self, setting: Setting) -> list[Mistake]:
        """What the sampler cannot do for this experiment, at paths from the experiment's spec; empty if it can all."""
        needs = frozenset(setting.needs())
        able = listed(name for name, kind in SAMPLERS.items() if not needs & kind.cannot)
        sampler = self._sampler()
        return [
            Mistake(("search", "sampler"), f"{self.sampler} does not search with {need}; those that can: {able}")
            for need in setting.needs()
            if need in sampler.cannot
        ] + sampler.unsuited(setting)

    def _sampler(self) -> Sampler:
        return SAMPLERS[self.sampler].model_validate(self.options)

    def _mistakes(self) -> list[Mistake]:
        if self.sampler not in SAMPLERS:
            return [Mistake(("sampler",), f"unknown sampler '{self.sampler}'; available: {listed(SAMPLERS)}")]
        kind = SAMPLERS[self.sampler]
        _, mistakes = parse(TypeAdapter[Any](kind), self.options)
        return [self._explained(mistake, kind).under("options") for mistake in mistakes]

    def _explained(self, mistake: Mistake, kind: type[Sampler]) -> Mistake:
        if len(mistake.path) != 1 or mistake.path[0] in kind.model_fields:
            return mistake
        takes = listed(kind.model_fields) or "none"
        return Mistake(mistake.path, f"unknown option; the options of {self.sampler}: {takes}")
